"""What columns of pyarrow, polars and pandas have in common, and how their names are refused."""

import difflib
import importlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np


def pyarrow(part: str = "") -> Any:
    """pyarrow, or a module of it, imported when it is needed first."""
    try:
        return importlib.import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError as error:
        raise ImportError("files need pyarrow: pip install 'srgp[files]'.") from error


def library(thing: Any) -> str:
    """The name of the package that a column, or its type, is of."""
    # By name: a pandas series has whatever attribute its index has a label for.
    return type(thing).__module__.split(".")[0].lstrip("_")


def floats(column: Any) -> np.ndarray:
    """float64, with NaN for null."""
    if library(column) == "pyarrow":
        return column.cast(pyarrow().float64(), safe=False).to_numpy(zero_copy_only=False)
    if library(column) == "polars":
        return column.cast(sys.modules["polars"].Float64).to_numpy()
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def take(column: Any, rows: np.ndarray) -> Any:
    """Some rows of a column."""
    return column.gather(rows) if library(column) == "polars" else column.take(rows)


def is_number(kind: Any) -> bool:
    """Whether a column of this type of pyarrow, polars or pandas can be taken as floats."""
    if library(kind) == "polars":
        return bool(kind.is_numeric()) or str(kind) in ("Boolean", "Null")
    if library(kind) == "pyarrow":
        types = pyarrow("types")
        known = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
        return any(is_such(kind) for is_such in known) or types.is_null(kind)
    pandas = sys.modules["pandas"].api.types
    numeric = pandas.is_numeric_dtype(kind) or pandas.is_bool_dtype(kind)
    # A category of booleans, and complex numbers, pass for numeric in pandas.
    return bool(numeric) and kind.kind != "c" and not isinstance(kind, pandas.CategoricalDtype)


def repeated(names: Iterable[str]) -> str | None:
    """The first name that stands twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names for a message, the first of them if there are many."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def refuse_absent(names: Iterable[str], there: Iterable[str], where: str) -> None:
    """An error for the first column that is not there, with those of similar names."""
    there = list(there)
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, cutoff=0.5)
            hint = f" Did you mean {listed(close)}?" if close else ""
            raise ValueError(f"{where} has no column {name!r}.{hint} It has {listed(there)}.")


class Nothing(ValueError):
    """Data without a row that can be used."""

    dropped = 0  # rows that were there


def nothing(name: str, dropped: int) -> Nothing:
    """The error for them."""
    if dropped:
        error = Nothing(
            f"all {dropped} rows of {name} have a missing value: none is left. Impute some, or "
            "leave out the columns that lack them."
        )
        error.dropped = dropped
        return error
    return Nothing(f"{name} holds no rows: give data with at least one.")
