"""ψ_k and its gradient along a short chain of batches whose rows are at hand, all at the same θ.

The paper's recursion keeps sums of earlier batches at the θ of their time. As θ moves on, ψ_k has
the gradient of no model any more, and where the bound is flat that error leads astray. While few
batches have been learned since a restart, their sums can be made anew at the θ of the moment, one
product a batch, and their derivatives by going back through each of them, one more:

    ∂ψ_k = ⟨Ψ_k′, ∂s_k⟩ + Σ_{j<k} ⟨Ψ_k′ − Ψ_{k−1}′, ∂s_j⟩ + what comes through K_RR and σ²,

Ψ′ being the derivative of Ψ in the sums s. L batches take L(L + 1) products, half of them
symmetric, in place of the L(2D + 1) symmetric ones of `srgp.sensitivity`. And these sums can be
whitened, where K_RR is too ill-conditioned for others: then L(L + 1) substitutions come to it.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from srgp.approximations import TighterVFE
from srgp.blocks import added, learned, pulled
from srgp.gradient import cotangents, simplest, whitener_where_needed
from srgp.model import Model
from srgp.precision import Scalar
from srgp.sensitivity import is_structured
from srgp.sources import Batch

# Batches of a chain: more of them cost more than slopes, and gain little.
MOST = 20
# Bytes of kernel matrices that a step may hold.
HELD = 3 * 2**27


class Step(NamedTuple):
    """What a batch adds to the bound, the gradient of that, and whether it is possible at all."""

    psi: Scalar
    gradient: Model
    possible: bool


def is_short(model: Model, length: int, batch_size: int) -> bool:
    """Whether the sums of so many batches can be made anew at each θ."""
    fits = 8 * length * batch_size * len(model.inducing) <= HELD
    return length <= MOST and fits and can_be_fresh(model)


def can_be_fresh(model: Model) -> bool:
    """Whether V̄ = 0, and the regulariser is a function of the sums."""
    approximation = model.approximation
    return is_structured(approximation) and not isinstance(approximation, TighterVFE)


def stepped(model: Model, earlier: Sequence[Batch], batch: Batch) -> Step:
    """ψ_k of a batch after earlier ones, and its derivative (eq. 23, 28)."""
    whiten = whitener_where_needed(model)
    older = [learned(model, each, whiten) for each in earlier]
    blocks, raw = learned(model, batch, whiten)
    before = functools.reduce(added, (s for _, s in older), jax.tree.map(jnp.zeros_like, raw))
    psi0, at0, through0 = cotangents(model, whiten, before)
    psi1, at1, through1 = cotangents(model, whiten, added(before, raw))
    psi, gradient = psi1 - psi0, jax.tree.map(jnp.subtract, through1, through0)
    if not np.isfinite(psi):
        return Step(psi, gradient, False)
    new, whiten_back = simplest(at1, whiten)
    old, _ = simplest(jax.tree.map(jnp.subtract, at1, at0), whiten)
    for at, each in ((new, blocks), *((old, each) for each, _ in older)):
        gradient = pulled(model, at, gradient, each, whiten_back)
    return Step(psi, gradient, True)
