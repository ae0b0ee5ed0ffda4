"""Learning from a stream so that every row counts once, whenever the process is killed.

The model file holds the place in the stream that belongs to it, and is replaced as a whole. Rows
are learned in batches of a fixed number, so the sums do not depend on when they came or how often
the process started anew.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srgp import storage
from srgp.cli.tail import Line, Place, Waiting, tail
from srgp.regressor import SparseGPRegressor
from srgp.sources import Arrays


class Followed(NamedTuple):
    """What a stream brought."""

    learned: int
    rejected: int
    batches: int


class Follower:
    """A model file and the stream that it learns from."""

    def __init__(self, model: Path, source: str, batch_rows: int, rejects: Path) -> None:
        self.path, self.source, self.batch_rows, self.rejects = model, source, batch_rows, rejects
        self.est = SparseGPRegressor.load(model)
        names = getattr(self.est, "feature_names_in_", None)
        targets = self.est.target_names_
        if names is None or targets is None:
            raise ValueError(
                f"{model} does not know the names of its columns: fit it from a table."
            )
        self.names = [*map(str, names), *targets]
        self.outputs = len(targets)
        self.place = self._known()
        self._cut_rejects()

    def run(self, follow: bool, idle: float | None) -> Followed:
        """Learn all there is; with `follow`, until nothing has come for `idle` seconds, if ever."""
        rows: list[np.ndarray] = []
        learned = rejected = batches = 0
        written, place = self.place.rejects, self.place
        for item in tail(self.source, self.names, self.place, follow):
            if isinstance(item, Waiting):
                if idle is not None and item.seconds >= idle:
                    break
                continue
            if item.values is None:
                written += self._reject(item)
                rejected += 1
            else:
                rows.append(item.values)
            place = item.after._replace(rejects=written)
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
        saved = self.est.saved()
        stream = {"source": self.source, **place._asdict()}
        settings = {**saved.settings, "stream": stream}
        storage.write(self.path, dataclasses.replace(saved, settings=settings))
        self.place = place

    def _known(self) -> Place:
        """Where the model has read this stream to."""
        stream: Any = storage.read(self.path).settings.get("stream")
        if stream is None or stream["source"] != self.source:
            return Place()
        return Place(**{name: stream[name] for name in Place._fields})

    def _cut_rejects(self) -> None:
        """Rows rejected after the last time the model was written come again."""
        if self.rejects.exists():
            with self.rejects.open("ab") as file:
                file.truncate(self.place.rejects)

    def _reject(self, line: Line) -> int:
        where = f"{line.after.file or self.source}:{line.after.row}"
        told = f"{where}: {line.reason}: {line.text}\n".encode()
        with self.rejects.open("ab") as file:
            file.write(told)
        return len(told)
