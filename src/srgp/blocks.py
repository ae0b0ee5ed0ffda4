"""Rows of data forwards and backwards, in compiled code: their raw sums, and from the derivative of
any function of these back to kernel and R.

A block costs one product each way. What both need, the kernel matrix first of all, is kept in it.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp.collapsed import RawCotangent
from srgp.compiled import quick_jit
from srgp.linalg import Whitener, assemble
from srgp.model import Model
from srgp.precision import Array
from srgp.sensitivity import shaped_like
from srgp.slopes import Raw, kernel_matrix, pullback, raw_sums
from srgp.sources import Batch

T = TypeVar("T")

# Entries of a kernel matrix: larger ones take their memory from the system at every call.
LARGEST = 2**21


class Block(NamedTuple):
    """Rows with K = k(R, X) Diag(√w)."""

    K: Float[Array, "M B"]
    X: Float[Array, "B D"]
    y: Float[Array, "B *Q"]
    w: Float[Array, " B"]


def learned(
    model: Model, batch: Batch, whiten: Whitener | None = None
) -> tuple[tuple[Block, ...], Raw]:
    """A batch at θ as few blocks of one shape, and its raw sums; of L⁻¹K if there is a factor."""
    blocks: list[Any] = [
        Block(kernel_matrix(model.kernel, model.inducing, X, w), X, y, w)  # type: ignore[arg-type]
        for X, y, w in _pieces(batch, len(model.inducing))
    ]
    return tuple(blocks), functools.reduce(added, (_sums(model, whiten, block) for block in blocks))


def pulled(
    model: Model,
    at: RawCotangent,
    gradient: Model,
    blocks: tuple[Block, ...],
    whiten: Whitener | None = None,
) -> Model:
    """Add the gradient of a function of the sums of these blocks, given its derivative in them.

    model, whiten: those that they were learned with.
    """
    return functools.reduce(
        lambda total, block: _pull(model, whiten, at, total, block), blocks, gradient
    )


@functools.partial(quick_jit, plain=True)
def added(one: T, other: T) -> T:
    """The sum of two trees of arrays."""
    return jax.tree.map(jnp.add, one, other)


def _pieces(batch: Batch, M: int) -> list[Batch]:
    """Of equal size, the last padded with rows of weight 0."""
    count = len(batch[0])
    rows = -(-count // -(-count * M // LARGEST))
    missing = -count % rows
    whole = [np.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)) if missing else a for a in batch]
    return [tuple(a[i : i + rows] for a in whole) for i in range(0, count, rows)]  # type: ignore[misc]


@quick_jit
def _sums(model: Model, whiten: Whitener | None, block: Block) -> Raw:
    K, *rest = block
    raw = raw_sums(model.kernel, K if whiten is None else whiten(K), *rest)
    return raw._replace(Phi=assemble(raw.Phi))  # type: ignore[arg-type]


@functools.partial(quick_jit, donate_argnums=3)
def _pull(
    model: Model, whiten: Whitener | None, at: RawCotangent, gradient: Model, block: Block
) -> Model:
    whitened = None if whiten is None else (whiten(block.K), whiten.inverse)
    return jax.tree.map(jnp.add, gradient, raw_pullback(model, at, *block, whitened))


def raw_pullback(
    model: Model,
    at: RawCotangent,
    K: Float[Array, "M B"],
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    w: Float[Array, " B"],
    whitened: tuple[Float[Array, "M B"], Float[Array, "M M"]] | None = None,
) -> Model:
    """The gradient of a function of the raw sums through one block, given its derivative in them.

    K̄ = 2Φ̄K + b̄yᵀDiag(√w) for K = k(R, X) Diag(√w), pulled back to kernel and R, and κ's own
    derivative. With (L⁻¹K, L⁻¹), Φ̄ and b̄ are derivatives in whitened sums: K̄ = L⁻ᵀ(2Φ̄L⁻¹K + …).
    """
    weighted = (y.T * jnp.sqrt(w)).reshape(-1, len(w))
    at_K = (2.0 * at.Phi) @ (K if whitened is None else whitened[0])
    b = at.b.reshape(len(K), -1)
    # A product with one column takes BLAS as long as one with many.
    at_K += b * weighted if len(weighted) == 1 else b @ weighted
    if whitened is not None:
        at_K = whitened[1].T @ at_K
    kernel, R = pullback(model.kernel, model.inducing, X, K, at_K, w)
    variances = jax.grad(lambda kernel: at.kappa * jnp.sum(w * kernel.variance_at(X)))
    kernel = jax.tree.map(jnp.add, kernel, variances(model.kernel))
    return shaped_like(model, kernel, jnp.zeros(()), R)
