"""Sums of a stream, chunk by chunk, with kernel, noise and inducing inputs that follow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from srgp.linalg import quiet
from srgp.model import Model
from srgp.moving import carried
from srgp.onepass import MOST_ROWS, OnePass
from srgp.statistics import Statistics, summarise
from srgp.streams.regions import renewed

NOVEL = 0.1  # share of a row's variance that must be unexplained to make it an inducing input


class Chunks:
    """Rows held until they are a chunk, and the sums of all before it, one for each pace.

    All paces share θ and R, which follow the sums of the one that leads. `loss` is what the moves
    forgot of these, in nats.

    >>> import numpy as np, srgp
    >>> from srgp.streams.chunks import Chunks
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> chunks = Chunks((1.0, 0.5), follow=None, renew=True, rows=2, budget=3)
    >>> chunks.begin(model, None)
    >>> chunks.add(np.array([[9.0]]), np.ones(1), lead=0)
    False
    >>> chunks.add(np.array([[9.0]]), np.ones(1), lead=0)
    True
    >>> chunks.model.inducing.ravel().tolist(), round(chunks.loss, 6)
    ([0.0, 1.0, 9.0], 0.0)
    """

    def __init__(
        self, paces: Sequence[float], follow: OnePass | None, renew: bool, rows: int, budget: int
    ) -> None:
        self.paces, self.follow, self.renew = tuple(paces), follow, renew
        self.rows, self.budget = rows, budget
        self.loss = 0.0
        self.model: Any = None
        self.past: list[Statistics] = []
        self._held: list[tuple[np.ndarray, np.ndarray]] = []
        self._memory: Any = None

    def begin(self, model: Model, statistics: Statistics | None) -> None:
        """Start from a model, and the sums of what it has seen."""
        if statistics is None:
            statistics = 0.0 * summarise(model, model.inducing[:1], np.zeros(1))
        self.model, self.past = model, [statistics] * len(self.paces)
        self._held, self._memory = [], None

    def add(self, X: np.ndarray, y: np.ndarray, lead: int) -> bool:
        """Hold scaled rows X (B, D), y (B,); whether they made a chunk, and `past` is new."""
        self._held.append((X.copy(), y.copy()))
        if sum(len(y) for _, y in self._held) < self.rows:
            return False
        X, y = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        with quiet():  # `model.jitter` tells
            self._forget(len(y))
            if self.renew:
                self._renew(X, lead)
            for i in range(0, len(y), MOST_ROWS):  # as `OnePass` takes them: one move each
                self._learn(X[i : i + MOST_ROWS], y[i : i + MOST_ROWS], lead)
        self._held = []
        return True

    def _forget(self, rows: int) -> None:
        self.past = [past * pace**rows for past, pace in zip(self.past, self.paces, strict=True)]

    def _renew(self, X: np.ndarray, lead: int) -> None:
        budget = max(self.budget, len(self.model.inducing))
        R = renewed(self.model, self.past[lead], X, budget, NOVEL)
        if not np.array_equal(R, self.model.inducing):
            self._carry(self.model.replace(inducing=R), lead)
            self._memory = None

    def _learn(self, X: np.ndarray, y: np.ndarray, lead: int) -> None:
        if self.follow is not None:
            new, _, self._memory = self.follow.update(
                self.model, self.past[lead], X, y, memory=self._memory
            )
            self._carry(new, lead)
        fresh = summarise(self.model, X, y)
        self.past = [past + fresh for past in self.past]

    def _carry(self, new: Model, lead: int) -> None:
        found = [carried(past, self.model, new) for past in self.past]
        self.past = [past for past, _ in found]
        self.loss += found[lead][1]
        self.model = new
