"""A file of rejected rows. It is only ever added to: other streams and other models may use it."""

import os
import re
from pathlib import Path

from srgp.atomic import unwritable

RECORD = re.compile(rb"[^\n]+:\d+: [^\n]+")


class Rejects:
    """The rejected rows of one stream, in a file that may hold others as well.

    A row that was rejected since the model was last written comes again after a kill. Its record
    is then found in the file, and not written twice.

    known: the model has written into this file before.
    """

    def __init__(self, path: Path, known: bool) -> None:
        self.path = path.resolve()
        if self.size() and not known and not self._holds_records():
            raise ValueError(
                f"{path} holds something else than rejected rows: name another file by --rejects."
            )
        self.end = 0  # of the last record of this stream
        self._old = b""  # from there on, as found at the start
        self._dirty = False

    def size(self) -> int:
        """Bytes in the file."""
        return self.path.stat().st_size if self.path.exists() else 0

    def start(self, end: int) -> None:
        """Go on where the model was last written: records behind it may be of this stream."""
        self.end = end
        if self.size():  # not a device, which may never end
            with self.path.open("rb") as file:
                file.seek(max(0, end - 1))
                before = file.read(min(1, end))
                self._old = file.read()
            # A line of somebody else's without its end must not run into ours.
            if before not in (b"", b"\n") and not self._old:
                self._write(b"\n")

    def add(self, record: bytes) -> None:
        """Write a record, unless it was written before."""
        at = (b"\n" + self._old).find(b"\n" + record)
        if at >= 0:
            self.end, self._old = self.end + at + len(record), self._old[at + len(record) :]
            return
        cut = self._old.rpartition(b"\n")[2]  # what a killed process or a full disk left
        self._old = b""
        if cut and record.startswith(cut):
            self._write(record[len(cut) :])
        else:
            self._write(b"\n" + record if cut else record)

    def sync(self) -> None:
        """Bring what was added onto the disk."""
        if self._dirty and self.path.is_file():
            try:
                with self.path.open("rb") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                raise unwritable(self.path, error) from error
        self._dirty = False

    def _write(self, content: bytes) -> None:
        try:
            with self.path.open("ab", buffering=0) as file:
                while content:
                    content = content[file.write(content) :]
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.end, self._dirty = self.size(), True

    def _holds_records(self) -> bool:
        with self.path.open("rb") as file:
            return RECORD.match(file.readline()) is not None
