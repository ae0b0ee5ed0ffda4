"""Identification of dynamic systems: lagged outputs and inputs as the inputs of a regression.

A NARX model predicts y_t from y_{t−1} … y_{t−p} and u_t … u_{t−q}. One step ahead it is given
measured outputs; k steps ahead, or running freely, it is given its own predictions, whose
uncertainty is carried along by random trajectories.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_count, as_floats

# Mean and variance (noise included) of y at rows X.
Predictor: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


class Trajectory(NamedTuple):
    """What a simulation expects of y_t, and how sure it is."""

    mean: np.ndarray
    deviation: np.ndarray


@dataclasses.dataclass(frozen=True)
class NARX:
    """Which of the past a model of y_t sees.

    lags:       past outputs, y_{t−1} … y_{t−lags}.
    input_lags: past inputs, u_{t−1} … u_{t−input_lags}, of every input.
    direct:     whether u_t itself is seen as well.

    >>> import numpy as np
    >>> from srgp.sysid import NARX
    >>> X, target = NARX(lags=2, input_lags=1).rows(y=[1, 2, 3, 4], u=[10, 20, 30, 40])
    >>> X.tolist(), target.tolist()  # y_{t-1}, y_{t-2}, u_t, u_{t-1}
    ([[2.0, 1.0, 30.0, 20.0], [3.0, 2.0, 40.0, 30.0]], [3.0, 4.0])
    """

    lags: int = 2
    input_lags: int = 2
    direct: bool = True

    def __post_init__(self) -> None:
        as_count(self.lags, "lags")
        if int(self.input_lags) != self.input_lags or self.input_lags < 0:
            raise ValueError(f"input_lags must be a whole number ≥ 0, got {self.input_lags}.")
        if not self.direct and self.input_lags == 0:
            raise ValueError("without u_t and without past inputs, no input is seen at all.")

    @property
    def first(self) -> int:
        """The first time that has all of its past."""
        return max(self.lags, self.input_lags)

    def rows(self, y: ArrayLike, u: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of a regression, from y (T,) and u (T,) or (T, U)."""
        y, u = _series(y, u)
        if len(y) <= self.first:
            raise ValueError(f"{len(y)} samples have no row with a past of {self.first}.")
        times = np.arange(self.first, len(y))
        past = np.stack([y[times - k] for k in range(1, self.lags + 1)], 1)
        return np.concatenate([past, self._inputs(u, times)], 1), y[times]

    def ahead(self, predict: Predictor, y: ArrayLike, u: ArrayLike, steps: int) -> np.ndarray:
        """The mean of y_t predicted from the outputs up to y_{t−steps}, for every t that has them.

        Entry i belongs to t = first + steps − 1 + i. Predictions are fed back, inputs are known.
        """
        y, u = _series(y, u)
        steps = as_count(steps, "steps")
        count = len(y) - self.first - steps + 1
        if count < 1:
            raise ValueError(f"{len(y)} samples are too few for {steps} steps ahead.")
        times = self.first + np.arange(count)
        past = np.stack([y[times - k] for k in range(1, self.lags + 1)], 1)
        for k in range(steps):
            mean, _ = predict(np.concatenate([past, self._inputs(u, times + k)], 1))
            past = np.concatenate([mean[:, None], past[:, :-1]], 1)
        return mean

    def simulate(
        self,
        predict: Predictor,
        y: ArrayLike,
        u: ArrayLike,
        trajectories: int = 0,
        seed: int = 0,
    ) -> Trajectory:
        """Run freely from the first outputs, y (at least `first` of them), through all of u (T, ·).

        With `trajectories`, so many are drawn: each is fed its own draws from the predictive
        distribution, and their mean and deviation are told. Without, means are fed back, and the
        deviation is that of a single step, which is too small for anything but the first.
        """
        y, u = as_floats(y, "y"), _columns(u)
        if len(y) < self.first or len(u) <= self.first:
            raise ValueError(f"a simulation starts from {self.first} outputs and inputs.")
        rng, count = np.random.default_rng(seed), max(trajectories, 1)
        past = np.tile(y[self.first - self.lags : self.first][::-1], (count, 1))
        found = []
        for t in range(self.first, len(u)):
            inputs = np.tile(self._inputs(u, np.array([t])), (count, 1))
            mean, variance = predict(np.concatenate([past, inputs], 1))
            now = mean
            if trajectories:
                now = mean + np.sqrt(variance) * rng.normal(size=count)
                found.append((now.mean(), now.std()))
            else:
                found.append((mean[0], np.sqrt(variance[0])))
            past = np.concatenate([now[:, None], past[:, :-1]], 1)
        means, deviations = np.array(found).T
        return Trajectory(means, deviations)

    def _inputs(self, u: np.ndarray, times: np.ndarray) -> np.ndarray:
        first = 0 if self.direct else 1
        return np.concatenate([u[times - k] for k in range(first, self.input_lags + 1)], 1)


def linear(X: ArrayLike, y: ArrayLike) -> Predictor:
    """The ARX baseline: least squares on the same rows, with the variance of what it leaves.

    >>> from srgp.sysid import linear
    >>> mean, variance = linear([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0])([[3.0]])
    >>> mean.round(6), bool(variance[0] < 1e-20)
    (array([7.]), True)
    """
    X, y = as_floats(X, "X"), as_floats(y, "y")
    design = np.column_stack([X, np.ones(len(X))])
    weights, *_ = np.linalg.lstsq(design, y)
    variance = float(np.mean((y - design @ weights) ** 2))

    def predict(rows: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        rows = as_floats(rows, "X")
        mean = np.column_stack([rows, np.ones(len(rows))]) @ weights
        return mean, np.full(len(rows), variance)

    return predict


def _series(y: ArrayLike, u: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y, u = as_floats(y, "y"), _columns(u)
    if y.ndim != 1 or len(u) != len(y):
        raise ValueError(
            f"y must have shape (T,) and u (T,) or (T, U), got {y.shape} and {u.shape}."
        )
    return y, u


def _columns(u: ArrayLike) -> np.ndarray:
    array = as_floats(u, "u")
    return array[:, None] if array.ndim == 1 else array
