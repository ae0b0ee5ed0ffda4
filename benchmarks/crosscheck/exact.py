"""The sparse models in 60-digit arithmetic: the truth that double precision is measured against."""

from typing import Any, TypeAlias

import numpy as np
from mpmath import mp

from .problems import Array, Problem, Solution

# NumPy arrays of mpmath numbers, neither of which carries types for such elements.
Numbers: TypeAlias = Any
DIGITS = 60

_exp = np.frompyfunc(mp.exp, 1, 1)
_log = np.frompyfunc(mp.log, 1, 1)
_sqrt = np.frompyfunc(mp.sqrt, 1, 1)
_number = np.frompyfunc(lambda value: mp.mpf(float(value)), 1, 1)


def _numbers(values: Array) -> Numbers:
    """Doubles as numbers of DIGITS digits, exactly."""
    return _number(values)


def _stationary(name: str, r2: Numbers) -> Numbers:
    """The kernel of unit variance as a function of the squared scaled distance."""
    if name == "SE":
        return _exp(-r2 / 2)
    t = _sqrt({"Matern32": 3, "Matern52": 5}[name] * r2)
    polynomial = 1 + t if name == "Matern32" else 1 + t + t**2 / 3
    return polynomial * _exp(-t)


def _kernel(p: Problem, A: Numbers, B: Numbers) -> Numbers:
    """k(A, B), (N, D), (M, D) -> (N, M)."""
    stationary, *linear = p.kernel.split("+")
    r2 = np.sum(((A[:, None] - B[None]) / _numbers(p.lengthscales)) ** 2, -1)
    K = mp.mpf(p.variance) * _stationary(stationary, r2)
    return K + mp.mpf(p.linear_variance) * (A @ B.T) if linear else K


def _kernel_diagonal(p: Problem, A: Numbers) -> Numbers:
    """The diagonal of k(A, A)."""
    linear = mp.mpf(p.linear_variance) * np.sum(A**2, -1) if "Linear" in p.kernel else mp.mpf(0)
    return _numbers(np.full(len(A), p.variance)) + linear


def _cholesky(K: Numbers) -> Numbers:
    L = np.zeros_like(K)
    for j in range(len(K)):
        rest = K[j:, j] - L[j:, :j] @ L[j, :j]
        L[j:, j] = rest / mp.sqrt(rest[0])
    return L


def _forward(L: Numbers, B: Numbers) -> Numbers:
    """L^-1 B."""
    solved = B.copy()
    for i in range(len(L)):
        solved[i] = (B[i] - L[i, :i] @ solved[:i]) / L[i, i]
    return solved


def _regulariser(p: Problem, d: Numbers) -> Numbers:
    """a, the part of the bound beyond the marginal likelihood of the approximate model."""
    noise = mp.mpf(p.noise)
    if p.alpha == 0.0:
        return np.sum(d) / (2 * noise)
    alpha = mp.mpf(p.alpha)
    return (1 - alpha) / (2 * alpha) * np.sum(_log(1 + alpha * d / noise))


def solve(p: Problem, jitter: float = 0.0) -> Solution:
    """The answer of VFE, PEP or FITC with `jitter` added to the diagonal of K_RR."""
    with mp.workdps(DIGITS):
        X, y, R, Xs = (_numbers(values) for values in (p.X, p.y, p.R, p.Xs))
        L = _cholesky(_kernel(p, R, R) + mp.mpf(jitter) * _numbers(np.eye(len(R))))
        W, Ws = _forward(L, _kernel(p, R, X)), _forward(L, _kernel(p, R, Xs))
        d = _kernel_diagonal(p, X) - np.sum(W**2, 0)
        v = mp.mpf(p.noise) + mp.mpf(p.alpha) * d
        LA = _cholesky(_numbers(np.eye(len(R))) + (W / v) @ W.T)
        c = _forward(LA, W @ (y / v))
        T = _forward(LA, Ws)
        fit = len(y) * mp.log(2 * mp.pi) + np.sum(_log(v)) + 2 * np.sum(_log(np.diag(LA)))
        bound = -(fit + np.sum(y**2 / v) - c @ c) / 2 - _regulariser(p, d)
        var = _kernel_diagonal(p, Xs) - np.sum(Ws**2, 0) + np.sum(T**2, 0)
        return Solution(float(bound), (c @ T).astype(float), var.astype(float), jitter)
