"""A folder for an experiment: what was computed stays, so that it goes on where it stopped."""

import csv
import datetime
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Results:
    """Runs as files, one each; tables and pictures made of them; the settings beside.

    A folder with other settings is refused: its runs would answer another question.

    >>> import tempfile
    >>> from srgp.experiments.results import Results
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = Results(folder, {"rows": 100})
    ...     first = results.run("seed 0", lambda: {"bound": 1.0})
    ...     results.run("seed 0", lambda: {"bound": 2.0})  # known already
    {'bound': 1.0}
    """

    def __init__(
        self,
        folder: str | Path,
        settings: Mapping[str, Any],
        tell: Callable[[str], Any] = lambda text: None,
    ) -> None:
        self.folder, self.tell = Path(folder), tell
        self.runs = self.folder / "runs"
        self.runs.mkdir(parents=True, exist_ok=True)
        told = json.loads(json.dumps(dict(settings), default=_plain))
        file = self.folder / "settings.json"
        known = json.loads(file.read_text()) if file.exists() else None
        # Each repetition is a run of its own: there may be more of them, or fewer.
        if known and known["settings"] | {"repetitions": 0} != told | {"repetitions": 0}:
            raise ValueError(
                f"{self.folder} holds results of other settings: choose another --output, or "
                "remove it."
            )
        _write(file, {"settings": told, "machines": self.machines()})

    def run(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a run, from its file if there is one."""
        file = self._file(name, "json")
        if not file.exists():
            self.tell(name)
            # Long experiments are spread over days: every run tells where and when it was made.
            _write(file, {"machine": machine(), "result": compute()})
            shutil.rmtree(self.checkpoint(name), ignore_errors=True)
        return dict(json.loads(file.read_text())["result"])

    def machines(self) -> list[dict[str, Any]]:
        """Where and when the runs were made, by date, each once; here and now without runs."""
        found = [json.loads(file.read_text())["machine"] for file in self.runs.glob("*.json")]
        each = {json.dumps(m, sort_keys=True): m for m in found}
        return [each[key] for key in sorted(each, key=lambda key: (each[key]["date"], key))] or [
            machine()
        ]

    def checkpoint(self, name: str) -> Path:
        """Where a long run may keep its steps."""
        return self._file(name, "steps")

    def table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
        """Rows of the same keys as CSV and as Markdown, which is given back."""
        columns = list(rows[0])
        with (self.folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        lines = [columns, ["---"] * len(columns)]
        lines += [[_readable(row[column]) for column in columns] for row in rows]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
        (self.folder / f"{name}.md").write_text(text)
        return text

    def picture(self, figure: "Figure", name: str) -> Path:
        """Write a figure; gives the file."""
        path = self.folder / f"{name}.png"
        figure.savefig(path, dpi=150)
        return path

    def summary(self, title: str, table: str, remark: str = "") -> None:
        """README.md: the table, the pictures, the settings, where and when."""
        known = json.loads((self.folder / "settings.json").read_text())
        _write(self.folder / "settings.json", known | {"machines": self.machines()})
        pictures = [f"![{p.stem}]({p.name})" for p in sorted(self.folder.glob("*.png"))]
        settings = ", ".join(f"{name} = {value}" for name, value in known["settings"].items())
        where = "; ".join(
            ", ".join(f"{name} {value}" for name, value in m.items()) for m in self.machines()
        )
        parts = [f"# {title}", remark, table, *pictures, f"Settings: {settings}.", f"On {where}."]
        text = "\n\n".join(part.strip() for part in parts if part)
        (self.folder / "README.md").write_text(text + "\n")

    def _file(self, name: str, kind: str) -> Path:
        return self.runs / f"{re.sub(r'[^A-Za-z0-9.=-]+', '_', name)}.{kind}"


def machine() -> dict[str, Any]:
    """Where and when something was computed."""
    processor = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line for line in lines if line.startswith("model name")).split(": ")[1]
    except (OSError, StopIteration):
        pass
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": processor,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "jax": jax.__version__,
        "numpy": np.__version__,
        "srgp": version("srgp"),
    }


def _write(file: Path, content: Any) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1, default=_plain) + "\n")
    part.replace(file)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return repr(value)


def _readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return "–" if value is None else str(value)
