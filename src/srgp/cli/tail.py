"""Rows of files that grow: each with the place where the next one starts."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from srgp.cli.columns import parquet_rows
from srgp.cli.fields import Picked, compressed, picker
from srgp.cli.piped import piped
from srgp.cli.places import KEPT, Line, Place, Waiting, mark, replaced

SUFFIXES = (".csv", ".parquet")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")


def tail(
    path: str, names: Sequence[str], place: Place, follow: bool, poll: float = 0.2
) -> Iterator[Line | Waiting]:
    """The rows of `path` from a place on: a CSV file, a folder of CSV and Parquet, or "-".

    names: the columns wanted, by their names in the header.

    With `follow`, it goes on for ever: a file may grow, a folder may get new files, whose names
    must sort behind the others: one that comes late is refused. The end of the last file may still
    be on its way: a line without its end, or a Parquet file without its own, is then waited for.
    """
    if path == "-":
        yield from piped(names, place, poll)
        return
    last, seen = time.monotonic(), None
    while True:
        progress = False
        found = _files(Path(path))
        before = [p.name for p in found if p.name < place.file and p != Path(path)]
        _check_early(Path(path), place, before)
        for file in found[len(before) :]:
            growing = follow and file == found[-1]
            now = (file, growing, *_state(file))
            if now == seen:
                continue  # nothing was written since
            start = place if file.name == place.file else _start(file, found)
            for line in _rows(file, names, start, growing):
                place, progress, last = line.after, True, time.monotonic()
                yield line
            place, seen = place if place.file == file.name else start, now
        if not follow:
            return
        if not progress:
            yield Waiting(time.monotonic() - last)
            time.sleep(poll)


def _start(file: Path, found: Sequence[Path]) -> Place:
    """The start of a file, those that sort before it being done."""
    return Place(file.name, done=tuple(other.name for other in found if other.name < file.name))


def _check_early(path: Path, place: Place, before: Sequence[str]) -> None:
    """Refuse a file that came when one behind it was begun: its rows would never be read."""
    late = set(before).difference(before if place.done is None else place.done)
    if late:
        name = min(late)
        raise ValueError(
            f"{path / name} came late: {place.file}, which sorts behind it, has been begun. Give "
            "it a name that sorts behind the others, then give the same command again."
        )


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: check the path.")
    if not path.is_dir():
        found = [path]
    else:
        with _readable(path):
            found = sorted(path.iterdir())
    packed = [p for p in found if p.suffix in COMPRESSED and p.with_suffix("").suffix in SUFFIXES]
    if packed:
        raise compressed(str(packed[0]))
    return [p for p in found if p == path or p.suffix in SUFFIXES]


def _state(file: Path) -> tuple[int, int, int]:
    with _readable(file):
        state = file.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns


def _rows(file: Path, names: Sequence[str], place: Place, growing: bool) -> Iterator[Line]:
    with _readable(file):
        stream = file.open("rb")
    with stream:
        reader: Any = parquet_rows if file.suffix == ".parquet" else _csv_rows
        yield from reader(stream, str(file), names, place, growing)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"{path} cannot be read ({error.strerror or error}): check that it is there and that "
            "you may read it, then give the same command again."
        ) from error


def _csv_rows(
    stream: BinaryIO, where: str, names: Sequence[str], place: Place, growing: bool
) -> Iterator[Line]:
    header = stream.readline()
    if not header.endswith(b"\n") and growing:
        return
    pick = picker(header, names, where)
    last = b""
    if place.offset:
        last = _known(stream, where, header, place)
        if last and not last.endswith(b"\n"):
            last += _end(stream, where, place)
            if not last.endswith(b"\n"):
                return  # nothing behind it yet
    yield from _lines(stream, pick, place, header, last, growing)


def _known(stream: BinaryIO, where: str, header: bytes, place: Place) -> bytes:
    """The last bytes before the place, once it is sure that they are those of before."""
    stream.seek(max(len(header), place.offset - KEPT))
    last = stream.read(place.offset - stream.tell())
    if stream.tell() < place.offset:
        raise ValueError(
            f"{where} is shorter than what was read of it before: it was replaced or cut. Put it "
            "back as it was, or give new rows a file with a name of its own."
        )
    if place.mark and mark(header, last) != place.mark:
        raise replaced(where)
    return last


def _end(stream: BinaryIO, where: str, place: Place) -> bytes:
    """What ends the last line, which had no end when it was read; nothing else may be there."""
    end = stream.readline()
    if end.strip(b"\r\n"):
        raise ValueError(
            f"{where}:{place.row + 1} was read when the file ended in it, and has grown since: go "
            "back to an older copy of the model, and read files that are still being written with "
            "--follow."
        )
    return end


def _lines(
    stream: BinaryIO,
    pick: Callable[[str], Picked],
    place: Place,
    header: bytes,
    last: bytes,
    growing: bool,
) -> Iterator[Line]:
    offset, row = stream.tell(), place.row
    while line := stream.readline():
        if growing and not line.endswith(b"\n"):
            return  # it is still being written
        offset, row, last = offset + len(line), row + 1, (last + line)[-KEPT:]
        text = line.decode(errors="replace").rstrip("\r\n")
        values, reason = pick(text)
        after = Place(place.file, offset, row, mark(header, last), place.done)
        yield Line(values, text, reason, row + 1, after)
