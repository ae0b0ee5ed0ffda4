"""ψ_k and its gradient along a short chain of batches, held with their kernel matrices.

The slopes that `srgp.sensitivity` carries along, 2D + 1 products a batch, are only ever multiplied
by the derivative of Ψ in the sums s. While few batches have been learned since a restart it costs
less to go back through each of them, with one product:

    ∂ψ_k = ⟨Ψ_k′, ∂s_k⟩ + Σ_{j<k} ⟨Ψ_k′ − Ψ_{k−1}′, ∂s_j⟩ + what comes through K_RR and σ²,

∂s_j being that at the θ of the j-th batch, as its slopes are. The gradient is the same but for
rounding. L batches take L(L + 3)/2 products in place of L(2D + 1), which are symmetric and, with
the scaling of the kernel matrix before each, take about three quarters of the time of others.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from srgp.approximations import TighterVFE
from srgp.blocks import Block, added, pulled
from srgp.blocks import learned as blocks_of
from srgp.collapsed import (
    FLOOR,
    Factor,
    RawCotangent,
    trace_and_cotangents,
    traces,
    untraced_value_and_cotangents,
)
from srgp.compiled import quick_jit
from srgp.linalg import Whitener, steadied
from srgp.model import Model
from srgp.precision import Scalar
from srgp.sensitivity import (
    Regulariser,
    factor_of,
    is_structured,
    most_of_raw,
    regulariser_of,
    shaped_like,
)
from srgp.slopes import Raw, pullback_inducing
from srgp.sources import Batch

# Bytes of kernel matrices that a chain may hold.
HELD = 3 * 2**27


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
    return is_structured(model.approximation) and length <= 3 * D and fits


def learned(chain: Chain, model: Model, batch: Batch) -> Chain:
    """The chain with one more batch at θ, where no gradient is asked for."""
    blocks, raw = blocks_of(model, batch)
    return _extended(chain, Link(model, blocks), raw)


def stepped(
    chain: Chain, model: Model, batch: Batch, whiten: Whitener | None
) -> tuple[Chain, Step]:
    """The same, with ψ_k and its derivative (eq. 23, 28).

    whiten: from `whitener_for`.

    Beyond what is possible the sums are worth nothing: the chain restarts from this batch.
    """
    blocks, raw = blocks_of(model, batch)
    link = Link(model, blocks)
    before = jax.tree.map(jnp.zeros_like, raw) if chain.raw is None else chain.raw
    by_rows = None
    if whiten is not None or isinstance(model.approximation, TighterVFE):
        # Where the sums cannot tell the regulariser.
        by_rows = functools.reduce(added, (regulariser_of(model, b.X, b.w) for b in blocks))
    psi, possible, at_new, at_old, gradient = _between(model, before, raw, by_rows)
    if not possible:
        return Chain((link,), raw), Step(psi, gradient, possible)
    for at, each in ((at_new, link), *((at_old, old) for old in chain.links)):
        gradient = pulled(each.model, at, gradient, each.blocks)
    return _extended(chain, link, raw), Step(psi, gradient, possible)


def _extended(chain: Chain, link: Link, raw: Raw) -> Chain:
    return Chain((*chain.links, link), raw if chain.raw is None else added(chain.raw, raw))


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
