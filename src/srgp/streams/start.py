"""A model made of the first rows of a stream, and made again where later rows refute it."""

import math
from typing import NamedTuple

import numpy as np

from srgp.inducing import initial_model
from srgp.learners import Exact, learn
from srgp.linalg import quiet
from srgp.model import Model
from srgp.scaling import Scaler
from srgp.sources import Arrays
from srgp.statistics import Statistics, summarise

LEAST = 10  # rows of a start: fewer cannot tell the function from the noise
ITERATIONS = 60
FLOOR = 1e-6  # least noise of a start, in units of the variance of its targets
SAME = 1e-12  # relative difference of targets that counts as none
FAR = 30.0  # deviations: rows that far off refute a model, if they are most of them


class Start(NamedTuple):
    """Where a stream starts: a model of scaled data, their scaling, and their sums."""

    model: Model
    scaler: Scaler
    statistics: Statistics


class WarmUp:
    """Rows held back until they can make a model.

    That takes targets which differ. As long as they are all the same, only the last row is kept: a
    sensor that is not yet connected says nothing of scale or noise, however long it lasts.

    >>> import numpy as np
    >>> from srgp.streams.start import WarmUp
    >>> warm = WarmUp(rows=20, n_inducing=5, seed=0)
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> warm.add(X[:25], np.zeros(25)), warm.held
    (None, 1)
    >>> start = warm.add(X[:19], np.cos(6 * X[:19, 0]))
    >>> start.statistics
    Statistics(rows=20, inducing=5)
    """

    def __init__(self, rows: int, n_inducing: int, seed: int) -> None:
        self.rows, self.n_inducing, self.seed = rows, n_inducing, seed
        self._X: np.ndarray | None = None
        self._y = np.zeros(0)

    @property
    def held(self) -> int:
        """How many rows are held."""
        return len(self._y)

    @property
    def columns(self) -> int | None:
        """Of the inputs; None before the first."""
        return None if self._X is None else self._X.shape[1]

    def add(self, X: np.ndarray, y: np.ndarray) -> Start | None:
        """Hold rows X (B, D), y (B,); the start, once there are enough."""
        held = X if self._X is None else np.concatenate([self._X, X])
        targets = np.concatenate([self._y, y])
        differ = np.abs(targets - targets[0]) > SAME * np.abs(targets[0])
        first = int(differ.argmax()) if differ.any() else len(targets)
        held, targets = held[first - 1 :], targets[first - 1 :]
        start = None if len(targets) < self.rows else self._start(held, targets)
        self._X, self._y = held.copy(), targets
        return start

    def guess(self) -> tuple[float, float]:
        """The mean of the targets so far and their deviation, infinite while they are the same."""
        if not len(self._y):
            return 0.0, math.inf
        return float(self._y.mean()), float(self._y.std()) if len(self._y) > 1 else math.inf

    def _start(self, X: np.ndarray, y: np.ndarray) -> Start:
        scaler, _ = Scaler.of(Arrays(X, y))
        rows = scaler.inputs(X), scaler.targets(y)
        count = min(self.n_inducing, len(np.unique(rows[0], axis=0)))
        with quiet():  # `model.jitter` tells
            found = learn(
                initial_model(*rows, count, seed=self.seed), rows, Exact(iterations=ITERATIONS)
            )
            model, statistics = found.model, found.statistics
            if model.noise < FLOOR:  # a few rows may be fitted exactly, which none after them is
                model = model.replace(noise=FLOOR)
                statistics = summarise(model, *rows)
        return Start(model, scaler, statistics)


class Doubt:
    """Looks at the rows after a start, as many at a time: are most of them far off?

    >>> import numpy as np
    >>> from srgp.streams.start import Doubt
    >>> doubt = Doubt(rows=2)
    >>> row = np.zeros((1, 1)), np.ones(1)
    >>> [doubt.add(*row, far) is None for far in (0, 1, 1, 1)]
    [True, True, True, False]
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._held: list[tuple[np.ndarray, np.ndarray]] = []
        self._count = self._far = 0

    def add(self, X: np.ndarray, y: np.ndarray, far: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows, and how many of them are far off; the last rows, where a new start is due."""
        self._held.append((X[-self.rows :].copy(), y[-self.rows :].copy()))
        self._count += len(y)
        self._far += far
        if self._count < self.rows:
            return None
        refuted = 2 * self._far > self._count
        held, self._held = self._held, []
        self._count = self._far = 0
        if not refuted:
            return None
        X, y = (np.concatenate(parts)[-self.rows :] for parts in zip(*held, strict=True))
        return X, y
