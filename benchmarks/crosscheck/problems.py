"""The problems: seeded data, a kernel and a model with all parameters fixed, nothing to train."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

KERNELS = ("SE", "Matern32", "Matern52", "SE+Linear")
# The power of the PEP family that each sparse model stands for.
ALPHAS = {"VFE": 0.0, "PEP": 0.5, "FITC": 1.0}
# What each peer implements; GP is the full Gaussian process.
MODELS = {"gpflow": ("VFE", "FITC"), "gpy": ("VFE", "FITC", "PEP"), "sklearn": ("GP",)}
SCAN = (1e-9, 1e-8, 1e-7, 1e-6)


@dataclass(frozen=True)
class Data:
    """Inputs, targets and the scales that suit them."""

    name: str
    X: Array
    y: Array
    R: Array
    Xs: Array
    lengthscales: Array


@dataclass(frozen=True)
class Problem:
    """All that a library needs to answer; `jitter` is what it is asked to add to K_RR."""

    data: str
    model: str
    kernel: str
    X: Array
    y: Array
    R: Array
    Xs: Array
    lengthscales: Array
    variance: float = 1.7
    linear_variance: float = 0.3
    noise: float = 0.05
    alpha: float = 0.0
    jitter: float = 0.0

    @property
    def name(self) -> str:
        """Unique, and fit for a file name."""
        return f"{self.data}-{self.model}-{self.kernel}-{self.jitter:.0e}"

    def save(self, folder: Path) -> None:
        """Write `name`.npz with every field as an array."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        np.savez(folder / f"{self.name}.npz", **values)


@dataclass(frozen=True)
class Solution:
    """What a library answers: the log bound, and the latent mean and variance at Xs."""

    bound: float
    mean: Array
    var: Array
    jitter: float


def _targets(rng: np.random.Generator, X: Array) -> Array:
    """A smooth function of all inputs, a trend and noise."""
    slope = np.linspace(0.5, 1.0, X.shape[1])
    return np.sin(2.0 * X @ slope) + 0.4 * X[:, 0] + 0.2 * rng.standard_normal(len(X))


def _line(name: str, M: int, lengthscale: float, seed: int) -> Data:
    """One input: stratified samples, so that even K_XX is well-conditioned for a rough kernel."""
    rng = np.random.default_rng(seed)
    X = np.linspace(-3.0, 3.0, 200)[:, None] + rng.uniform(-0.01, 0.01, (200, 1))
    R = np.linspace(-2.9, 2.9, M)[:, None] + rng.uniform(-0.05, 0.05, (M, 1))
    Xs = rng.uniform(-3.5, 3.5, (50, 1))
    return Data(name, X, _targets(rng, X), R, Xs, np.array([lengthscale]))


def _cube(name: str, M: int, seed: int) -> Data:
    """Three inputs with a lengthscale each."""
    rng = np.random.default_rng(seed)
    X, R, Xs = (rng.uniform(-2.0, 2.0, (n, 3)) for n in (200, M, 50))
    return Data(name, X, _targets(rng, X), R, Xs, np.array([0.9, 1.3, 1.1]))


LINE = _line("line", 15, 0.6, seed=1)
CUBE = _cube("cube", 20, seed=2)
# A lengthscale as long as the data: K_RR has rank about 12 in double precision, of 20.
SINGULAR = _line("singular", 20, 3.0, seed=3)


def _problem(data: Data, model: str, kernel: str, jitter: float = 0.0) -> Problem:
    # The full process has no inducing inputs: all data take their place.
    R = data.X if model == "GP" else data.R
    return Problem(
        data=data.name,
        model=model,
        kernel=kernel,
        X=data.X,
        y=data.y,
        R=R,
        Xs=data.Xs,
        lengthscales=data.lengthscales,
        alpha=ALPHAS.get(model, 0.0),
        jitter=jitter,
    )


def comparisons(peer: str) -> Iterator[Problem]:
    """The problems of the table: no jitter is asked for."""
    for model in MODELS[peer]:
        for data in (LINE, CUBE):
            for kernel in KERNELS:
                yield _problem(data, model, kernel)
        yield _problem(SINGULAR, model, "SE")


def scans(peer: str) -> Iterator[Problem]:
    """The same problem with more and more jitter, to see what jitter does to the answer."""
    for model in MODELS[peer]:
        if model == "GP":
            continue
        for data in (LINE, SINGULAR):
            for jitter in SCAN:
                yield _problem(data, model, "SE", jitter)


def without_jitter(problem: Problem) -> Problem:
    """The problem of the table that a scanned problem belongs to."""
    return replace(problem, jitter=0.0)
