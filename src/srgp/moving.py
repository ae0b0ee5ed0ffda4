"""Carrying what was learned to new inducing inputs and hyper-parameters."""

import jax
import numpy as np
from jaxtyping import Float

from srgp.compiled import quick_jit
from srgp.model import Basis, Model
from srgp.precision import double
from srgp.statistics import Statistics, as_sums, check_belongs


@double
def move(statistics: Statistics, old: Model, new: Model) -> Statistics:
    """Statistics made at `old`, carried over to `new` without the data.

    The data speak about u = f(R) through Λ = L⁻ᵀAL⁻¹, K_RR = LLᵀ. Under the new kernel and inducing
    inputs R′ the best prediction of u is Hu′, H = K_RR′K_R′R′⁻¹, so Λ′ = HᵀΛH (Bui, Nguyen, Turner
    2017). Exact where the kernel stays and R′ contains R; otherwise the scatter of u about Hu′ is
    lost.
    c, log|V| and a are kept, so a VFE bound stays a lower bound when R grows. The noise may change
    only where the sums do not hold it (SoR, DTC, VFE).

    >>> import srgp
    >>> old = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> new = old.replace(inducing=[[0.0], [0.5], [1.0]])
    >>> s = srgp.summarise(old, [[0.2], [0.9]], [1.0, 2.0])
    >>> moved = srgp.move(s, old, new)
    >>> for m, stats in ((old, s), (new, moved)):
    ...     print(srgp.posterior(m, stats).predict([[0.4]])[0].round(6))
    [1.325932]
    [1.325932]
    """
    check_belongs(old, statistics)
    check_comparable(old, new)
    G = np.asarray(transfer(old.basis, new.basis))
    sums = statistics.sums
    moved = as_sums((G.T @ sums.A @ G, G.T @ sums.b, *sums[2:]))
    return Statistics(moved, new.fingerprint)


@quick_jit
def transfer(old: Basis, new: Basis) -> Float[jax.Array, "M M2"]:
    """G = L⁻¹ K_RR′ L′⁻ᵀ, all of it but L at the new kernel: A′ = GᵀAG, b′ = Gᵀb."""
    return old.whiten(new.project(old.inducing).T)


def noise_ratio(old: Model, new: Model) -> np.ndarray:
    """What information is multiplied by when σ² changes: only where V = σ²I is it known."""
    return old.noise / new.noise if old.approximation.noise_free else np.ones(())


def check_comparable(old: Model, new: Model) -> None:
    """Refuse a move between different inputs or different approximations."""
    if old.inducing.shape[1] != new.inducing.shape[1]:
        raise ValueError(
            f"the new inducing inputs have {new.inducing.shape[1]} columns, the old ones "
            f"{old.inducing.shape[1]}."
        )
    if old.approximation != new.approximation:
        raise ValueError(
            f"cannot move from {old.approximation!r} to {new.approximation!r}: they weigh the data "
            "differently. Summarise the data again."
        )
    if not old.approximation.noise_free and old.noise != new.noise:
        raise ValueError(
            f"{old.approximation!r} has its noise variance {old.noise:g} in the sums, and cannot "
            f"move to {new.noise:g}. Summarise the data again."
        )
