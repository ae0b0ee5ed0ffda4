"""The only place that touches factorisations."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Key

from srgp.precision import EPS, Array, Scalar

# Diagonal blocks of this size are inverted once; the rest of a triangular solve is matrix products.
BLOCK = 256
# Squaring before whitening costs eps·cond(K), multiplying by an explicit inverse of L eps·√cond(K).
# Each is used up to where it costs 2e-11; beyond, the solve is refined to rounding.
SQUARES_FIRST_BELOW = 1e5
REFINE_ABOVE = 1e10


class JitterWarning(UserWarning):
    """A matrix was singular to rounding, and a small multiple of the identity was added to it."""


class Whitener(NamedTuple):
    """K = L Lᵀ, ready for many products L⁻¹B."""

    lower: Float[Array, "M M"]
    inverses: tuple[Float[Array, "_ _"], ...]  # of the diagonal blocks of L
    condition: Scalar  # ‖K‖ ‖L⁻¹‖², an estimate of cond(K) from above
    jitter: Scalar  # what was added to the diagonal of K, as a share of its largest entry

    def __call__(self, B: Float[Array, "M *B"]) -> Float[Array, "M *B"]:
        """W = L⁻¹B by blocked forward substitution: W_i = L_ii⁻¹ (B_i − Σ_j<i L_ij W_j).

        Multiplying by an inverse leaves a residual of eps·cond(L_ii). Where that matters, it is
        multiplied by the inverse once more, which makes the solve as accurate as substitution row
        by row, still at the speed of a matrix product.
        """
        solved: list[jax.Array] = []
        start = 0
        for inverse in self.inverses:
            stop = start + len(inverse)
            block = self.lower[start:stop, start:stop]
            rest = B[start:stop]
            if solved:
                rest = rest - self.lower[start:stop, :start] @ jnp.concatenate(solved)
            solved.append(
                jax.lax.cond(
                    self.condition > REFINE_ABOVE,
                    lambda W, rest, inverse, block: W + inverse @ (rest - block @ W),
                    lambda W, rest, inverse, block: W,
                    *(inverse @ rest, rest, inverse, block),
                )
            )
            start = stop
        return jnp.concatenate(solved)


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
    blocks = [L[i : i + BLOCK, i : i + BLOCK] for i in range(0, len(L), BLOCK)]
    inverses = tuple(inverse_lower(block) for block in blocks)
    condition = jnp.max(jnp.sum(L**2, 1)) * jnp.sum(inverse_lower(L) ** 2)
    return Whitener(L, inverses, condition, jitter)


def inverse_lower(L: Float[Array, "M M"]) -> Float[jax.Array, "M M"]:
    """L⁻¹, lower triangular."""
    return jax.scipy.linalg.solve_triangular(L, jnp.eye(len(L)), lower=True)


def gram_rows(W: Float[Array, "M B"]) -> tuple[Float[Array, "_ _"], ...]:
    """The block rows of the lower half of W Wᵀ: up to half the work of a whole product."""
    M = len(W)
    starts = range(0, M, BLOCK)
    return tuple(W[i : i + BLOCK] @ W[: min(i + BLOCK, M)].T for i in starts)


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
