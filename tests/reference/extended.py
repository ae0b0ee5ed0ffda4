"""Ground truth in extended precision, for problems that defeat double precision.

The same dense formulas as in `models`, for VFE and FITC with the SE kernel. Arrays of mpmath
numbers are NumPy object arrays; inputs are taken as the exact values of their doubles.
"""

from typing import Any

import numpy as np
from mpmath import mp  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

from .kernels import PerDimension
from .models import Array, as_columns, sample_noise

Numbers = NDArray[np.object_]

_to_mp = np.frompyfunc(mp.mpf, 1, 1)
_exp = np.frompyfunc(mp.exp, 1, 1)


def _numbers(values: Any) -> Numbers:
    """Doubles as mpmath numbers, exactly."""
    # The plain float keeps the exact binary value, whatever NumPy type it came in.
    return np.asarray(_to_mp(np.asarray(values, dtype=np.float64).astype(object)), dtype=object)


def _eliminate(C: Numbers, B: Numbers) -> tuple[Numbers, Any]:
    """C^-1 B and log|C| by Gaussian elimination, C (N, N) positive definite, B (N, K)."""
    N = len(C)
    table = np.concatenate([C, B], axis=1)
    log_determinant = mp.mpf(0)
    for i in range(N):
        # Positive definite: the pivots are positive without exchanging rows.
        if table[i, i] <= 0:
            raise np.linalg.LinAlgError("not positive definite at this precision")
        log_determinant += mp.log(table[i, i])
        table[i, i:] /= table[i, i]
        table[i + 1 :, i:] -= np.outer(table[i + 1 :, i], table[i, i:])
    for i in reversed(range(N)):
        table[:i, N:] -= np.outer(table[:i, i], table[i, N:])
    return table[:, N:], log_determinant


def _se(X: Numbers, Z: Numbers, variance: Any, lengthscales: Numbers) -> Numbers:
    """v exp(-sum_d (x_d - z_d)^2 / (2 l_d^2)), (N, D), (M, D) -> (N, M)."""
    scaled = (X[:, None, :] - Z[None, :, :]) / lengthscales
    return np.asarray(variance * _exp(-np.sum(scaled**2, axis=-1) / 2), dtype=object)


class _Problem:
    """The matrices both results need, at the precision in force when it is made."""

    def __init__(
        self,
        model: str,
        X: Array,
        R: Array,
        y: Array,
        variance: float,
        lengthscales: PerDimension,
        noise: float,
        jitter: float,
        sample_weight: Array | None,
    ) -> None:
        if model not in ("VFE", "FITC"):
            raise ValueError(f"extended precision knows VFE and FITC, not {model!r}")
        self.model = model
        self.y = _numbers(as_columns(y))
        self.R = _numbers(R)
        self.variance = mp.mpf(float(variance))
        self.lengthscales = _numbers(np.broadcast_to(lengthscales, (R.shape[1],)))
        # A ratio of doubles is rounded, so weights are divided here and not in double.
        weight = _numbers(np.ones(len(X)) if sample_weight is None else sample_weight)
        sample_noise(noise, len(X), sample_weight)  # only for its check of the weights
        self.s = mp.mpf(float(noise)) / weight
        Krr = self.kernel(self.R, self.R)
        self.Krr = Krr + mp.mpf(float(jitter)) * _numbers(np.eye(len(R)))
        self.Kxr = self.kernel(_numbers(X), self.R)
        self.Qxx = self.low_rank(self.Kxr, self.Kxr)
        self.d = self.variance - np.diag(self.Qxx)
        V = self.s + self.d if model == "FITC" else self.s
        self.C = self.Qxx + _diagonal(V)

    def kernel(self, X: Numbers, Z: Numbers) -> Numbers:
        """k(X, Z), (N, D), (M, D) -> (N, M)."""
        return _se(X, Z, self.variance, self.lengthscales)

    def low_rank(self, Kar: Numbers, Kbr: Numbers) -> Numbers:
        """Qab = Kar Krr^-1 Krb, (A, M), (B, M) -> (A, B)."""
        return np.asarray(Kar @ _eliminate(self.Krr, Kbr.T)[0], dtype=object)


def _diagonal(values: Numbers) -> Numbers:
    """(N,) -> (N, N), zeros elsewhere."""
    return np.asarray(values[:, None] * _numbers(np.eye(len(values))), dtype=object)


def log_bound(
    model: str,
    X: Array,
    R: Array,
    y: Array,
    *,
    variance: float,
    lengthscales: PerDimension,
    noise: float,
    jitter: float = 0.0,
    sample_weight: Array | None = None,
    digits: int = 60,
) -> float:
    """sum_q [ log N(y_q; 0, Qxx + V) - a ] in `digits` digits (paper, eq. PEP_log).

    X (N, D), R (M, D), y (N,) or (N, Q); jitter is added to the diagonal of Krr as it is.
    """
    with mp.workdps(digits):
        p = _Problem(model, X, R, y, variance, lengthscales, noise, jitter, sample_weight)
        N, Q = p.y.shape
        solution, log_determinant = _eliminate(p.C, p.y)
        fit = Q * (N * mp.log(2 * mp.pi) + log_determinant) + np.sum(p.y * solution)
        a = np.sum(p.d / (2 * p.s)) if model == "VFE" else mp.mpf(0)
        return float(-fit / 2 - Q * a)


def predict(
    model: str,
    X: Array,
    R: Array,
    y: Array,
    Xs: Array,
    *,
    variance: float,
    lengthscales: PerDimension,
    noise: float,
    jitter: float = 0.0,
    sample_weight: Array | None = None,
    digits: int = 60,
) -> tuple[Array, Array]:
    """Latent mean (A, Q) and marginal variance (A,) at Xs (A, D) in `digits` digits.

    mean = Qsx (Qxx + V)^-1 y, variance = diag(Qss - Qsx (Qxx + V)^-1 Qxs + D_*); as
    Qss + D_* = Kss, the variance is v - diag(Qsx (Qxx + V)^-1 Qxs) (paper, eq. PEP_pred).
    """
    with mp.workdps(digits):
        p = _Problem(model, X, R, y, variance, lengthscales, noise, jitter, sample_weight)
        Qsx = p.low_rank(p.kernel(_numbers(Xs), p.R), p.Kxr)
        Q = p.y.shape[1]
        solution, _ = _eliminate(p.C, np.concatenate([p.y, Qsx.T], axis=1))
        mean = Qsx @ solution[:, :Q]
        marginal = p.variance - np.sum(Qsx * solution[:, Q:].T, axis=1)
        return mean.astype(np.float64), marginal.astype(np.float64)
