"""What a fitted regressor tells, in the user's units."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from srgp.bound import log_bound
from srgp.checks import finite
from srgp.kernels import Stationary
from srgp.linalg import quiet
from srgp.model import Model
from srgp.posterior import Posterior, posterior
from srgp.precision import OnDevice
from srgp.regressor.choices import check_names
from srgp.scaling import Scaler
from srgp.statistics import Statistics

PART = 4096  # rows of which samples are drawn jointly at most


class Answers:
    """Predictions, samples and learned parameters, from model, statistics and scaling."""

    model_: Model
    statistics_: Statistics
    scaler_: Scaler
    weight_seen_: float
    beginnings_: frozenset[str]  # names of the rows that learning began with
    target_names_: tuple[str, ...] | None
    _answers: "LazyPosterior"

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = True,
    ) -> Any:
        """Mean at X (A, D); with it the deviation (A,) or the joint covariance (A, A) if asked.

        include_noise: of a new measurement y; otherwise of the function behind the measurements.
        Where inducing inputs are too few for the function, VFE's σ² holds what they miss, which the
        variance of the function counts as well: a measurement adds only what the errors of the rows
        learned leave to it, `predictive_noise_std_`.
        For Q outputs, mean and deviation have shape (A, Q), the covariance (A, A, Q).
        """
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not for both.")
        X = self._inputs(X)
        if return_cov:
            with quiet():
                mean, _ = self.posterior_.predict(X)
                covariance = self.posterior_.covariance(X)
            # (A, A), or (A, A, Q): the outputs share the function's, but not the noise.
            shared = np.multiply.outer(covariance, np.ones_like(self.scaler_.y_spread))
            added = np.multiply.outer(np.eye(len(X)), self._noise(include_noise))
            return self.scaler_.targets_back(mean), (shared + added) * self.scaler_.y_spread**2
        mean, deviation = self._answer(X, include_noise)
        return (mean, deviation) if return_std else mean

    def predict_source(
        self, table: Any, keep: Any = (), include_noise: bool = True
    ) -> Iterator[dict[str, Any]]:
        """Predictions for a `srgp.tables.Table`, a part at a time, as columns for `write_table`.

        The columns are those to `keep` ("all" for every one), then mean and deviation; for several
        outputs mean_NAME and deviation_NAME of each target. A column to keep must not be so named.
        """
        check_is_fitted(self)
        known = getattr(self, "feature_names_in_", None)
        check_names(known, table.feature_names, "features")
        count = self.scaler_.y_spread.size
        targets = self.target_names_ or tuple(str(i) for i in range(count))
        endings = [f"_{name}" for name in targets] if self.scaler_.y_spread.ndim else [""]
        table.refuse_kept(keep, [name + end for end in endings for name in ("mean", "deviation")])
        for part in table.inputs(keep=keep):
            mean, deviation = self._answer(self.scaler_.inputs(part.X), include_noise)
            answers = {"mean": mean.reshape(-1, count), "deviation": deviation.reshape(-1, count)}
            columns = {
                name + ending: values[:, i]
                for i, ending in enumerate(endings)
                for name, values in answers.items()
            }
            yield {**part.columns, **columns}

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        include_noise: bool = False,
    ) -> np.ndarray:
        """Joint draws at X (A, D), of shape (A, n_samples) or (A, Q, n_samples)."""
        X = self._inputs(X)
        if len(X) > PART:
            raise ValueError(
                f"joint samples at {len(X)} points need a covariance of as many rows and columns: "
                f"sample at {PART} at most, or use est.posterior_.sample_functions."
            )
        random = check_random_state(random_state)
        with quiet():
            drawn = self.posterior_.sample(int(random.randint(2**31 - 1)), X, n_samples)
        if include_noise:
            drawn = drawn + np.sqrt(self._noise(True)) * random.standard_normal(drawn.shape)
        return np.moveaxis(self.scaler_.targets_back(drawn), 0, -1)

    @property
    def posterior_(self) -> Posterior:
        """The posterior in the model's own units, with all that `srgp.Posterior` offers."""
        check_is_fitted(self)
        return self._answers.posterior

    @property
    def bound_(self) -> float:
        """The bound of the log marginal likelihood of all rows learned, in the units of y."""
        check_is_fitted(self)
        outputs, s = self.scaler_.y_spread.size, self.statistics_
        with quiet():
            bound = log_bound(self.model_, s)
        if self.model_.approximation.noise_free:
            # As `Repeats`; and log_noise here is −Σ log w, in the bound of weights as precisions.
            extra = (self.weight_seen_ - s.n) * np.log(2.0 * np.pi * self.model_.noise)
            bound -= 0.5 * outputs * float(extra - s.sums.log_noise)
        return bound - self.weight_seen_ * self.scaler_.log_scale()

    @property
    def n_samples_seen_(self) -> int:
        """How many rows are in the posterior; forgotten ones count by what is left of them."""
        check_is_fitted(self)
        return round(self.weight_seen_)

    @property
    def jitter_(self) -> float:
        """What was added to the diagonal of K_RR, as a share of its largest entry: mostly 0."""
        check_is_fitted(self)
        with quiet():
            return self.model_.jitter

    @property
    def noise_std_(self) -> np.ndarray:
        """The deviation σ of the model's noise, in the units of y."""
        check_is_fitted(self)
        return np.sqrt(self.model_.noise) * self.scaler_.y_spread

    @property
    def predictive_noise_std_(self) -> np.ndarray:
        """The deviation that `include_noise` adds: σ, less what the function's variance counts.

        Of Q outputs each has its own, as large as its errors ask for.
        """
        check_is_fitted(self)
        return np.sqrt(self._answers.noise) * self.scaler_.y_spread

    @property
    def lengthscales_(self) -> np.ndarray:
        """The lengthscales of a stationary kernel, one for each input, in the units of X."""
        check_is_fitted(self)
        if not isinstance(self.model_.kernel, Stationary):
            raise AttributeError(f"{self.model_.kernel!r} has no lengthscales of its own.")
        kernel = self.model_.kernel
        spread = self.scaler_.x_spread
        chosen = spread if kernel.active_dims is None else spread[list(kernel.active_dims)]
        return np.asarray(kernel.lengthscales * chosen)

    @property
    def inducing_points_(self) -> np.ndarray:
        """The inducing inputs, (M, D), in the units of X."""
        check_is_fitted(self)
        return self.scaler_.inputs_back(self.model_.inducing)

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.scaler_.inputs(X)

    def _noise(self, include: bool) -> np.ndarray:
        return self._answers.noise if include else np.zeros_like(self.scaler_.y_spread)

    def _answer(self, X: np.ndarray, include_noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation at scaled inputs, in the units of y."""
        with quiet():
            mean, variance = self.posterior_.predict(X)
        deviation = np.sqrt(variance + self._noise(include_noise))
        finite(deviation, "the predicted deviation")
        return self.scaler_.targets_back(mean), deviation * self.scaler_.y_spread


@dataclasses.dataclass(frozen=True)
class LazyPosterior(OnDevice):
    """The posterior, made when first asked for; weight: how many rows it counts."""

    model: Model
    statistics: Statistics
    weight: float

    @functools.cached_property
    def posterior(self) -> Posterior:
        """Predictions in the model's own units."""
        with quiet():
            return posterior(self.model, self.statistics)

    @functools.cached_property
    def noise(self) -> np.ndarray:
        """The variance of a measurement around the function, as the rows learned show it.

        With e the residuals of the posterior mean v̄ and d the variance that R leaves unexplained,
        VFE's bound is largest at σ² = mean(e²) + σ²tr(AΣ)/n + d̄, while predictions have the
        variance q + d_* + σ². Their errors are mean(e²) + 2σ²tr(AΣ)/n, and q is σ²tr(AΣ)/n on
        average: so d̄ is counted twice, and τ = mean(e²) + σ²tr(AΣ)/n − d̄ is what is left for the
        noise. All of it comes from the sums.

        Q outputs share σ², the mean of what each of them asks for, σ_q², in proportion to its
        mean(e²) + d̄. The errors of each are mean(e²) + 2σ_q²tr(AΣ)/n, so that τ, of shape (Q,), is
        mean(e²) + (2σ_q² − σ²)tr(AΣ)/n − d̄. It is kept below Qσ², and above a tenth of
        mean(e²) + σ_q²tr(AΣ)/n.
        """
        noise, sums = float(self.model.noise), self.statistics.sums
        outputs = np.shape(sums.c)
        if not self.model.approximation.noise_free or self.weight <= 0.0:
            return np.full(outputs, noise)
        v, root = (np.asarray(a) for a in (self.posterior._mean, self.posterior._root))
        squares = sums.c - 2.0 * np.sum(sums.b * v, 0) + np.sum(v * (sums.A @ v), 0)
        errors = np.maximum(squares, 0.0) / self.weight
        explained = max(len(root) - np.sum(root**2), 0.0) / self.weight  # tr(AΣ) = M − tr Σ
        unexplained = 2.0 * sums.a / self.weight
        asked = errors + unexplained
        own = noise * asked / np.mean(asked) if np.mean(asked) > 0.0 else np.full(outputs, noise)
        left = errors + (2.0 * own - noise) * explained - unexplained
        most = noise * max(np.size(errors), 1)
        return np.asarray(np.clip(left, 0.1 * np.minimum(errors + own * explained, most), most))
