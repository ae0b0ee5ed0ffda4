"""The outcome as plain tables, as a JSON file and as a page of the documentation."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from .compare import AIM, TOLERANCE, WELL_CONDITIONED, Accuracy, Comparison, Difference, Scan
from .problems import SCAN

NAMES = {"srgp": "srgp", "gpflow": "GPflow", "gpy": "GPy", "sklearn": "scikit-learn"}
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass
class Outcome:
    """All that was found."""

    comparisons: list[Comparison] = field(default_factory=list)
    accuracies: list[Accuracy] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    @property
    def excesses(self) -> list[Comparison]:
        """The well-conditioned comparisons beyond the tolerance."""
        return [c for c in self.comparisons if c.counts and c.difference.worst > TOLERANCE]

    @property
    def passed(self) -> bool:
        """Nothing compared is no success."""
        return bool(self.comparisons) and not self.excesses and not self.failed


def _number(value: float) -> str:
    return "0" if value == 0.0 else f"{value:.1e}"


def _differences(d: Difference) -> list[str]:
    return [_number(value) for value in (d.bound, d.mean, d.var)]


def comparison_table(outcome: Outcome) -> Table:
    names = ("peer", "model", "srgp", "kernel", "data", "cond(K)")
    header = (*names, "bound", "mean", "variance", "jitter", "srgp jitter")
    rows = [
        [
            *(NAMES[c.peer], c.model, c.method, c.kernel, c.data, f"{c.condition:.0e}"),
            *_differences(c.difference),
            *(_number(c.jitter), _number(c.our_jitter)),
        ]
        for c in outcome.comparisons
    ]
    return header, rows


def accuracy_table(outcome: Outcome, singular: bool) -> Table:
    rows = [
        [NAMES[a.solver], a.model, *_differences(a.difference)]
        for a in outcome.accuracies
        if a.singular == singular
    ]
    return ("library", "model", "bound", "mean", "variance"), rows


def scan_table(outcome: Outcome) -> Table:
    header = ("peer", "model", "data", *(_number(jitter) for jitter in SCAN))
    rows = [
        [
            *(NAMES[s.peer], s.model, s.data),
            *(_number(d) for d in s.differences),
            *(f"{s.growth:.1f}x", _number(s.unexplained)),
        ]
        for s in outcome.scans
    ]
    return (*header, "growth", "unexplained"), rows


def plain(table: Table) -> str:
    """Aligned columns."""
    header, rows = table
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in (header, *rows))
    return "\n".join(lines)


def markdown(table: Table) -> str:
    header, rows = table
    lines = (header, ["---"] * len(header), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(outcome: Outcome) -> str:
    """One sentence a fact."""
    counting = [c for c in outcome.comparisons if c.counts]
    sentences = _agreement(counting) if counting else ["Nothing was compared."]
    if outcome.excesses:
        sentences.append(f"{len(outcome.excesses)} exceed {TOLERANCE:.0e}: the check fails.")
    sentences += [f"Skipped, since it could not be installed: {NAMES[p]}." for p in outcome.skipped]
    sentences += [f"Did not run to the end: {NAMES[p]}." for p in outcome.failed]
    return " ".join(sentences)


def _agreement(comparisons: list[Comparison]) -> list[str]:
    worst = max(comparisons, key=lambda c: c.difference.worst)
    within = sum(c.difference.worst <= AIM for c in comparisons)
    return [
        f"{within} of {len(comparisons)} well-conditioned comparisons agree to {AIM:.0e} in the "
        f"bound, the mean and the variance.",
        f"The largest difference is {_number(worst.difference.worst)} ({NAMES[worst.peer]} "
        f"{worst.model} with {worst.method}, {worst.kernel}, {worst.data}).",
    ]


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def machine() -> str:
    cores = os.cpu_count()
    return f"{_cpu()}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def own_versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("srgp", "jax", "numpy", "mpmath")}


def write_json(outcome: Outcome, path: Path) -> None:
    content: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "passed": outcome.passed,
        "aim": AIM,
        "tolerance": TOLERANCE,
        "jitters": SCAN,
        **asdict(outcome),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def _version_table(outcome: Outcome) -> Table:
    rows = [
        [NAMES[solver], ", ".join(f"{name} {version}" for name, version in versions.items())]
        for solver, versions in outcome.versions.items()
    ]
    return ("environment", "versions"), rows


def write_page(outcome: Outcome, template: Path, path: Path) -> None:
    """The page of the documentation: fixed words around the tables of this run."""
    text = template.read_text()
    values = {
        "summary": summary(outcome),
        "aim": f"{AIM:.0e}",
        "tolerance": f"{TOLERANCE:.0e}",
        "well": f"{WELL_CONDITIONED:.0e}",
        "comparisons": markdown(comparison_table(outcome)),
        "accuracy": markdown(accuracy_table(outcome, singular=False)),
        "singular": markdown(accuracy_table(outcome, singular=True)),
        "scans": markdown(scan_table(outcome)),
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": markdown(_version_table(outcome)),
    }
    for name, value in values.items():
        text = text.replace(f"{{{{ {name} }}}}", value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
