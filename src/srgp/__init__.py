"""Recursive sparse Gaussian process regression: exact, batch by batch, in one pass."""

from srgp import inducing, kernels, priors
from srgp.approximations import DTC, FIC, FITC, PEP, PITC, VFE, SoR, TighterVFE
from srgp.bound import BoundTerms, bound_terms, log_bound
from srgp.filtering import Filter
from srgp.fullgp import FullGP
from srgp.gradient import value_and_grad
from srgp.learners import SRGP, Auto, Exact, Learned, Sites, learn
from srgp.linalg import JitterWarning
from srgp.model import Model
from srgp.moving import move
from srgp.posterior import Posterior, SampledFunctions, posterior
from srgp.sensitivity import Sensitivities, sensitivities
from srgp.statistics import Statistics, summarise

__version__ = "0.1.0"

__all__ = [
    "DTC",
    "FIC",
    "FITC",
    "PEP",
    "PITC",
    "SRGP",
    "VFE",
    "Auto",
    "BoundTerms",
    "Exact",
    "Filter",
    "FullGP",
    "JitterWarning",
    "Learned",
    "Model",
    "Posterior",
    "SampledFunctions",
    "Sensitivities",
    "Sites",
    "SoR",
    "Statistics",
    "TighterVFE",
    "bound_terms",
    "inducing",
    "kernels",
    "learn",
    "log_bound",
    "move",
    "posterior",
    "priors",
    "sensitivities",
    "summarise",
    "value_and_grad",
]
