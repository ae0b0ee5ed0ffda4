"""Rows of files that grow: each with the place where the next one starts."""

import csv
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

SUFFIXES = (".csv", ".parquet")


class Place(NamedTuple):
    """Where a stream has been read to."""

    file: str = ""  # the one being read; those that sort before it are done
    offset: int = 0  # of the next row: bytes into a CSV file, rows into a Parquet file
    row: int = 0  # rows of that file before it
    rejects: int = 0  # bytes of the file of rejected rows that belong to what was read


class Line(NamedTuple):
    """One row: its numbers, or None and why; and the place after it."""

    values: np.ndarray | None
    text: str
    reason: str
    after: Place


class Waiting(NamedTuple):
    """Nothing new for the moment."""

    seconds: float


def tail(
    path: str, names: Sequence[str], place: Place, follow: bool, poll: float = 0.2
) -> Iterator[Line | Waiting]:
    """The rows of `path` from a place on: a CSV file, a folder of CSV and Parquet, or "-".

    names: the columns wanted, by their names in the header.

    With `follow`, it goes on for ever: a file may grow, a folder may get new files, whose names
    must sort behind the others. The end of the last file may still be on its way: a line without
    its end, or a Parquet file without its own, is then waited for.
    """
    if path == "-":
        yield from _stdin(names, place)
        return
    idle = 0.0
    while True:
        progress = False
        found = _files(Path(path), place.file)
        for file in found:
            start = place if file.name == place.file else Place(file.name, rejects=place.rejects)
            reader = _parquet if file.suffix == ".parquet" else _csv_file
            for line in reader(file, names, start, growing=follow and file == found[-1]):
                place, progress, idle = line.after, True, 0.0
                yield line
            place = place if place.file == file.name else start
        if not follow:
            return
        if not progress:
            yield Waiting(idle)
            time.sleep(poll)
            idle += poll


def _files(path: Path, current: str) -> list[Path]:
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES)
        return [p for p in found if p.name >= current]
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    return [path]


def _csv_file(file: Path, names: Sequence[str], place: Place, growing: bool) -> Iterator[Line]:
    with file.open("rb") as stream:
        header = stream.readline()
        if not header.endswith(b"\n") and growing:
            return
        pick = _picker(header, names, str(file))
        if place.offset:
            if file.stat().st_size < place.offset:
                raise ValueError(f"{file} is shorter than what was read of it before.")
            stream.seek(place.offset)
        yield from _lines(stream, pick, place, growing)


def _stdin(names: Sequence[str], place: Place) -> Iterator[Line]:
    """Standard input from its beginning: what was read before is passed over."""
    stream = sys.stdin.buffer
    pick = _picker(stream.readline(), names, "standard input")
    for _ in range(place.row):
        if not stream.readline():
            return
    yield from _lines(stream, pick, place, growing=False)


def _lines(
    stream: BinaryIO, pick: Callable[[str], Any], place: Place, growing: bool
) -> Iterator[Line]:
    offset = stream.tell() if stream.seekable() else place.offset
    row = place.row
    while line := stream.readline():
        if growing and not line.endswith(b"\n"):
            return  # it is still being written
        offset, row = offset + len(line), row + 1
        text = line.decode(errors="replace").rstrip("\r\n")
        values, reason = pick(text)
        yield Line(values, text, reason, place._replace(offset=offset, row=row))


def _picker(header: bytes, names: Sequence[str], where: str) -> Callable[[str], Any]:
    columns = next(csv.reader([header.decode(errors="replace").rstrip("\r\n")]), [])
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"{where} has no column {', '.join(missing)}; it has {columns}.")
    at = [columns.index(name) for name in names]

    def pick(text: str) -> tuple[np.ndarray | None, str]:
        fields = next(csv.reader([text]), [])
        if len(fields) != len(columns):
            return None, f"{len(fields)} fields instead of {len(columns)}"
        try:
            values = np.array([float(fields[i]) for i in at])
        except ValueError as error:
            return None, str(error)
        bad = [name for name, value in zip(names, values, strict=True) if not np.isfinite(value)]
        return (None, f"{bad[0]} is not finite") if bad else (values, "")

    return pick


def _parquet(file: Path, names: Sequence[str], place: Place, growing: bool) -> Iterator[Line]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        if growing:
            return  # its end, which tells what is in it, is still to be written
        raise ValueError(f"{file} cannot be read: {error}") from error
    missing = [name for name in names if name not in table.schema_arrow.names]
    if missing:
        raise ValueError(f"{file} has no column {', '.join(missing)}.")
    row = 0
    for batch in table.iter_batches(columns=list(names)):
        if row + batch.num_rows <= place.offset:
            row += batch.num_rows
            continue
        columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
        values = np.stack(columns, 1).astype(np.float64)
        for i in range(max(0, place.offset - row), len(values)):
            after = place._replace(offset=row + i + 1, row=row + i + 1)
            if np.isfinite(values[i]).all():
                yield Line(values[i], "", "", after)
            else:
                yield Line(None, repr(values[i].tolist()), "not finite", after)
        row += batch.num_rows
