"""The same posterior, one sample at a time: a square-root Kalman filter in whitened coordinates."""

import dataclasses
import math
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from srgp import recursion
from srgp.approximations import PITC
from srgp.bound import report_weights
from srgp.checks import (
    LARGEST,
    REAL,
    as_floats,
    as_inputs,
    as_number,
    as_targets,
    as_weights,
    finite,
    padded_blocks,
)
from srgp.linalg import report_jitter
from srgp.model import Model
from srgp.moving import check_comparable, noise_ratio, transfer
from srgp.posterior import Posterior
from srgp.precision import OnDevice, double
from srgp.recursion import State
from srgp.single import Step
from srgp.statistics import Statistics, check_belongs

# Rows that one compiled call takes in; a shorter batch is padded, but only its own rows are run.
BLOCK = 128
# Weights of a sample for which no square or ratio can overflow.
USUAL = (1e-100, 1e100)


# What a sample mostly comes as; anything else is looked at before float64 makes a number of it.
ROWS = frozenset({np.ndarray, list, tuple})
NUMBERS = frozenset({float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_})


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Filter(OnDevice):
    """Kalman form of a sparse GP at fixed θ: a sample costs O(M²), and nothing grows with time.

    Immutable: `update` returns a new filter and leaves the old one as it was. After any sequence of
    updates, posterior and cumulative bound equal the batch ones. `state` holds them as arrays of
    NumPy or JAX, and can be differentiated forwards, inside `with jax.enable_x64(True)`.

    >>> import numpy as np, srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=np.linspace(0, 1, 5)[:, None])
    >>> X, y = np.linspace(0, 1, 20)[:, None], np.linspace(0, 2, 20)
    >>> f = srgp.Filter.start(model)
    >>> for x_k, y_k in zip(X, y):
    ...     f = f.update(x_k, y_k)
    >>> f
    Filter(rows=20, inducing=5, log_bound=-2.477)
    >>> bool(np.isclose(f.log_bound, srgp.log_bound(model, srgp.summarise(model, X, y))))
    True
    """

    model: Model
    state: State

    @classmethod
    @double
    def start(cls, model: Model, statistics: Statistics | None = None) -> Self:
        """A filter that has seen nothing, or what `statistics` sum up.

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
        >>> srgp.Filter.start(model, srgp.summarise(model, [[0.0]], [1.0])).n
        1.0
        """
        M = len(model.inducing)
        if statistics is None:
            return cls(model, State(jnp.zeros(M), jnp.eye(M), jnp.zeros(()), jnp.zeros(())))
        check_belongs(model, statistics)
        state, weights = recursion.from_sums(model.approximation, statistics.sums, model.noise)
        report_weights(weights)
        return cls(model, state)

    def update(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn a batch X (B, D), y (B,) or (B, Q); or one sample x (D,) with a number y.

            r = y − hᵀμ,   s = hᵀΣh + v,   μ ← μ + Σh r/s,   Σ ← Σ − Σh hᵀΣ/s,
            ψ = log N(r; 0, s) − a

        (paper: eq. 16, 23) row by row, with Σ = SSᵀ carried as its root S (Potter's form).

        >>> import srgp
        >>> f = srgp.Filter.start(srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]]))
        >>> f.update([0.0], 1.0).predict([[0.0]])
        (array([0.5]), array([0.5]))
        >>> f.update([[0.0], [0.0]], [1.0, 1.0]).n
        2.0
        """
        if np.ndim(X) == 1 and np.ndim(y) == 0:
            return self._update_one(X, y, 1.0 if sample_weight is None else sample_weight)
        if np.ndim(X) == 1:
            raise ValueError(
                f"one sample is x of shape (D,) with a number y, but y has shape {np.shape(y)}: "
                "use X.reshape(-1, 1) for a batch with a single input, or update([x], [y]) for one "
                "sample with several outputs."
            )
        return self._update_many(X, y, sample_weight)

    @double
    def _update_many(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        X = as_inputs(X, columns=self.model.inducing.shape[1])
        y = as_targets(y, len(X))
        weights = as_weights(sample_weight, len(X))
        approximation = self.model.approximation
        rows = BLOCK
        if isinstance(approximation, PITC):  # whole blocks of its own
            rows = max(BLOCK // approximation.block_size, 1) * approximation.block_size
        state, count = self._with_outputs(y.shape[1:]), len(X)
        for i, block in enumerate(padded_blocks((X, y, weights), rows)):
            here = np.int32(min(rows, count - i * rows))
            seen = recursion.observed(approximation, self.model.basis, *block)
            state = recursion.learned(state, seen, here)
        return self._at(state)

    def _update_one(self, x: Any, y: Any, weight: Any) -> Self:
        sample = self._as_sample(x, y, weight)
        if sample is None or self.state.mean.ndim > 1:
            # The same sample as a batch of one, whose checks say what is wrong with it.
            X, Y = as_floats(x, "X")[None], as_floats(y, "y")[None]
            return self._update_many(X, Y, np.reshape(weight, (1,)))
        if self._on_host and USUAL[0] < sample[-1] < USUAL[1]:
            return self._after(self._single(sample))
        return self._compiled(sample)

    def _as_sample(self, x: Any, y: Any, weight: Any = 1.0) -> np.ndarray | None:
        """x, y and weight in one array, or None where a batch's checks have to look at them."""
        # One array, one check, one transfer: microseconds count here.
        sample = np.empty(self.model.inducing.shape[1] + 2)
        if type(x) not in ROWS or type(y) not in NUMBERS or type(weight) not in NUMBERS:
            x, y, weight = as_floats(x, "X"), as_floats(y, "y"), as_floats(weight, "sample_weight")
            if y.ndim or weight.ndim:
                return None
        row = np.asarray(x)
        if row.dtype.kind not in REAL or len(row) != len(sample) - 2:
            return None
        try:
            sample[:-2], sample[-2], sample[-1] = row, y, weight
        except (ValueError, OverflowError):
            return None
        # NaN compares false; what is merely too large takes the slow way, too.
        fine = math.hypot(*sample.tolist()) <= LARGEST and sample[-1] >= 0.0
        return sample if fine else None

    @property
    def _on_host(self) -> bool:
        return self.model.single is not None and not isinstance(self.state.mean, jax.core.Tracer)

    def _single(self, sample: np.ndarray) -> Step:
        """One sample in NumPy: the fast way, where the kernel allows it."""
        assert self.model.single is not None
        mean, root = np.asarray(self.state.mean), np.asarray(self.state.root)
        return self.model.single.update(mean, root, sample[:-2], sample.item(-2), sample.item(-1))

    def _after(self, step: Step) -> Self:
        log_bound, n = np.asarray(self.state.log_bound), np.asarray(self.state.n)
        return self._at(State(step.mean, step.root, log_bound + step.psi, n + 1.0))  # type: ignore[arg-type]

    @double
    def _compiled(self, sample: np.ndarray) -> Self:
        basis = self.model.slim_basis
        return self._at(recursion.update_one(self.model.approximation, basis, self.state, sample))

    def tested(self, x: ArrayLike, y: float) -> tuple[float, float, Self]:
        """Test, then train: mean and variance (with noise) of y at x (D,) before y is known, and
        the filter that has learned it; one call for both, O(M²).

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
        >>> mean, variance, f = srgp.Filter.start(model).tested([0.0], 2.0)
        >>> mean, variance, f.predict([[0.0]])[0]
        (0.0, 2.0, array([1.]))
        """
        sample = self._as_sample(x, y)
        if sample is None:
            (row,) = as_inputs(as_floats(x, "X")[None], columns=self.model.inducing.shape[1])
            sample = np.append(row, (*as_targets([as_number(y, "y")], 1), 1.0))
        if self.state.mean.ndim > 1:
            raise ValueError("tested learns one output; use predict and update for several.")
        if self._on_host:
            step = self._single(sample)
            variance = step.variance + float(self.model.noise)
            if not math.isfinite(step.expected + variance):
                finite(np.array([step.expected, variance]), "the prediction")
            return step.expected, variance, self._after(step)
        before, variances = self.predict(sample[None, :-2], noise=True)
        return before.item(), variances.item(), self._compiled(sample)

    @property
    def log_bound(self) -> float:
        """The cumulative bound Σ_k ψ_k, ψ_k = log p(y_k | y_1:k−1) − a_k."""
        return float(finite(np.asarray(self.state.log_bound), "the cumulative bound"))

    @property
    def n(self) -> float:
        """How many rows were learned; a fraction where it started from forgotten statistics."""
        return float(self.state.n)

    @property
    def posterior(self) -> Posterior:
        """The current posterior, with covariances and samples."""
        return Posterior(self.model, self.state.mean, self.state.root)

    def predict(self, X: ArrayLike, noise: bool | float = False) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance at X (A, D), as `Posterior.predict`.

        >>> import srgp
        >>> f = srgp.Filter.start(srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]]))
        >>> f.predict([[0.0]], noise=True)
        (array([0.]), array([2.]))
        """
        return self.posterior.predict(X, noise)

    @double
    def forget(self, factor: float, towards: Literal["less data", "prior"] = "less data") -> Self:
        """Let the past count less, by a factor λ in (0, 1]; O(M³).

        "less data": exponential forgetting. The information of all data is multiplied by λ and the
                     prior is kept: the same as `factor * statistics`.
        "prior":     back to the prior. μ ← √λ μ, Σ ← λΣ + (1−λ)K_RR, a random walk of the function
                     whose stationary law is the prior (van Vaerenbergh et al. 2012).

        The cumulative bound goes on: it is the log density of the rows as they were predicted.

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
        >>> f = srgp.Filter.start(model).update([0.0], 1.0)
        >>> f.forget(0.5).predict([[0.0]])[1].round(3), f.forget(0.5, "prior").predict([[0.0]])[1]
        (array([0.667]), array([0.75]))
        """
        factor = as_number(factor, "the forgetting factor")
        if not 0.0 < factor <= 1.0:
            raise ValueError(f"the forgetting factor must lie in (0, 1], got {factor}.")
        rules = {"less data": recursion.forget_data, "prior": recursion.forget_towards_prior}
        if towards not in tuple(rules):
            raise ValueError(f"towards must be 'less data' or 'prior', got {towards!r}.")
        if factor == 1.0:  # squaring the root would cost half of its digits for nothing
            return self
        return self._at(rules[towards](self.state, factor))

    @double
    def move(self, new_model: Model) -> Self:
        """Carry the posterior to new inducing inputs and hyper-parameters; see `srgp.move`.

        The cumulative bound goes on from where it was. Exact where the kernel stays and the new
        inducing inputs contain the old ones:

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
        >>> f = srgp.Filter.start(model).update([[0.2], [0.9]], [1.0, 2.0])
        >>> g = f.move(model.replace(inducing=[[0.0], [0.5], [1.0]]))
        >>> f.predict([[0.4]])[0].round(6), g.predict([[0.4]])[0].round(6)
        (array([1.325932]), array([1.325932]))
        """
        check_comparable(self.model, new_model)
        G = transfer(self.model.basis, new_model.basis)
        state, lower, jitter = recursion.moved(self.state, G, noise_ratio(self.model, new_model))
        report_jitter(
            np.asarray(lower),
            float(jitter),
            "the posterior precision of the new inducing points",
            "The new model explains the old inducing points badly: move in smaller steps.",
        )
        return dataclasses.replace(self, model=new_model, state=state)

    @double
    def move_loss(self, new_model: Model) -> float:
        """What `move` would forget, in nats, ½ tr Λ(K_RR − Q_RR): see `srgp.move_loss`.

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
        >>> f = srgp.Filter.start(model).update([[0.2], [0.9]], [1.0, 2.0])
        >>> print(f"{f.move_loss(model.replace(inducing=[[0.1], [1.0]])):.3f}")
        0.015
        """
        check_comparable(self.model, new_model)
        outputs = self.state.mean[0].size
        lost = recursion.lost(self.model.basis, new_model.basis, self.state.root)
        return float(outputs * noise_ratio(self.model, new_model) * max(float(lost), 0.0))

    def _at(self, state: State) -> Self:
        return type(self)(self.model, state)

    def _with_outputs(self, outputs: tuple[int, ...]) -> State:
        """The state, once the shape of y is known; before the first row any shape will do."""
        if outputs == self.state.mean.shape[1:]:
            return self.state
        if self.n:
            raise ValueError(
                f"y has outputs of shape {outputs}, but the rows before had "
                f"{self.state.mean.shape[1:]}."
            )
        return self.state._replace(mean=jnp.zeros((len(self.state.mean), *outputs)))

    def __repr__(self) -> str:
        M = len(self.model.inducing)
        return f"Filter(rows={self.n:g}, inducing={M}, log_bound={self.log_bound:.4g})"
