"""Inducing inputs that follow the data, at a fixed budget."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp.model import Basis, Model
from srgp.precision import Array, double


@double
def renewed(
    model: Model, X: np.ndarray, use: np.ndarray, budget: int, novelty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Inducing inputs for a model that has met the rows X, and how much each has been of use.

    A row that the inducing inputs leave unexplained by more than a share `novelty` of its variance
    becomes one itself, the least explained first. Where the budget is spent, it takes the place of
    the one that has been of least use. So nothing changes while the data stay where they were.
    """
    R, use = np.asarray(model.inducing), use.copy()
    for _ in range(max(1, budget // 4)):
        share = np.asarray(_unexplained_share(model.replace(inducing=R).basis, X))
        worst = int(share.argmax())
        if not share[worst] > novelty:
            break
        if len(R) < budget:
            R, use = np.concatenate([R, X[worst : worst + 1]]), np.append(use, use.mean())
        else:
            out = int(use.argmin())
            R = np.concatenate([np.delete(R, out, 0), X[worst : worst + 1]])
            use = np.append(np.delete(use, out), np.median(use))
    return R, use


@double
def used(model: Model, X: np.ndarray) -> np.ndarray:
    """How much each inducing input has to do with the rows X: its mean share of the weights."""
    return np.asarray(_used(model.basis, X))


@jax.jit
def _unexplained_share(basis: Basis, X: Float[Array, "B D"]) -> Float[Array, " B"]:
    W = basis.project(X)
    return 1.0 - jnp.sum(W**2, 0) / basis.kernel.variance_at(X)


@jax.jit
def _used(basis: Basis, X: Float[Array, "B D"]) -> Float[Array, " M"]:
    weights = (basis.whiten.inverse.T @ basis.project(X)) ** 2  # (K⁻¹k)²
    return jnp.mean(weights / jnp.maximum(jnp.sum(weights, 0), 1e-300), 1)
