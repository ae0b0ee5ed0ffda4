"""An estimator for streams: rows come one or many at a time, and answers are there at once."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_count, as_inputs, as_targets
from srgp.filtering import Filter
from srgp.inducing import initial_model
from srgp.learners import Exact, learn
from srgp.linalg import quiet
from srgp.model import Model
from srgp.onepass import OnePass, carried
from srgp.scaling import Scaler
from srgp.sources import Arrays
from srgp.statistics import Statistics, summarise
from srgp.streams.regions import renewed
from srgp.streams.scores import Prequential

EVERY = 16  # single rows between two applications of forgetting, which cost O(M³)
MEMORY = 0.99  # of the weights of several paces of forgetting, a row
NOVEL = 0.1  # share of a row's variance that must be unexplained to make it an inducing input


class OnlineGP:
    """A sparse GP that learns from a stream, in constant memory, and scores itself on the way.

    model:      where it starts, in the units of the data. Or None: the first `warm_up` rows are
                held back, standardised, and kernel, noise and inducing inputs learned from them.
    n_inducing: inducing inputs, of that start and at most.
    warm_up:    rows for that start.
    forgetting: factor in (0, 1] on what the past says, for each row. Several factors: as many
                filters side by side, weighed by how they have predicted lately, so that the pace of
                forgetting adapts; each costs as much as one.
    towards:    how: "less data", or "prior", a random walk whose stationary law is the prior.
    follow:     `srgp.OnePass`: kernel, noise and inducing inputs follow, after every chunk.
    renew:      inducing inputs move into new regions, after every chunk, at the price of those that
                others nearly replace, or of which little is known; `loss` tells what that forgot.
    chunk:      rows between two such moves.
    window:     rows of the recent scores.

    Before a row is learned it is predicted, and `scores` keeps the account.

    >>> import numpy as np, srgp
    >>> rng = np.random.default_rng(0)
    >>> gp = srgp.streams.OnlineGP(n_inducing=15, warm_up=100)
    >>> for _ in range(300):
    ...     x = rng.uniform(0, 6, 1)
    ...     gp.learn_one(x, np.sin(x[0]) + 0.1 * rng.normal())
    >>> mean, deviation = gp.predict_one([1.5])
    >>> print(f"{mean:.1f} ± {deviation:.1f}; RMSE {gp.scores.recent.rmse:.1f}")
    1.0 ± 0.1; RMSE 0.1
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        n_inducing: int = 50,
        warm_up: int = 200,
        forgetting: float | Sequence[float] = 1.0,
        towards: Literal["less data", "prior"] = "less data",
        follow: OnePass | None = None,
        renew: bool = False,
        chunk: int = 100,
        window: int = 1000,
        seed: int = 0,
    ) -> None:
        self.n_inducing = as_count(n_inducing, "n_inducing")
        self.warm_up = as_count(warm_up, "warm_up")
        self.paces = tuple(float(f) for f in np.atleast_1d(forgetting))
        self.towards, self.follow, self.renew = towards, follow, renew
        self.chunk, self.seed = as_count(chunk, "chunk"), seed
        self.scores = Prequential(window)
        self.loss = 0.0  # nats that moving inducing inputs forgot
        self.rows = 0
        self._check_settings()
        self._filters: list[Filter] = []
        self._log_weights = np.zeros(len(self.paces))
        self._pending = 0  # rows since forgetting was applied
        self._held: list[tuple[np.ndarray, np.ndarray]] = []  # rows of the warm-up, or of the chunk
        self._past: Statistics | None = None  # before the chunk
        self._memory: Any = None
        self._scaler: Scaler | None = None
        if model is not None:
            D = model.inducing.shape[1]
            self._begin(model, Scaler.identity(D, ()), None)

    # -- learning -----------------------------------------------------------------------------

    def learn_one(self, x: ArrayLike, y: float) -> None:
        """Predict one row x (D,), score the prediction, and learn y."""
        X, Y = self._checked(np.asarray(x, dtype=np.float64)[None], [y])
        if not self._filters:
            self._warm(X, Y)
            return
        scaler = self._scaled()
        sample, target = scaler.inputs(X)[0], float(scaler.targets(Y)[0])
        found = [f.tested(sample, target) for f in self._filters]
        self._filters = [f for _, _, f in found]
        if len(found) == 1:
            ((mean, variance, _),) = found
            spread = scaler.y_spread.item()
            mean = mean * spread + scaler.y_centre.item()
            self.scores.add_one(Y.item(), mean, spread**2 * variance)
            self.rows += 1
        else:
            means, variances = (np.array([[each[i]] for each in found]) for i in (0, 1))
            self._account(Y, *self._mixed(means, variances))
            self._weigh(np.array([target]), means, variances)
        self._pending += 1
        if self._pending >= EVERY:
            self._forget()
        self._take(X, Y)

    def learn_many(self, X: ArrayLike, y: ArrayLike) -> None:
        """Predict rows X (B, D) together, score the predictions, and learn y (B,).

        What the past says is forgotten once for all of them, before.
        """
        X, Y = self._checked(X, y)
        if not self._filters:
            self._warm(X, Y)
            return
        scaler = self._scaled()
        inputs, targets = scaler.inputs(X), scaler.targets(Y)
        means, variances = self._latent(inputs)
        self._account(Y, *self._mixed(means, variances))
        self._weigh(targets, means, variances)
        self._pending += len(X)
        self._forget()
        self._filters = [f.update(inputs, targets) for f in self._filters]
        self._take(X, Y)

    # -- answers ------------------------------------------------------------------------------

    def predict_one(self, x: ArrayLike) -> tuple[float, float]:
        """Mean and deviation of a measurement at x (D,)."""
        mean, deviation = self.predict_many(np.asarray(x, dtype=np.float64)[None])
        return float(mean[0]), float(deviation[0])

    def predict_many(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Means and deviations of measurements at X (B, D).

        While warming up: the mean of the targets so far, and their deviation, infinite at first.
        """
        X = as_inputs(X, columns=self._columns())
        if not self._filters:
            y = np.concatenate([y for _, y in self._held]) if self._held else np.zeros(0)
            spread = y.std() if len(y) > 1 else math.inf
            return np.full(len(X), y.mean() if len(y) else 0.0), np.full(len(X), spread)
        return self._mixed(*self._latent(self._scaled().inputs(X)))

    @property
    def model(self) -> Model:
        """The model of the moment, of scaled data."""
        self._scaled()
        return self._filters[0].model

    @property
    def inducing_inputs(self) -> np.ndarray:
        """The inducing inputs of the moment (M, D), in the units of the data."""
        return self._scaled().inputs_back(np.asarray(self.model.inducing))

    @property
    def forgetting_weights(self) -> dict[float, float]:
        """How much each pace of forgetting counts at the moment."""
        weights = np.exp(self._log_weights - self._log_weights.max())
        return dict(zip(self.paces, (weights / weights.sum()).tolist(), strict=True))

    def __repr__(self) -> str:
        state = f"inducing={len(self.model.inducing)}" if self._filters else "warming up"
        return f"OnlineGP(rows={self.rows}, {state}, rmse={self.scores.recent.rmse:.4g})"

    # -- inside -------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        if not self.paces or not all(0.0 < pace <= 1.0 for pace in self.paces):
            raise ValueError(f"forgetting must lie in (0, 1], got {self.paces}.")
        if self.towards not in ("less data", "prior"):
            raise ValueError(f"towards must be 'less data' or 'prior', got {self.towards!r}.")
        if self._moves and (len(self.paces) > 1 or self.towards == "prior"):
            raise ValueError(
                "follow and renew work on sums: with one forgetting factor, towards 'less data'."
            )

    @property
    def _moves(self) -> bool:
        return self.follow is not None or self.renew

    def _columns(self) -> int | None:
        if self._filters:
            return int(self._filters[0].model.inducing.shape[1])
        return self._held[0][0].shape[1] if self._held else None

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        X = as_inputs(X, columns=self._columns())
        y = as_targets(y, len(X))
        if y.ndim > 1:
            raise ValueError("a stream has one target a row.")
        return X, y

    def _scaled(self) -> Scaler:
        if self._scaler is None:
            raise ValueError(f"still warming up: {self.rows} of {self.warm_up} rows.")
        return self._scaler

    def _warm(self, X: np.ndarray, y: np.ndarray) -> None:
        self._held.append((X.copy(), y.copy()))
        self.rows += len(X)
        if self.rows < self.warm_up:
            return
        X, y = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        scaler, _ = Scaler.of(Arrays(X, y))
        inputs, targets = scaler.inputs(X), scaler.targets(y)
        distinct = len(np.unique(inputs, axis=0))
        start = initial_model(inputs, targets, min(self.n_inducing, distinct), seed=self.seed)
        with quiet():
            found = learn(start, (inputs, targets), Exact(iterations=60))
            self._held = []
            self._begin(found.model, scaler, found.statistics)

    def _begin(self, model: Model, scaler: Scaler, statistics: Statistics | None) -> None:
        self._scaler = scaler
        self._filters = [Filter.start(model, statistics) for _ in self.paces]
        if self._moves:
            none = 0.0 * summarise(model, model.inducing[:1], np.zeros(1))
            self._past = none if statistics is None else statistics

    def _latent(self, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances (noise included) of every filter, of scaled targets."""
        answers = [f.predict(inputs, noise=True) for f in self._filters]
        return np.stack([m for m, _ in answers]), np.stack([v for _, v in answers])

    def _mixed(self, means: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the mixture of all filters, in the user's units."""
        weights = np.array(list(self.forgetting_weights.values())) if len(means) > 1 else np.ones(1)
        mean = weights @ means
        variance = weights @ (variances + (means - mean) ** 2)
        scaler = self._scaled()
        return scaler.targets_back(mean), float(scaler.y_spread) * np.sqrt(variance)

    def _account(self, y: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> None:
        self.scores.add(y, mean, deviation**2)
        self.rows += len(y)

    def _weigh(self, targets: np.ndarray, means: np.ndarray, variances: np.ndarray) -> None:
        if len(self.paces) == 1:
            return
        density = -0.5 * (np.log(2.0 * np.pi * variances) + (targets - means) ** 2 / variances)
        for each in density.T:
            self._log_weights = MEMORY * self._log_weights + each
            self._log_weights -= self._log_weights.max()

    def _forget(self) -> None:
        if not self._moves:  # with sums, forgetting is a factor, once a chunk
            self._filters = [
                f if pace == 1.0 else f.forget(pace**self._pending, self.towards)
                for f, pace in zip(self._filters, self.paces, strict=True)
            ]
        self._pending = 0

    def _take(self, X: np.ndarray, y: np.ndarray) -> None:
        """Hold rows until they are a chunk."""
        if self._moves:
            self._held.append((X.copy(), y.copy()))
            if sum(len(y) for _, y in self._held) >= self.chunk:
                with quiet():  # `model.jitter` tells
                    self._move()

    def _move(self) -> None:
        """Take in a chunk as sums, with what follows it."""
        scaler = self._scaled()
        X, y = (np.concatenate(parts) for parts in zip(*self._held, strict=True))
        X, y = scaler.inputs(X), scaler.targets(y)
        assert self._past is not None
        model, past = self._filters[0].model, self._past * self.paces[0] ** len(X)
        if self.renew:
            model, past = self._renewed(model, past, X)
        if self.follow is not None:
            model, past, self._memory = self.follow.update(model, past, X, y, memory=self._memory)
        else:
            past = past + summarise(model, X, y)
        self._past, self._held = past, []
        self._filters = [Filter.start(model, past)]

    def _renewed(self, model: Model, past: Statistics, X: np.ndarray) -> tuple[Model, Statistics]:
        budget = max(self.n_inducing, len(model.inducing))
        R = renewed(model, past, X, budget, NOVEL)
        if not np.array_equal(R, model.inducing):
            new = model.replace(inducing=R)
            past, loss = carried(past, model, new)
            self.loss += loss
            model = new
            self._memory = None
        return model, past
