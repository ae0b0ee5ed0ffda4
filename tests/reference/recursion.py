"""The Kalman recursion of the paper in the coordinates u = f(R), and what a stream adds to it.

A belief about u is a mean (M, Q) and a covariance (M, M). The information that the data alone
carry about u is a precision Lambda (M, M) and a vector eta (M, Q): up to a constant,

    log p(data | u) = -1/2 u^T Lambda u + eta^T u,

so the belief is Sigma = (Krr^-1 + Lambda)^-1, mu = Sigma eta, with the prior u ~ N(0, Krr).
"""

import numpy as np

from .models import (
    Array,
    as_columns,
    blocks,
    inverse,
    log_normal,
    regulariser,
    remainder,
    sample_noise,
    solve,
    training_covariance,
)


def kalman_step(
    mean: Array, covariance: Array, H: Array, V: Array, y: Array
) -> tuple[Array, Array, float]:
    """One step of the paper's eq. KF, H (B, M), V (B, B), y (B, Q).

    r = y - H mu, S = H Sigma H^T + V, G = Sigma H^T S^-1,
    mu' = mu + G r, Sigma' = Sigma - G S G^T; also sum_q log N(r_q; 0, S), eq. rec_marg.
    """
    r = y - H @ mean
    S = H @ covariance @ H.T + V
    G = solve(S, H @ covariance).T
    updated = covariance - G @ S @ G.T
    # Rounding leaves the two halves slightly different, and the recursion would feed it back.
    return mean + G @ r, (updated + updated.T) / 2.0, log_normal(r, S)


def kalman_filter(
    model: str,
    Kxx: Array,
    Kxr: Array,
    Krr: Array,
    y: Array,
    noise: float,
    *,
    block_size: int | None = None,
    sample_weight: Array | None = None,
    alpha: float = 0.5,
    mean: Array | None = None,
    covariance: Array | None = None,
) -> tuple[Array, Array, list[float]]:
    """All data in consecutive mini-batches of block_size rows (paper, eq. KF, recursive_lik).

    Arguments as in `models`; for PITC a mini-batch is a block. Starts from mean (M, Q) and
    covariance (M, M), by default the prior 0 and Krr. Returns the last mean (M, Q), the last
    covariance (M, M) and the list of psi_k = sum_q [ log N(r_kq; 0, S_k) - a_k ].
    """
    targets = as_columns(y)
    Q = targets.shape[1]
    mu = np.zeros((len(Krr), Q)) if mean is None else as_columns(mean)
    Sigma: Array = Krr if covariance is None else covariance
    s = sample_noise(noise, len(Kxx), sample_weight)
    psi: list[float] = []
    for k in blocks(len(Kxx), block_size):
        H = solve(Krr, Kxr[k].T).T
        D = remainder(Kxx[k, k], Kxr[k], Krr)
        V = training_covariance(model, D, alpha, None) + np.diag(s[k])
        mu, Sigma, log_density = kalman_step(mu, Sigma, H, V, targets[k])
        psi.append(log_density - Q * regulariser(model, np.diag(D), s[k], alpha))
    return mu, Sigma, psi


def information(mean: Array, covariance: Array, Krr: Array) -> tuple[Array, Array]:
    """What the data alone say: Lambda = Sigma^-1 - Krr^-1 (M, M), eta = Sigma^-1 mu (M, Q)."""
    Lambda = inverse(covariance) - inverse(Krr)
    return (Lambda + Lambda.T) / 2.0, solve(covariance, as_columns(mean))


def information_from_statistics(A: Array, b: Array, Krr: Array) -> tuple[Array, Array]:
    """Lambda = Krr^-1 A Krr^-1 (M, M) and eta = Krr^-1 b (M, Q).

    A = Krx V^-1 Kxr (M, M) and b = Krx V^-1 y (M, Q) are the sums over data in the transformed
    coordinates Krr^-1 u (paper, section 3.2, "Transformation").
    """
    return solve(Krr, solve(Krr, A).T).T, solve(Krr, as_columns(b))


def belief(Lambda: Array, eta: Array, Krr: Array) -> tuple[Array, Array]:
    """The prior N(0, Krr) times the information: mean (M, Q), covariance (M, M)."""
    covariance = inverse(inverse(Krr) + Lambda)
    return covariance @ as_columns(eta), covariance


def move(Lambda: Array, eta: Array, K_old_new: Array, K_new_new: Array) -> tuple[Array, Array]:
    """Carry information about u = f(R) to u' = f(R'): (M, M), (M, Q) -> (M', M'), (M', Q).

    K_old_new = k'(R, R') (M, M') and K_new_new = k'(R', R') (M', M') use the new kernel k'.
    Given u' the new prior expects u = H u' with H = k'(R, R') k'(R', R')^-1; put into
    log p(data | u) this gives Lambda' = H^T Lambda H and eta' = H^T eta. It is exact when R'
    contains R, since then u is a part of u'; otherwise the scatter of u about H u' is left out.
    """
    H = solve(K_new_new, K_old_new.T).T
    return H.T @ Lambda @ H, H.T @ as_columns(eta)


def forget_exponentially(
    mean: Array, covariance: Array, Krr: Array, factor: float
) -> tuple[Array, Array]:
    """Scale the data's information by factor in (0, 1] and keep the prior: mean, covariance.

    Sigma' = (Krr^-1 + factor Lambda)^-1, mu' = factor Sigma' eta.
    """
    Lambda, eta = information(mean, covariance, Krr)
    return belief(factor * Lambda, factor * eta, Krr)


def forget_towards_prior(
    mean: Array, covariance: Array, Krr: Array, factor: float
) -> tuple[Array, Array]:
    """Back to the prior (van Vaerenbergh et al. 2012): mean, covariance.

    u' = sqrt(factor) u + sqrt(1 - factor) e with e ~ N(0, Krr) independent, hence
    mu' = sqrt(factor) mu and Sigma' = factor Sigma + (1 - factor) Krr.
    """
    return np.sqrt(factor) * as_columns(mean), factor * covariance + (1.0 - factor) * Krr
