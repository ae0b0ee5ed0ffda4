"""The only place that touches factorisations."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Key

from srgp.precision import EPS, Array, Scalar

# Diagonal blocks of this size are inverted once; the rest of a triangular solve is matrix products.
LEAF = 64
# Multiplying by an inverse leaves a residual of eps·√cond(K); above this, it is refined away.
REFINE_ABOVE = 1e4
# Block rows of a symmetric product: narrower ones save work, but make slower products.
GRAM_ROWS = 256


class JitterWarning(UserWarning):
    """A matrix was singular to rounding, and a small multiple of the identity was added to it."""


class Whitener(NamedTuple):
    """K = L Lᵀ, ready for many products L⁻¹B."""

    lower: Float[Array, "M M"]
    inverses: tuple[Float[Array, "_ _"], ...]  # of the diagonal blocks of L
    condition: Scalar  # ‖diag K‖ ‖L⁻¹‖², an estimate of cond(K)
    jitter: Scalar  # what was added to the diagonal of K, as a share of its largest entry

    def __call__(self, B: Float[Array, "M *B"]) -> Float[Array, "M *B"]:
        """W = L⁻¹B, as accurate as substitution row by row, at the speed of a matrix product."""
        return jax.lax.cond(
            self.condition > REFINE_ABOVE,
            lambda B: substitute(self.lower, self.inverses, B, refine=True),
            lambda B: substitute(self.lower, self.inverses, B, refine=False),
            B,
        )


def substitute(
    L: Float[Array, "M M"],
    inverses: tuple[Float[Array, "_ _"], ...],
    B: Float[Array, "M *B"],
    refine: bool,
) -> Float[Array, "M *B"]:
    """L⁻¹B by halves: W₁ = L₁₁⁻¹B₁ and W₂ = L₂₂⁻¹(B₂ − L₂₁W₁), down to the inverted blocks."""
    if len(inverses) == 1:
        (inverse,) = inverses
        W = inverse @ B
        return W + inverse @ (B - L @ W) if refine else W
    half = len(inverses) // 2
    cut = half * LEAF
    upper = substitute(L[:cut, :cut], inverses[:half], B[:cut], refine)
    rest = B[cut:] - L[cut:, :cut] @ upper
    return jnp.concatenate([upper, substitute(L[cut:, cut:], inverses[half:], rest, refine)])


def cholesky(
    K: Float[Array, "M M"], shift: Float[Array, " M"]
) -> tuple[Float[jax.Array, "M M"], Float[jax.Array, ""]]:
    """Lower Cholesky factor of K + jitter·Diag(shift), and the jitter: the least needed, often 0.

    A squared pivot below M·eps of its diagonal entry is rounding error, not information, so a
    factor holding one counts as failed. Then the jitter starts at that level and grows tenfold.
    The search is not differentiated; the factorisation is.
    """
    floor = len(K) * EPS

    def shifted(K: Array, jitter: Array) -> jax.Array:
        return K + jitter * jnp.diag(jax.lax.stop_gradient(shift))

    def fails(jitter: jax.Array) -> Bool[jax.Array, ""]:
        candidate = shifted(jax.lax.stop_gradient(K), jitter)
        pivots = jnp.diagonal(lower_factor(candidate))
        # NaN, the sign of a failed factorisation, compares false.
        return ~jnp.all(pivots**2 > 0.5 * floor * jnp.diagonal(candidate))

    jitter = jax.lax.while_loop(
        lambda jitter: fails(jitter) & (jitter < 1e-2),
        lambda jitter: jnp.where(jitter == 0.0, floor, 10.0 * jitter),
        jnp.zeros(()),
    )
    return lower_factor(shifted(K, jitter)), jitter


def lower_factor(K: Float[Array, "*batch M M"]) -> Float[jax.Array, "*batch M M"]:
    """The lower Cholesky factor of a matrix known to be positive definite."""
    return jnp.linalg.cholesky(K, symmetrize_input=False)


def whitener(L: Float[Array, "M M"], jitter: Scalar) -> Whitener:
    """Prepare L for repeated solves."""
    blocks = [L[i : i + LEAF, i : i + LEAF] for i in range(0, len(L), LEAF)]
    inverses = tuple(inverse_lower(block) for block in blocks)
    condition = jnp.max(jnp.sum(L**2, 1)) * jnp.sum(inverse_lower(L) ** 2)
    return Whitener(L, inverses, condition, jitter)


def inverse_lower(L: Float[Array, "M M"]) -> Float[jax.Array, "M M"]:
    """L⁻¹, lower triangular."""
    return jax.scipy.linalg.solve_triangular(L, jnp.eye(len(L)), lower=True)


def gram_rows(W: Float[Array, "M B"]) -> tuple[Float[Array, "_ _"], ...]:
    """The block rows of the lower half of W Wᵀ: up to half the work of a whole product."""
    M = len(W)
    starts = range(0, M, GRAM_ROWS)
    return tuple(W[i : i + GRAM_ROWS] @ W[: min(i + GRAM_ROWS, M)].T for i in starts)


def assemble(rows: tuple[Float[Array, "_ _"], ...]) -> Float[Array, "M M"]:
    """The symmetric matrix of which `gram_rows` gave the lower half."""
    M = rows[-1].shape[1]
    lower = jnp.concatenate([jnp.pad(r, [(0, 0), (0, M - r.shape[1])]) for r in rows])
    return jnp.tril(lower) + jnp.tril(lower, -1).T


def log_determinant(L: Float[Array, "*batch M M"]) -> Float[jax.Array, "*batch"]:
    """log |L Lᵀ|."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)), -1)


def report_jitter(L: np.ndarray, jitter: float, what: str, cure: str) -> None:
    """Warn where jitter was added; raise where no reasonable jitter helped."""
    if not np.isfinite(L).all():
        raise np.linalg.LinAlgError(
            f"{what} is not positive definite, even with {jitter:.0e} of its scale added to the "
            f"diagonal. {cure}"
        )
    if jitter > 0:
        warnings.warn(
            f"{what} is singular to rounding: added {jitter:.1e} of its scale to the diagonal. "
            f"{cure}",
            JitterWarning,
            stacklevel=4,
        )


def sample_normal(
    key: Key[Array, ""], mean: Float[Array, "A *Q"], covariance: Float[Array, "A A"], count: int
) -> Float[Array, "count A *Q"]:
    """Independent draws of N(mean, covariance), the outputs sharing the covariance."""
    shift = jnp.full(len(mean), jnp.max(jnp.diagonal(covariance)))
    L, _ = cholesky(covariance, shift)
    standard = jax.random.normal(key, (count, *mean.shape))
    return mean + jnp.einsum("ab,nb...->na...", L, standard)
