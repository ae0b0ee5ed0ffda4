"""Recursive sparse Gaussian process regression: exact, batch by batch, in one pass."""

from srgp import inducing, kernels
from srgp.approximations import DTC, FIC, FITC, PEP, PITC, VFE, SoR, TighterVFE
from srgp.bound import BoundTerms, bound_terms, log_bound
from srgp.filtering import Filter
from srgp.fullgp import FullGP
from srgp.linalg import JitterWarning
from srgp.model import Model
from srgp.moving import move
from srgp.posterior import Posterior, SampledFunctions, posterior
from srgp.statistics import Statistics, summarise

__version__ = "0.1.0"

__all__ = [
    "DTC",
    "FIC",
    "FITC",
    "PEP",
    "PITC",
    "VFE",
    "BoundTerms",
    "Filter",
    "FullGP",
    "JitterWarning",
    "Model",
    "Posterior",
    "SampledFunctions",
    "SoR",
    "Statistics",
    "TighterVFE",
    "bound_terms",
    "inducing",
    "kernels",
    "log_bound",
    "move",
    "posterior",
    "summarise",
]
