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
    """What a simulation expects of y_t, and how sure it is; each of shape (T,).

    >>> import numpy as np
    >>> from srgp.sysid import NARX
    >>> def predict(X):  # y_t = y_{t−1}/2 + N(0, 1)
    ...     return 0.5 * X[:, 0], np.ones(len(X))
    >>> mean, deviation = NARX(lags=1, input_lags=0).simulate(predict, [8.0], np.zeros(4))
    >>> mean.tolist(), deviation.tolist()
    ([4.0, 2.0, 1.0], [1.0, 1.0, 1.0])
    """

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

    def ahead(
        self,
        predict: Predictor,
        y: ArrayLike,
        u: ArrayLike,
        steps: int,
        trajectories: int = 0,
        seed: int = 0,
    ) -> Trajectory:
        """y_t predicted from the outputs up to y_{t−steps}, for every t that has them.

        Entry i belongs to t = first + steps − 1 + i. Predictions are fed back, inputs are known;
        `trajectories` as for `simulate`, from each of the times.

        >>> import numpy as np
        >>> from srgp.sysid import NARX
        >>> def predict(X):  # y_t = y_{t−1} + N(0, 1)
        ...     return X[:, 0], np.ones(len(X))
        >>> y, walk = [0.0, 1.0, 2.0, 3.0], NARX(lags=1, input_lags=0)
        >>> found = walk.ahead(predict, y, np.zeros(4), steps=3, trajectories=10_000)
        >>> print(f"{found.mean[0]:.1f} ± {found.deviation[0]:.1f}, √3 is {np.sqrt(3):.1f}")
        0.0 ± 1.7, √3 is 1.7
        """
        y, u = _series(y, u)
        steps = as_count(steps, "steps")
        count = len(y) - self.first - steps + 1
        if count < 1:
            raise ValueError(f"{len(y)} samples are too few for {steps} steps ahead.")
        times = self.first + np.arange(count)
        past = np.stack([y[times - k] for k in range(1, self.lags + 1)], 1)
        inputs = [self._inputs(u, times + k) for k in range(steps)]
        return self._fed_back(predict, past, inputs, trajectories, seed)[-1]

    def simulate(
        self,
        predict: Predictor,
        y: ArrayLike,
        u: ArrayLike,
        trajectories: int = 0,
        seed: int = 0,
    ) -> Trajectory:
        """Run freely from the first outputs, y (at least `first` of them), through all of u (T, ·).

        trajectories: so many, at least two, are drawn: each is fed its own draws from the
                      predictive distribution. Of these, mean and deviation are told,

                          E[y_t] = E[m(x)],   var[y_t] = E[v(x)] + var[m(x)],

                      over the x that the trajectories have come to. Draws of different steps are
                      independent, as if the error of the function itself were new at every step;
                      where it lasts, the deviation is too small. With 0, means are fed back, and
                      the deviation is that of a single step: too small but for the first.

        >>> import numpy as np
        >>> from srgp.sysid import NARX
        >>> def predict(X):  # y_t = y_{t−1}/2 + N(0, 1)
        ...     return 0.5 * X[:, 0], np.ones(len(X))
        >>> run = NARX(1, 0).simulate(predict, [8.0], np.zeros(4), trajectories=10_000)
        >>> print(run.mean.round(1), run.deviation.round(1))  # 1, √(1 + 1/4), √(1 + 1/4 + 1/16)
        [4. 2. 1.] [1.  1.1 1.1]
        """
        y, u = as_floats(y, "y"), _columns(u)
        if len(y) < self.first or len(u) <= self.first:
            raise ValueError(f"a simulation starts from {self.first} outputs and inputs.")
        past = y[self.first - self.lags : self.first][::-1][None]
        inputs = [self._inputs(u, np.array([t])) for t in range(self.first, len(u))]
        found = self._fed_back(predict, past, inputs, trajectories, seed)
        return Trajectory(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def _fed_back(
        self,
        predict: Predictor,
        past: np.ndarray,
        inputs: list[np.ndarray],
        trajectories: int,
        seed: int,
    ) -> list[Trajectory]:
        """Steps from several pasts (A, lags) at once, each with its inputs (A, ·)."""
        drawn = _as_trajectories(trajectories)
        rng, copies, found = np.random.default_rng(seed), max(drawn, 1), []
        past = np.repeat(past, copies, 0)
        for u in inputs:
            rows = np.concatenate([past, np.repeat(u, copies, 0)], 1)
            mean, variance = predict(rows)
            now = mean + np.sqrt(variance) * rng.normal(size=len(rows)) if drawn else mean
            past = np.concatenate([now[:, None], past[:, :-1]], 1)
            means, variances = mean.reshape(-1, copies), variance.reshape(-1, copies)
            scatter = means.var(1, ddof=1) if drawn else 0.0
            found.append(Trajectory(means.mean(1), np.sqrt(variances.mean(1) + scatter)))
        return found

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


class Recursive:
    """The ARX baseline, online: recursive least squares, one row at a time; O(D²) each.

        e = y − φᵀw,   s = 1 + φᵀPφ,   w ← w + Pφ e/s,   P ← P − PφφᵀP/s,   φ = [x, 1],

    from w = 0 and P = 10⁸ I. The variance is the mean of e²/s, times s.

    >>> from srgp.sysid import Recursive
    >>> line = Recursive()
    >>> for x in (0.0, 1.0, 2.0, 3.0):
    ...     line.learn_one([x], 1.0 + 2.0 * x)
    >>> mean, variance = line([[4.0]])
    >>> mean.round(3)
    array([9.])
    """

    def __init__(self) -> None:
        self._weights = np.zeros(0)
        self._covariance = np.zeros((0, 0))
        self._squares = self._rows = 0.0

    def learn_one(self, x: ArrayLike, y: float) -> None:
        """Learn y at x (D,)."""
        phi = np.append(as_floats(x, "x"), 1.0)
        if not self._rows:
            self._weights, self._covariance = np.zeros(len(phi)), 1e8 * np.eye(len(phi))
        if len(phi) != len(self._weights):
            raise ValueError(f"x has {len(phi) - 1} columns, not {len(self._weights) - 1}.")
        gain = self._covariance @ phi
        s, error = 1.0 + phi @ gain, as_floats(y, "y").item() - phi @ self._weights
        self._weights = self._weights + gain * (error / s)
        self._covariance = self._covariance - np.outer(gain, gain) / s
        self._squares += error**2 / s
        self._rows += 1.0

    def __call__(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of y at X (B, D): a `Predictor`."""
        if not self._rows:
            raise ValueError("nothing has been learned yet.")
        design = np.column_stack([as_floats(X, "X"), np.ones(len(np.asarray(X)))])
        s = 1.0 + np.einsum("bi,ij,bj->b", design, self._covariance, design)
        return design @ self._weights, self._squares / self._rows * np.maximum(s, 1.0)


def _as_trajectories(count: int) -> int:
    """0, or at least two: one alone has no deviation."""
    if count == 0 and not isinstance(count, bool):
        return 0
    if as_count(count, "trajectories") < 2:
        raise ValueError("trajectories must be 0, or at least 2: one has no deviation.")
    return int(count)


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
