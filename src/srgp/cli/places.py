"""Places in streams, and what is found there."""

import hashlib
from typing import NamedTuple

import numpy as np

KEPT = 256  # bytes before a place that have to be the same when reading goes on


class Place(NamedTuple):
    """Where a stream has been read to."""

    file: str = ""  # the one being read; those that sort before it are done
    offset: int = 0  # of the next row: bytes into CSV, rows into a Parquet file
    row: int = 0  # rows of that file before it
    mark: str = ""  # a digest by which what was read is known again; "" where none was kept
    done: tuple[str, ...] | None = None  # files of the folder before it; None where not kept


class Line(NamedTuple):
    """One row: its numbers, or None and why; and the place after it."""

    values: np.ndarray | None
    text: str
    reason: str
    number: int  # of its line, as editors count, the header's being 1; in Parquet, of its row
    after: Place


class Waiting(NamedTuple):
    """Nothing new for the moment."""

    seconds: float
    behind: bool = False  # what comes is still what was read before


def mark(*parts: bytes) -> str:
    """A short digest."""
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def replaced(where: str) -> ValueError:
    """The error of a stream that is not what it was."""
    return ValueError(
        f"{where} is not what was read of it before: it was replaced or changed. Put it back as it "
        "was, or give new rows a file with a name of its own."
    )
