"""The bound as a function of K_RR and of unwhitened sums, with its derivatives by hand.

    Ψ = −½ [n log 2π + log|V| + log|K + A| − log|K| + c − bᵀ(K + A)⁻¹b] − a        (paper: eq. 4, 5)

Learning sees data through these sums only: whatever the number of rows, one value and one gradient
here cost a few products of M×M matrices. With P = (K + A)⁻¹, w = Pb, and Q outputs:

    ∂Ψ/∂A = −½ (Q P + wwᵀ)       ∂Ψ/∂K = −½ (Q P + wwᵀ − Q K⁻¹)       ∂Ψ/∂b = w
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp.approximations import PEP, VFE, Approximation
from srgp.linalg import Whitener, cholesky, inverse_lower, log_determinant, lower_factor
from srgp.precision import EPS, Array, Scalar
from srgp.slopes import Raw, Slopes
from srgp.sums import Sums

# Unwhitened sums carry rounding errors that K⁻¹ multiplies. This share of its diagonal, added to K,
# bounds K⁻¹ (pivots above it would not): the price is as much variance unexplained.
FLOOR = 1e-8
# Rounding error of the bound, per row of data, up to which unwhitened sums are good enough.
TOLERANCE = 1e-7


class Factor(NamedTuple):
    """K = LLᵀ and what is needed of it, once for every use at the same θ."""

    K: Float[Array, "M M"]  # with its jitter
    inverse: Float[Array, "M M"]  # K⁻¹
    log_determinant: Scalar
    largest: Scalar  # the trace of K⁻¹, above its largest eigenvalue


class RawCotangent(NamedTuple):
    """The derivatives of Ψ in K, in the raw sums (but for c, n, log_weight) and in σ²."""

    K: Float[Array, "M M"]
    Phi: Float[Array, "M M"]
    b: Float[Array, "M *Q"]
    kappa: Scalar
    noise: Scalar


def factorise(K: Float[Array, "M M"], floor: float | None = FLOOR) -> Factor:
    """K_RR and its inverse; a share `floor` of its diagonal is added, or only what is needed."""
    shift = jnp.full(len(K), jnp.max(jnp.diagonal(K)))
    if floor is not None:
        K = K + floor * jnp.diag(shift)
    lower, jitter = cholesky(K, shift)
    inverse = _inverse(lower)
    return Factor(K + jitter * jnp.diag(shift), inverse, log_determinant(lower), jnp.trace(inverse))


def traces(approximation: Approximation) -> bool:
    """Whether the regulariser is Σ w d / 2σ², a function of the raw sums: VFE or PEP(0)."""
    return isinstance(approximation, VFE) or approximation == PEP(alpha=0.0)


@np.errstate(over="ignore", invalid="ignore")
def raw_is_enough(whiten: Whitener, noise: Scalar, tolerance: float = TOLERANCE) -> bool:
    """Whether the unwhitened sums of a model with V̄ = 0 will keep enough digits.

    They lose eps tr(K⁻¹) tr(Φ)/nσ² a row, taking the rows of R for typical rows of data.
    """
    lower, inverse = np.asarray(whiten.lower), np.asarray(whiten.inverse)
    typical = np.mean(np.sum((lower @ lower.T) ** 2, 1))
    # NaN, the sign of a failed factorisation, compares false.
    return bool(EPS * np.sum(inverse**2) * typical <= tolerance * float(noise))


def value_and_cotangents(
    factor: Factor, sums: Sums
) -> tuple[Scalar, tuple[Float[Array, "M M"], Float[Array, "M M"], Float[Array, "M *Q"]]]:
    """Ψ, and its derivatives in K, A and b, for unwhitened sums at their noise."""
    outputs = sums.c.size
    P, log_det = inverse_and_log_determinant(factor.K + sums.A)
    w = P @ sums.b
    columns = w.reshape(len(w), -1)
    complexity = log_det - factor.log_determinant
    value = (
        -0.5 * outputs * (sums.n * jnp.log(2.0 * jnp.pi) + sums.log_noise + complexity)
        - 0.5 * (jnp.sum(sums.c) - jnp.sum(sums.b * w))
        - outputs * sums.a
    )
    at_A = -0.5 * (outputs * P + columns @ columns.T)
    return value, (at_A + 0.5 * outputs * factor.inverse, at_A, w)


def raw_value_and_cotangents(
    approximation: Approximation, factor: Factor, raw: Raw, noise: Scalar
) -> tuple[Scalar, RawCotangent]:
    """Ψ and its derivatives for the raw sums of a model with V̄ = 0; VFE's trace term included."""
    value, at = untraced_value_and_cotangents(factor, raw, noise)
    if not traces(approximation):
        return value, at
    # −a = −½ Σ w d/σ²
    share, outputs = 1.0 / noise, raw.c.size
    half, at_half = trace_and_cotangents(factor, raw)
    at_half = at_half._replace(noise=-share * half)
    at = jax.tree.map(lambda x, y: x - outputs * share * y, at, at_half)
    return value - outputs * share * half, at


def untraced_value_and_cotangents(
    factor: Factor, raw: Raw, noise: Scalar
) -> tuple[Scalar, RawCotangent]:
    """Ψ + a and its derivatives: the log density of the data, without a regulariser.

    A = Φ/σ², b = b/σ², c = c/σ², log|V| = n log σ² − Σ log w.
    """
    beta, outputs = 1.0 / noise, raw.c.size
    A = beta * raw.Phi
    log_noise = raw.n * jnp.log(noise) - raw.log_weight
    sums = Sums(A, beta * raw.b, beta * raw.c, log_noise, jnp.zeros(()), raw.n)
    value, (at_K, at_A, at_b) = value_and_cotangents(factor, sums)
    # σ² stands in A, b and c as a factor 1/σ², and in n log σ².
    at_noise = -beta * (
        jnp.sum(at_A * A) + jnp.sum(at_b * sums.b) - 0.5 * jnp.sum(sums.c) + 0.5 * outputs * raw.n
    )
    return value, RawCotangent(at_K, beta * at_A, beta * at_b, jnp.zeros(()), at_noise)


def trace_and_cotangents(factor: Factor, raw: Raw) -> tuple[Scalar, RawCotangent]:
    """½ Σ w d = ½ (κ − tr K⁻¹Φ), which is σ²a for VFE, and its derivatives."""
    inverse = factor.inverse
    return 0.5 * (raw.kappa - jnp.sum(inverse * raw.Phi)), RawCotangent(
        0.5 * inverse @ raw.Phi @ inverse,
        -0.5 * inverse,
        jnp.zeros_like(raw.b),
        0.5 * jnp.ones(()),
        jnp.zeros(()),
    )


def whitened_value_and_cotangents(
    approximation: Approximation, whiten: Whitener, raw: Raw, noise: Scalar
) -> tuple[Scalar, RawCotangent]:
    """The same from sums of W = L⁻¹K in place of K, whose digits survive an ill-conditioned K_RR.

    With A = WWᵀ/σ², P = (I + A)⁻¹ and v = Pb/σ² the middle of each derivative is well-conditioned:

        K̄ = L⁻ᵀ[½(Q I − Q P − vvᵀ) − ½Q A]L⁻¹       Φ̄ = L⁻ᵀ[½(Q I − Q P − vvᵀ)]L⁻¹/σ²

    for VFE; without its trace term A goes from the first, and Q I from the second. Φ̄ and b̄ are
    returned without their L⁻ᵀ and L⁻¹: they are the derivatives in WWᵀ and Wy.
    """
    # In these coordinates the prior is N(0, I): K_RR is the identity.
    identity = jnp.eye(len(raw.Phi))
    unit = Factor(identity, identity, jnp.zeros(()), jnp.ones(()))
    value, at = raw_value_and_cotangents(approximation, unit, raw, noise)
    return value, at._replace(K=whiten.inverse.T @ at.K @ whiten.inverse)


def contract(
    cotangent: RawCotangent, slopes: Slopes
) -> tuple[Float[Array, " P"], Float[Array, "M D"]]:
    """⟨∂Ψ/∂(Φ, b, κ), their slopes⟩: the gradient in the kernel parameters and in R."""
    # Row by row for R, all at once for φ; sums of products, which einsum would not fuse.
    at_R = 2.0 * jnp.stack([jnp.sum(cotangent.Phi * C, 1) for C in slopes.C], 1)
    at_R = at_R + jnp.einsum("m...,dm...->md", cotangent.b, slopes.Cb)
    at_phi = 2.0 * jnp.stack([jnp.sum(jnp.sum(cotangent.Phi * T, 1)) for T in slopes.T])
    at_phi = at_phi + jnp.einsum("m...,pm...->p", cotangent.b, slopes.Tb)
    return at_phi + cotangent.kappa * slopes.kappa, at_R


def inverse_and_log_determinant(
    A: Float[Array, "M M"],
) -> tuple[Float[Array, "M M"], Scalar]:
    """A⁻¹ and log |A| of a positive definite matrix; NaN where it is none."""
    lower = lower_factor(A)
    return _inverse(lower), log_determinant(lower)


def _inverse(lower: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """(LLᵀ)⁻¹."""
    half = inverse_lower(lower)
    return half.T @ half
