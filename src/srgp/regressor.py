"""The scikit-learn front: validation and vocabulary around the core, no mathematics."""

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from srgp import approximations, inducing, kernels, storage
from srgp.approximations import Approximation
from srgp.bound import log_bound
from srgp.checks import as_count, as_inputs
from srgp.kernels import Kernel, Stationary
from srgp.learners import SRGP, Auto, Callback, Exact, Learner, Sites, learn
from srgp.learners.auto import random_rows
from srgp.linalg import JitterWarning
from srgp.model import Model
from srgp.parameters import Prior
from srgp.posterior import Posterior, posterior
from srgp.precision import OnDevice
from srgp.scaling import Scaled, Scaler
from srgp.sources import Arrays, Source, as_source
from srgp.statistics import Statistics, block_rows, summarise_blocks

KERNELS: dict[str, type[Stationary]] = {
    "se": kernels.SE,
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rational_quadratic": kernels.RationalQuadratic,
}
APPROXIMATIONS: dict[str, Approximation] = {
    "sor": approximations.SoR(),
    "dtc": approximations.DTC(),
    "fitc": approximations.FITC(),
    "fic": approximations.FIC(),
    "pitc": approximations.PITC(),
    "vfe": approximations.VFE(),
    "pep": approximations.PEP(alpha=0.5),
    "tighter_vfe": approximations.TighterVFE(),
}
LEARNERS: dict[str, Any] = {kind.__name__: kind for kind in (Auto, Exact, Sites, SRGP)}
SAMPLE = 20_000  # rows from which inducing inputs and starting values are found
MERGED_BELOW = 10_000  # rows up to which repeated rows are looked for
PART = 4096  # rows of which samples are drawn jointly at most


@dataclasses.dataclass(frozen=True)
class Repeats:
    """What the bound lacks where a weight w means that a row stands w times, not one of σ²/w.

    Both give the same posterior; only the number of rows in n log 2πσ² differs, and so this is a
    function of σ² alone, which learning takes as a prior of the noise.
    """

    extra: float  # Q (Σ w − n)

    def __call__(self, noise: Any) -> Any:
        """−½ Q (Σ w − n) log 2πσ²."""
        return -0.5 * self.extra * jnp.log(2.0 * jnp.pi * noise)


class SparseGPRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process regression for many rows, behind the interface of scikit-learn.

    `fit` learns kernel, noise and inducing inputs, and the exact sparse posterior at them;
    `partial_fit` adds rows to that posterior exactly, as if all had been there from the start.

    kernel:        None or a name ("se", "matern12", "matern32", "matern52",
                   "rational_quadratic"): one lengthscale for each input, starting values from the
                   data. Or any kernel of `srgp.kernels`, as the start of learning (of
                   standardised data).
    n_inducing:    how many inducing inputs M; cost grows as M², detail with M. Fewer are used where
                   the data have fewer distinct rows.
    inducing:      "kmeans", "random" or "greedy", or an array (M, D) in the units of X.
    approximation: "vfe", "sor", "dtc", "fitc", "fic", "pitc", "pep", "tighter_vfe", or one of
                   `srgp` with settings, `srgp.PEP(alpha=0.3)`.
    learner:       "auto", "srgp", "exact", "sites", None to keep the starting values, or one with
                   settings, `srgp.Exact(iterations=50)`.
    batch_size, epochs: of the learners "srgp" and "sites" when given by name.
    forgetting:    factor in (0, 1] on what was learned before, at each `partial_fit`.
    standardize:   bring inputs and targets to mean 0 and deviation 1 inside.
    max_seconds:   end learning after so long.
    random_state:  the same seed gives the same model.
    verbose:       print a line a report while learning.

    `sample_weight` counts rows, as everywhere in scikit-learn: weight 2 is the row twice.

    >>> import numpy as np
    >>> from srgp import SparseGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (500, 1))
    >>> y = 5.0 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=500)
    >>> est = SparseGPRegressor(n_inducing=15).fit(X[:400], y[:400])
    >>> mean, deviation = est.predict([[1.5]], return_std=True)
    >>> print(f"{mean[0]:.1f} ± {deviation[0]:.1f}")
    6.0 ± 0.1
    >>> est.partial_fit(X[400:], y[400:]).n_samples_seen_
    500
    """

    def __init__(
        self,
        kernel: Kernel | str | None = None,
        n_inducing: int = 100,
        inducing: str | ArrayLike = "kmeans",
        approximation: Approximation | str = "vfe",
        learner: Learner | str | None = "auto",
        batch_size: int = 5000,
        epochs: int = 20,
        forgetting: float = 1.0,
        standardize: bool = True,
        max_seconds: float | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.approximation = approximation
        self.learner = learner
        self.batch_size = batch_size
        self.epochs = epochs
        self.forgetting = forgetting
        self.standardize = standardize
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    # -- learning -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (N, D) and y (N,) or (N, Q); what was learned before is gone."""
        return self._learn(self._source(X, y, sample_weight, reset=True))

    def fit_source(self, data: Any, callback: Callback | None = None) -> Self:
        """As `fit`, out of core: a `srgp.tables.Table`, a list of batches, or a function that
        starts a pass over batches (X, y) or (X, y, sample_weight). `callback` as in `srgp.learn`.

        >>> import numpy as np
        >>> from srgp import SparseGPRegressor
        >>> def passes():
        ...     for i in range(5):
        ...         X = np.random.default_rng(i).uniform(0, 6, (100, 1))
        ...         yield X, np.sin(X[:, 0])
        >>> SparseGPRegressor(n_inducing=10).fit_source(passes).n_samples_seen_
        500
        """
        source = as_source(data)
        self._learn(source, callback)
        # Only now: what could not be learned from changes nothing.
        self.n_features_in_ = len(self.scaler_.x_centre)
        names = getattr(source, "feature_names", None)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to the posterior, exactly, at the θ of `fit`; the first call is a `fit`.

        The same as one posterior over all rows, where `forgetting` is 1.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight)
        return self._add(self._source(X, y, sample_weight, reset=False))

    def partial_fit_source(self, data: Any) -> Self:
        """As `partial_fit`, out of core, in one pass; see `fit_source`."""
        source = as_source(data)
        return self._add(source) if hasattr(self, "model_") else self.fit_source(source)

    def unlearn(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take rows out of the posterior that were learned before, as if never seen."""
        check_is_fitted(self)
        if self.forgetting != 1.0:
            raise ValueError("rows that were partly forgotten cannot be unlearned exactly.")
        new, weight = self._summarise(self._source(X, y, sample_weight, reset=False))
        if weight > self.weight_seen_:
            raise ValueError(
                f"{weight:g} rows cannot be unlearned: only {self.weight_seen_:g} were learned."
            )
        self._set_statistics(self.statistics_ - new, self.weight_seen_ - weight)
        return self

    def merge(self, other: "SparseGPRegressor") -> Self:
        """Add what another regressor has learned, at the same θ and scaling, on rows of its own.

        Such a one is a copy of this one, given other data by `partial_fit` after `restart`.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        mine, theirs = self.scaler_.arrays(), other.scaler_.arrays()
        if any(not np.array_equal(mine[name], theirs[name]) for name in mine):
            raise ValueError(
                "these regressors standardise their data differently: merge copies of one fitted "
                "regressor, each given its own rows by `restart().partial_fit(X, y)`."
            )
        total = self.statistics_ + other.statistics_
        self._set_statistics(total, self.weight_seen_ + other.weight_seen_)
        return self

    def restart(self) -> Self:
        """Forget all rows, but keep θ and scaling: for learning other rows at the same θ."""
        check_is_fitted(self)
        self._set_statistics(0.0 * self.statistics_, 0.0)
        return self

    # -- answers ------------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = True,
    ) -> Any:
        """Mean at X (A, D); with it the deviation (A,) or the joint covariance (A, A) if asked.

        include_noise: of a new measurement y; otherwise of the function behind the measurements.
        For Q outputs, mean and deviation have shape (A, Q), the covariance (A, A, Q).
        """
        if return_std and return_cov:
            raise ValueError("ask for return_std or return_cov, not for both.")
        X = self._inputs(X)
        if return_cov:
            mean, _ = self.posterior_.predict(X)
            covariance = self.posterior_.covariance(X, noise=include_noise)
            scaled = np.multiply.outer(covariance, self.scaler_.y_spread**2)
            return self.scaler_.targets_back(mean), scaled
        mean, deviation = self._answer(X, include_noise)
        return (mean, deviation) if return_std else mean

    def predict_source(
        self, table: Any, keep: Any = (), include_noise: bool = True
    ) -> Iterator[dict[str, Any]]:
        """Predictions for a `srgp.tables.Table`, a part at a time, as columns for `write_table`.

        The columns are those to `keep` ("all" for every one), then mean and deviation; for several
        outputs mean_NAME and deviation_NAME of each target.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and tuple(table.feature_names) != tuple(names):
            raise ValueError(
                f"the table has the features {', '.join(table.feature_names)}, but "
                f"{', '.join(names)} were learned: open it with these as features."
            )
        count = self.scaler_.y_spread.size
        targets = self.target_names_ or tuple(str(i) for i in range(count))
        endings = [f"_{name}" for name in targets] if self.scaler_.y_spread.ndim else [""]
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
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        drawn = self.posterior_.sample(seed, X, n_samples, noise=include_noise)
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
        """The deviation of the measurement noise, in the units of y."""
        check_is_fitted(self)
        return np.sqrt(self.model_.noise) * self.scaler_.y_spread

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

    # -- files --------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write model, statistics, scaling, names and history to one file; see `srgp.storage`."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        storage.write(
            path,
            storage.Saved(
                model=self.model_,
                statistics=self.statistics_,
                scaler=self.scaler_.arrays(),
                feature_names=None if names is None else tuple(str(name) for name in names),
                target_names=self.target_names_,
                history=self.history_,
                settings={
                    "parameters": {name: _packed(v) for name, v in self.get_params(False).items()},
                    "weight_seen": self.weight_seen_,
                },
            ),
        )

    @classmethod
    def load(cls, path: str | Path, kernels: Iterable[type[Kernel]] = ()) -> Self:
        """The regressor that `save` wrote; `kernels` are classes of your own that it uses.

        It answers the same to the last bit, and can go on learning, merge and unlearn.
        """
        saved = storage.read(path, kernels)
        if saved.statistics is None or saved.scaler is None or "parameters" not in saved.settings:
            raise ValueError(f"{path} holds a model, but no regressor: read it with srgp.storage.")
        parameters = saved.settings["parameters"]
        est = cls(**{name: _unpacked(value) for name, value in parameters.items()})
        est.model_, est.scaler_ = saved.model, Scaler(**saved.scaler)
        est.n_features_in_ = len(est.scaler_.x_centre)
        if saved.feature_names is not None:
            est.feature_names_in_ = np.asarray(saved.feature_names, dtype=object)
        est.target_names_, est.history_ = saved.target_names, saved.history
        est._set_statistics(saved.statistics, float(saved.settings["weight_seen"]))
        return est

    # -- inside -------------------------------------------------------------------------------

    def _source(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> Arrays:
        X, y = validate_data(
            self, X, y, reset=reset, multi_output=True, y_numeric=True, dtype=np.float64
        )
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        source = Arrays(X, y, w)
        if not reset and source.y.shape[1:] != self.scaler_.y_spread.shape:
            raise ValueError(
                f"y has outputs of shape {source.y.shape[1:]}, but {self.scaler_.y_spread.shape} "
                "were learned."
            )
        return merge_repeats(source) if self._approximation().noise_free else source

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return self.scaler_.inputs(X)

    def _answer(self, X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation at scaled inputs, in the units of y."""
        mean, variance = self.posterior_.predict(X, noise=noise)
        return self.scaler_.targets_back(mean), np.sqrt(variance) * self.scaler_.y_spread

    def _learn(self, source: Source, callback: Callback | None = None) -> Self:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        approximation = self._approximation()
        scaler, weight = Scaler.of(source)
        if not self.standardize:
            scaler = Scaler.identity(len(scaler.x_spread), scaler.y_spread.shape)
        scaled = Scaled(source, scaler)
        with quiet():
            model = self._start(scaled, scaler, approximation, seed)
            priors: dict[str, Prior] = {}
            if approximation.noise_free and weight != source.present():
                priors["noise"] = Repeats(scaler.y_spread.size * (weight - source.present()))
            learner = self._learner()
            if learner is None:
                statistics, history = (
                    summarise_blocks(model, scaled.batches(block_rows(model))),
                    None,
                )
            else:
                learned = learn(
                    model,
                    scaled,
                    learner,
                    priors=priors,
                    callback=callback,
                    max_seconds=self.max_seconds,
                    progress=bool(self.verbose),
                    seed=seed,
                )
                model, statistics, history = learned.model, learned.statistics, learned.history
        self.model_, self.scaler_, self.history_ = model, scaler, history
        self.target_names_ = getattr(source, "target_names", None)
        self._set_statistics(statistics, self._rows(weight, statistics))
        return self

    def _add(self, source: Source) -> Self:
        if not 0.0 < self.forgetting <= 1.0:
            raise ValueError(f"forgetting must lie in (0, 1], got {self.forgetting}.")
        new, weight = self._summarise(source)
        kept = self.forgetting
        self._set_statistics(kept * self.statistics_ + new, kept * self.weight_seen_ + weight)
        return self

    def _summarise(self, source: Source) -> tuple[Statistics, float]:
        """One pass: the statistics of more rows, and how many they count for."""
        weight = 0.0

        def tallied() -> Any:
            nonlocal weight
            for batch in Scaled(source, self.scaler_).batches(block_rows(self.model_)):
                weight += float(batch[2].sum())
                yield batch

        statistics = summarise_blocks(self.model_, tallied())
        return statistics, self._rows(weight, statistics)

    def _rows(self, weight: float, statistics: Statistics) -> float:
        # Where V̄ ≠ 0, a weight is not a number of repetitions but a precision.
        return weight if self._approximation().noise_free else statistics.n

    def _set_statistics(self, statistics: Statistics, weight: float) -> None:
        self.statistics_, self.weight_seen_ = statistics, weight
        self._answers = _Answers(self.model_, statistics)

    def _approximation(self) -> Approximation:
        return _named(self.approximation, APPROXIMATIONS, Approximation, "approximation")

    def _learner(self) -> Learner | str | None:
        if self.learner == "srgp":
            return SRGP(batch_size=self.batch_size, epochs=self.epochs)
        if self.learner == "sites":
            return Sites(batch_size=self.batch_size, epochs=self.epochs)
        return self.learner

    def _start(
        self, scaled: Scaled, scaler: Scaler, approximation: Approximation, seed: int
    ) -> Model:
        """Kernel, noise and inducing inputs from a sample of the data."""
        sample = random_rows(scaled, SAMPLE, seed)
        X, y = sample.X, sample.y
        if isinstance(self.kernel, Kernel):
            kernel: Kernel = self.kernel
            noise = 0.1 * float(np.mean(np.var(y, 0))) or 0.1
        else:
            kind = _named(self.kernel or "se", KERNELS, type, "kernel")
            kernel, noise = inducing.starting_values(X, y, kind, seed)
        return Model(kernel, noise, self._inducing(X, kernel, scaler, seed), approximation)

    def _inducing(self, X: np.ndarray, kernel: Kernel, scaler: Scaler, seed: int) -> np.ndarray:
        if not isinstance(self.inducing, str):
            return scaler.inputs(as_inputs(self.inducing, "inducing", columns=X.shape[1]))
        if self.inducing not in ("kmeans", "random", "greedy"):
            raise ValueError(
                "inducing must be 'kmeans', 'random', 'greedy' or an array of inducing inputs, "
                f"got {self.inducing!r}."
            )
        M = as_count(self.n_inducing, "n_inducing")
        # Rows that are all different, or all that are there.
        distinct = np.unique(X, axis=0)
        if len(distinct) <= M:
            return distinct
        if self.inducing == "greedy":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return inducing.greedy(kernel, X, M, seed=seed)
        choose = inducing.kmeans if self.inducing == "kmeans" else inducing.random
        return choose(X, M, seed)


