"""The exact bound and gradient in two passes over the data, for any model: the paper's batch RGP.

Pass 1 sums up the data. The derivative of the bound in those sums is a few M×M matrices; pass 2
pulls them back through each block to kernel and inducing inputs. Memory is O(BM + M²), whatever N,
and at most 64 MB of kernel matrix that need not be computed again.

There are three routes, equal but for rounding.
- V̄ = 0 and K_RR well-conditioned: unwhitened sums, one product a block in each pass; those of the
  SE kernel by `srgp.stacked`.
- V̄ = 0 otherwise: whitened sums, as for `srgp.summarise`, since K_RR⁻¹ multiplies the rounding
  errors of Φ; the derivatives are still those of `srgp.collapsed`, by hand.
- V̄ ≠ 0, or TighterVFE: whitened sums, pulled back by automatic differentiation of a block.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srgp.approximations import TighterVFE
from srgp.collapsed import (
    RawCotangent,
    factorise,
    raw_is_enough,
    raw_value_and_cotangents,
    whitened_value_and_cotangents,
)
from srgp.compiled import quick_jit
from srgp.differentiated import differentiated
from srgp.linalg import Whitener, quiet_blas
from srgp.model import Model, whitener_of
from srgp.passes import first_pass, passes_of, second_pass
from srgp.precision import Scalar, double
from srgp.sensitivity import finite_gradient, is_structured, most_of_raw, shaped_like
from srgp.slopes import Raw, pullback_inducing
from srgp.sources import Source, Spread, as_source, first_row, reduced
from srgp.statistics import rows_for

# Up to this condition of K_RR, L⁻ᵀ·L⁻¹ of a derivative is one matrix; its error is eps·cond.
PULLS_DIRECTLY = 1e8


@double
def value_and_grad(model: Model, data: Any) -> tuple[float, Model]:
    """The bound of all data and its gradient, in the shape of a model; two passes, O(NM²).

    data: (X, y) or (X, y, sample_weight); or, out of core, a list of such batches or a function
    that starts a pass over them.

    >>> import srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
    >>> value, gradient = srgp.value_and_grad(model, ([[0.0]], [1.0]))
    >>> round(value, 4), round(float(gradient.noise), 4)
    (-1.5155, -0.125)
    """
    source = as_source(data)
    first_row(source, model.inducing.shape[1])
    at = jax.tree.map(jnp.asarray, model)
    with quiet_blas():
        return finite_gradient(*exact_gradient(at, source, rows_for(model, source.count())))


def exact_gradient(model: Model, source: Source, rows: int) -> tuple[Scalar, Model]:
    """As `value_and_grad`, on the device and unchecked; rows: that compiled code takes at once."""
    if not is_structured(model.approximation) or isinstance(model.approximation, TighterVFE):
        return differentiated(model, source, rows)
    whiten = whitener_where_needed(model)
    # Elsewhere, nothing is kept from one pass to the next.
    passes = None if isinstance(source, Spread) else passes_of(model, source.count(), rows)
    raw = reduced(source, first_pass, model, whiten, passes)
    value, at, through_K = cotangents(model, whiten, raw)
    if not np.isfinite(value):
        return value, through_K  # refused by whoever asks: not worth a second pass
    at, whiten = simplest(at, whiten)
    pulled = reduced(source, second_pass, model, at, whiten, passes)
    return value, jax.tree.map(np.add, through_K, pulled)


def whitener_where_needed(model: Model) -> Whitener | None:
    """The factor of K_RR where unwhitened sums would lose digits."""
    whiten = whitener_of(model.kernel, model.inducing)
    return None if raw_is_enough(whiten, model.noise) else whiten


@functools.partial(quick_jit, plain=True)
def cotangents(
    model: Model, whiten: Whitener | None, raw: Raw
) -> tuple[Scalar, RawCotangent, Model]:
    """Ψ, its derivatives in the sums, and the part of the gradient through K_RR and σ²; NaN where
    Ψ is not possible.
    """
    if whiten is None:
        factor = factorise(model.kernel.covariance(model.inducing, model.inducing), None)
        krr = factor.K
        value, at = raw_value_and_cotangents(model.approximation, factor, raw, model.noise)
    else:
        krr = whiten.lower @ whiten.lower.T
        value, at = whitened_value_and_cotangents(model.approximation, whiten, raw, model.noise)
    # Beyond what rows without any error would give, the sums have lost their digits.
    limit = most_of_raw(raw, model.noise)
    value = jnp.where(value <= limit + 1e-6 * jnp.abs(limit), value, jnp.nan)
    kernel, R = pullback_inducing(model.kernel, model.inducing, krr, at.K)
    return value, at, shaped_like(model, kernel, at.noise, R)


def simplest(at: RawCotangent, whiten: Whitener | None) -> tuple[RawCotangent, Whitener | None]:
    """Derivatives in whitened sums as those in unwhitened ones, where that costs no digits."""
    if whiten is None or float(whiten.condition) > PULLS_DIRECTLY:
        return at, whiten
    # In NumPy: two small products are not worth a compilation of their own.
    inverse, Phi, b = (np.asarray(a) for a in (whiten.inverse, at.Phi, at.b))
    return at._replace(Phi=inverse.T @ Phi @ inverse, b=inverse.T @ b), None
