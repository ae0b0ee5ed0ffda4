"""Covariance functions in plain NumPy: `name(X, Z, **parameters)`, (N, D), (M, D) -> (N, M).

A parameter documented as "per dimension" is a scalar, or an array of shape (D,).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PerDimension = float | Sequence[float] | NDArray[Any]


def _differences(X: Array, Z: Array) -> Array:
    """All x_d - z_d: (N, D), (M, D) -> (N, M, D)."""
    return np.asarray(X, dtype=np.float64)[:, None, :] - np.asarray(Z, dtype=np.float64)[None, :, :]


def _per_dimension(parameter: PerDimension, D: int) -> Array:
    """A scalar or (D,) parameter as (D,)."""
    return np.broadcast_to(np.asarray(parameter, dtype=np.float64), (D,))


def squared_distance(X: Array, Z: Array, lengthscales: PerDimension = 1.0) -> Array:
    """r2 = sum_d (x_d - z_d)^2 / l_d^2, (N, M).

    The paper prints Diag(l^2) where the inverse Diag(l^2)^-1 is meant (its section 2).
    """
    # Differences first: x^2 - 2xz + z^2 would lose the small distances to cancellation.
    difference = _differences(X, Z)
    scaled = difference / _per_dimension(lengthscales, difference.shape[-1])
    return np.asarray(np.sum(scaled**2, axis=-1))


def _distance(X: Array, Z: Array, lengthscales: PerDimension) -> Array:
    """r = sqrt(r2), (N, M)."""
    return np.asarray(np.sqrt(squared_distance(X, Z, lengthscales)))


def se(X: Array, Z: Array, *, variance: float = 1.0, lengthscales: PerDimension = 1.0) -> Array:
    """Squared exponential, v exp(-r2 / 2); lengthscales per dimension."""
    return np.asarray(variance * np.exp(-squared_distance(X, Z, lengthscales) / 2.0))


def matern12(
    X: Array, Z: Array, *, variance: float = 1.0, lengthscales: PerDimension = 1.0
) -> Array:
    """Matern 1/2, v exp(-r); lengthscales per dimension."""
    return np.asarray(variance * np.exp(-_distance(X, Z, lengthscales)))


def matern32(
    X: Array, Z: Array, *, variance: float = 1.0, lengthscales: PerDimension = 1.0
) -> Array:
    """Matern 3/2, v (1 + sqrt3 r) exp(-sqrt3 r); lengthscales per dimension."""
    t = np.sqrt(3.0) * _distance(X, Z, lengthscales)
    return np.asarray(variance * (1.0 + t) * np.exp(-t))


def matern52(
    X: Array, Z: Array, *, variance: float = 1.0, lengthscales: PerDimension = 1.0
) -> Array:
    """Matern 5/2, v (1 + sqrt5 r + 5/3 r2) exp(-sqrt5 r); lengthscales per dimension."""
    t = np.sqrt(5.0) * _distance(X, Z, lengthscales)
    return np.asarray(variance * (1.0 + t + t**2 / 3.0) * np.exp(-t))


def rational_quadratic(
    X: Array,
    Z: Array,
    *,
    variance: float = 1.0,
    lengthscales: PerDimension = 1.0,
    mixture: float = 1.0,
) -> Array:
    """Rational quadratic, v (1 + r2 / (2 a))^-a with a the mixture; lengthscales per dimension."""
    r2 = squared_distance(X, Z, lengthscales)
    return np.asarray(variance * (1.0 + r2 / (2.0 * mixture)) ** (-mixture))


def periodic(
    X: Array,
    Z: Array,
    *,
    variance: float = 1.0,
    lengthscales: PerDimension = 1.0,
    period: PerDimension = 1.0,
) -> Array:
    """Periodic, v exp(-2 sum_d sin^2(pi (x_d - z_d) / p_d) / l_d^2); l and p per dimension."""
    difference = _differences(X, Z)
    D = difference.shape[-1]
    wave = np.sin(np.pi * difference / _per_dimension(period, D))
    scaled = wave / _per_dimension(lengthscales, D)
    return np.asarray(variance * np.exp(-2.0 * np.sum(scaled**2, axis=-1)))


def linear(X: Array, Z: Array, *, variances: PerDimension = 1.0) -> Array:
    """Linear, sum_d v_d x_d z_d; variances per dimension."""
    products = np.asarray(X)[:, None, :] * np.asarray(Z)[None, :, :]
    return np.asarray(np.sum(_per_dimension(variances, products.shape[-1]) * products, axis=-1))


def polynomial(
    X: Array, Z: Array, *, variance: float = 1.0, offset: float = 1.0, degree: int = 2
) -> Array:
    """Polynomial, (v x.z + c)^degree with c the offset."""
    return np.asarray((linear(X, Z, variances=variance) + offset) ** degree)


def constant(X: Array, Z: Array, *, variance: float = 1.0) -> Array:
    """Constant, v everywhere."""
    return np.full((len(X), len(Z)), variance, dtype=np.float64)


def white(X: Array, Z: Array, *, variance: float = 1.0) -> Array:
    """White noise, v where the two rows are equal in every dimension, else 0."""
    equal = np.all(np.asarray(X)[:, None, :] == np.asarray(Z)[None, :, :], axis=-1)
    return np.where(equal, variance, 0.0)
