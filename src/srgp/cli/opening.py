"""The tables that commands read."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srgp.regressor import SparseGPRegressor
    from srgp.tables import Table


def names(text: str | None) -> list[str] | None:
    """Names by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def one_or_more(target: str) -> str | list[str]:
    """One name as it is, several as a list."""
    found = names(target) or [""]
    return found[0] if len(found) == 1 else found


def like(table: "Table", data: list[str], missing: Any, delimiter: str) -> "Table":
    """Other files with the columns of a table."""
    from srgp.tables import Table

    targets = table.target_names
    target = targets[0] if len(targets) == 1 else list(targets)
    features = list(table.feature_names)
    return Table(data, target, features, missing=missing, delimiter=delimiter)


def of(
    est: "SparseGPRegressor",
    data: list[str],
    missing: Any,
    delimiter: str,
    target: bool = True,
    weight: str | None = None,
) -> "Table":
    """Files with the columns that a model was learned from."""
    from srgp.tables import Table

    features, targets = getattr(est, "feature_names_in_", None), est.target_names_
    if features is None or targets is None:
        raise ValueError("this model was not learned from a table with names: use it from Python.")
    single = est.scaler_.y_spread.ndim == 0
    wanted = (targets[0] if single else list(targets)) if target else None
    return Table(data, wanted, list(features), weight, missing=missing, delimiter=delimiter)


def cluster(scheduler: str | None) -> AbstractContextManager[Any]:
    """The client of a cluster, if one is asked for."""
    if scheduler is None:
        return nullcontext()
    from srgp.distributed import connected

    return connected(scheduler)
