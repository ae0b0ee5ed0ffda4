"""Rows of a Parquet file, from a place on."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from srgp.checks import LARGEST
from srgp.cli.fields import check_columns, numbers
from srgp.cli.places import Line, Place, mark, replaced

ENDING = 8  # bytes at the end: the length of the footer, and four letters


def parquet_rows(
    stream: BinaryIO, where: str, names: Sequence[str], place: Place, growing: bool
) -> Iterator[Line]:
    """The rows behind a place; parts of the file before it are not decoded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        if growing:
            return  # its end, which tells what is in it, is still to be written
        raise _unreadable(where, error) from error
    check_columns(table.schema_arrow.names, names, where)
    known = _footer(stream)
    if place.offset and place.mark not in ("", known):
        raise replaced(where)
    groups, row = _behind(table.metadata, place.offset)
    batches = table.iter_batches(row_groups=groups, columns=list(names)) if groups else iter(())
    while True:
        try:
            batch = next(batches, None)
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(where, error) from error
        if batch is None:
            return
        for i, (values, text, reason) in enumerate(_picked(batch, names), row + 1):
            if i > place.offset:
                yield Line(values, text, reason, i, place._replace(offset=i, row=i, mark=known))
        row += batch.num_rows


def _unreadable(where: str, error: Exception) -> ValueError:
    return ValueError(f"{where} cannot be read ({error}): write it again, or take it away.")


def _footer(stream: BinaryIO) -> str:
    """A digest of what the file says about its contents, and where they are in it."""
    size = stream.seek(0, 2)
    stream.seek(size - ENDING)
    length = int.from_bytes(stream.read(4), "little")
    stream.seek(size - ENDING - length)
    return mark(stream.read(), str(size).encode())


def _behind(metadata: Any, offset: int) -> tuple[list[int], int]:
    """The row groups with rows behind an offset, and the row before the first of them."""
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    ends = np.cumsum(rows)
    first = int(np.searchsorted(ends, offset, side="right"))
    return list(range(first, len(rows))), int(sum(rows[:first]))


def _picked(batch: Any, names: Sequence[str]) -> Iterator[tuple[np.ndarray | None, str, str]]:
    """Of each row the numbers, or what it holds and what is wrong."""
    import pyarrow as pa

    columns = [batch.column(name) for name in names]
    plain = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
    if all(any(fits(column.type) for fits in plain) for column in columns):
        floats = [c.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for c in columns]
        table = np.stack(floats, 1)
        good = (np.abs(table) <= LARGEST).all(1)
    else:  # text may hold numbers, as in CSV; what else there is, row by row
        table, good = np.empty((batch.num_rows, len(names))), np.zeros(batch.num_rows, bool)
    for i in range(batch.num_rows):
        if good[i]:
            yield table[i], "", ""
        else:
            row = [column[i].as_py() for column in columns]
            values, reason = numbers(row, names)
            yield values, repr(row), reason
