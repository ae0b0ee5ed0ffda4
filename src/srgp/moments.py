"""The products of the SE kernel by BLAS: all are symmetric, which is half the flops of plain ones.

K Diag(p) Kᵀ is the Gram matrix of the columns of K times √p where p ≥ 0. The squares of x are; x is
after a shift,

    K Diag(x) Kᵀ = K Diag(x − s) Kᵀ + s K Kᵀ,   s = min x.

Each core has one monomial p and half of the rows at a time: so the sums are the same bits whatever
the number of cores.

Where K_RR is ill-conditioned these sums cannot tell what R explains of the rows: K_RR⁻¹ multiplies
their rounding errors. `Explained` tells it, from substitution in the rows themselves.
"""

import functools
import itertools
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from srgp.blas import Triangle, add_gram, executor, grouped, mirrored
from srgp.kernels import SE
from srgp.precision import Array, HostArray, Scalar
from srgp.slopes import Products, host_raw, is_shared, kernel_matrix

# So many lengthscales away from all of R the kernel is zero in double precision.
BEYOND = 39.0
# Entries of k(X, R) that are held at a time, in blocks that stay near the core that scales them.
SLAB, BLOCK = 2**23, 2**18

Multiple: TypeAlias = "tuple[float, Future[np.ndarray]]"


class Explained(NamedTuple):
    """What R explains of some rows, and what its derivatives are made of; V = K_RR⁻¹K."""

    variance: Scalar  # tr KᵀV
    gram: Float[Array, "M M"]  # VVᵀ
    moments: Float[Array, "M S"]  # (V ∘ K) p for the monomials p


def se_products(
    kernel: SE,
    R: Float[Array, "M D"],
    blocks: Iterable[tuple[HostArray, ...]],
    lower: Triangle | None = None,
) -> tuple[Products, Explained | None]:
    """The products of all rows, given as checked blocks of (X, y, weights) of the same shape.

    And what R explains of them, if there is the factor L of K_RR to tell it with.
    """
    blocks = iter(blocks)
    first = next(blocks)
    rows, M = len(first[0]), len(R)
    at_a_time = max(SLAB // (rows * M), 1)
    with executor(2.0 * rows * M**2 * R.shape[1]) as pool:
        slabs = grouped(itertools.chain([first], blocks), at_a_time)
        parts = (_slab_products(pool, kernel, R, slab, lower) for slab in slabs)
        return functools.reduce(lambda total, part: jax.tree.map(np.add, total, part), parts)


# What overflows, and θ that has run away, is refused where the sums are used, with a message.
unheard = np.errstate(over="ignore", invalid="ignore", divide="ignore")


@unheard
def _slab_products(
    pool: Executor,
    kernel: SE,
    R: Float[Array, "M D"],
    slab: list[tuple[HostArray, ...]],
    lower: Triangle | None,
) -> tuple[Products, Explained | None]:
    begun = [kernel_matrix(kernel, R, X, w) for X, _, w in slab]
    K = [np.asarray(block) for block in begun]
    X, y, w = (np.concatenate(parts) for parts in zip(*slab, strict=True))
    p = monomials(kernel, np.asarray(R), X)
    # The longest jobs first.
    explained = [] if lower is None else _submit_explained(pool, lower, K, p)
    shifts = np.minimum(p.min(0), 0.0)  # what makes them positive
    positive = np.sqrt(np.ascontiguousarray((p - shifts).T))  # scaling by a strided row is slow
    Phi = _submit_gram(pool, K, None)  # of the first, which is 1
    pairs = zip(positive[1:], shifts[1:], strict=True)
    others = [_submit_gram(pool, K, root, (shift, Phi)) for root, shift in pairs]
    vectors: Any = _vectors(K, p, y, np.sqrt(w))
    # Σ w k(x, x) = v Σ w, and v is the first parameter.
    kappa: Any = np.zeros(1 + np.size(kernel.lengthscales))
    kappa[0] = w.sum()
    raw = host_raw(kernel, Phi.result(), vectors[0], X, y, w)
    matrices: Any = tuple(other.result() for other in others)
    parts = [part.result() for part in explained]
    total = jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *parts) if parts else None
    return Products(raw, matrices, -vectors, kappa), total


