"""Named arrays and a JSON text in one file, which is read whole or refused.

It is a safetensors file whose metadata have one key, `srgp`, a JSON text:

    digest   of the whole file, taken with zeros in the digest's own place
    format   the number of this layout; a reader refuses what is newer than itself
    kind     what the file holds, "model" for instance
    version  of the library that wrote it
    about    whatever the writer says about the arrays
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, BinaryIO, NoReturn, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from srgp.atomic import replacing

FORMAT = 1
LENGTH_BYTES = 8  # safetensors starts with the length of its header
HEADER_LIMIT = 2**26  # bytes; a longer header is taken for something else
ZEROS = "0" * 64  # holds the place of the digest while it is computed
DTYPES = ("bool", *(f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)), "float32", "float64")

FilePath: TypeAlias = str | os.PathLike[str]

_FOREIGN = (
    "is not a file that srgp wrote, or is damaged: check the path, or restore it from a copy."
)


def write_arrays(
    path: FilePath, kind: str, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]
) -> None:
    """Write arrays, bit for bit, and JSON values about them; the file appears whole or not at all.

    kind:  names what the file holds, and has to be given again to read it.
    about: None, booleans, finite numbers, strings, lists and dicts of them; for more, see `pack`.

    Until the new file is complete and on the disk, an old one of that name stays as it was.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from srgp.storage import read_arrays, write_arrays
    >>> path = os.path.join(tempfile.mkdtemp(), "state.srgp")
    >>> write_arrays(path, "state", {"weights": np.array([0.1, 0.2])}, {"step": 7})
    >>> read_arrays(path, "state")
    ({'weights': array([0.1, 0.2])}, {'step': 7})
    """
    record = {
        "digest": ZEROS,
        "format": FORMAT,
        "kind": kind,
        "version": library_version(),
        "about": about,
    }
    try:
        text = json.dumps(record, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"what is said about the arrays must be plain JSON values, but {error}; "
            "srgp.storage.pack turns other values into such."
        ) from error
    if len(text) > HEADER_LIMIT // 2:  # quotes are escaped once more in the file
        raise ValueError(
            f"what is said about the arrays takes {len(text)} bytes of text, more than a header "
            f"may have ({HEADER_LIMIT // 2}): keep long lists of numbers as arrays."
        )
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    content = safetensors.numpy.save(plain, {"srgp": text})
    # The record starts with the digest, and the file with the record: the first such zeros are it.
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    with replacing(path) as temporary:
        temporary.write_bytes(content.replace(ZEROS.encode(), digest.encode(), 1))


def read_arrays(path: FilePath, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `write_arrays` wrote, as (arrays, about); a ValueError says why a file is refused.

    Refused are files that are not of this library, of another kind, of a newer format, cut off, or
    changed in any byte. The header is looked at before the rest is read.

    >>> import pathlib, tempfile
    >>> from srgp.storage import read_arrays
    >>> path = pathlib.Path(tempfile.mkdtemp(), "notes.txt")
    >>> _ = path.write_text("no arrays in here")
    >>> read_arrays(path, "state")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: ...notes.txt is not a file that srgp wrote, or is damaged: check the path, or ...
    """
    with open(path, "rb") as file:
        try:
            return _read(file, kind)
        except ValueError as error:
            refuse(path, error)


def refuse(path: FilePath, reason: object) -> NoReturn:
    """Raise a ValueError that starts with the name of the file."""
    raise ValueError(f"{os.fspath(path)} {reason}") from None


def library_version() -> str:
    """The version of the library that is running."""
    import srgp  # the package itself imports this module

    return srgp.__version__


def _plain(name: str, array: np.ndarray) -> np.ndarray:
    """`array` as the file takes it: in C order, and of a type every reader knows."""
    if name == "__metadata__":
        raise ValueError("an array cannot be named __metadata__, the name of the file's header.")
    if array.dtype.name not in DTYPES:
        raise ValueError(
            f"the array {name!r} is of type {array.dtype}, which is not kept in files: convert it "
            "to float64, to whole numbers or to booleans first."
        )
    return np.asarray(array, order="C")


def _read(file: BinaryIO, kind: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    size = os.fstat(file.fileno()).st_size
    start = file.read(LENGTH_BYTES)
    length = int.from_bytes(start, "little")
    if len(start) < LENGTH_BYTES or length > HEADER_LIMIT:
        raise ValueError(_FOREIGN)
    header = file.read(length)
    if header.startswith(b"{") and len(header) < length:
        raise ValueError(_cut(size, LENGTH_BYTES + length))
    record, body = _parse(header)
    _check(record, kind)
    if size != LENGTH_BYTES + length + body:
        raise ValueError(_cut(size, LENGTH_BYTES + length + body))
    content = start + header + file.read(body)
    blank = content.replace(record["digest"].encode(), ZEROS.encode(), 1)
    if hashlib.blake2b(blank, digest_size=32).hexdigest() != record["digest"]:
        raise ValueError(
            "has been changed or damaged since it was written (its digest differs): restore it "
            "from a copy, or write it again."
        )
    try:
        return safetensors.numpy.load(content), record["about"]
    except (safetensors.SafetensorError, KeyError) as error:
        raise ValueError(_FOREIGN) from error


def _parse(header: bytes) -> tuple[dict[str, Any], int]:
    """The record, and how many bytes follow the header."""
    try:
        entries = json.loads(header)
        record = json.loads(entries.pop("__metadata__")["srgp"], parse_constant=_no_constant)
        body = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        types = {"digest": str, "format": int, "kind": str, "version": str, "about": dict}
        sound = all(type(record[name]) is type_ for name, type_ in types.items())
        whole = sound and record["digest"].isascii() and len(record["digest"]) == len(ZEROS)
        if whole and type(body) is int:
            return record, body
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        pass
    raise ValueError(_FOREIGN)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON.")


def _check(record: dict[str, Any], kind: str) -> None:
    if record["format"] > FORMAT:
        raise ValueError(
            f"was written by srgp {record['version']}, format {record['format']}; this is srgp "
            f"{library_version()}, which reads formats up to {FORMAT}: upgrade srgp."
        )
    if record["kind"] != kind:
        raise ValueError(
            f"holds a {record['kind']!r}, not a {kind!r}: read it with the function that belongs "
            "to that kind."
        )


def _cut(size: int, expected: int) -> str:
    what = "is cut off" if size < expected else "has something appended"
    return f"{what} ({size} bytes instead of {expected}): copy it again, or write it again."
