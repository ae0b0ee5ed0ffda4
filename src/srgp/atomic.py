"""Files that appear whole or not at all."""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

ABANDONED = 3600.0  # seconds without a write: whoever made a temporary file has died


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write, beside `path`, whose place it takes when nothing went wrong.

    Until then an old file of that name stays as it was. What the system refuses is told of `path`.
    What a writer of the same file left behind that was killed is removed, an hour later or more.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from srgp.atomic import replacing
    >>> path = Path(tempfile.mkdtemp(), "note.txt")
    >>> with replacing(path) as temporary:
    ...     _ = temporary.write_text("all of it")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('all of it', 1)
    """
    check_place(path)
    target = Path(os.path.realpath(path))  # a link stays a link
    # Made as other files are, and not private as those of tempfile.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        _to_disk(temporary)
        with contextlib.suppress(FileNotFoundError):
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    # The new name, too, is on the disk only when the folder is; not every system can do that.
    with contextlib.suppress(OSError):
        _to_disk(target.parent)
    _remove_abandoned(target)


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a path where no file can be: a folder, or one in a folder that is not there."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)} is a folder: name a file to write.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"the folder {target.parent}, to write {target.name} into, does not exist: make it "
            "first."
        )


def unwritable(path: str | os.PathLike[str], error: OSError) -> OSError:
    """The error of a file that could not be written, with its name and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        mend = "make room on that disk"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        mend = "see to it that you may write there, or name another place"
    else:
        mend = "look after that disk, or name another place"
    why = error.strerror or error
    told = type(error)(f"{os.fspath(path)} could not be written ({why}): {mend}, then try again.")
    told.errno = error.errno
    return told


def _remove_abandoned(target: Path) -> None:
    """Remove what killed writers left; others may be writing, here or on another machine."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.tmp")
    with contextlib.suppress(OSError):
        now = target.stat().st_mtime  # by the clock of the disk, which dates the others as well
        with os.scandir(target.parent) as entries:
            for entry in entries:
                if name.fullmatch(entry.name) and now - entry.stat().st_mtime > ABANDONED:
                    os.unlink(entry.path)


def _to_disk(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
