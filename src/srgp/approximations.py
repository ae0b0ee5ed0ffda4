"""The table of sparse models, which differ only in V̄ (training), V_* (prediction), a (regulariser).

Every model is the linear regression y = Hu + γ + ε with γ ~ N(0, V̄), ε_i ~ N(0, σ²/w_i), and
D = K_XX − Q_XX, d = diag D the part of the prior that the inducing points do not explain.

| model         | V̄              | V_*     | a                                |
|---------------|-----------------|---------|----------------------------------|
| SoR           | 0               | 0       | 0                                |
| DTC           | 0               | D_*     | 0                                |
| FITC          | Diag d          | D_*     | 0                                |
| FIC           | Diag d          | Diag d_*| 0                                |
| PITC          | blocks of D     | D_*     | 0                                |
| VFE           | 0               | D_*     | Σ d_i / 2s_i                     |
| PEP(α)        | α Diag d        | D_*     | (1−α)/2α Σ log(1 + α d_i/s_i)    |
| TighterVFE    | 0               | D_*     | ½ Σ log(1 + d_i/s_i)             |

with s_i = σ²/w_i. (Paper: Fig. 2 and eq. 3 to 5. Tighter bound: Titsias 2025; Bui et al. 2025.)
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Float

from srgp.checks import as_count, as_number
from srgp.kernels import Kernel
from srgp.linalg import lower_factor
from srgp.precision import EPS, Array, Scalar, namespace

# W = L⁻¹ k(R, X) Diag(scale) and diag WᵀW, from X (B, D) and scale (B,).
Projection: TypeAlias = Callable[
    [Float[Array, "B D"], Float[Array, " B"]], tuple[Float[Array, "M B"], Float[Array, " B"]]
]

# V_*: 0, Diag d_* or D_*.
Residual: TypeAlias = Literal["none", "diagonal", "full"]


class Observation(NamedTuple):
    """A batch in units of its own noise: y = Wᵀv + ε with ε ~ N(0, I), v the whitened weights."""

    W: Float[Array, "M B"]
    y: Float[Array, "B *Q"]
    log_noise: Float[Array, " B"]  # sums to log |V|
    regulariser: Float[Array, " B"]  # sums to a
    present: Float[Array, " B"]  # 1 for a row of data, 0 for padding


@dataclasses.dataclass(frozen=True)
class Approximation:
    """One row of the table. The subclasses are what users name."""

    share: ClassVar[float] = 0.0  # V̄ = share · Diag d
    residual: ClassVar[Residual] = "full"
    # Whether the sums can be kept without σ², which may then change at no cost.
    noise_free: ClassVar[bool] = True
    # Where a_i falls in proportion to the explained variance, (K_XX − d)_ii / s_i, by how much: its
    # sum is then a trace, and needs no pass over W.
    regulariser_slope: ClassVar[float | None] = None

    def __init_subclass__(cls) -> None:
        # A regulariser of its own has no slope that it has not named.
        if "regulariser" in vars(cls) and "regulariser_slope" not in vars(cls):
            cls.regulariser_slope = None

    def regulariser(self, d: Float[Array, " B"], s: Float[Array, " B"]) -> Float[Array, " B"]:
        """a_i, from the unexplained variance d_i and the noise variance s_i."""
        return 0.0 * d

    def observe(
        self,
        kernel: Kernel,
        project: Projection,
        X: Float[Array, "B D"],
        y: Float[Array, "B *Q"],
        noise: Scalar,
        weights: Float[Array, " B"],
    ) -> Observation:
        """Divide a batch by its noise V = V̄ + Diag s. Weight 0 marks padding."""
        present = (weights > 0.0).astype(X.dtype)
        s = noise / jnp.where(weights > 0.0, weights, 1.0)
        if self.share == 0.0:
            # V = Diag s is known beforehand, and dividing K_RX by it costs no pass over W.
            v, root = s, present / jnp.sqrt(s)
            W, explained = project(X, root)
            d = jnp.maximum(kernel.variance_at(X) - s * explained, 0.0)
        else:
            W, explained = project(X, jnp.ones_like(present))
            d = jnp.maximum(kernel.variance_at(X) - explained, 0.0)
            v = self.share * d + s
            root = present / jnp.sqrt(v)
            W = W * root
        return Observation(
            W=W,
            y=(y.T * root).T,
            log_noise=present * jnp.log(v),
            regulariser=present * self.regulariser(d, s),
            present=present,
        )


def unexplained(
    kernel: Kernel, W: Float[Array, "M B"], X: Float[Array, "B D"]
) -> Float[Array, " B"]:
    """d = diag(K_XX − Q_XX) ≥ 0, where Q_XX = WᵀW."""
    return jnp.maximum(kernel.variance_at(X) - jnp.sum(W**2, 0), 0.0)


class SoR(Approximation):
    """Subset of regressors (DIC): the weights are all there is. Overconfident far from the data.

        V̄ = 0,  V_* = 0,  a = 0

    >>> import srgp
    >>> srgp.SoR()
    SoR()
    """

    residual = "none"
    regulariser_slope = 0.0


class DTC(Approximation):
    """Deterministic training conditional: SoR's posterior with honest predictive variance.

        V̄ = 0,  V_* = D_*,  a = 0

    >>> import srgp
    >>> srgp.DTC()
    DTC()
    """

    regulariser_slope = 0.0


class FITC(Approximation):
    """Fully independent training conditional: noise that depends on the input.

        V̄ = Diag d,  V_* = D_*,  a = 0

    >>> import srgp
    >>> srgp.FITC()
    FITC()
    """

    share = 1.0
    noise_free = False


class FIC(FITC):
    """Fully independent conditional: FITC whose predictions, too, are independent given u.

        V̄ = Diag d,  V_* = Diag d_*,  a = 0

    >>> import srgp
    >>> srgp.FIC()
    FIC()
    """

    residual = "diagonal"


class VFE(Approximation):
    """Variational free energy: a lower bound of the full GP's log marginal likelihood.

        V̄ = 0,  V_* = D_*,  a = Σ d_i / 2s_i

    >>> import srgp
    >>> srgp.VFE()
    VFE()
    """

    regulariser_slope = 0.5

    def regulariser(self, d: Float[Array, " B"], s: Float[Array, " B"]) -> Float[Array, " B"]:
        """a_i = d_i / 2s_i."""
        return 0.5 * d / s


class TighterVFE(Approximation):
    """VFE's posterior with a tighter lower bound (Titsias 2025; Bui, Ashman and Turner 2025).

        V̄ = 0,  V_* = D_*,  a = ½ Σ log(1 + d_i/s_i)

    Its regulariser is not proportional to 1/σ², so the sums belong to one noise variance.

    >>> import srgp
    >>> srgp.TighterVFE()
    TighterVFE()
    """

    noise_free = False

    def regulariser(self, d: Float[Array, " B"], s: Float[Array, " B"]) -> Float[Array, " B"]:
        """a_i = ½ log(1 + d_i/s_i)."""
        return 0.5 * namespace(d).log1p(d / s)


@dataclasses.dataclass(frozen=True)
class PEP(Approximation):
    """Power expectation propagation: α = 0 is VFE, α = 1 is FITC, and all between.

        V̄ = α Diag d,  V_* = D_*,  a = (1−α)/2α Σ log(1 + α d_i/s_i)

    >>> import srgp
    >>> srgp.PEP(alpha=0.5)
    PEP(alpha=0.5)
    """

    alpha: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", as_number(self.alpha, "PEP's alpha"))
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"PEP's alpha must lie in [0, 1], got {self.alpha}.")

    @property
    def share(self) -> float:  # type: ignore[override]
        """V̄ = α Diag d."""
        return self.alpha

    @property
    def noise_free(self) -> bool:  # type: ignore[override]
        """Only in the limit α = 0."""
        return self.alpha == 0.0

    def regulariser(self, d: Float[Array, " B"], s: Float[Array, " B"]) -> Float[Array, " B"]:
        """a_i = (1−α)/2α log(1 + α d_i/s_i), whose limit α → 0 is d_i / 2s_i."""
        if self.alpha == 0.0:
            return 0.5 * d / s
        return (1.0 - self.alpha) / (2.0 * self.alpha) * namespace(d).log1p(self.alpha * d / s)


@dataclasses.dataclass(frozen=True)
class PITC(Approximation):
    """Partially independent training conditional: rows of one block keep their joint covariance.

        V̄ = blocks of D,  V_* = D_*,  a = 0

    Blocks are consecutive rows of each batch handed in, `block_size` at a time; so a batch of at
    most `block_size` rows is one block, as in the paper, and one sample at a time is FITC. Alone
    among the models, PITC depends on how the data are batched: batches that are multiples of
    `block_size` change nothing.

    D = K_XX − Q_XX is a difference, with rounding errors of about b·eps·k(x, x) in a block of b
    rows. Noise variances s_i below that, which no factorisation could tell from 0, count as that.

    >>> import srgp
    >>> srgp.PITC(block_size=50)
    PITC(block_size=50)
    """

    block_size: int = 100

    noise_free = False
    regulariser_slope = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_size", as_count(self.block_size, "PITC's block_size"))

    def observe(
        self,
        kernel: Kernel,
        project: Projection,
        X: Float[Array, "B D"],
        y: Float[Array, "B *Q"],
        noise: Scalar,
        weights: Float[Array, " B"],
    ) -> Observation:
        """Divide each block by the Cholesky factor of its V = D + Diag s."""

        def one(
            W: jax.Array, X: jax.Array, y: jax.Array, weights: jax.Array
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            present = (weights > 0.0).astype(W.dtype)
            s = noise / jnp.where(weights > 0.0, weights, 1.0)
            D = kernel.covariance(X, X) - W.T @ W
            # Rows explained to rounding leave a D of rounding errors: their size keeps V definite.
            s = jnp.maximum(s, len(X) * EPS * kernel.variance_at(X))
            # A padded row becomes an independent unit variance, and so contributes nothing.
            V = D * jnp.outer(present, present) + jnp.diag(jnp.where(weights > 0.0, s, 1.0))
            L = lower_factor(V)
            whiten = jnp.concatenate([W.T * present[:, None], (y.T * present).T], 1)
            rows = jax.scipy.linalg.solve_triangular(L, whiten, lower=True)
            return rows, present * 2.0 * jnp.log(jnp.diagonal(L)), present

        W, _ = project(X, jnp.ones(len(X)))
        M, b = len(W), self.block_size
        columns = y.reshape(len(y), -1)
        rows, log_noise, present = jax.vmap(one)(
            W.reshape(M, -1, b).transpose(1, 0, 2),
            X.reshape(-1, b, X.shape[1]),
            columns.reshape(-1, b, columns.shape[1]),
            weights.reshape(-1, b),
        )
        rows = rows.reshape(len(X), -1)
        return Observation(
            W=rows[:, :M].T,
            y=rows[:, M:].reshape(y.shape),
            log_noise=log_noise.ravel(),
            regulariser=jnp.zeros(len(X)),
            present=present.ravel(),
        )
