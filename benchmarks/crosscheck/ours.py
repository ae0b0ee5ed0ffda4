"""The same problems solved by srgp."""

import warnings

import numpy as np

import srgp
from srgp import kernels as k
from srgp.linalg import JitterWarning

from .problems import ALPHAS, Array, Problem, Solution

STATIONARY = {"SE": k.SE, "Matern32": k.Matern32, "Matern52": k.Matern52}
FULL = "FullGP"
ALL_INDUCING = "VFE, R = X"


def methods(model: str) -> tuple[str, ...]:
    """What of srgp answers a peer's model: for the full process there are two ways."""
    return (FULL, ALL_INDUCING) if model == "GP" else (model,)


def kernel(p: Problem) -> k.Kernel:
    stationary, *linear = p.kernel.split("+")
    first = STATIONARY[stationary](variance=p.variance, lengthscales=p.lengthscales)
    return first + k.Linear(variance=p.linear_variance) if linear else first


def approximation(method: str) -> srgp.VFE | srgp.FITC | srgp.PEP:
    if method == "PEP":
        return srgp.PEP(alpha=ALPHAS["PEP"])
    return srgp.FITC() if method == "FITC" else srgp.VFE()


def solve(p: Problem, method: str) -> Solution:
    """The bound and the prediction, and the jitter that was needed."""
    with warnings.catch_warnings():
        # The jitter stands in the table; no need to warn of it too.
        warnings.simplefilter("ignore", JitterWarning)
        return _full(p) if method == FULL else _sparse(p, method)


def _full(p: Problem) -> Solution:
    gp = srgp.FullGP(kernel(p), p.noise, p.X, p.y)
    mean, var = gp.predict(p.Xs)
    return Solution(float(gp.log_likelihood), mean, var, 0.0)


def _sparse(p: Problem, method: str) -> Solution:
    model = srgp.Model(
        kernel=kernel(p), noise=p.noise, inducing=p.R, approximation=approximation(method)
    )
    statistics = srgp.summarise(model, p.X, p.y)
    mean, var = srgp.posterior(model, statistics).predict(p.Xs)
    # Models state their jitter as a share of the largest variance, peers state it as it is.
    jitter = model.jitter * float(np.max(np.diag(model.kernel(p.R))))
    return Solution(float(srgp.log_bound(model, statistics)), mean, var, jitter)


def condition(p: Problem, method: str) -> float:
    """The condition number of the matrix that is factorised first."""
    K: Array = np.asarray(kernel(p)(p.R))
    return float(np.linalg.cond(K + p.noise * np.eye(len(K)) if method == FULL else K))
