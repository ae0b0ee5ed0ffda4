"""The regressor: learning, more data and less."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from srgp import storage
from srgp.approximations import Approximation
from srgp.kernels import Kernel
from srgp.kernels.describing import describe
from srgp.learners import SRGP, Callback, History, Learner, Sites, learn, printing
from srgp.linalg import quiet
from srgp.moving import carried
from srgp.onepass import Followed, OnePass
from srgp.parameters import Prior
from srgp.regressor.choices import (
    APPROXIMATIONS,
    as_rows,
    check_alike,
    check_names,
    client_of,
    job,
    named,
    refuse_text_of_frames,
    tells_nothing,
)
from srgp.regressor.memory import Remembered
from srgp.regressor.places import both
from srgp.regressor.start import SAMPLE, starting_model
from srgp.regressor.weights import Repeats, check_left, merge_repeats
from srgp.scaling import Scaled, Scaler, scaled
from srgp.sources import Arrays, Source
from srgp.statistics import (
    Statistics,
    known_count,
    rows_for,
    summarise_source,
    summarise_weighed,
)

FOLLOWED = 2000  # rows of a batch that θ follows, at most


class SparseGPRegressor(Remembered, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process regression for many rows, behind the interface of scikit-learn.

    `fit` learns kernel, noise and inducing inputs, and the exact sparse posterior at them;
    `partial_fit` adds rows to that posterior exactly, as if all had been there from the start,
    or, with `adapt`, lets kernel, noise and inducing inputs follow the data.

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
    batch_size, epochs: of the learners "srgp" and "sites" when given by name; None: their own.
    forgetting:    factor in (0, 1] on what was learned before, at each `partial_fit`.
    adapt:         True, or `srgp.OnePass` with settings: `partial_fit` also takes a few steps of
                   learning with each batch. Rows are still seen once, and then known by their sums
                   alone.
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
        batch_size: int | None = None,
        epochs: int | None = None,
        forgetting: float = 1.0,
        adapt: bool | OnePass = False,
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
        self.adapt = adapt
        self.standardize = standardize
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.verbose = verbose

    # -- learning -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from X (N, D) and y (N,) or (N, Q); what was learned before is gone."""
        before = dict(vars(self))
        try:
            return self._learn(self._source(X, y, sample_weight, reset=True))
        except BaseException:
            # scikit-learn's checks have taken down names and number of columns already.
            self.__dict__ = before
            raise

    def fit_source(
        self,
        data: Any,
        callback: Callback | None = None,
        checkpoint: storage.Checkpoint | None = None,
        client: Any = None,
    ) -> Self:
        """As `fit`, out of core: a `srgp.tables.Table`, a list of batches, or a function that
        starts a pass over batches (X, y) or (X, y, sample_weight). `callback` and `checkpoint` as
        in `srgp.learn`. With the client of a Dask cluster, the address of its scheduler, or
        "local" for one of this machine's cores: on all its workers, from what
        `srgp.distributed.Partitions.of` takes.

        >>> import numpy as np
        >>> from srgp import SparseGPRegressor
        >>> def passes():
        ...     for i in range(5):
        ...         X = np.random.default_rng(i).uniform(0, 6, (100, 1))
        ...         yield X, np.sin(X[:, 0])
        >>> SparseGPRegressor(n_inducing=10).fit_source(passes).n_samples_seen_
        500
        """
        with client_of(client) as connected:
            source = as_rows(data, connected)
            self._learn(source, callback, checkpoint)
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

        The same as one posterior over all rows, where `forgetting` is 1 and `adapt` is False.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight)
        return self._add(self._source(X, y, sample_weight, reset=False))

    def partial_fit_source(self, data: Any, client: Any = None) -> Self:
        """As `partial_fit`, out of core, in one pass; see `fit_source`.

        A generator of batches will do, once there is a model. A table must have the columns that
        were learned, in their order.
        """
        if not hasattr(self, "model_"):
            return self.fit_source(data, client=client)
        with client_of(client) as connected:
            source = as_rows(data, connected, once=True)
            features = getattr(self, "feature_names_in_", None)
            check_names(features, getattr(source, "feature_names", None), "features")
            check_names(self.target_names_, getattr(source, "target_names", None), "targets")
            return self._add(source)

    def unlearn(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Take rows out of the posterior that were learned before, as if never seen.

        Sums do not know their rows: others may be taken out without notice. More rows than were
        learned are refused, and rows without which the sums would be impossible; nothing changes
        then.
        """
        check_is_fitted(self)
        if self.forgetting != 1.0:
            raise ValueError("rows that were partly forgotten cannot be unlearned exactly.")
        if self.adapt:
            raise ValueError(
                "rows learned at another θ, with `adapt`, cannot be unlearned exactly."
            )
        new, weight = self._summarise(self._source(X, y, sample_weight, reset=False))
        if weight > self.weight_seen_:
            raise ValueError(
                f"{weight:g} rows cannot be unlearned: only {self.weight_seen_:g} were learned."
            )
        left = self.statistics_ - new
        check_left(self.statistics_, left)
        self._set_statistics(left, self.weight_seen_ - weight)
        return self

    def merge(self, other: "SparseGPRegressor", move: bool = False) -> Self:
        """Add what another regressor has learned, on rows of its own, at the same scaling and θ.

        Such a one is a copy of this one, given other data by `partial_fit` after `restart`. One of
        another θ is refused, or, with `move`, carried over to the θ of this one: `merge_loss_` is
        what that costs the bound, 0 where nothing was lost. What another kernel would have made of
        the rows it cannot tell, and a warning says so. Another one tells where both began with the
        same rows, which then count twice.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        for name in ("feature_names_in_", "target_names_"):
            check_alike(getattr(self, name, None), getattr(other, name, None))
        mine, theirs = self.scaler_.arrays(), other.scaler_.arrays()
        if any(not np.array_equal(mine[name], theirs[name]) for name in mine):
            raise ValueError(
                "these regressors standardise their data differently, and their sums cannot be "
                "brought together, moved or not: merge copies of one fitted regressor, each given "
                "its own rows by `restart().partial_fit(X, y)`."
            )
        added, loss = other.statistics_, 0.0
        if move and other.model_.fingerprint != self.model_.fingerprint:
            added, loss = carried(added, other.model_, self.model_)
            if describe(other.model_.kernel) != describe(self.model_.kernel):
                warnings.warn(
                    "the kernels differ: what the other learned was seen through its own kernel, "
                    "and what that costs is not in merge_loss_. Where rows can be had again, learn "
                    "them at one θ, by `restart().partial_fit(X, y)`.",
                    stacklevel=2,
                )
        total = self.statistics_ + added
        if self.beginnings_ & other.beginnings_:
            warnings.warn(
                "both began with the same rows, which now count twice: models to be merged learn "
                "each from rows of its own, by `restart().partial_fit(X, y)`.",
                stacklevel=2,
            )
        self.beginnings_ |= other.beginnings_
        self._set_statistics(total, self.weight_seen_ + other.weight_seen_)
        self.merge_loss_, self.streams_ = loss, both(self._streams(), other._streams())
        return self

    def restart(self) -> Self:
        """Forget all rows, but keep θ and scaling: for learning other rows at the same θ."""
        check_is_fitted(self)
        self.beginnings_ = frozenset()
        self._set_statistics(0.0 * self.statistics_, 0.0)
        self.streams_ = {}
        return self

    # -- inside -------------------------------------------------------------------------------

    def _source(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> Arrays:
        checks = {"multi_output": True, "y_numeric": True, "dtype": np.float64}
        try:
            X, y = validate_data(self, X, y, reset=reset, **checks)
        except (TypeError, ValueError):
            refuse_text_of_frames(X)  # by name
            raise
        w = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        source = Arrays(X, y, w)
        if not reset and source.y.shape[1:] != self.scaler_.y_spread.shape:
            shapes = (source.y.shape[1:], self.scaler_.y_spread.shape)
            given, learned = (f"shape (rows, {s[0]})" if s else "shape (rows,)" for s in shapes)
            raise ValueError(f"y has {given}, but {learned} was learned: give the same targets.")
        return merge_repeats(source) if self._approximation().noise_free else source

    def _learn(
        self,
        source: Source,
        callback: Callback | None = None,
        checkpoint: storage.Checkpoint | None = None,
    ) -> Self:
        if not isinstance(self.standardize, bool | np.bool_):
            raise ValueError(f"standardize must be True or False, got {self.standardize!r}.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        approximation, learner = self._approximation(), self._learner()
        if checkpoint is not None:
            checkpoint.check(job(self.get_params(False), learner, seed, source))
        some, scaler, weight = Scaler.with_rows(source, SAMPLE, seed)
        if tells_nothing(some[1], scaler.y_spread):
            learner = None
        if not self.standardize:
            scaler = Scaler.identity(len(scaler.x_spread), scaler.y_spread.shape)
        rows = scaled(source, scaler)
        with quiet():
            chosen = (self.kernel, self.n_inducing, self.inducing, approximation)
            X, y = scaler.inputs(some[0]), scaler.targets(some[1])
            model = starting_model(X, y, scaler, *chosen, seed)
            if checkpoint is not None:
                # Another machine may round differently when it goes on.
                points = checkpoint.step(lambda: model.inducing, model.inducing)
                model = model.replace(inducing=points)
            priors: dict[str, Prior] = {}
            if approximation.noise_free and weight != source.present():
                priors["noise"] = Repeats(scaler.y_spread.size * (weight - source.present()))
            shift = -weight * scaler.log_scale()  # bounds are told in the units of y
            if learner is None:
                statistics, history = summarise_source(model, rows), None
            else:
                learned = learn(
                    model,
                    rows,
                    learner,
                    priors=priors,
                    callback=_in_units(printing(callback) if self.verbose else callback, shift),
                    max_seconds=self.max_seconds,
                    seed=seed,
                    checkpoint=checkpoint,
                )
                model, statistics = learned.model, learned.statistics
                history = History(record.shifted(shift) for record in learned.history)
        self.model_, self.scaler_, self.history_ = model, scaler, history
        self._memory = None
        self.streams_ = {}
        self.target_names_ = getattr(source, "target_names", None)
        self.beginnings_ = frozenset()
        self._set_statistics(statistics, self._rows(weight, statistics))
        return self

    def _add(self, source: Source) -> Self:
        if not 0.0 < self.forgetting <= 1.0:
            raise ValueError(f"forgetting must lie in (0, 1], got {self.forgetting}.")
        if self.adapt:
            return self._follow(source)
        new, weight = self._summarise(source)
        kept = self.forgetting
        self._set_statistics(kept * self.statistics_ + new, kept * self.weight_seen_ + weight)
        return self

    def _follow(self, source: Source) -> Self:
        """As `_add`, with θ following batch by batch."""
        follow = OnePass() if self.adapt is True else self.adapt
        if not isinstance(follow, OnePass):
            raise ValueError(f"adapt must be True, False or a srgp.OnePass, got {self.adapt!r}.")
        counts = self._approximation().noise_free  # weights count rows
        weight = self.forgetting * self.weight_seen_
        past = self.forgetting * self.statistics_
        at = Followed(self.model_, past, getattr(self, "_memory", None))
        most = self.batch_size or FOLLOWED
        rows = rows_for(self.model_, known_count(source) or most, at_most=most)
        with quiet():
            for X, y, w in Scaled(source, self.scaler_).batches(rows):
                n = float((w > 0.0).sum())
                weight += float(w.sum()) if counts else n
                beyond = weight - (at.statistics.n + n) if counts else 0.0
                at = follow.update(at.model, at.statistics, X, y, w, at.memory, beyond)
        self.model_, self._memory = at.model, at.memory
        self._set_statistics(at.statistics, weight)
        return self

    def _summarise(self, source: Source) -> tuple[Statistics, float]:
        """One pass: the statistics of more rows, and how many they count for."""
        with quiet():
            statistics, weight = summarise_weighed(self.model_, scaled(source, self.scaler_))
        return statistics, self._rows(weight, statistics)

    def _rows(self, weight: float, statistics: Statistics) -> float:
        # Where V̄ ≠ 0, a weight is not a number of repetitions but a precision.
        return weight if self._approximation().noise_free else statistics.n

    def _approximation(self) -> Approximation:
        return named(self.approximation, APPROXIMATIONS, Approximation, "approximation")

    def _learner(self) -> Learner | str | None:
        if not (isinstance(self.learner, str) and self.learner in ("srgp", "sites")):
            return self.learner
        given = {"batch_size": self.batch_size, "epochs": self.epochs}
        kind: Any = {"srgp": SRGP, "sites": Sites}[self.learner]
        made: Learner = kind(**{name: v for name, v in given.items() if v is not None})
        return made


def _in_units(callback: Callback | None, shift: float) -> Callback | None:
    if callback is None:
        return None
    return lambda record, model: callback(record.shifted(shift), model)
