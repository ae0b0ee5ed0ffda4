"""Learning from a stream so that every row counts once, whenever the process is killed.

The model file holds the places in all the streams that it has read, and is replaced as a whole.
Rows are learned in batches of a fixed number, so the sums do not depend on when they came or how
often the process started anew.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srgp.cli.piped import NAME, behind
from srgp.cli.places import Line, Place, Waiting
from srgp.cli.rejects import Rejects
from srgp.cli.tail import SUFFIXES, tail
from srgp.regressor import SparseGPRegressor
from srgp.sources import Arrays

STDIN = "-"
TELL = 10.0  # seconds between two lines about waiting, at least


class Followed(NamedTuple):
    """What a stream brought."""

    learned: int
    rejected: int
    batches: int


class Follower:
    """A model file and the stream that it learns from."""

    def __init__(
        self,
        model: Path,
        source: str,
        batch_rows: int,
        rejects: Path,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.path, self.batch_rows, self.tell = model, batch_rows, tell
        self._written = _identity(model)
        self.est = SparseGPRegressor.load(model)
        names = getattr(self.est, "feature_names_in_", None)
        targets = self.est.target_names_
        if names is None or targets is None:
            raise ValueError(
                f"{model} does not know the names of its columns: fit it from a table, or, if only "
                "that of the target is missing, name it once by `srgp update --target`."
            )
        self.names = [*map(str, names), *targets]
        self.outputs = len(targets)
        self.key = as_key(source)
        self._check_apart(rejects)
        self._find_place()
        written = [entry.get("rejects_file") for entry in self.est.streams_.values()]
        self.rejects = Rejects(rejects, known=str(rejects.resolve()) in written)
        self.pending = 0  # rows read, but not learned

    def run(self, follow: bool, idle: float | None) -> Followed:
        """Learn all there is; with `follow`, until nothing has come for `idle` seconds, if ever."""
        rows: list[np.ndarray] = []
        learned = rejected = batches = 0
        place, told = self.place, _Told(self.tell)
        for item in tail(self.key, self.names, self.place, follow):
            if isinstance(item, Waiting):
                if idle is not None and item.seconds >= idle:
                    if item.behind:
                        raise behind(place.row)
                    break
                told.waiting(self.pending, self.batch_rows)
                continue
            if item.values is None:
                self._reject(item, kept=item.after != place)
                rejected += 1
            else:
                rows.append(item.values)
            place, self.pending = item.after, len(rows)
            if len(rows) == self.batch_rows:
                self._learn(rows, place)
                learned, batches, rows = learned + len(rows), batches + 1, []
        if rows or place != self.place:
            self._learn(rows, place)
            learned, batches = learned + len(rows), batches + bool(rows)
        return Followed(learned, rejected, batches)

    def _learn(self, rows: list[np.ndarray], place: Place) -> None:
        if rows:
            table = np.stack(rows)
            y = table[:, -self.outputs :]
            y = y if self.outputs > 1 else y[:, 0]
            self.est.partial_fit_source(Arrays(table[:, : -self.outputs], y))
        self._keep(place)
        self.pending = 0

    def _keep(self, place: Place) -> None:
        """Write the model, and with it the place."""
        self.rejects.sync()
        if _identity(self.path) != self._written:
            raise ValueError(
                f"{self.path} was changed by another process: what was learned since the last "
                "batch is left out. Give the same command again when the other one has ended."
            )
        entry = {**place._asdict(), "rejects": self._rejected, "rejects_file": self._rejects_file}
        others = {k: v for k, v in self.est.streams_.items() if as_key(k) != self.key}
        self.est.streams_ = {**others, self.key: entry}
        self.est.save(self.path)
        self._written, self.place = _identity(self.path), place

    def _find_place(self) -> None:
        """Where the model has read this stream to, and where its rejected rows are."""
        streams = self.est.streams_
        # Older files call a stream as it was called on the command line.
        same = [entry for key, entry in streams.items() if as_key(key) == self.key]
        found: dict[str, Any] = streams.get(self.key) or next(iter(same), {})
        self.place = Place(**{name: found[name] for name in Place._fields if name in found})
        if found and Path(self.key).is_file():
            self.place = self.place._replace(file=Path(self.key).name)  # it may have been a link
        self._rejected: int = found.get("rejects", 0)
        self._rejects_file: str = found.get("rejects_file", "")
        self._settled = False

    def _check_apart(self, rejects: Path) -> None:
        """Refuse what would write into what is read, or count rows twice."""
        here, aside = Path(self.key), rejects.resolve()
        inside = aside.parent == here and aside.suffix in SUFFIXES
        if aside in (here, self.path.resolve()) or inside:
            raise ValueError(f"{rejects} is the model or of the stream: name another by --rejects.")
        for key, entry in self.est.streams_.items():
            before = Path(as_key(key))
            was_file = before.name == entry["file"]
            part = here.is_file() and here.parent == before and not was_file
            if part or (here.is_dir() and here == before.parent and was_file):
                raise ValueError(
                    f"rows would count twice: {self.path} has read {before} before. Go on with "
                    "that, or keep new files in a folder of their own."
                )

    def _reject(self, line: Line, kept: bool) -> None:
        """Set a row aside; `kept` says that the place moves past it."""
        if not self._settled:
            self._settle()
        where = NAME if self.key == STDIN else self.key
        if line.after.file and line.after.file != Path(self.key).name:
            where = str(Path(self.key) / line.after.file)
        self.rejects.add(f"{where}:{line.number}: {line.reason}: {line.text}\n".encode())
        if kept:
            self._rejected = self.rejects.end

    def _settle(self) -> None:
        """Have it on the disk from where on the file of rejected rows may be of this stream."""
        size, path = self.rejects.size(), str(self.rejects.path)
        if self._rejects_file != path or self._rejected > size:
            self._rejected, self._rejects_file = size, path
            self._keep(self.place)
        self.rejects.start(self._rejected)
        self._settled = True


class _Told:
    """Says now and then that rows are waited for."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell, self.rows, self.when = tell, -1, -TELL

    def waiting(self, rows: int, batch: int) -> None:
        now = time.monotonic()
        if rows != self.rows and now - self.when >= TELL:
            self.tell(f"waiting for rows: {rows} of the {batch} of the next batch are there.")
            self.rows, self.when = rows, now


def as_key(source: str) -> str:
    """The one name of a stream: however a file is called, its path."""
    return source if source == STDIN else str(Path(source).resolve())


def _identity(path: Path) -> tuple[int, int, int]:
    state = path.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns
