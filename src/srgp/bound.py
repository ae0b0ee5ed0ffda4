"""From statistics to the (bound of the) log marginal likelihood, term by term."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp.approximations import Approximation
from srgp.checks import finite
from srgp.compiled import quick_jit
from srgp.linalg import cholesky, inverse_lower, log_determinant, report_jitter
from srgp.model import Model
from srgp.precision import Array, Scalar, double
from srgp.statistics import Statistics, check_belongs
from srgp.sums import Sums, at_noise


class BoundTerms(NamedTuple):
    """Ψ = constant + noise + complexity + fit + regulariser, each counted over all outputs.

    >>> import srgp
    >>> parts = srgp.BoundTerms(-1.0, noise=0.5, complexity=-0.2, fit=-2.0, regulariser=-0.1)
    >>> round(parts.total, 6)
    -2.8
    """

    constant: float  # −½ n log 2π
    noise: float  # −½ log |V|
    complexity: float  # −½ log |I + A|
    fit: float  # −½ (c − bᵀ(I + A)⁻¹b)
    regulariser: float  # −a

    @property
    def total(self) -> float:
        """Ψ, the log marginal likelihood or its bound."""
        return sum(self)


class WeightPosterior(NamedTuple):
    """v | y ~ N(mean, (LLᵀ)⁻¹), the whitened weights, with LLᵀ = I + A."""

    mean: Float[Array, "M *Q"]
    lower: Float[Array, "M M"]
    root: Float[Array, "M M"]  # L⁻ᵀ
    projected: Float[Array, "M *Q"]  # L⁻¹b
    jitter: Scalar


def condition(sums: Sums) -> WeightPosterior:
    """Prior N(0, I) and sums (already at their noise) to the posterior of the whitened weights."""
    B = jnp.eye(len(sums.A)) + sums.A
    lower, jitter = cholesky(B, jnp.diagonal(B))
    projected = jax.scipy.linalg.solve_triangular(lower, sums.b, lower=True)
    mean = jax.scipy.linalg.solve_triangular(lower, projected, lower=True, trans=1)
    return WeightPosterior(mean, lower, inverse_lower(lower).T, projected, jitter)


def terms(approximation: Approximation, sums: Sums, noise: Scalar) -> tuple[Array, WeightPosterior]:
    """The five terms as one array, and the posterior they come from. Differentiable.

    Ψ = −½ [n log 2π + log|V| + log|I + A| + c − bᵀ(I + A)⁻¹b] − a        (paper: eq. 4, 5, 23)
    """
    sums = at_noise(approximation, sums, noise)
    weights = condition(sums)
    outputs = sums.c.size
    return (
        jnp.stack(
            [
                -0.5 * outputs * sums.n * jnp.log(2.0 * jnp.pi),
                -0.5 * outputs * sums.log_noise,
                -0.5 * outputs * log_determinant(weights.lower),
                -0.5 * (jnp.sum(sums.c) - jnp.sum(weights.projected**2)),
                -outputs * sums.a,
            ]
        ),
        weights,
    )


@double
def bound_terms(model: Model, statistics: Statistics) -> BoundTerms:
    """The named parts of the bound, each counted over all outputs.

        −½ n log 2π,   −½ log|V|,   −½ log|I + A|,   −½ (c − bᵀ(I + A)⁻¹b),   −a

    >>> import srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
    >>> parts = srgp.bound_terms(model, srgp.summarise(model, [[0.0]], [1.0]))
    >>> print(f"complexity {parts.complexity:.4f}, fit {parts.fit:.4f}, {parts.total:.4f}")
    complexity -0.3466, fit -0.2500, -1.5155
    """
    check_belongs(model, statistics)
    values, weights = compiled_terms(model.approximation, statistics.sums, model.noise)
    report_weights(weights)
    return BoundTerms(*finite(np.asarray(values), "the bound").tolist())


def log_bound(model: Model, statistics: Statistics) -> float:
    """Log marginal likelihood of the data, or the model's bound of it, from their statistics.

        Ψ = −½ [n log 2π + log|V| + log|I + A| + c − bᵀ(I + A)⁻¹b] − a         (paper: eq. 4, 5)

    >>> import srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
    >>> round(srgp.log_bound(model, srgp.summarise(model, [[0.0]], [1.0])), 4)  # log N(1; 0, 2)
    -1.5155
    """
    return bound_terms(model, statistics).total


def report_weights(weights: WeightPosterior) -> None:
    """Warn where I + A was too ill-conditioned to factorise as it is."""
    report_jitter(
        np.asarray(weights.lower),
        float(weights.jitter),
        "the posterior precision of the inducing points",
        "Either rows were unlearned that had never been learned, or the noise variance is tiny for "
        "this many rows: larger noise, or srgp.Filter, whose square-root form keeps twice the "
        "digits, avoids that.",
    )


compiled_terms = quick_jit(terms, plain=True, static_argnums=0)
