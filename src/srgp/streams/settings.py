"""What `OnlineGP` is given: looked at before anything is learned."""

import operator
from collections.abc import Sequence

import numpy as np

from srgp.checks import LARGEST
from srgp.model import Model
from srgp.onepass import OnePass


def as_paces(forgetting: float | Sequence[float]) -> tuple[float, ...]:
    """Different factors in (0, 1]."""
    try:
        paces = tuple(float(f) for f in np.atleast_1d(forgetting))
    except (TypeError, ValueError):
        paces = ()
    if not paces or not all(0.0 < f <= 1.0 for f in paces) or len(set(paces)) < len(paces):
        raise ValueError(
            f"forgetting must be a number in (0, 1], or several different ones, got {forgetting!r}."
        )
    return paces


def check_settings(model: object, towards: object, follow: object, renew: object) -> None:
    """Refuse what would fail later."""
    if not isinstance(model, Model | None):
        raise ValueError(f"model must be a srgp.Model or None, got {model!r}.")
    if not isinstance(follow, OnePass | None):
        raise ValueError(
            f"follow must be a srgp.OnePass, such as srgp.OnePass(), or None; got {follow!r}."
        )
    if not isinstance(renew, bool | np.bool_):
        raise ValueError(f"renew must be True or False, got {renew!r}.")
    if towards not in ("less data", "prior"):
        raise ValueError(f"towards must be 'less data' or 'prior', got {towards!r}.")
    if towards == "prior" and (follow is not None or renew):
        raise ValueError(
            "follow and renew move the sums of the data, and data forgotten towards the prior "
            "have no sums: use towards='less data', with one factor or several."
        )


def as_seed(seed: int) -> int:
    """A whole number ≥ 0."""
    try:
        valid = operator.index(seed) >= 0
    except TypeError:
        valid = False
    if not valid:
        raise ValueError(f"seed must be a whole number ≥ 0, got {seed!r}.")
    return int(seed)


def check_size(X: np.ndarray, y: np.ndarray) -> None:
    """Refuse numbers whose squares have no room in double precision."""
    for name, values in (("X", X), ("y", y)):
        if max(values.max(), -values.min()) > LARGEST:
            raise ValueError(
                f"{name} holds a number beyond {LARGEST:g}, or so many deviations of the first "
                "rows, whose square has no room in double precision: remove such rows, or rescale "
                "the data."
            )
