"""What a regressor is given by name, and how files hold it."""

import copy
import dataclasses
import hashlib
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from srgp import approximations, kernels
from srgp.approximations import Approximation
from srgp.kernels import Kernel, Stationary
from srgp.kernels.describing import describe
from srgp.learners import SRGP, Auto, Exact, Sites
from srgp.linalg import levels_to_the_caller
from srgp.onepass import OnePass
from srgp.sources import Once, Source, as_source, digest
from srgp.statistics import Statistics

KERNELS: dict[str, type[Stationary]] = {
    "se": kernels.SE,
    "matern12": kernels.Matern12,
    "matern32": kernels.Matern32,
    "matern52": kernels.Matern52,
    "rational_quadratic": kernels.RationalQuadratic,
}
APPROXIMATIONS: dict[str, Approximation] = {
    "sor": approximations.SoR(),
    "dtc": approximations.DTC(),
    "fitc": approximations.FITC(),
    "fic": approximations.FIC(),
    "pitc": approximations.PITC(),
    "vfe": approximations.VFE(),
    "pep": approximations.PEP(alpha=0.5),
    "tighter_vfe": approximations.TighterVFE(),
}
LEARNERS: dict[str, Any] = {kind.__name__: kind for kind in (Auto, Exact, OnePass, Sites, SRGP)}


class DegenerateWarning(UserWarning):
    """Data from which neither noise nor kernel can be learned."""


def warn_degenerate(y: np.ndarray) -> None:
    """A warning where the targets, of a sample of the rows, tell nothing about their spread."""
    if len(y) == 1:
        what = "there is only one row (repetitions aside)"
    elif (np.ptp(y, axis=0) == 0.0).any():
        what = "the target is constant" if y.ndim == 1 else "one of the targets is constant"
    else:
        return
    warnings.warn(
        f"{what}: neither noise nor kernel can be learned from that, and intervals mean little.",
        DegenerateWarning,
        stacklevel=levels_to_the_caller(),
    )


def refuse_text_of_frames(X: Any) -> None:
    """An error that names the columns of a data frame that are not numeric."""
    from srgp.tables.columns import library  # only where something is wrong
    from srgp.tables.readers import opened
    from srgp.tables.table import refuse_text

    if library(X) in ("pandas", "polars") and hasattr(X, "columns"):
        frame = opened(X, ",")
        refuse_text(frame, list(frame.kinds))


def tells_nothing(y: np.ndarray, spread: np.ndarray) -> bool:
    """Whether all targets are constant, by some rows and the scale of all (1 for a constant).

    Learning would drive noise and variance to zero, and intervals with them.
    """
    return bool((np.ptp(y, axis=0) == 0.0).all() and (spread == 1.0).all())


def named(value: Any, known: dict[str, Any], kind: type, what: str) -> Any:
    """One by its name, or as it is."""
    if isinstance(value, str) and value in known:
        return known[value]
    if isinstance(value, kind) and not isinstance(value, str):
        return value
    raise ValueError(f"{what} must be one of {', '.join(known)}, or one of srgp, got {value!r}.")


def packed(value: Any) -> Any:
    """A constructor argument as `srgp.storage` can hold it."""
    if isinstance(value, Auto | Exact | OnePass | Sites | SRGP):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"learner": type(value).__name__, "settings": fields}
    if isinstance(value, np.random.RandomState):
        return int(copy.deepcopy(value).randint(2**31 - 1))  # saving draws nothing from it
    return value


def unpacked(value: Any) -> Any:
    """What `packed` was given."""
    return LEARNERS[value["learner"]](**value["settings"]) if isinstance(value, dict) else value


def as_rows(data: Any, client: Any, once: bool = False) -> Source:
    """Data to learn from: here, or on a cluster; also a generator, where one pass is enough."""
    if client is None:
        return Once(data) if once and isinstance(data, Iterator) else as_source(data)
    from srgp.distributed import Partitions

    return Partitions.of(data, client)


def client_of(client: Any) -> AbstractContextManager[Any]:
    """The client of a cluster, if one is asked for: given, or the address of a scheduler."""
    if not isinstance(client, str):
        return nullcontext(client)
    from srgp.distributed import connected

    return connected(client)


def check_names(known: Any, given: Any, what: str) -> None:
    """Whether a table names the same columns as the one learned, where both name any."""
    if known is None or given is None or tuple(known) == tuple(given):
        return
    raise ValueError(
        f"the table has the {what} {', '.join(given)}, but {', '.join(known)} "
        "were learned: open it with these, in that order."
    )


def check_alike(mine: Any, theirs: Any) -> None:
    """Whether two regressors have learned the same columns, where both have names."""
    if mine is None or theirs is None or tuple(mine) == tuple(theirs):
        return
    raise ValueError(
        f"these regressors have learned other columns, {', '.join(map(str, mine))} and "
        f"{', '.join(map(str, theirs))}: merge those of the same, in the same order."
    )


def job(parameters: dict[str, Any], learner: Any, seed: int, source: Source) -> dict[str, Any]:
    """All that decides what a fit learns, for a checkpoint; when it ends is the clock's affair."""
    kernel, inducing = parameters["kernel"] or "se", parameters["inducing"]
    return {
        "data": digest(source),
        "kernel": describe(kernel) if isinstance(kernel, Kernel) else kernel,
        "n_inducing": parameters["n_inducing"],
        "inducing": inducing if isinstance(inducing, str) else np.asarray(inducing).tolist(),
        "approximation": parameters["approximation"],
        "learner": learner,
        "standardize": parameters["standardize"],
        "seed": seed,
    }


def beginning(statistics: Statistics) -> str:
    """A name for the rows that learning began with, by their sums."""
    leaves = (np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(statistics.sums))
    return hashlib.blake2b(b"".join(leaves), digest_size=16).hexdigest()
