"""Numbers out of the fields of a row, or the reason why it is malformed."""

import codecs
import csv
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from srgp.checks import LARGEST
from srgp.tables.columns import listed
from srgp.tables.places import refuse_encoding

Picked: TypeAlias = tuple[np.ndarray | None, str]  # the numbers, or None and what is wrong

GZIP = b"\x1f\x8b"


def picker(header: bytes, names: Sequence[str], where: str) -> Callable[[str], Picked]:
    """A function that takes the columns `names` out of a line of the CSV with this header."""
    columns = _columns(header, where)
    if len(columns) == 1 and any(mark in columns[0] for mark in ";\t|"):
        raise ValueError(
            f"{where} has one column only, {columns[0]!r}: those of a stream are separated by "
            "commas."
        )
    check_columns(columns, names, where)
    at = [columns.index(name) for name in names]

    def pick(text: str) -> Picked:
        try:
            fields = next(csv.reader([text], strict=True), [])
        except csv.Error as error:
            return None, f"not a row of CSV ({error})"
        if len(fields) != len(columns):
            return None, f"{len(fields)} fields instead of {len(columns)}"
        return numbers([fields[i] for i in at], names)

    return pick


def check_columns(columns: Sequence[str], names: Sequence[str], where: str) -> None:
    """Refuse a table without the columns of the model."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(
            f"{where} has no column {listed(missing)}; it has {listed(columns)}: name its columns "
            "as in the table that the model was fitted from."
        )


def numbers(fields: Sequence[Any], names: Sequence[str]) -> Picked:
    """The fields as finite numbers."""
    values: list[float] = []
    for field, name in zip(fields, names, strict=True):
        if field is None or field == "":
            return None, f"{name} is missing"
        try:
            values.append(_number(field))
        except (OverflowError, TypeError, ValueError):
            return None, f"{name} is not a number"
        if not abs(values[-1]) <= LARGEST:
            finite = math.isfinite(values[-1])
            return None, f"{name} is {'too large to be squared' if finite else 'not finite'}"
    return np.array(values), ""


def _number(field: Any) -> float:
    # Python takes 1_0 for 10, and digits of every script.
    if isinstance(field, str) and ("_" in field or not field.isascii()):
        raise ValueError
    return float(field)


def _columns(header: bytes, where: str) -> list[str]:
    if header.startswith(GZIP):
        raise compressed(where)
    refuse_encoding(header, where)
    text = header.removeprefix(codecs.BOM_UTF8).decode(errors="replace").rstrip("\r\n")
    if not text:
        raise ValueError(f"{where} does not start with a line of column names: put one there.")
    try:
        return next(csv.reader([text]), [])
    except csv.Error as error:
        raise ValueError(
            f"{where} has a first line that is no row of column names ({error}): is it CSV, with "
            "lines that end in a line feed?"
        ) from None


def compressed(where: str) -> ValueError:
    """The error of a file that has no place to go on from."""
    return ValueError(
        f"{where} is compressed, which a stream cannot be: unpack it, or add it by `srgp update`."
    )
