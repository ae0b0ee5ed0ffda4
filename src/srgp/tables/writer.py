"""Predictions, or any batches of named columns, into CSV and Parquet files."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srgp.atomic import check_place, replacing
from srgp.tables.columns import library, listed, pyarrow
from srgp.tables.readers import ENDINGS, kind_of

ROW_GROUP = 2**17  # rows of a row group that we write


def write_table(path: str | os.PathLike[str], batches: Iterable[Mapping[str, Any]]) -> int:
    """Write batches of named columns as CSV or Parquet, by the ending of the path; give the rows.

    Every batch maps the same names to columns of one length: arrays, lists, series. They are
    written as they come, to a file that gets its name when complete: a failure leaves nothing.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from srgp.tables import write_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "out.csv")
    ...     rows = write_table(path, ({"i": [i, i + 1], "half": [i / 2, 0.1]} for i in (0, 2)))
    ...     print(rows, path.read_text().split())
    4 ['"i","half"', '0,0', '1,0.1', '2,1', '3,0.1']
    """
    path = Path(path)
    kind = kind_of(path)
    if kind is None:
        raise ValueError(f"{path} has an ending that tells no kind of file: use {ENDINGS}.")
    check_place(path)
    tables = _grouped(_as_arrow(batch) for batch in batches)
    first = next(tables, None)
    if first is None:
        raise ValueError(f"there is no batch to write to {path}.")
    with replacing(path) as temporary, open(temporary, "xb") as file:
        return _write(kind, file, first, tables)


def _as_arrow(batch: Mapping[str, Any]) -> Any:
    columns = {}
    for name, values in batch.items():
        column = values.to_arrow() if library(values) == "polars" else values
        if library(column) not in ("pyarrow", "pandas") and hasattr(column, "__array__"):
            column = np.asarray(column)
        if isinstance(column, np.ndarray) and column.ndim != 1:
            raise ValueError(
                f"column {name!r} has shape {column.shape}: give every output a name of its own."
            )
        columns[str(name)] = column
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of a batch must be of one length, got {lengths}.")
    return pyarrow().table(columns)


def _grouped(tables: Iterator[Any]) -> Iterator[Any]:
    """Larger tables of the first one's types: small row groups make Parquet slow."""
    arrow = pyarrow()
    held: list[Any] = []
    schema, rows = None, 0
    for table in tables:
        schema = table.schema if schema is None else schema
        if table.schema.names != schema.names:
            raise ValueError(
                f"batches must have the same columns: {listed(schema.names)} first, then "
                f"{listed(table.schema.names)}."
            )
        held.append(table.cast(schema))
        rows += len(table)
        if rows >= ROW_GROUP:
            yield arrow.concat_tables(held)
            held, rows = [], 0
    if held:
        yield arrow.concat_tables(held)


def _write(kind: tuple[str, str | None], file: Any, first: Any, tables: Iterator[Any]) -> int:
    arrow = pyarrow()
    rows = 0
    with contextlib.ExitStack() as stack:
        if kind[1] is not None:
            file = stack.enter_context(arrow.CompressedOutputStream(file, kind[1]))
        new = pyarrow("csv").CSVWriter if kind[0] == "csv" else pyarrow("parquet").ParquetWriter
        writer = stack.enter_context(new(file, first.schema))
        while first is not None:
            writer.write_table(first)
            rows += len(first)
            first = next(tables, None)
    return rows
