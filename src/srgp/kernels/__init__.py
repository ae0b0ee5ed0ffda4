"""Covariance functions and their algebra: `k1 + k2`, `k1 * k2`, `2.0 * k1`, active dimensions.

>>> from srgp import kernels as k
>>> trend = k.Linear(active_dims=[0])
>>> season = k.Periodic(period=24.0, active_dims=[0]) * k.SE(lengthscales=100.0, active_dims=[0])
>>> kernel = trend + season + 0.5 * k.Matern32(lengthscales=[1.0, 2.0], active_dims=[1, 2])
>>> kernel([[0.0, 1.0, 2.0], [24.0, 1.0, 2.0]]).round(3)
array([[  1.5  ,   1.472],
       [  1.472, 577.5  ]])
"""

from srgp.kernels.base import (
    Constant,
    Function,
    Kernel,
    Parameter,
    Product,
    Sum,
    real,
    static,
)
from srgp.kernels.nonstationary import Linear, Polynomial, White
from srgp.kernels.stationary import (
    SE,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    Stationary,
)

__all__ = [
    "SE",
    "Constant",
    "Function",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Parameter",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Stationary",
    "Sum",
    "White",
    "real",
    "static",
]
