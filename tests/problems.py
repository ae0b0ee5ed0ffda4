"""Problems, models and kernels that the tests share, each with its dense reference."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from reference import kernels as rk

import srgp
from srgp import kernels as k

KERNELS: dict[str, tuple[k.Kernel, Callable[..., Any]]] = {
    "SE": (
        k.SE(variance=1.3, lengthscales=[0.5, 0.8]),
        lambda X, Z: rk.se(X, Z, variance=1.3, lengthscales=[0.5, 0.8]),
    ),
    "Matern12": (
        k.Matern12(variance=0.7, lengthscales=0.9),
        lambda X, Z: rk.matern12(X, Z, variance=0.7, lengthscales=0.9),
    ),
    "Matern32": (
        k.Matern32(lengthscales=[0.6, 0.9]),
        lambda X, Z: rk.matern32(X, Z, lengthscales=[0.6, 0.9]),
    ),
    "Matern52": (k.Matern52(lengthscales=0.7), lambda X, Z: rk.matern52(X, Z, lengthscales=0.7)),
    "RationalQuadratic": (
        k.RationalQuadratic(lengthscales=0.6, mixture=0.8),
        lambda X, Z: rk.rational_quadratic(X, Z, lengthscales=0.6, mixture=0.8),
    ),
    "Periodic": (
        k.Periodic(period=[1.5, 2.5], lengthscales=[0.8, 1.1]),
        lambda X, Z: rk.periodic(X, Z, period=np.array([1.5, 2.5]), lengthscales=[0.8, 1.1]),
    ),
    # Alone, these have rank below M; a little of a full-rank kernel makes K_RR invertible.
    "Linear": (
        k.Linear(variance=[0.5, 0.2]) + k.SE(),
        lambda X, Z: rk.linear(X, Z, variances=np.array([0.5, 0.2])) + rk.se(X, Z),
    ),
    "Polynomial": (
        k.Polynomial(variance=0.3, offset=0.7, degree=3) + k.Matern12(),
        lambda X, Z: rk.polynomial(X, Z, variance=0.3, offset=0.7, degree=3) + rk.matern12(X, Z),
    ),
    "Constant": (
        k.Matern32() + 0.4,
        lambda X, Z: rk.matern32(X, Z) + rk.constant(X, Z, variance=0.4),
    ),
    "White": (
        k.SE() + k.White(variance=0.2),
        lambda X, Z: rk.se(X, Z) + rk.white(X, Z, variance=0.2),
    ),
    "product": (
        2.0 * k.SE(active_dims=[0]) * k.Matern32(lengthscales=2.0, active_dims=[1]),
        lambda X, Z: (
            2.0 * rk.se(X[:, :1], Z[:, :1]) * rk.matern32(X[:, 1:], Z[:, 1:], lengthscales=2.0)
        ),
    ),
}

# name in the reference, options of the reference
MODELS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "SoR": (srgp.SoR(), "SoR", {}),
    "DTC": (srgp.DTC(), "DTC", {}),
    "FITC": (srgp.FITC(), "FITC", {}),
    "FIC": (srgp.FIC(), "FIC", {}),
    "PITC": (srgp.PITC(block_size=7), "PITC", {"block_size": 7}),
    "VFE": (srgp.VFE(), "VFE", {}),
    "PEP(0.5)": (srgp.PEP(alpha=0.5), "PEP", {"alpha": 0.5}),
    "TighterVFE": (srgp.TighterVFE(), "TighterVFE", {}),
}


class Problem(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    R: np.ndarray
    Xs: np.ndarray
    noise: float
    weights: np.ndarray


def problem(seed: int = 0, N: int = 40, M: int = 8, D: int = 2, Q: int | None = None) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, D))
    truth = np.sin(2 * X[:, 0]) + 0.3 * X[:, -1] ** 2
    y = truth + 0.3 * rng.normal(size=N)
    if Q is not None:
        y = np.stack([y * (q + 1) + q * X[:, 0] for q in range(Q)], 1)
    return Problem(
        X=X,
        y=y,
        R=rng.uniform(-2, 2, (M, D)),
        Xs=rng.uniform(-3, 3, (11, D)),
        noise=0.2,
        weights=rng.uniform(0.5, 3.0, N),
    )


def dense(kernel: Callable[..., Any], p: Problem) -> tuple[np.ndarray, ...]:
    """Kxx, Kxr, Krr, Ksr, Kss."""
    X, R, Xs = p.X, p.R, p.Xs
    return tuple(kernel(A, B) for A, B in [(X, X), (X, R), (R, R), (Xs, R), (Xs, Xs)])
