"""Recursive sparse Gaussian process regression: exact, batch by batch, in one pass."""

import importlib
from typing import TYPE_CHECKING, Any

from srgp import inducing, kernels, metrics, priors, sysid
from srgp.approximations import DTC, FIC, FITC, PEP, PITC, VFE, SoR, TighterVFE
from srgp.bound import BoundTerms, bound_terms, log_bound
from srgp.compiled import keep_compiled_code
from srgp.filtering import Filter
from srgp.fullgp import FullGP
from srgp.gradient import value_and_grad
from srgp.learners import SRGP, Auto, Exact, Learned, Sites, learn
from srgp.linalg import JitterWarning
from srgp.model import Model
from srgp.moving import move, move_loss
from srgp.onepass import OnePass
from srgp.posterior import Posterior, SampledFunctions, posterior
from srgp.sensitivity import Sensitivities, sensitivities
from srgp.statistics import Statistics, summarise

if TYPE_CHECKING:
    from srgp import distributed, streams
    from srgp.regressor import SparseGPRegressor
    from srgp.storage import Checkpoint
    from srgp.streams import OnlineGP

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
    "Checkpoint",
    "Exact",
    "Filter",
    "FullGP",
    "JitterWarning",
    "Learned",
    "Model",
    "OnePass",
    "OnlineGP",
    "Posterior",
    "SampledFunctions",
    "Sensitivities",
    "Sites",
    "SoR",
    "SparseGPRegressor",
    "Statistics",
    "TighterVFE",
    "bound_terms",
    "distributed",
    "inducing",
    "keep_compiled_code",
    "kernels",
    "learn",
    "log_bound",
    "metrics",
    "move",
    "move_loss",
    "posterior",
    "priors",
    "sensitivities",
    "streams",
    "summarise",
    "sysid",
    "value_and_grad",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes half a second to import, safetensors a moment: only for who asks.
    if name == "SparseGPRegressor":
        from srgp.regressor import SparseGPRegressor

        return SparseGPRegressor
    if name in ("streams", "distributed"):
        return importlib.import_module(f"srgp.{name}")
    if name == "Checkpoint":
        from srgp.storage import Checkpoint

        return Checkpoint
    if name == "OnlineGP":
        from srgp.streams import OnlineGP

        return OnlineGP
    raise AttributeError(f"module 'srgp' has no attribute {name!r}")
