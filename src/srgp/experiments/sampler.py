"""Draws of a GP with squared exponential kernel at any number of points, exact to a tolerance.

The kernel is a product of one-dimensional ones, and on an interval each of these is of low rank to
rounding: k(x, z) = Σ_j φ_j(x) φ_j(z) + residual, with φ from the eigenvectors of the kernel matrix
of a grid (Nyström). A draw in D dimensions is then

    f(x) = Σ_{j_1 … j_D} z_{j_1 … j_D} φ_{j_1}(x_1) ⋯ φ_{j_D}(x_D),   z ~ N(0, I),

contracted one dimension at a time: O(r^D) a point, whatever their number. What the rank r leaves
out is computed, and bounds the error of every covariance.
"""

import functools
from typing import NamedTuple

import numpy as np

GRID = 200


class Draw(NamedTuple):
    """Values of a function at the points, and the largest prior variance that they lack."""

    f: np.ndarray
    missing: float


def draw(
    X: np.ndarray,
    lengthscale: float,
    rng: np.random.Generator,
    tolerance: float = 1e-6,
    rows: int = 1000,
) -> Draw:
    """One function of the GP with variance 1 on [−1, 1]^D, at X (N, D).

    >>> import numpy as np
    >>> from srgp.experiments.sampler import draw
    >>> X = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    >>> f, missing = draw(X, 0.5, np.random.default_rng(1))
    >>> f.shape, missing < 1e-6
    ((1000,), True)
    """
    D = X.shape[1]
    grid, vectors = _basis(lengthscale, tolerance / D)
    rank = vectors.shape[1]
    z = rng.normal(size=(rank,) * D)
    f = np.empty(len(X))
    missing = 0.0
    for i in range(0, len(X), rows):
        phi = [_kernel(x, grid, lengthscale) @ vectors for x in X[i : i + rows].T]
        part = phi[0] @ z.reshape(rank, -1)
        for d in range(1, D):
            part = np.einsum("bj,bjk->bk", phi[d], part.reshape(len(part), rank, -1))
        f[i : i + rows] = part[:, 0]
        explained = np.prod([np.sum(p**2, 1) for p in phi], 0)
        missing = max(missing, float((1.0 - explained).max()))
    return Draw(f, missing)


@functools.lru_cache(maxsize=8)
def _basis(lengthscale: float, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """A grid G on [−1, 1] and U Λ^{−½}, so that φ(x) = k(x, G) U Λ^{−½}; the smallest rank."""
    grid = np.cos(np.pi * (np.arange(GRID) + 0.5) / GRID)  # dense at the ends, where it is hardest
    values, vectors = np.linalg.eigh(_kernel(grid, grid, lengthscale))
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    between = np.linspace(-1.0, 1.0, 10 * GRID)
    features = _kernel(between, grid, lengthscale) @ vectors / np.sqrt(np.maximum(values, 1e-13))
    left = 1.0 - np.cumsum(features**2, 1)
    rank = int(np.argmax(left.max(0) < tolerance)) + 1
    return grid, vectors[:, :rank] / np.sqrt(values[:rank])


def _kernel(x: np.ndarray, z: np.ndarray, lengthscale: float) -> np.ndarray:
    return np.exp(-0.5 * ((x[:, None] - z[None, :]) / lengthscale) ** 2)
