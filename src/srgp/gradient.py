"""The exact bound and gradient in two passes over the data, for any model: the paper's batch RGP.

Pass 1 sums up the data. The derivative of the bound in those sums is a few M×M matrices; pass 2
pulls them back through each block to kernel and inducing inputs. Memory is O(BM + M²), whatever N,
and at most 64 MB of kernel matrix that need not be computed again.

There are three routes, equal but for rounding.
- V̄ = 0 and K_RR well-conditioned: unwhitened sums, one product a block in each pass.
- V̄ = 0 otherwise: whitened sums, as for `srgp.summarise`, since K_RR⁻¹ multiplies the rounding
  errors of Φ; the derivatives are still those of `srgp.collapsed`, by hand.
- V̄ ≠ 0, or TighterVFE: whitened sums, pulled back by automatic differentiation of a block.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from srgp.approximations import TighterVFE
from srgp.blas import Triangle, add_gram, begun_ahead, executor, in_order, mirrored, workers
from srgp.blocks import kernel_cotangent, raw_pullback
from srgp.collapsed import (
    RawCotangent,
    factorise,
    raw_is_enough,
    raw_value_and_cotangents,
    whitened_value_and_cotangents,
)
from srgp.compiled import quick_jit
from srgp.differentiated import differentiated
from srgp.kernels import SE
from srgp.linalg import Whitener, quiet_blas
from srgp.model import Model, whitener_of
from srgp.moments import monomials
from srgp.precision import Array, HostArray, Scalar, double
from srgp.sensitivity import finite_gradient, is_structured, most_of_raw, shaped_like
from srgp.slopes import (
    Raw,
    host_raw,
    is_se,
    kernel_matrix,
    pullback_inducing,
    pulled_moments,
)
from srgp.sources import Batch, Source, Spread, as_source, first_row, reduced
from srgp.statistics import known_count, part_rows, rows_for

# What one entry of k(R, X) costs beside the products, in flops: to tell whether threads pay.
ELEMENTWISE = 100.0
# Bytes of kernel matrix that are kept from the first pass for the second.
KEPT = 2**26
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
    """As `value_and_grad`, on the device and unchecked, in blocks of so many rows."""
    if not is_structured(model.approximation) or isinstance(model.approximation, TighterVFE):
        return differentiated(model, source, rows)
    whiten = whitener_where_needed(model)
    # Elsewhere, nothing is kept from one pass to the next.
    elsewhere = isinstance(source, Spread)
    kept, rows_there = (None, None) if elsewhere else (_Kernel(model), rows)
    raw = reduced(source, _first_pass, model, whiten, rows_there, kept)
    value, at, through_K = cotangents(model, whiten, raw)
    if not np.isfinite(value):
        return value, through_K  # refused by whoever asks: not worth a second pass
    at, whiten = simplest(at, whiten)
    pulled = reduced(source, _second_pass, model, at, whiten, rows_there, kept)
    return value, jax.tree.map(np.add, through_K, pulled)


def whitener_where_needed(model: Model) -> Whitener | None:
    """The factor of K_RR where unwhitened sums would lose digits."""
    whiten = whitener_of(model.kernel, model.inducing)
    return None if raw_is_enough(whiten, model.noise) else whiten


def _first_pass(
    source: Source,
    model: Model,
    whiten: Whitener | None,
    rows: int | None,
    kept: "_Kernel | None",
) -> Raw:
    """The sums of all blocks."""
    kernel = kept or _Kernel(model, room=0)
    work = functools.partial(_block_raw, _Factor.of(whiten), kernel)
    raw = _over_blocks(work, kernel.matrix, source, model, rows)
    return raw._replace(Phi=mirrored(raw.Phi))


def _second_pass(
    source: Source,
    model: Model,
    at: RawCotangent,
    whiten: Whitener | None,
    rows: int | None,
    kept: "_Kernel | None",
) -> Model:
    """The derivatives in these sums, pulled back through all blocks."""
    kernel, factor = kept or _Kernel(model, room=0), _Factor.of(whiten)
    work: Callable[..., Any]
    if not is_se(model.kernel):
        work = functools.partial(_pulled, at, factor, kernel)
        return _over_blocks(work, kernel.again, source, model, rows)
    work = functools.partial(_pulled_se, jax.tree.map(np.asarray, at), factor, kernel)
    return _from_moments(model, at, *_over_blocks(work, kernel.again, source, model, rows))


def _over_blocks(
    work: Callable[..., Any],
    matrix: Callable[..., Array],
    source: Source,
    model: Model,
    rows: int | None,
) -> Any:
    """The sum of work(K, block) over all blocks: one on each core, added in order."""
    M, count = len(model.inducing), known_count(source)
    flops = np.inf if count is None else count * M * (2.0 * M + ELEMENTWISE)
    numbered = enumerate(source.batches(rows or part_rows(model, source)))
    blocks = begun_ahead(lambda item: matrix(item[0], item[1][0], item[1][2]), numbered)
    with quiet_blas(), executor(flops) as pool:
        parts = in_order(pool, lambda begun: work(begun[1], begun[0][1]), blocks, workers())
        return functools.reduce(lambda total, part: jax.tree.map(np.add, total, part), parts)


# -- by hand ----------------------------------------------------------------------------------


class _Kernel:
    """k(R, X) Diag(√w) of the blocks; the first of them are kept for the second pass."""

    def __init__(self, model: Model, room: int = KEPT) -> None:
        self.model, self.room = model, room
        self.kept: dict[int, tuple[HostArray, HostArray, Array]] = {}

    def matrix(self, number: int, X: HostArray, w: HostArray) -> Array:
        """In the first pass."""
        K = kernel_matrix(self.model.kernel, self.model.inducing, X, w)
        if (number + 1) * K.nbytes <= self.room:
            self.kept[number] = np.array(X), np.array(w), K  # the source may reuse its own
        return K

    def again(self, number: int, X: HostArray, w: HostArray) -> Array:
        """In the second, which may come in another order: then nothing is as it was."""
        known = self.kept.pop(number, None)
        if known is not None and np.array_equal(X, known[0]) and np.array_equal(w, known[1]):
            return known[2]
        return kernel_matrix(self.model.kernel, self.model.inducing, X, w)


class _Factor(NamedTuple):
    """K_RR = LLᵀ on the host, ready for many blocks."""

    lower: Triangle
    inverse: HostArray

    @classmethod
    def of(cls, whiten: Whitener | None) -> "_Factor | None":
        """None where sums are not whitened."""
        if whiten is None:
            return None
        return cls(Triangle(np.asarray(whiten.lower)), np.asarray(whiten.inverse))

    def whitened(self, K: HostArray) -> tuple[HostArray, HostArray]:
        """L⁻¹K and L⁻¹."""
        W = np.array(K)
        self.lower.solve(W)
        return W, self.inverse


# What overflows is refused where the sums are used, with a message of its own.
@np.errstate(over="ignore", invalid="ignore")
@double
def _block_raw(factor: "_Factor | None", kernel: _Kernel, K: Array, block: Batch) -> Raw:
    """The sums of one block, Φ as its lower half; of L⁻¹K if there is a factor."""
    X, y, w = block
    whitened = factor and factor.whitened(K)
    W = np.asarray(K if whitened is None else whitened[0])
    Phi = np.zeros((len(W), len(W)))
    add_gram(W, Phi)
    return host_raw(kernel.model.kernel, Phi, W @ (y.T * np.sqrt(w)).T, X, y, w)


@double
def _pulled(
    at: RawCotangent, factor: "_Factor | None", kernel: _Kernel, K: Array, block: Batch
) -> Model:
    """The gradient through one block."""
    X, y, w = block
    pulled = _pull_block(kernel.model, at, K, X, y, w, factor and factor.whitened(K))
    return jax.tree.map(np.asarray, pulled)


@np.errstate(over="ignore", invalid="ignore")
@double
def _pulled_se(
    at: RawCotangent, factor: "_Factor | None", kernel: _Kernel, begun: Array, block: Batch
) -> tuple[np.ndarray, Any]:
    """The moments of one block's pull-back, and Σ w: as `raw_pullback`, outside of compiled code.

    Of the SE kernel they are −(K̄ ∘ K) p for the monomials p of x: products, and one pass over K.
    """
    X, y, w = block
    K, model = np.asarray(begun), kernel.model
    at_K: Any = kernel_cotangent(at, K, y, w, factor and factor.whitened(K))
    at_K *= K
    assert isinstance(model.kernel, SE)
    return -(at_K @ monomials(model.kernel, np.asarray(model.inducing), X)), w.sum()


@functools.partial(quick_jit, plain=True)
def _from_moments(model: Model, at: RawCotangent, moments: Array, weight: Scalar) -> Model:
    """The gradient, from what `_pulled_se` gave of all blocks; Σ w k(x, x) = v Σ w."""
    assert isinstance(model.kernel, SE)
    total = -jnp.sum(moments[:, 0]) + at.kappa * weight * model.kernel.variance
    kernel, R = pulled_moments(model.kernel, model.inducing, moments, total)
    return shaped_like(model, kernel, jnp.zeros(()), R)


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


_pull_block = quick_jit(raw_pullback)
