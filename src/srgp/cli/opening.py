"""The tables that commands read."""

from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srgp.regressor import SparseGPRegressor
    from srgp.tables import Table

LOOKED = 1024  # rows of test data that are looked at before learning


def names(text: str | None) -> list[str] | None:
    """Names by commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def one_or_more(target: str) -> str | list[str]:
    """One name as it is, several as a list."""
    found = names(target) or [""]
    return found[0] if len(found) == 1 else found


def like(table: "Table", data: list[str], missing: Any, delimiter: str) -> "Table":
    """Other files with the columns of a table, whose beginning can be read."""
    from srgp.tables import Table

    targets = table.target_names
    target = targets[0] if len(targets) == 1 else list(targets)
    features = list(table.feature_names)
    found = Table(data, target, features, missing=missing, delimiter=delimiter)
    beginning: Any = found.batches(LOOKED)
    with closing(beginning):
        next(beginning)
    return found


def inputs(est: "SparseGPRegressor", data: list[str], missing: Any, delimiter: str) -> "Table":
    """Files with the inputs that a model was learned from, to predict."""
    return _opened(est, data, missing, delimiter, None, None)


def rows(
    est: "SparseGPRegressor",
    data: list[str],
    missing: Any,
    delimiter: str,
    target: str | None,
    weight: str | None = None,
) -> "Table":
    """Files with its inputs and targets; `target` names these where the model does not."""
    known, given = est.target_names_, names(target)
    if known and given and list(known) != given:
        raise ValueError(
            f"the model has learned {', '.join(known)}, not {', '.join(given)}: leave --target "
            "out, and name the column so."
        )
    targets = known or given
    if not targets:
        raise ValueError(
            "this model does not know the name of its target, as it was learned from arrays: name "
            "the column by --target."
        )
    outputs = est.scaler_.y_spread.size
    if len(targets) != outputs:
        raise ValueError(
            f"--target names {len(targets)} columns, but the model has {outputs} outputs: name as "
            "many, in the order in which they were learned."
        )
    single = est.scaler_.y_spread.ndim == 0
    wanted = targets[0] if single else list(targets)
    return _opened(est, data, missing, delimiter, wanted, weight)


def _opened(
    est: "SparseGPRegressor",
    data: list[str],
    missing: Any,
    delimiter: str,
    target: str | list[str] | None,
    weight: str | None,
) -> "Table":
    from srgp.tables import Table

    features = getattr(est, "feature_names_in_", None)
    if features is None:
        raise ValueError(
            "this model does not know the names of its inputs, as it was learned from arrays: use "
            "it from Python, or learn it from a table or a data frame."
        )
    return Table(data, target, list(features), weight, missing=missing, delimiter=delimiter)


def cluster(scheduler: str | None) -> AbstractContextManager[Any]:
    """The client of a cluster, if one is asked for."""
    from srgp.regressor.choices import client_of

    return client_of(scheduler)


def spread(table: "Table", client: Any) -> Any:
    """The table, or its files as parts for the workers to read."""
    from srgp.regressor.choices import as_rows

    return as_rows(table, client)
