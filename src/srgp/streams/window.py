"""The posterior of the last rows only, by adding what comes and taking out what goes."""

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_count, as_inputs, as_targets
from srgp.model import Model
from srgp.posterior import Posterior, posterior
from srgp.precision import double
from srgp.statistics import Statistics, summarise


class SlidingWindow:
    """Statistics of the last `rows` rows of a stream; O(M²) a row, whatever has passed.

    Rows are added and subtracted in blocks. Subtraction leaves rounding errors behind, which add up
    over a long stream: whenever as many rows have gone as the window holds, it is summed up afresh
    from the rows themselves, which doubles the cost at most and bounds the error for ever.

    >>> import numpy as np, srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=np.linspace(0, 1, 5)[:, None])
    >>> window = srgp.streams.SlidingWindow(model, rows=50)
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> window.add(X, np.sin(X[:, 0])).statistics
    Statistics(rows=50, inducing=5)
    """

    def __init__(self, model: Model, rows: int) -> None:
        self.model, self.rows = model, as_count(rows, "rows")
        self._X: np.ndarray | None = None
        self._y: np.ndarray | None = None
        self._statistics: Statistics | None = None
        self._gone = 0  # rows taken out since the last fresh sum

    @property
    def statistics(self) -> Statistics:
        """The sums of the rows in the window."""
        if self._statistics is None:
            raise ValueError("the window has seen no row yet.")
        return self._statistics

    @property
    def posterior(self) -> Posterior:
        """The posterior given the rows in the window."""
        return posterior(self.model, self.statistics)

    @double
    def add(self, X: ArrayLike, y: ArrayLike) -> "SlidingWindow":
        """Let rows X (B, D), y (B,) or (B, Q) in, and as many out as the window cannot hold."""
        X = as_inputs(X, columns=self.model.inducing.shape[1])
        y = as_targets(y, len(X))
        if self._y is not None and y.shape[1:] != self._y.shape[1:]:
            raise ValueError(
                f"y has outputs of shape {y.shape[1:]}, the rows before had {self._y.shape[1:]}."
            )
        held_X = X if self._X is None else np.concatenate([self._X, X])
        held_y = y if self._y is None else np.concatenate([self._y, y])
        out = max(0, len(held_X) - self.rows)
        kept_X, kept_y = held_X[out:], held_y[out:]
        gone = self._gone + out
        if self._statistics is None or gone >= self.rows:
            statistics, gone = summarise(self.model, kept_X, kept_y), 0
        else:
            statistics = self._statistics + summarise(self.model, X, y)
            if out:
                statistics = statistics - summarise(self.model, held_X[:out], held_y[:out])
        self._X, self._y = kept_X.copy(), kept_y.copy()
        self._statistics, self._gone = statistics, gone
        return self

    def __repr__(self) -> str:
        held = 0 if self._X is None else len(self._X)
        return f"SlidingWindow(rows={held} of {self.rows}, inducing={len(self.model.inducing)})"
