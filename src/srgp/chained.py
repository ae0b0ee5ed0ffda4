"""ψ_k and its gradient along a short chain of batches, held with their kernel matrices.

The slopes that `srgp.sensitivity` carries along, 2D + 1 products a batch, are only ever multiplied
by the derivative of Ψ in the sums s. While few batches have been learned since a restart it costs
less to go back through each of them, with one product:

    ∂ψ_k = ⟨Ψ_k′, ∂s_k⟩ + Σ_{j<k} ⟨Ψ_k′ − Ψ_{k−1}′, ∂s_j⟩ + what comes through K_RR and σ²,

∂s_j being that at the θ of the j-th batch, as its slopes are. The gradient is the same but for
rounding. L batches take L(L + 2) symmetric products in place of L(2D + 1), and hold L·B·M numbers.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from srgp.approximations import TighterVFE
from srgp.collapsed import (
    FLOOR,
    Factor,
    RawCotangent,
    trace_and_cotangents,
    traces,
    untraced_value_and_cotangents,
)
from srgp.compiled import quick_jit
from srgp.gradient import from_moments, raw_pullback
from srgp.linalg import Whitener, assemble, steadied
from srgp.model import Model
from srgp.moments import monomials
from srgp.precision import Array, Scalar
from srgp.sensitivity import (
    Regulariser,
    factor_of,
    is_structured,
    most_of_raw,
    regulariser_of,
    shaped_like,
)
from srgp.slopes import Raw, is_se, kernel_matrix, pullback_inducing, raw_sums
from srgp.sources import Batch, Held

T = TypeVar("T")

# Bytes of kernel matrices that a chain may hold, and entries of each of them: compiled products of
# larger ones take memory from the system at every call.
HELD, LARGEST = 3 * 2**27, 2**21


class Block(NamedTuple):
    """Rows of a batch with K = k(R, X) Diag(√w), and what its pull-back needs."""

    K: Float[Array, "M B"]
    X: Float[Array, "B D"]
    y: Float[Array, "B *Q"]
    w: Float[Array, " B"]
    p: Float[Array, "B S"] | None  # the monomials, for the SE kernel
    vectors: Float[Array, "S M *Q"] | None  # K Diag(√w p) y


class Link(NamedTuple):
    """A batch at the θ it was learned with."""

    model: Model
    blocks: tuple[Block, ...]


class Chain(NamedTuple):
    """The batches since the last restart, and their sums."""

    links: tuple[Link, ...] = ()
    raw: Raw | None = None


class Step(NamedTuple):
    """What a batch adds to the bound, the gradient of that, and whether it is possible at all."""

    psi: Scalar
    gradient: Model
    possible: Scalar


def is_short(model: Model, length: int, batch_size: int) -> bool:
    """Whether a chain of so many batches is better held than carried along as slopes."""
    M, D = model.inducing.shape
    fits = 8 * length * batch_size * M <= HELD
    return is_structured(model.approximation) and length + 2 < 2 * D + 1 and fits


def learned(chain: Chain, model: Model, batch: Held) -> Chain:
    """The chain with one more batch at θ, where no gradient is asked for."""
    return _extended(chain, *_link(model, batch))


def stepped(chain: Chain, model: Model, batch: Held, whiten: Whitener | None) -> tuple[Chain, Step]:
    """The same, with ψ_k and its derivative (eq. 23, 28).

    whiten: from `whitener_for`.

    Beyond what is possible the sums are worth nothing: the chain restarts from this batch.
    """
    link, raw = _link(model, batch)
    before = jax.tree.map(jnp.zeros_like, raw) if chain.raw is None else chain.raw
    by_rows = None
    if whiten is not None or isinstance(model.approximation, TighterVFE):
        # Where the sums cannot tell the regulariser.
        parts = [regulariser_of(model, block.X, block.w) for block in link.blocks]
        by_rows = functools.reduce(_add, parts)
    psi, possible, at_new, at_old, gradient = _between(model, before, raw, by_rows)
    if not possible:
        return Chain((link,), raw), Step(psi, gradient, possible)
    for at, (at_model, blocks) in ((at_new, link), *((at_old, old) for old in chain.links)):
        for block in blocks:
            gradient = _pull(at_model, at, gradient, block)
    return _extended(chain, link, raw), Step(psi, gradient, possible)


def _link(model: Model, batch: Held) -> tuple[Link, Raw]:
    pieces = list(batch.batches(_rows(len(batch.X), len(model.inducing))))
    begun = [kernel_matrix(model.kernel, model.inducing, X, w) for X, _, w in pieces]
    made = [_block(model, K, piece) for K, piece in zip(begun, pieces, strict=True)]
    return Link(model, tuple(block for block, _ in made)), functools.reduce(
        _add, (raw for _, raw in made)
    )


def _rows(count: int, M: int) -> int:
    """Of a block: the batch in equal parts, as few as may be."""
    return -(-count // -(-count * M // LARGEST))


def _block(model: Model, K: Array, piece: Batch) -> tuple[Block, Raw]:
    p = None
    if is_se(model.kernel):
        p = monomials(model.kernel, np.asarray(model.inducing), piece[0])
    vectors, raw = _vectors_and_sums(model, K, p, *piece)
    found: tuple[Any, ...] = (K, *piece, p, vectors)
    return Block(*found), raw


@quick_jit
def _vectors_and_sums(
    model: Model, K: Array, p: Array | None, X: Array, y: Array, w: Array
) -> tuple[Array | None, Raw]:
    raw = raw_sums(model.kernel, K, X, y, w)
    raw = raw._replace(Phi=assemble(raw.Phi))  # type: ignore[arg-type]
    if p is None:
        return None, raw
    weighted = (y.T * jnp.sqrt(w)).T
    return jnp.stack([K @ (weighted.T * column).T for column in p.T]), raw


@functools.partial(quick_jit, donate_argnums=2)
def _pull(model: Model, at: RawCotangent, gradient: Model, block: Block) -> Model:
    """Add the gradient of a function of the sums, given its derivative in those of this block."""
    if block.p is None or block.vectors is None:
        pulled = raw_pullback(model, at, block.K, block.X, block.y, block.w)
    else:
        # As in `raw_pullback`, but for the part of y, which is the same for every derivative.
        moments = ((2.0 * at.Phi) @ block.K * block.K) @ block.p
        b = at.b.reshape(len(block.K), -1)
        vectors = block.vectors.reshape(*block.vectors.shape[:2], -1)
        moments = moments + jnp.einsum("mq,smq->ms", b, vectors)
        pulled = from_moments(model, at, -moments, jnp.sum(block.w))
    return jax.tree.map(jnp.add, gradient, pulled)


@functools.partial(quick_jit, plain=True)
def _add(one: T, other: T) -> T:
    return jax.tree.map(jnp.add, one, other)


def _extended(chain: Chain, link: Link, raw: Raw) -> Chain:
    return Chain((*chain.links, link), raw if chain.raw is None else _add(chain.raw, raw))


@quick_jit
def _between(
    model: Model, before: Raw, raw: Raw, by_rows: Regulariser | None
) -> tuple[Scalar, Scalar, RawCotangent, RawCotangent, Model]:
    """ψ_k, whether it is possible, its derivative in the new and in the old sums, and the rest."""
    factor = factor_of(model, FLOOR)
    after = jax.tree.map(jnp.add, before, raw)
    (psi0, at0), (psi1, at1) = (
        untraced_value_and_cotangents(factor, s._replace(Phi=steadied(s.Phi)), model.noise)
        for s in (before, after)
    )
    psi, old = psi1 - psi0, jax.tree.map(jnp.subtract, at1, at0)
    # The regulariser of older batches is in Ψ before and after.
    a, at_a, rest = _regulariser(model, factor, raw, by_rows)
    psi, new = psi - a, jax.tree.map(jnp.subtract, at1, at_a)
    limit = most_of_raw(raw, model.noise)
    possible = psi <= limit + 1e-6 * jnp.abs(limit)
    kernel, R = pullback_inducing(model.kernel, model.inducing, factor.K, old.K - at_a.K)
    through_K = shaped_like(model, kernel, old.noise - at_a.noise, R)
    return psi, possible, new, old, jax.tree.map(jnp.subtract, through_K, rest)


def _regulariser(
    model: Model, factor: Factor, raw: Raw, by_rows: Regulariser | None
) -> tuple[Scalar, RawCotangent, Model]:
    """a of all outputs, its derivative in the sums, and, where it came by rows, that in θ."""
    half, at = trace_and_cotangents(factor, raw)
    flat, unravel = ravel_pytree(jax.tree.map(jnp.zeros_like, model))
    of_vfe = traces(model.approximation)
    times = raw.c.size / model.noise if of_vfe else jnp.asarray(float(raw.c.size))
    if by_rows is not None:
        half, at, flat = by_rows.a, jax.tree.map(jnp.zeros_like, at), times * by_rows.at
    elif not of_vfe:
        times = jnp.zeros(())
    a, at = times * half, jax.tree.map(lambda x: times * x, at)
    # VFE's by rows is without σ², that of TighterVFE tells its derivative in it.
    return a, at._replace(noise=-a / model.noise if of_vfe else at.noise), unravel(flat)
