"""An estimator for streams: rows come one or many at a time, and answers are there at once."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_count, as_floats, as_inputs, as_number, as_targets
from srgp.filtering import Filter
from srgp.model import Model
from srgp.onepass import OnePass
from srgp.scaling import Scaler
from srgp.statistics import Statistics
from srgp.streams.chunks import Chunks
from srgp.streams.scores import Prequential
from srgp.streams.settings import as_paces, as_seed, check_settings, check_size
from srgp.streams.start import FAR, LEAST, Doubt, WarmUp

EVERY = 16  # single rows between two applications of forgetting, which cost O(M³)
MEMORY = 0.99  # of the weights of several paces of forgetting, a row


class OnlineGP:
    """A sparse GP that learns from a stream, in constant memory, and scores itself on the way.

    model:      where it starts, in the units of the data. Or None: the first `warm_up` rows are
                held back, standardised, and kernel, noise and inducing inputs learned from them.
    n_inducing: inducing inputs, of that start and at most.
    warm_up:    rows for that start, at least 10. Before targets begin to differ, only the last
                row is kept.
    forgetting: factor in (0, 1] on what the past says, for each row. Several factors: as many
                filters side by side, weighed by how they have predicted lately, so that the pace of
                forgetting adapts; each costs as much as one.
    towards:    how: "less data", or "prior", a random walk whose stationary law is the prior (not
                with `follow` or `renew`: what is forgotten so has no sums to move).
    follow:     `srgp.OnePass`: kernel, noise and inducing inputs follow, after every chunk.
    renew:      inducing inputs move into new regions, after every chunk, at the price of those that
                others nearly replace, or of which little is known.
    chunk:      rows between two such moves; `loss` tells what they forgot, in nats.
    window:     rows of the recent scores.

    Before a row is learned it is predicted, and `scores` keeps the account. Where most of `warm_up`
    rows lie more than 30 deviations off, the first rows were nothing like the stream: a model that
    was made of them is made anew of these, and `restarts` counts it. Numbers beyond 1e100 are
    refused.

    >>> import numpy as np, srgp
    >>> rng = np.random.default_rng(0)
    >>> gp = srgp.OnlineGP(n_inducing=15, warm_up=100)
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
        check_settings(model, towards, follow, renew)
        self.n_inducing = as_count(n_inducing, "n_inducing")
        self.warm_up = max(as_count(warm_up, "warm_up"), LEAST)
        self.paces = as_paces(forgetting)
        self.towards, self.follow, self.renew = towards, follow, renew
        self.chunk, self.seed = as_count(chunk, "chunk"), as_seed(seed)
        self.scores = Prequential(window)
        self.rows = 0
        self.restarts = 0
        self._filters: list[Filter] = []
        self._log_weights = np.zeros(len(self.paces))
        self._pending = 0  # rows since forgetting was applied
        self._scaler: Scaler | None = None
        self._warm = WarmUp(self.warm_up, self.n_inducing, self.seed)
        self._doubt = Doubt(self.warm_up) if model is None else None  # a given model is not ours
        self._chunks: Chunks | None = None
        if follow is not None or renew:
            self._chunks = Chunks(self.paces, follow, renew, self.chunk, self.n_inducing)
        if model is not None:
            self._begin(model, Scaler.identity(model.inducing.shape[1], ()), None)

    # -- learning -----------------------------------------------------------------------------

    def learn_one(self, x: ArrayLike, y: float) -> None:
        """Predict one row x (D,), score the prediction, and learn y."""
        X, Y = self._checked(as_floats(x, "x")[None], [as_number(y, "y")])
        if not self._filters:
            self._hold(X, Y)
            return
        scaler = self._scaled()
        inputs, targets = self._scaled_rows(X, Y)
        sample, target = inputs[0], targets.item()
        found = [f.tested(sample, target) for f in self._filters]
        self._filters = [f for _, _, f in found]
        if len(found) == 1:
            ((mean, variance, _),) = found
            far = int(abs(target - mean) > FAR * math.sqrt(variance))
            spread = scaler.y_spread.item()
            mean = mean * spread + scaler.y_centre.item()
            self.scores.add_one(Y.item(), mean, spread**2 * variance)
        else:
            means, variances = (np.array([[each[i]] for each in found]) for i in (0, 1))
            far = self._account(Y, *self._mixed(means, variances))
            self._weigh(targets, means, variances)
        self.rows += 1
        self._pending += 1
        if self._pending >= EVERY:
            self._forget()
        self._learned(X, Y, inputs, targets, far)

    def learn_many(self, X: ArrayLike, y: ArrayLike) -> None:
        """Predict rows X (B, D) together, score the predictions, and learn y (B,).

        What the past says is forgotten once for all of them, before.
        """
        X, Y = self._checked(X, y)
        if not self._filters:
            self._hold(X, Y)
            return
        inputs, targets = self._scaled_rows(X, Y)
        means, variances = self._latent(inputs)
        far = self._account(Y, *self._mixed(means, variances))
        self._weigh(targets, means, variances)
        self.rows += len(Y)
        self._pending += len(Y)
        self._forget()
        self._filters = [f.update(inputs, targets) for f in self._filters]
        self._learned(X, Y, inputs, targets, far)

    # -- answers ------------------------------------------------------------------------------

    def predict_one(self, x: ArrayLike) -> tuple[float, float]:
        """Mean and deviation of a measurement at x (D,)."""
        mean, deviation = self.predict_many(as_floats(x, "x")[None])
        return float(mean[0]), float(deviation[0])

    def predict_many(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Means and deviations of measurements at X (B, D).

        While warming up: the mean of the targets so far, and their deviation, infinite at first.
        """
        X = as_inputs(X, columns=self._columns())
        if not self._filters:
            mean, deviation = self._warm.guess()
            return np.full(len(X), mean), np.full(len(X), deviation)
        return self._mixed(*self._latent(self._scaled().inputs(X)))

    @property
    def model(self) -> Model:
        """The model of the moment, of scaled data."""
        self._scaled()
        return self._filters[0].model

    @property
    def loss(self) -> float:
        """What moving kernel and inducing inputs has forgotten, in nats; see `srgp.move_loss`."""
        return 0.0 if self._chunks is None else self._chunks.loss

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

    def _columns(self) -> int | None:
        if self._filters:
            return int(self._filters[0].model.inducing.shape[1])
        return self._warm.columns

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        X = as_inputs(X, columns=self._columns())
        y = as_targets(y, len(X))
        if y.ndim > 1:
            raise ValueError("a stream has one target a row.")
        check_size(X, y)
        return X, y

    def _scaled(self) -> Scaler:
        if self._scaler is None:
            raise ValueError(f"still warming up: {self._warm.held} of {self.warm_up} rows.")
        return self._scaler

    def _scaled_rows(self, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaler = self._scaled()
        inputs, targets = scaler.inputs(X), scaler.targets(y)
        check_size(inputs, targets)
        return inputs, targets

    def _hold(self, X: np.ndarray, y: np.ndarray) -> None:
        start = self._warm.add(X, y)
        self.rows += len(y)
        if start is not None:
            self._begin(start.model, start.scaler, start.statistics)
            self._warm = WarmUp(self.warm_up, self.n_inducing, self.seed)

    def _begin(self, model: Model, scaler: Scaler, statistics: Statistics | None) -> None:
        self._scaler = scaler
        self._filters = [Filter.start(model, statistics) for _ in self.paces]
        self._log_weights = np.zeros(len(self.paces))
        self._pending = 0
        if self._chunks is not None:
            self._chunks.begin(model, statistics)

    def _learned(
        self, X: np.ndarray, y: np.ndarray, inputs: np.ndarray, targets: np.ndarray, far: int
    ) -> None:
        """What follows rows that have been learned: a new start, or moves after a chunk."""
        refuting = None if self._doubt is None else self._doubt.add(X, y, far)
        start = None if refuting is None else self._warm.add(*refuting)
        if start is not None:
            self._warm = WarmUp(self.warm_up, self.n_inducing, self.seed)
            self._begin(start.model, start.scaler, start.statistics)
            self.restarts += 1
        elif self._chunks is not None:
            lead = int(self._log_weights.argmax())
            if self._chunks.add(inputs, targets, lead):
                model = self._chunks.model
                self._filters = [Filter.start(model, past) for past in self._chunks.past]

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

    def _account(self, y: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> int:
        """Score predictions; how many targets were far off."""
        self.scores.add(y, mean, deviation**2)
        return int(np.sum(np.abs(y - mean) > FAR * deviation))

    def _weigh(self, targets: np.ndarray, means: np.ndarray, variances: np.ndarray) -> None:
        if len(self.paces) == 1:
            return
        density = -0.5 * (np.log(2.0 * np.pi * variances) + (targets - means) ** 2 / variances)
        for each in density.T:
            self._log_weights = MEMORY * self._log_weights + each
            self._log_weights -= self._log_weights.max()

    def _forget(self) -> None:
        if self._chunks is None:  # with sums, forgetting is a factor, once a chunk
            self._filters = [
                f if pace == 1.0 else f.forget(pace**self._pending, self.towards)
                for f, pace in zip(self._filters, self.paces, strict=True)
            ]
        self._pending = 0
