"""Test, then train: every target is predicted before it is learned."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from srgp.metrics import WIDTH


class Score(NamedTuple):
    """What predictions were worth; NaN before the first."""

    rows: int
    rmse: float
    nlpd: float
    coverage: float  # of the 95 % interval


class Prequential:
    """Running scores of a stream, over all of it and over the last `window` rows.

    >>> from srgp.streams import Prequential
    >>> scores = Prequential(window=2)
    >>> for y in (5.0, 0.1, -0.1):
    ...     scores.add(y, mean=0.0, variance=1.0)
    >>> scores.overall.rows, scores.recent.rows, round(scores.recent.rmse, 3)
    (3, 2, 0.1)
    """

    def __init__(self, window: int = 1000) -> None:
        if window < 1:
            raise ValueError(f"window must be at least one row, got {window}.")
        self._last = np.zeros((window, 3))
        self._sums = np.zeros(3)
        self.rows = 0

    def add(self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> None:
        """Targets (B,) or one, with the mean and variance (noise included) that were predicted."""
        y, mean, variance = np.broadcast_arrays(*np.atleast_1d(y, mean, variance))
        error = y - mean
        each = np.stack(
            [
                error**2,
                0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance),
                np.abs(error) <= WIDTH * np.sqrt(variance),
            ],
            1,
        )
        self._sums += each.sum(0)
        kept = each[-len(self._last) :]
        at = (self.rows + len(each) - len(kept) + np.arange(len(kept))) % len(self._last)
        self._last[at] = kept
        self.rows += len(each)

    def add_one(self, y: float, mean: float, variance: float) -> None:
        """As `add`, for one row: in plain numbers, where microseconds count."""
        error = y - mean
        each = self._last[self.rows % len(self._last)]
        each[0] = error * error
        each[1] = 0.5 * (math.log(2.0 * math.pi * variance) + error * error / variance)
        each[2] = abs(error) <= WIDTH * math.sqrt(variance)
        self._sums += each
        self.rows += 1

    @property
    def overall(self) -> Score:
        """Of all rows so far."""
        return _score(self.rows, self._sums)

    @property
    def recent(self) -> Score:
        """Of the last rows."""
        count = min(self.rows, len(self._last))
        return _score(count, self._last[:count].sum(0))

    def __repr__(self) -> str:
        return f"Prequential(overall={self.overall}, recent={self.recent})"


def _score(rows: int, sums: np.ndarray) -> Score:
    if not rows:
        return Score(0, math.nan, math.nan, math.nan)
    squares, nlpd, inside = (sums / rows).tolist()
    return Score(rows, math.sqrt(squares), nlpd, inside)
