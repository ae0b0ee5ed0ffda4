"""Recursive sparse Gaussian process regression: exact, batch by batch, in one pass."""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srgp import distributed, inducing, kernels, metrics, priors, streams, sysid
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
    from srgp.propagation import Sensitivities, sensitivities
    from srgp.regressor import SparseGPRegressor
    from srgp.statistics import Statistics, summarise
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


# What is imported when it is first asked for: JAX takes a second, scikit-learn another.
_HOMES = {
    "approximations": ("DTC", "FIC", "FITC", "PEP", "PITC", "VFE", "SoR", "TighterVFE"),
    "bound": ("BoundTerms", "bound_terms", "log_bound"),
    "compiled": ("keep_compiled_code",),
    "filtering": ("Filter",),
    "fullgp": ("FullGP",),
    "gradient": ("value_and_grad",),
    "learners": ("SRGP", "Auto", "Exact", "Learned", "Sites", "learn"),
    "linalg": ("JitterWarning",),
    "model": ("Model",),
    "moving": ("move", "move_loss"),
    "onepass": ("OnePass",),
    "posterior": ("Posterior", "SampledFunctions", "posterior"),
    "propagation": ("Sensitivities", "sensitivities"),
    "regressor": ("SparseGPRegressor",),
    "statistics": ("Statistics", "summarise"),
    "storage": ("Checkpoint",),
    "streams": ("OnlineGP",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        found = getattr(importlib.import_module(f"srgp.{_HOME_OF[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"srgp.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"srgp.{name}":
                raise
    raise AttributeError(f"module 'srgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the module `posterior` would put it in the place of the function.
        if name not in _HOME_OF or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
