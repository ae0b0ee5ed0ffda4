"""An adapter for river: rows as dicts whose features may come and go."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from srgp.streams.online import OnlineGP

try:
    from river import base
except ImportError as error:
    raise ImportError("srgp.streams.river needs river: pip install 'srgp[river]'") from error


class RiverGP(base.Regressor):
    """`srgp.streams.OnlineGP` as a regressor of river.

    The features are those of the first `warm_up` rows. One that is missing later counts as its mean
    over these; one that is new is left out.

    n_inducing, forgetting, towards, renew, chunk, seed: as for `OnlineGP`.

    >>> from river import datasets, evaluate, metrics
    >>> from srgp.streams.river import RiverGP
    >>> stream = datasets.synth.Friedman(seed=0).take(300)
    >>> score = evaluate.progressive_val_score(stream, RiverGP(n_inducing=20), metrics.MAE())
    >>> score.get() < 3.0  # a line has 3.4
    True
    """

    def __init__(
        self,
        n_inducing: int = 50,
        warm_up: int = 100,
        forgetting: float | tuple[float, ...] = 1.0,
        towards: str = "less data",
        renew: bool = False,
        chunk: int = 100,
        seed: int = 0,
    ) -> None:
        self.n_inducing = n_inducing
        self.warm_up = warm_up
        self.forgetting = forgetting
        self.towards = towards
        self.renew = renew
        self.chunk = chunk
        self.seed = seed
        self._gp = OnlineGP(
            n_inducing=n_inducing,
            warm_up=warm_up,
            forgetting=forgetting,
            towards=towards,  # type: ignore[arg-type]
            renew=renew,
            chunk=chunk,
            seed=seed,
        )
        self._first: list[tuple[dict[Any, float], float]] = []
        self._means: dict[Any, float] = {}

    @property
    def scores(self) -> Any:
        """Of all rows after the warm-up, each predicted before it was learned."""
        return self._gp.scores

    def learn_one(self, x: Mapping[Any, Any], y: float) -> None:
        """Learn one row."""
        if self._means:
            self._gp.learn_one(self._row(x), float(y))
            return
        self._first.append(({name: float(value) for name, value in x.items()}, float(y)))
        if len(self._first) < self.warm_up:
            return
        names = sorted({name for row, _ in self._first for name in row}, key=str)
        columns = {name: [row[name] for row, _ in self._first if name in row] for name in names}
        self._means = {name: float(np.mean(column)) for name, column in columns.items()}
        rows = np.stack([self._row(row) for row, _ in self._first])
        self._gp.learn_many(rows, [target for _, target in self._first])
        self._first = []

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """The mean; of the targets so far, while warming up."""
        return self.predict_with_deviation(x)[0]

    def predict_with_deviation(self, x: Mapping[Any, Any]) -> tuple[float, float]:
        """Mean and deviation of a measurement."""
        if self._means:
            return self._gp.predict_one(self._row(x))
        targets = [target for _, target in self._first]
        if not targets:
            return 0.0, float("inf")
        return float(np.mean(targets)), float(np.std(targets)) if len(targets) > 1 else float("inf")

    def _row(self, x: Mapping[Any, Any]) -> np.ndarray:
        return np.array([float(x.get(name, mean)) for name, mean in self._means.items()])
