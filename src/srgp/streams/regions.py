"""Inducing inputs that follow the data, at a fixed budget."""

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from srgp.collapsed import FLOOR
from srgp.model import Model
from srgp.statistics import Statistics

# Rows of a chunk that may become inducing inputs; more would be too close to each other.
CANDIDATES = 256
# Share of its variance below which nothing of a row is left to explain.
EXPLAINED = 1e-5
# Nats that an inducing input must bring.
WORTH = 1.0


def renewed(
    model: Model, past: Statistics, X: np.ndarray, budget: int, novelty: float
) -> np.ndarray:
    """Inducing inputs for a model that has learned `past` and meets the rows X.

    Rows of X become inducing inputs while they explain others by more than a nat: with C the
    covariance of f at X given f(R), row i brings Σ_b C_ib²/2C_iiσ². Where the budget is spent, the
    one that costs least has to go:

        ½ Λ_jj / (K⁻¹)_jj,   Λ = L⁻ᵀAL⁻¹/σ²,

    what the data say of u_j, X as often as all before, times its variance given the others. That is
    little where others are near, and where there were no data or they have been forgotten. It goes
    where the new one brings more, and in any case where X is new: a share `novelty` of its variance
    unexplained. While the data stay where they were, nothing changes.
    """
    rows = X[np.linspace(0, len(X) - 1, min(len(X), CANDIDATES)).astype(int)]
    M, R, noise = len(model.inducing), np.asarray(model.inducing), float(model.noise)
    # Filled up to the budget, so that the kernel is compiled for one shape only.
    filled = np.concatenate([R, np.repeat(R[:1], budget - M, 0), rows])
    K = np.array(model.kernel(filled, filled))
    variances = np.diag(K)[budget:].copy()
    K[np.diag_indices_from(K)] *= 1.0 + FLOOR
    chosen = np.arange(M)
    # The rows to come are expected where these are: they count as much as all before.
    weight = max(past.n, len(X)) / len(rows)
    information = _information(model, past, K, slice(budget, None), weight)
    for _ in range(max(1, budget // 4)):
        lower = np.linalg.cholesky(K[np.ix_(chosen, chosen)])
        W = solve_triangular(lower, K[chosen, budget:], lower=True)
        C = K[budget:, budget:] - W.T @ W
        # What is left of a row that is explained to rounding, or chosen already, means nothing.
        left = np.where(np.diag(C) > EXPLAINED * variances, np.diag(C), np.inf)
        left[chosen[chosen >= budget] - budget] = np.inf
        gains = len(X) / len(rows) * 0.5 * np.sum(C**2, 1) / left / noise
        new = np.isfinite(left) & (left > novelty * variances) & (gains >= WORTH)
        best = int(np.where(new, gains, -np.inf if new.any() else gains).argmax())
        if gains[best] < WORTH:
            break
        if len(chosen) >= budget:
            known = chosen < M
            half = solve_triangular(lower, np.eye(len(lower)), lower=True)
            inverse = half.T @ half
            losses = np.where(known, 0.5 * np.diag(information) / np.diag(inverse), np.inf)
            out = int(losses.argmin())
            if not known.any() or not (new.any() or gains[best] > losses[out]):
                break
            information = _without(information, inverse, out)
            chosen = np.delete(chosen, out)
        chosen = np.append(chosen, budget + best)
        information = np.pad(information, (0, 1))  # nothing is known of it yet
    return filled[chosen]


def _information(
    model: Model, past: Statistics, K: np.ndarray, rows: slice, weight: float
) -> Float[np.ndarray, "M M"]:
    """Λ, the precision that data add to u: those before, and some rows of K, counted so often."""
    M = len(model.inducing)
    lower = np.asarray(model.basis.whiten.lower)
    noise = float(model.noise) if model.approximation.noise_free else 1.0
    now = K[:M, rows] @ K[rows, :M] * (weight / float(model.noise))
    # K⁻¹(ΣKKᵀ)K⁻¹ with the same K as elsewhere here: L alone knows no floor.
    total = lower @ np.asarray(past.sums.A) @ lower.T / noise + now
    factor = cho_factor(K[:M, :M], lower=True)
    return cho_solve(factor, cho_solve(factor, total).T)


def _without(
    information: Float[np.ndarray, "M M"], inverse: Float[np.ndarray, "M M"], out: int
) -> Float[np.ndarray, "M-1 M-1"]:
    """Λ of the others, once u_j is what they expect: Λ′ = HᵀΛH, H = [I; −(K⁻¹)_j/(K⁻¹)_jj]."""
    rest = np.delete(np.arange(len(inverse)), out)
    H = np.eye(len(inverse))[:, rest]
    H[out] = -inverse[out, rest] / inverse[out, out]
    return H.T @ information @ H
