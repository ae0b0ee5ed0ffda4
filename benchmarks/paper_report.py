"""docs/paper.md from finished experiments: tables into benchmarks/results/paper, pictures beside.

    python -m benchmarks.paper_report results
    srgp reproduce all --full --peers benchmarks --data DATA --output results
    python -m benchmarks.paper_report results

Single runs are kept beside the tables, so that long experiments can be spread over many days: the
first call lays them into the folder, and experiments go on from there. Those that are not finished
are left as they are on the page.
"""

import json
import shutil
import sys
from pathlib import Path

from benchmarks.common import RESULTS
from benchmarks.scale_report import DOCS, fill
from srgp.experiments import PAPER

TABLES = RESULTS / "paper"


def exchange(results: Path) -> None:
    """Single runs, and the settings that they belong to, from each side to the other."""
    for name in PAPER:
        kept, used = TABLES / "runs" / name, results / f"{name}-full"
        for source, target in ((kept, used), (used, kept)):
            for file in (source / "settings.json", *sorted(source.glob("runs/*.json"))):
                copy = target / file.relative_to(source)
                if file.exists() and not copy.exists():
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, copy)


def collect(results: Path) -> None:
    """Copy tables, settings and pictures of finished experiments."""
    TABLES.mkdir(exist_ok=True)
    for name in PAPER:
        folder = results / f"{name}-full"
        if not (folder / "README.md").exists():
            continue
        for file in (folder / "settings.json", *folder.glob("*.csv"), *folder.glob("*.md")):
            if file.name != "README.md":
                suffix = file.name if file.stem != name else file.suffix[1:]
                shutil.copy(file, TABLES / f"{name}.{suffix}")
        for picture in folder.glob("*.png"):
            shutil.copy(picture, DOCS / "images" / f"paper-{picture.name}")


def section(name: str) -> str:
    """What was run, when and where, and the table."""
    known = json.loads((TABLES / f"{name}.settings.json").read_text())
    machines, told = known["machines"], known["settings"]
    dates = list(dict.fromkeys((machines[0]["date"], machines[-1]["date"])))
    where = dict.fromkeys(f"{m['processor']}, {m['cores']} cores" for m in machines)
    settings = ", ".join(
        f"{key} = {value:,}" if isinstance(value, int) else f"{key} = {value}"
        for key, value in told.items()
        if key not in ("experiment", "full")
    )
    table = (TABLES / f"{name}.md").read_text()
    return (
        f"`srgp reproduce {name} --full` ({' to '.join(dates)}, {' and '.join(where)}): "
        f"{settings}.\n\n{table}"
    )


def main() -> None:
    if len(sys.argv) > 1:
        exchange(Path(sys.argv[1]))
        collect(Path(sys.argv[1]))
    for name in PAPER:
        if (TABLES / f"{name}.settings.json").exists():
            fill(DOCS / "paper.md", name, section(name))


if __name__ == "__main__":
    main()
