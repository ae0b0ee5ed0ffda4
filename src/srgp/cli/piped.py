"""Rows from standard input, which is sent from its beginning each time."""

import hashlib
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence

from srgp.cli.fields import picker
from srgp.cli.places import Line, Place, Waiting

NAME = "standard input"
CUT = "cut off, as standard input ended here; not learned, and read when the stream is sent again"
CHUNK = 2**16


def piped(names: Sequence[str], place: Place, poll: float) -> Iterator[Line | Waiting]:
    """The rows of standard input behind a place; what was read before is passed over.

    It must be the same stream, from its beginning: a digest of all bytes up to the place tells.
    """
    digest = hashlib.blake2b(digest_size=16)
    offset, row, pick = 0, -1, None  # the header is no row
    quiet = time.monotonic()
    for line in _lines(poll):
        if line is None:
            yield Waiting(time.monotonic() - quiet, behind=max(row, 0) < place.row)
            continue
        quiet = time.monotonic()
        text = line.decode(errors="replace").rstrip("\r\n")
        whole = line.endswith(b"\n")
        if pick is None:
            pick = picker(line, names, NAME)
        elif not whole and row >= place.row:
            yield Line(None, text, CUT, row + 2, place)
            break
        if not whole:
            break
        offset, row = offset + len(line), row + 1
        digest.update(line)
        if row > place.row:
            values, reason = pick(text)
            place = Place("", offset, row, digest.hexdigest())
            yield Line(values, text, reason, row + 1, place)
        elif row and row == place.row and place.mark not in ("", digest.hexdigest()):
            raise _another(f"its first {row} rows are others")
    if pick is None:
        picker(b"", names, NAME)
    if row < place.row:
        raise _another(f"it ended after {max(row, 0)} rows")


def behind(rows: int) -> ValueError:
    """The error of a stream that stalls before what was read of it."""
    return _another(f"nothing came any more before its row {rows}")


def _another(why: str) -> ValueError:
    return ValueError(
        f"{NAME} is not the stream that was read before, sent again: {why}. Send that one from its "
        "beginning; give other rows as a file, which has a place of its own."
    )


def _lines(poll: float) -> Iterator[bytes | None]:
    """Lines with their ends, the last one perhaps without; None where nothing came for a while."""
    source = sys.stdin.fileno()
    parts: list[bytes] = []
    while True:
        if not _ready(source, poll):
            yield None
            continue
        chunk = os.read(source, CHUNK)
        if not chunk:
            break
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line, b"\n"])
            parts = []
        parts.append(rest)
    if any(parts):
        yield b"".join(parts)


def _ready(source: int, seconds: float) -> bool:
    if os.name == "nt":
        return True  # Windows can wait for sockets only
    return bool(select.select([source], [], [], seconds)[0])
