"""Compare srgp with other libraries: python -m benchmarks.crosscheck, from the project's root."""

import argparse
import sys
import tempfile
from pathlib import Path

from . import environments, report
from .compare import Bench
from .environments import HERE, PeerError
from .problems import MODELS, comparisons, scans

ROOT = HERE.parent.parent
JSON = ROOT / "benchmarks" / "results" / "crosscheck.json"
PAGE = ROOT / "docs" / "validation.md"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crosscheck", description=__doc__)
    parser.add_argument("--peers", nargs="+", choices=MODELS, help="only these; writes no files")
    parser.add_argument("--rebuild", action="store_true", help="make the environments anew")
    return parser.parse_args()


def _check_peer(peer: str, bench: Bench, outcome: report.Outcome, folder: Path) -> None:
    """Run one peer and add what it shows to the outcome."""
    asked, scanned = list(comparisons(peer)), list(scans(peer))
    print(f"{peer}: solving {len(asked) + len(scanned)} problems", flush=True)
    solutions, outcome.versions[peer] = environments.solve(peer, [*asked, *scanned], folder)
    for p in asked:
        outcome.comparisons += bench.compare(peer, p, solutions[p.name])
    sparse = [p for p in asked if p.model != "GP"]
    outcome.accuracies += bench.accuracy(peer, sparse, solutions)
    outcome.scans += bench.scan(peer, scanned, solutions)


def _check_ourselves(bench: Bench, outcome: report.Outcome) -> None:
    """srgp against 60-digit arithmetic, on every sparse problem that any peer solves."""
    sparse = {p.name: p for peer in MODELS for p in comparisons(peer) if p.model != "GP"}
    print(f"srgp: solving {len(sparse)} problems, and again with 60 digits", flush=True)
    solutions = {name: bench.ours(p, p.model) for name, p in sparse.items()}
    outcome.versions["srgp"] = report.own_versions()
    outcome.accuracies += bench.accuracy("srgp", sparse.values(), solutions)


def _check(peers: list[str], rebuild: bool) -> report.Outcome:
    outcome, bench = report.Outcome(), Bench()
    _check_ourselves(bench, outcome)
    for peer in peers:
        try:
            environments.build(peer, rebuild=rebuild)
        except PeerError as error:
            print(f"{peer}: skipped, its environment cannot be built: {error}", file=sys.stderr)
            outcome.skipped.append(peer)
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                _check_peer(peer, bench, outcome, Path(folder))
            except PeerError as error:
                print(f"{peer}: {error}", file=sys.stderr)
                outcome.failed.append(peer)
    return outcome


def _print(outcome: report.Outcome) -> None:
    tables = {
        "Differences from srgp": report.comparison_table(outcome),
        "Largest errors against 60-digit arithmetic": report.accuracy_table(outcome, False),
        "The same where K_RR is singular": report.accuracy_table(outcome, True),
        "Relative difference of the bound against the peer's jitter": report.scan_table(outcome),
    }
    for title, table in tables.items():
        print(f"\n{title}\n\n{report.plain(table)}")
    print(f"\n{report.summary(outcome)}")


def main() -> int:
    """Exit code 0 where every well-conditioned comparison is within the tolerance, else 1."""
    arguments = _arguments()
    outcome = _check(arguments.peers or list(MODELS), arguments.rebuild)
    _print(outcome)
    if not arguments.peers:
        report.write_json(outcome, JSON)
        report.write_page(outcome, HERE / "validation.md.in", PAGE)
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