def _submit_explained(
    pool: Executor,
    lower: Triangle,
    blocks: list[Float[np.ndarray, "M B"]],
    monomials: Float[np.ndarray, "N S"],
) -> "list[Future[Explained]]":
    B = blocks[0].shape[1]
    return [
        pool.submit(_explained, lower, K, monomials[i * B : (i + 1) * B])
        for i, K in enumerate(blocks)
    ]


@unheard
def _explained(
    lower: Triangle, K: Float[np.ndarray, "M B"], p: Float[np.ndarray, "B S"]
) -> Explained:
    V, gram = np.array(K), np.zeros((len(K), len(K)))
    lower.solve(V)
    # tr KᵀK_RR⁻¹K as a sum of squares: what is left of the prior variance is never negative.
    variance = np.vdot(V, V)
    lower.solve(V, transposed=True)
    add_gram(V, gram)
    V *= K
    found: tuple[Any, ...] = (variance, mirrored(gram), V @ p)
    return Explained(*found)


def monomials(
    kernel: SE, R: Float[np.ndarray, "M D"], X: Float[np.ndarray, "B D"]
) -> Float[np.ndarray, "B S"]:
    """1, x_1..x_d, then x_1²..x_d² (|x|² for a shared lengthscale), x from the centre of R."""
    active = slice(None) if kernel.active_dims is None else list(kernel.active_dims)
    R, X = R[:, active], X[:, active]
    centre, reach = R.mean(0), BEYOND * np.asarray(kernel.lengthscales)
    # Where K is zero x may be anything; what is far away would only cost digits.
    x = np.clip(X, R.min(0) - reach, R.max(0) + reach) - centre
    squares = np.sum(x**2, 1, keepdims=True) if is_shared(kernel) else x**2
    return np.concatenate([np.ones((len(x), 1)), x, squares], 1)


def _submit_gram(
    pool: Executor,
    blocks: list[Float[np.ndarray, "M B"]],
    root: Float[np.ndarray, " rows"] | None,
    *added: Multiple,
) -> "Future[Float[np.ndarray, 'M M']]":
    """K Diag(root²) Kᵀ and multiples of others that were begun before, which are done or at work.

    In two jobs: an odd number of products would leave a core idle.
    """
    half = len(blocks) // 2
    if half:
        rows = half * blocks[0].shape[1]
        first, root = (None, None) if root is None else (root[:rows], root[rows:])
        added = (1.0, pool.submit(_gram, blocks[:half], first)), *added
    return pool.submit(_gram, blocks[half:], root, *added)


@unheard
def _gram(
    blocks: list[Float[np.ndarray, "M B"]],
    root: Float[np.ndarray, " rows"] | None,
    *added: Multiple,
) -> Float[np.ndarray, "M M"]:
    """Σ (K Diag(root)) (K Diag(root))ᵀ over the blocks of K, and what is to be added."""
    M, B = blocks[0].shape
    total, scaled = np.zeros((M, M)), np.empty((M, B))
    for i, K in enumerate(blocks):
        if root is None:
            add_gram(K, total)
        else:
            np.multiply(K, root[i * B : (i + 1) * B], out=scaled)
            add_gram(scaled, total)
    gram = mirrored(total)
    for factor, other in added:
        if factor:
            gram += factor * other.result()
    return gram


def _vectors(
    blocks: list[Float[np.ndarray, "M B"]],
    monomials: Float[np.ndarray, "N S"],
    y: Float[np.ndarray, "N *Q"],
    root: Float[np.ndarray, " N"],
) -> Float[np.ndarray, "S M *Q"]:
    """K Diag(√w p) y for every monomial p."""
    weighted = monomials * root[:, None]
    targets = np.einsum("ns,n...->ns...", weighted, y)
    B = blocks[0].shape[1]
    parts = [np.tensordot(K, targets[i * B : (i + 1) * B], 1) for i, K in enumerate(blocks)]
    return np.moveaxis(sum(parts[1:], parts[0]), 1, 0)
