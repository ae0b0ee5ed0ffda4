"""Bounds, posteriors and predictions of all sparse models by dense N x N formulas.

The arguments shared by all functions:

    model          one of MODELS
    Kxx (N, N), Kxr (N, M), Krr (M, M)   covariances of samples x and inducing inputs r
    y (N, Q) or (N,)                     targets, the Q outputs share the covariance
    noise          noise variance; sample i has the variance s_i = noise / w_i
    sample_weight  w (N,), positive, ones by default; a sample of no weight is to be left out
    alpha          the power of PEP, in [0, 1]; alpha = 0 is VFE
    block_size     rows in a block of PITC, consecutive, the last may be smaller; None: one block

With V = Vbar + Diag(s), the models differ in three places (figure 2 of the paper):

    model            Vbar              V_* (prediction)   a (regulariser of the bound)
    SoR              0                 0                  0
    DTC              0                 D_*                0
    FITC             Diag d            D_*                0
    FIC              Diag d            Diag d_*           0
    PITC             blocks of D       D_*                0
    VFE              0                 D_*                sum_i d_i / (2 s_i)
    PEP(alpha)       alpha Diag d      D_*                (1-alpha)/(2 alpha)
                                                            * sum_i log(1 + alpha d_i/s_i)
    TighterVFE       0                 D_*                1/2 sum_i log(1 + d_i/s_i)

where D = Kxx - Qxx, d = diag D, and D_*, d_* the same at the test inputs. TighterVFE is the
bound of Titsias (2025) and of Bui, Ashman and Turner (2025), which is not in the paper.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MODELS: Final = ("SoR", "DTC", "FITC", "FIC", "PITC", "VFE", "PEP", "TighterVFE")


def solve(A: Array, B: Array) -> Array:
    """A^-1 B, (N, N), (N, K) -> (N, K)."""
    return np.asarray(np.linalg.solve(A, B), dtype=np.float64)


def inverse(A: Array) -> Array:
    """A^-1, (N, N) -> (N, N)."""
    return np.asarray(np.linalg.inv(A), dtype=np.float64)


def as_columns(y: Array) -> Array:
    """Targets (N,) or (N, Q) as (N, Q)."""
    values = np.asarray(y, dtype=np.float64)
    return values[:, None] if values.ndim == 1 else values


def sample_noise(noise: float, N: int, sample_weight: Array | None = None) -> Array:
    """s_i = noise / w_i, (N,)."""
    weight = np.ones(N) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (N,) or not np.all(weight > 0):
        raise ValueError(f"sample_weight needs {N} positive entries")
    return np.asarray(noise / weight)


def blocks(N: int, block_size: int | None) -> list[slice]:
    """Consecutive blocks of block_size rows, the last may be smaller; None is one block."""
    size = N if block_size is None else block_size
    return [slice(start, min(start + size, N)) for start in range(0, N, size)]


def low_rank(Kar: Array, Krr: Array, Kbr: Array) -> Array:
    """Qab = Kar Krr^-1 Krb (paper, section 2.1), (A, M), (M, M), (B, M) -> (A, B)."""
    return np.asarray(Kar @ solve(Krr, Kbr.T))


def remainder(Kaa: Array, Kar: Array, Krr: Array) -> Array:
    """Da = Kaa - Qaa (paper, section 2.1), (A, A)."""
    return np.asarray(Kaa - low_rank(Kar, Krr, Kar))


def _check(model: str, alpha: float) -> None:
    """Refuse what the table does not define."""
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}, expected one of {MODELS}")
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"alpha must be in [0, 1], not {alpha}")


def training_covariance(model: str, D: Array, alpha: float, block_size: int | None) -> Array:
    """Vbar of the table from the remainder D of the samples, (N, N) -> (N, N)."""
    _check(model, alpha)
    if model in ("FITC", "FIC"):
        return np.diag(np.diag(D))
    if model == "PEP":
        return np.asarray(alpha * np.diag(np.diag(D)))
    Vbar = np.zeros_like(D)
    if model == "PITC":
        for rows in blocks(len(D), block_size):
            Vbar[rows, rows] = D[rows, rows]
    return Vbar


def prediction_covariance(model: str, D: Array) -> Array:
    """V_* of the table from the remainder D_* of the test inputs, (A, A) -> (A, A)."""
    if model == "SoR":
        return np.zeros_like(D)
    return np.diag(np.diag(D)) if model == "FIC" else D


def regulariser(model: str, d: Array, s: Array, alpha: float) -> float:
    """The term a of the table for one output, from d = diag D (N,) and the noise s (N,)."""
    _check(model, alpha)
    if model == "VFE" or (model == "PEP" and alpha == 0.0):
        return float(np.sum(d / (2.0 * s)))
    if model == "PEP":
        return float((1.0 - alpha) / (2.0 * alpha) * np.sum(np.log1p(alpha * d / s)))
    if model == "TighterVFE":
        return float(0.5 * np.sum(np.log1p(d / s)))
    return 0.0


def log_normal(y: Array, C: Array) -> float:
    """sum_q log N(y_q; 0, C), the columns y_q of (N, Q) independent, C (N, N)."""
    N, Q = y.shape
    sign, log_determinant = np.linalg.slogdet(C)
    if sign <= 0:
        raise np.linalg.LinAlgError("the covariance is not positive definite")
    squares = np.sum(y * solve(C, y))
    return float(-0.5 * (Q * N * np.log(2.0 * np.pi) + Q * log_determinant + squares))


def observation_covariance(
    model: str,
    Kxx: Array,
    Kxr: Array,
    Krr: Array,
    noise: float,
    *,
    sample_weight: Array | None = None,
    alpha: float = 0.5,
    block_size: int | None = None,
) -> Array:
    """V = Vbar + Diag(s), the covariance of y given u (paper, section 3.1), (N, N)."""
    Vbar = training_covariance(model, remainder(Kxx, Kxr, Krr), alpha, block_size)
    return np.asarray(Vbar + np.diag(sample_noise(noise, len(Kxx), sample_weight)))


def log_bound(
    model: str,
    Kxx: Array,
    Kxr: Array,
    Krr: Array,
    y: Array,
    noise: float,
    *,
    sample_weight: Array | None = None,
    alpha: float = 0.5,
    block_size: int | None = None,
) -> float:
    """sum_q [ log N(y_q; 0, Qxx + V) - a ] (paper, eq. PEP_log and eq. collapsed_bound)."""
    targets = as_columns(y)
    V = observation_covariance(
        model, Kxx, Kxr, Krr, noise,
        sample_weight=sample_weight, alpha=alpha, block_size=block_size,
    )  # fmt: skip
    d = np.diag(remainder(Kxx, Kxr, Krr))
    a = regulariser(model, d, sample_noise(noise, len(Kxx), sample_weight), alpha)
    Q: int = targets.shape[1]
    return log_normal(targets, low_rank(Kxr, Krr, Kxr) + V) - Q * a


def predict(
    model: str,
    Kxx: Array,
    Kxr: Array,
    Krr: Array,
    y: Array,
    noise: float,
    Ksr: Array,
    Kss: Array,
    *,
    sample_weight: Array | None = None,
    alpha: float = 0.5,
    block_size: int | None = None,
) -> tuple[Array, Array]:
    """Latent mean (A, Q) and joint covariance (A, A) at test inputs, Ksr (A, M), Kss (A, A).

    mean = Qsx (Qxx + V)^-1 y and cov = Qss - Qsx (Qxx + V)^-1 Qxs + V_*
    (paper, the display after eq. batch_pred_form). The observed y_* adds its own noise.
    """
    V = observation_covariance(
        model, Kxx, Kxr, Krr, noise,
        sample_weight=sample_weight, alpha=alpha, block_size=block_size,
    )  # fmt: skip
    C = low_rank(Kxr, Krr, Kxr) + V
    Qsx = low_rank(Ksr, Krr, Kxr)
    mean = Qsx @ solve(C, as_columns(y))
    explained = Qsx @ solve(C, Qsx.T)
    Vs = prediction_covariance(model, remainder(Kss, Ksr, Krr))
    return mean, low_rank(Ksr, Krr, Ksr) - explained + Vs


def posterior_u(
    model: str,
    Kxx: Array,
    Kxr: Array,
    Krr: Array,
    y: Array,
    noise: float,
    *,
    sample_weight: Array | None = None,
    alpha: float = 0.5,
    block_size: int | None = None,
) -> tuple[Array, Array]:
    """Mean (M, Q) and covariance (M, M) of u = f(R) given all data (paper, eq. batch).

    Sigma = (Krr^-1 + H^T V^-1 H)^-1 and mu = Sigma H^T V^-1 y with H = Kxr Krr^-1.
    """
    V = observation_covariance(
        model, Kxx, Kxr, Krr, noise,
        sample_weight=sample_weight, alpha=alpha, block_size=block_size,
    )  # fmt: skip
    H = solve(Krr, Kxr.T).T
    covariance = inverse(inverse(Krr) + H.T @ solve(V, H))
    return covariance @ H.T @ solve(V, as_columns(y)), covariance


def full_gp_log_likelihood(
    Kxx: Array, y: Array, noise: float, *, sample_weight: Array | None = None
) -> float:
    """sum_q log N(y_q; 0, Kxx + Diag(s)) (paper, eq. GP_lik)."""
    s = sample_noise(noise, len(Kxx), sample_weight)
    return log_normal(as_columns(y), Kxx + np.diag(s))


def full_gp_predict(
    Kxx: Array,
    y: Array,
    noise: float,
    Ksx: Array,
    Kss: Array,
    *,
    sample_weight: Array | None = None,
) -> tuple[Array, Array]:
    """Latent mean (A, Q) and covariance (A, A) of the full GP (paper, eq. predDist_full).

    mean = Ksx (Kxx + Diag(s))^-1 y and cov = Kss - Ksx (Kxx + Diag(s))^-1 Kxs.
    """
    C = Kxx + np.diag(sample_noise(noise, len(Kxx), sample_weight))
    mean = Ksx @ solve(C, as_columns(y))
    return mean, Kss - Ksx @ solve(C, Ksx.T)
