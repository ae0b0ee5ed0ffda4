"""Carrying what was learned to new inducing inputs and hyper-parameters."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp.compiled import quick_jit
from srgp.model import Basis, Model
from srgp.precision import double
from srgp.statistics import Statistics, check_belongs
from srgp.sums import Sums, as_sums


@double
def move(statistics: Statistics, old: Model, new: Model) -> Statistics:
    """Statistics made at `old`, carried over to `new` without the data.

    The data speak about u = f(R) through Λ = L⁻ᵀAL⁻¹, K_RR = LLᵀ. Under the new kernel and inducing
    inputs R′ the best prediction of u is Hu′, H = K_RR′K_R′R′⁻¹, so Λ′ = HᵀΛH (Bui, Nguyen, Turner
    2017). Exact where the kernel stays and R′ contains R; otherwise the scatter of u about Hu′ is
    lost, and `srgp.move_loss` tells how much that is.
    c, log|V| and a are kept, so a VFE bound stays a lower bound when R grows. Another σ² is that of
    all data where the sums do not hold it (SoR, DTC, VFE); in the other models V was a weight of
    each row, and the rows learned keep theirs.

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


@double
def move_loss(statistics: Statistics, old: Model, new: Model) -> float:
    """What `move` forgets, in nats: 0 where the kernel stays and R′ contains R.

        ½ tr Λ(K_RR − Q_RR),   Q_RR = K_RR′K_R′R′⁻¹K_R′R,

    what u = f(R) scatters about its prediction from u′ = f(R′), under the new kernel, weighed by
    what the data said of u, Λ (M, M); for all outputs. Where the kernel stays, the bound of VFE
    with this taken off is a lower bound again. What another kernel would have made of the rows
    cannot be told from sums, and is not counted. `Filter.move_loss` is the same of a filter.

    >>> import srgp
    >>> old = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> s = srgp.summarise(old, [[0.2], [0.9]], [1.0, 2.0])
    >>> for R in ([[0.0], [0.5], [1.0]], [[0.1], [1.0]], [[0.0]]):
    ...     print(f"{srgp.move_loss(s, old, old.replace(inducing=R)):.3f}")
    0.000
    0.015
    2.895
    """
    return carried(statistics, old, new)[1]


@double
def carried(statistics: Statistics, old: Model, new: Model) -> tuple[Statistics, float]:
    """As `move`, with the loss added to the regulariser, and that loss by itself.

    So the bound of VFE stays a lower bound wherever inducing inputs go; not where the kernel does.
    """
    check_belongs(old, statistics)
    check_comparable(old, new)
    sums, loss = _carried(old.basis, new.basis, statistics.sums)
    moved = Statistics(as_sums(np.asarray(x) for x in sums), new.fingerprint)
    noise = float(new.noise) if new.approximation.noise_free else 1.0
    # It is no less than zero, but for rounding.
    return moved, np.size(statistics.sums.c) * max(float(loss), 0.0) / noise


@quick_jit
def _carried(old: Basis, new: Basis, sums: Sums) -> tuple[Sums, jax.Array]:
    return moved_sums(old, new, sums)


def moved_sums(old: Basis, new: Basis, sums: Sums) -> tuple[Sums, jax.Array]:
    """A′ = GᵀAG, b′ = Gᵀb, a′ = a + loss, and that loss; differentiable in the new basis."""
    G = transfer(old, new)
    loss = 0.5 * jnp.sum(sums.A * scatter(old, new, G))
    return sums._replace(A=G.T @ sums.A @ G, b=G.T @ sums.b, a=sums.a + loss), loss


def scatter(old: Basis, new: Basis, G: Float[jax.Array, "M M2"]) -> Float[jax.Array, "M M"]:
    """L⁻¹(K_RR − Q_RR)L⁻ᵀ, with K_RR and Q_RR of the new kernel, L of the old one."""
    R = old.inducing
    return old.whiten(old.whiten(new.kernel.covariance(R, R)).T) - G @ G.T


@quick_jit
def transfer(old: Basis, new: Basis) -> Float[jax.Array, "M M2"]:
    """G = L⁻¹ K_RR′ L′⁻ᵀ, all of it but L at the new kernel: A′ = GᵀAG, b′ = Gᵀb."""
    return old.whiten(new.project(old.inducing).T)


def noise_ratio(old: Model, new: Model) -> np.ndarray:
    """What information is multiplied by when σ² changes: where V ≠ σ²I, rows keep their weight."""
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
