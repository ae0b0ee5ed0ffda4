"""How far a command is, in one line for people at a terminal: its pace, and the time left."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from srgp.learners import Record
    from srgp.sources import Source
    from srgp.tables import Table

NEARLY = 0.99  # of a bar, at most, before the end: rows are read ahead of the work on them


@contextlib.contextmanager
def watching(
    table: "Table", source: "Source", quiet: bool
) -> Iterator[Callable[["Record", Any], None]]:
    """A line that tells how far learning is, for people; as a callback of `srgp.learn`.

    source: the table itself, or its files on a cluster, whose workers count the rows.
    """
    pace = Pace("≤ {}")
    with Line(quiet) as bar:
        reading = Rows("starting", lambda: table.rows_read)
        line = bar.add_task("", total=None, stand=reading, left="")
        rows = source.count()  # which may take a pass

        def show(record: "Record", model: Any) -> None:
            bar.update(
                line,
                total=None if record.done is None else 1.0,
                completed=record.done or 0.0,
                stand=progress_line(record, rows),
                left=pace.left(record.seconds, record.done),
            )

        yield show
        # A rule may end it before the share of the work that was allowed for.
        bar.update(line, total=1.0, completed=1.0, left="done")


@contextlib.contextmanager
def counting(
    what: str, total: int | None, quiet: bool, table: "Table | None" = None
) -> Iterator[Callable[[int], None]]:
    """A line that tells how many rows are done, as what it gives is called with more of them.

    total: of all rows, where it is known.
    table: whose rows are counted as they are read, where nobody sees them done.
    """
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more

    with Line(quiet) as bar:
        rows = Rows(what, (lambda: done) if table is None else (lambda: table.rows_read), total)
        line = bar.add_task("", total=1.0 if total else None, stand=rows, left="")
        yield add
        bar.update(line, total=1.0, completed=1.0, stand=str(rows), left="done")


@contextlib.contextmanager
def telling(title: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line that tells what is being run, and how long it takes; for work of several runs."""
    console = Console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        line = bar.add_task(title)

        def tell(text: str) -> None:
            bar.update(line, description=f"{title}: {text}")
            if hidden and not quiet:
                print(f"{title}: {text}", file=sys.stderr, flush=True)

        yield tell


class Line(Progress):
    """A bar, how things stand, the time so far and what is left; nothing where nobody looks."""

    def __init__(self, quiet: bool) -> None:
        console = Console(stderr=True)
        super().__init__(
            BarColumn(10, finished_style="green"),
            TextColumn("{task.fields[stand]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """What is shown; rows are counted whenever it is."""
        for task in self.tasks:
            if isinstance(task.fields["stand"], Rows):
                self.update(task.id, **task.fields["stand"].shown())
        yield from super().get_renderables()


class Rows:
    """Rows so far and their pace, counted whenever they are shown.

    count: tells how many there were; those of before do not count here.
    total: how many come, where that is known.
    """

    def __init__(self, what: str, count: Callable[[], int], total: int | None = None) -> None:
        self._what, self._count, self._total = what, count, total
        self._before, self._start = count(), time.monotonic()
        self._rows, self._seconds = 0, 0.0
        self._pace, self._left = Pace("{} left"), ""

    def __str__(self) -> str:
        self._look()
        if not self._rows:  # or they are read elsewhere, on a cluster
            return self._what
        rate = self._rows / max(self._seconds, 1e-9)
        return f"{self._what}: {self._rows:,} rows, {rate:,.0f} rows/s"

    def shown(self) -> dict[str, Any]:
        """How full the bar is, and how long the rest takes; nothing where no end is known."""
        if not self._total:
            return {}
        self._look()
        return {"completed": min(self._rows / self._total, NEARLY), "left": self._left}

    def _look(self) -> None:
        rows = self._count() - self._before
        if rows == self._rows:
            return
        self._rows, self._seconds = rows, time.monotonic() - self._start
        if self._total:
            self._left = self._pace.left(self._seconds, min(rows / self._total, 1.0))


def progress_line(record: "Record", rows: int) -> str:
    """Epoch, bound and pace, in at most 50 characters."""
    known = record.bound if record.bound is not None else record.estimate
    bound = "" if known is None else f"bound {known:,.0f}, "
    rate = record.epoch * rows / max(record.seconds, 1e-9)
    return f"epoch {record.epoch:.1f}, {bound}{rate:,.0f} rows/s"


class Pace:
    """How long the rest takes, if it goes on as in the last few reports; `words` go around it."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._seen: list[tuple[float, float]] = []

    def left(self, seconds: float, done: float | None) -> str:
        """As a text, by the share that is done; empty where nothing can be said yet."""
        if done is None:
            return ""
        self._seen = [*self._seen[-10:], (seconds, done)]
        (before, begun), (now, done) = self._seen[0], self._seen[-1]
        if done <= begun:
            return ""
        rest = round((now - before) * (1.0 - done) / (done - begun))
        return self._words.format(f"{rest // 60}:{rest % 60:02d}")
