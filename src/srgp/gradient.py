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
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srgp.approximations import TighterVFE
from srgp.blas import add_gram, begun_ahead, executor, in_order, mirrored, workers
from srgp.blocks import raw_pullback
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
from srgp.moments import unheard
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
from srgp.stacked import Factor, Stack
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
    kept, rows_there = (None, None) if elsewhere else (_passes(model, KEPT), rows)
    if isinstance(kept, Stack):
        rows_there = kept.rows(source.count())
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
    kept: "Stack | _Compiled | None",
) -> Raw:
    """The sums of all blocks."""
    passes = kept or _passes(model)
    work = functools.partial(passes.sums, Factor.of(whiten))
    raw = _over_blocks(passes.begin, work, source, model, rows)
    return raw._replace(Phi=mirrored(raw.Phi))


def _second_pass(
    source: Source,
    model: Model,
    at: RawCotangent,
    whiten: Whitener | None,
    rows: int | None,
    kept: "Stack | _Compiled | None",
) -> Model:
    """The derivatives in these sums, pulled back through all blocks."""
    passes, factor = kept or _passes(model), Factor.of(whiten)
    if isinstance(passes, Stack):
        work: Any = functools.partial(passes.pulled, jax.tree.map(np.asarray, at), factor)
        moments, weight = _over_blocks(passes.begin_again, work, source, model, rows)
        return _from_moments(model, at, moments, weight)
    work = functools.partial(passes.pulled, at, factor)
    return _over_blocks(passes.begin_again, work, source, model, rows)


def _passes(model: Model, room: int = 0) -> "Stack | _Compiled":
    if is_se(model.kernel):
        return Stack(model.kernel, model.inducing, room)
    return _Compiled(model, room)


def _over_blocks(
    begin: Callable[[int, Batch], Any],
    work: Callable[[int, Any, Batch], Any],
    source: Source,
    model: Model,
    rows: int | None,
) -> Any:
    """The sum of work(number, begin(number, block), block): one on each core, added in order."""
    M, count = len(model.inducing), known_count(source)
    flops = np.inf if count is None else count * M * (2.0 * M + ELEMENTWISE)
    blocks = begun_ahead(
        lambda item: begin(*item), enumerate(source.batches(rows or part_rows(model, source)))
    )
    with quiet_blas(), executor(flops) as pool:
        parts = in_order(
            pool, lambda told: work(told[0][0], told[1], told[0][1]), blocks, workers()
        )
        return functools.reduce(lambda total, part: jax.tree.map(np.add, total, part), parts)


class _Compiled:
    """The two passes of any kernel that compiled code knows; the first matrices are kept."""

    def __init__(self, model: Model, room: int = 0) -> None:
        self.model, self.room = model, room
        self.kept: dict[int, tuple[HostArray, HostArray, Array]] = {}

    def begin(self, number: int, block: Batch) -> Array:
        """k(R, X) Diag(√w), which compiled code works on meanwhile."""
        X, _, w = block
        K = kernel_matrix(self.model.kernel, self.model.inducing, X, w)
        if (number + 1) * K.nbytes <= self.room:
            self.kept[number] = np.array(X), np.array(w), K  # the source may reuse its own
        return K

    def begin_again(self, number: int, block: Batch) -> Array:
        """In the second pass, which may come in another order: then nothing is as it was."""
        X, _, w = block
        known = self.kept.pop(number, None)
        if known is not None and np.array_equal(X, known[0]) and np.array_equal(w, known[1]):
            return known[2]
        return kernel_matrix(self.model.kernel, self.model.inducing, X, w)

    @unheard
    @double
    def sums(self, factor: Factor | None, number: int, K: Array, block: Batch) -> Raw:
        """The sums of one block, Φ as its lower half; of L⁻¹K if there is a factor."""
        X, y, w = block
        W: np.ndarray = np.asarray(K) if factor is None else factor.whitened(K)
        Phi = np.zeros((len(W), len(W)))
        add_gram(W, Phi)
        return host_raw(self.model.kernel, Phi, W @ (y.T * np.sqrt(w)).T, X, y, w)

    @double
    def pulled(
        self, at: RawCotangent, factor: Factor | None, number: int, K: Array, block: Batch
    ) -> Model:
        """The gradient through one block."""
        whitened = None if factor is None else (factor.whitened(K), factor.inverse)
        return jax.tree.map(np.asarray, _pull_block(self.model, at, K, *block, whitened))


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
