"""The scikit-learn front: validation and vocabulary around the core, no mathematics."""

from srgp.regressor.choices import APPROXIMATIONS, KERNELS, DegenerateWarning
from srgp.regressor.estimator import SparseGPRegressor

__all__ = ["APPROXIMATIONS", "KERNELS", "DegenerateWarning", "SparseGPRegressor"]
