"""What a command writes: whether it can, asked before the work, and what it has written."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from srgp.atomic import check_place, replacing

written: list[str] = []  # by the command that runs


def interrupted() -> str:
    """What Ctrl-C is answered."""
    return f"interrupted; {' and '.join(written) or 'nothing'} was written."


def written_before() -> str:
    """What an error does not undo."""
    return f" {' and '.join(written)} was written before that." if written else ""


def check_output(path: Path, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a file that cannot be written, or that is one of the inputs."""
    check_place(path)
    _check_writable(Path(os.path.realpath(path)).parent)
    if path.exists() and any(os.path.samefile(path, one) for one in inputs):
        raise ValueError(f"{path} is one of the inputs, and would be lost: name another file.")


def check_checkpoint(folder: Path, output: Path) -> None:
    """Refuse a folder that steps cannot be kept in, or that the output would be removed with."""
    if folder.resolve() in output.resolve().parents:
        raise ValueError(
            f"{output} lies in the folder of the checkpoint, {folder}, which is removed at the "
            "end: name another file."
        )
    _check_writable(folder if folder.exists() else _first_there(folder))


def check_picture(path: Path, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse a picture that cannot be drawn or written."""
    check_output(path, inputs)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("pictures need Matplotlib: pip install 'srgp[plots]'.") from None
    known = Figure().canvas.get_supported_filetypes()
    if _kind(path) not in known:
        raise ValueError(
            f"{path} has an ending that tells no kind of picture: use .png, .pdf or .svg."
        )


def save_picture(figure: Any, path: Path) -> None:
    """Write a picture, whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=_kind(path))
    written.append(str(path))


def _kind(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def _first_there(folder: Path) -> Path:
    return next(one for one in folder.absolute().parents if one.exists())


def _check_writable(folder: Path) -> None:
    try:
        # Only trying tells: rights, a disk that is only read, a place that takes no files.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PermissionError(
            f"nothing can be written into the folder {folder} ({reason}): change its permissions, "
            "or name another."
        ) from None
