"""Two passes over rows of data at one θ: their raw sums, and from the derivative of any function of
these back to kernel and R.

A block of rows on each core at a time, added up in their order. What both passes need, the kernel
matrix first of all, is kept for the second: at most 64 MB of it.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from srgp.blas import add_gram, begun_ahead, executor, in_order, mirrored, workers
from srgp.blocks import raw_pullback
from srgp.collapsed import RawCotangent
from srgp.compiled import quick_jit
from srgp.kernels import SE
from srgp.linalg import Whitener, quiet_blas
from srgp.model import Model
from srgp.moments import unheard
from srgp.precision import Array, HostArray, Scalar, double
from srgp.sensitivity import shaped_like
from srgp.slopes import Raw, host_raw, is_se, kernel_matrix, pulled_moments
from srgp.sources import Batch, Source
from srgp.stacked import Factor, Stack
from srgp.statistics import known_count, rows_for

# What one entry of k(R, X) costs beside the products, in flops: to tell whether threads pay.
ELEMENTWISE = 100.0
# Bytes of kernel matrix that are kept from the first pass for the second.
KEPT = 2**26
# Rows, where nobody knows how many there are.
MANY = 2**20


def first_pass(
    source: Source, model: Model, whiten: Whitener | None, passes: "Passes | None"
) -> Raw:
    """The sums of all rows; of L⁻¹K if there is a factor."""
    passes = passes or passes_of(model, known_count(source), room=0)
    work = functools.partial(passes.sums, Factor.of(whiten))
    raw = _over_blocks(source, passes, passes.begin, work)
    return raw._replace(Phi=mirrored(raw.Phi))


def second_pass(
    source: Source,
    model: Model,
    at: RawCotangent,
    whiten: Whitener | None,
    passes: "Passes | None",
) -> Model:
    """The gradient of a function of these sums, given its derivative in them."""
    passes = passes or passes_of(model, known_count(source), room=0)
    work = functools.partial(passes.pulled, at, Factor.of(whiten))
    found = _over_blocks(source, passes, passes.begin_again, work)
    return found if isinstance(passes, Compiled) else _from_moments(model, at, *found)


def passes_of(
    model: Model, count: int | None, rows: int | None = None, room: int = KEPT
) -> "Passes":
    """For so many rows, if that is known.

    rows: that compiled code takes at once, if not by its own rule; room: bytes to keep.
    """
    count = count or MANY
    if is_se(model.kernel):
        return Stack(model.kernel, model.inducing, count, room)
    return Compiled(model, rows or rows_for(model, count), room)


def _over_blocks(
    source: Source,
    passes: "Passes",
    begin: Callable[[int, Batch], Any],
    work: Callable[[int, Any, Batch], Any],
) -> Any:
    """The sum of work(number, begin(number, block), block) over all blocks."""
    M, count = len(passes.R), known_count(source)
    flops = np.inf if count is None else count * M * (2.0 * M + ELEMENTWISE)
    numbered = enumerate(source.batches(passes.rows))
    blocks = begun_ahead(lambda item: begin(*item), numbered)

    def done(block: tuple[tuple[int, Batch], Any]) -> Any:
        (number, batch), begun = block
        return work(number, begun, batch)

    with quiet_blas(), executor(flops) as pool:
        parts = in_order(pool, done, blocks, passes.for_each_core * workers())
        return functools.reduce(lambda total, part: jax.tree.map(np.add, total, part), parts)


class Compiled:
    """The passes of any kernel that compiled code knows; `Stack` has those of the SE kernel."""

    for_each_core = 1  # blocks that are begun: compiled code has all cores for the next one

    def __init__(self, model: Model, rows: int, room: int) -> None:
        self.model, self.R, self.rows, self.room = model, model.inducing, rows, room
        self.kept: dict[int, tuple[HostArray, HostArray, Array]] = {}

    def begin(self, number: int, block: Batch) -> Array:
        """k(R, X) Diag(√w), which compiled code works on meanwhile."""
        X, _, w = block
        K = kernel_matrix(self.model.kernel, self.model.inducing, X, w)
        if (number + 1) * K.nbytes <= self.room:
            self.kept[number] = np.array(X), np.array(w), K  # the source may use its own again
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
        """The sums of one block, Φ as its lower half."""
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


Passes: TypeAlias = Stack | Compiled

_pull_block = quick_jit(raw_pullback)


@functools.partial(quick_jit, plain=True)
def _from_moments(model: Model, at: RawCotangent, moments: Array, weight: Scalar) -> Model:
    """The gradient, from what `Stack.pulled` gave of all rows; Σ w k(x, x) = v Σ w."""
    assert isinstance(model.kernel, SE)
    total = -jnp.sum(moments[:, 0]) + at.kappa * weight * model.kernel.variance
    kernel, R = pulled_moments(model.kernel, model.inducing, moments, total)
    return shaped_like(model, kernel, jnp.zeros(()), R)