@dataclasses.dataclass(frozen=True)
class _Answers(OnDevice):
    """The posterior, made when first asked for."""

    model: Model
    statistics: Statistics

    @functools.cached_property
    def posterior(self) -> Posterior:
        with quiet():
            return posterior(self.model, self.statistics)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings of jitter, which `jitter_` tells: few guess how few points a function needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        yield


def merge_repeats(source: Arrays) -> Arrays:
    """Few rows: sorted, each distinct one once, with the sum of its weights.

    So that a row given twice, or once with weight 2, is the same to the last bit.
    """
    if len(source.X) > MERGED_BELOW:
        return source
    present = source.w > 0.0
    if not present.any():
        raise ValueError("every row has weight 0: there is nothing to learn from.")
    rows = np.column_stack([source.X, source.y])[present]
    distinct, where = np.unique(rows, axis=0, return_inverse=True)
    inputs = source.X.shape[1]
    y = distinct[:, inputs:].reshape(len(distinct), *source.y.shape[1:])
    return Arrays(distinct[:, :inputs], y, np.bincount(where.ravel(), source.w[present]))


def _named(value: Any, known: dict[str, Any], kind: type, what: str) -> Any:
    """One by its name, or as it is."""
    if isinstance(value, str) and value in known:
        return known[value]
    if isinstance(value, kind) and not isinstance(value, str):
        return value
    raise ValueError(f"{what} must be one of {', '.join(known)}, or one of srgp, got {value!r}.")


def _packed(value: Any) -> Any:
    """A constructor argument as `srgp.storage` can hold it."""
    if isinstance(value, Auto | Exact | Sites | SRGP):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"learner": type(value).__name__, "settings": fields}
    return int(value.randint(2**31 - 1)) if isinstance(value, np.random.RandomState) else value


def _unpacked(value: Any) -> Any:
    return LEARNERS[value["learner"]](**value["settings"]) if isinstance(value, dict) else value
