"""Test, then train: every target is predicted before it is learned."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_count
from srgp.metrics import WIDTH


class Score(NamedTuple):
    """What predictions were worth; NaN before the first.

    >>> from srgp.streams import Prequential
    >>> scores = Prequential()
    >>> for y in (1.0, -1.0, 5.0):
    ...     scores.add(y, mean=0.0, variance=1.0)
    >>> score = scores.overall  # two of three within 1.96 deviations
    >>> score.rows, round(score.rmse, 2), round(score.nlpd, 2), round(score.coverage, 2)
    (3, 3.0, 5.42, 0.67)
    """

    rows: int
    rmse: float
    nlpd: float
    coverage: float  # of the 95 % interval


class Prequential:
    """Running scores of a stream, over all of it and over the last `window` rows.

    A row whose score is not finite is refused, for it would be the score of all rows ever after:
    y or mean beyond 1e150, NaN, or a variance of 0.

    >>> from srgp.streams import Prequential
    >>> scores = Prequential(window=2)
    >>> for y in (5.0, 0.1, -0.1):
    ...     scores.add(y, mean=0.0, variance=1.0)
    >>> scores.overall.rows, scores.recent.rows, round(scores.recent.rmse, 3)
    (3, 2, 0.1)
    """

    def __init__(self, window: int = 1000) -> None:
        self._last = np.zeros((as_count(window, "window"), 3))
        self._sums = np.zeros(3)
        self.rows = 0

    def add(self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> None:
        """Targets (B,) or one, with the mean and variance (noise included) that were predicted."""
        y, mean, variance = np.broadcast_arrays(*np.atleast_1d(y, mean, variance))
        with np.errstate(all="ignore"):  # what is not finite is refused
            error = y - mean
            each = np.stack(
                [
                    error**2,
                    0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance),
                    np.abs(error) <= WIDTH * np.sqrt(variance),
                ],
                1,
            )
        if not np.isfinite(each).all():
            raise _no_score()
        self._sums += each.sum(0)
        kept = each[-len(self._last) :]
        at = (self.rows + len(each) - len(kept) + np.arange(len(kept))) % len(self._last)
        self._last[at] = kept
        self.rows += len(each)

    def add_one(self, y: float, mean: float, variance: float) -> None:
        """As `add`, for one row: in plain numbers, where microseconds count."""
        error = y - mean
        squares = error * error
        if not (variance > 0.0 and math.isfinite(squares / variance + squares + variance)):
            raise _no_score()
        each = self._last[self.rows % len(self._last)]
        each[0] = squares
        each[1] = 0.5 * (math.log(2.0 * math.pi * variance) + squares / variance)
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


def _no_score() -> ValueError:
    return ValueError(
        "a prediction cannot be scored: y, its mean or its variance is not finite, too large to be "
        "squared, or the variance is 0."
    )
