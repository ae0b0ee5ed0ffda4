"""What the commands show: progress, a closing table or JSON, and errors in one line."""

import contextlib
import functools
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as Shown

from srgp.compiled import drop_damaged
from srgp.learners import Record

P = ParamSpec("P")

# Errors of the user's data, files and options; anything else is ours, and keeps its traceback.
EXPECTED = (ValueError, OSError, ImportError, ArithmeticError)


def clean(command: Callable[P, None]) -> Callable[P, None]:
    """Errors that a user can mend in one line and exit code 2; Ctrl-C is 130."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        warnings.showwarning = _show_warning
        try:
            command(*args, **kwargs)
        except EXPECTED as error:
            print(f"srgp: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("srgp: interrupted; nothing was written.", file=sys.stderr)
            raise typer.Exit(130) from None

    return wrapper


@contextlib.contextmanager
def resumable(folder: Path | None, more: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Ctrl-C says how to go on, where a checkpoint was kept; `more` is said as well."""
    try:
        yield
    except KeyboardInterrupt as error:
        if folder is None:
            raise
        tell(f"interrupted; the same command goes on from {folder}.{more()}")
        raise typer.Exit(143 if isinstance(error, Terminated) else 130) from None


class Terminated(KeyboardInterrupt):
    """SIGTERM, which service managers send."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does: with temporary files removed and a word of how to go on."""

    def stop(*_: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tell(text: str) -> None:
    """A line for people, beside what is printed for machines."""
    print(f"srgp: {text}", file=sys.stderr, flush=True)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    if drop_damaged(str(message)):
        return  # compiled again, and kept whole
    print(f"srgp: warning: {message}", file=sys.stderr)


@contextlib.contextmanager
def watching(rows: int, quiet: bool) -> Iterator[Callable[[Record, Any], None]]:
    """A line that tells how far learning is, for people; as a callback of `srgp.learn`."""
    columns = (
        SpinnerColumn(),
        BarColumn(20),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        line = bar.add_task("reading and starting values", total=None, left="")

        def show(record: Record, model: Any) -> None:
            known = record.bound if record.bound is not None else record.estimate
            bound = "" if known is None else f"bound {known:,.0f}, "
            rate = record.epoch * rows / max(record.seconds, 1e-9)
            bar.update(
                line,
                total=None if record.done is None else 1.0,
                completed=record.done or 0.0,
                description=f"epoch {record.epoch:.1f}, {bound}{rate:,.0f} rows a second",
                left=time_left(record),
            )

        yield show


@contextlib.contextmanager
def telling(title: str) -> Iterator[Callable[[str], None]]:
    """A line that tells what is being run, and how long it takes; for work of several runs."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        line = bar.add_task(title)

        def tell(text: str) -> None:
            bar.update(line, description=f"{title}: {text}")
            if hidden:
                print(f"{title}: {text}", file=sys.stderr, flush=True)

        yield tell


def time_left(record: Record) -> str:
    """How long the rest takes at most, if it goes on as it did."""
    if not record.done:
        return ""
    seconds = round(record.seconds * (1.0 / record.done - 1.0))
    return f"at most {seconds // 60}:{seconds % 60:02d} left"


def closing(title: str, values: dict[str, Any], as_json: bool) -> None:
    """What a command did: a table for people, or one JSON object for machines."""
    if as_json:
        print(json.dumps(values, allow_nan=False))
        return
    table = Shown(title=title, show_header=False, title_justify="left")
    for name, value in values.items():
        table.add_row(name, _text(value))
    Console().print(table)


def comparison(
    title: str, columns: dict[str, dict[str, Any]], about: dict[str, Any], as_json: bool
) -> None:
    """Several columns of the same numbers, and what they have in common below."""
    if as_json:
        print(json.dumps({**about, **columns}, allow_nan=False))
        return
    table = Shown("", *columns, title=title, title_justify="left")
    for name in next(iter(columns.values())):
        table.add_row(name, *(_text(column[name]) for column in columns.values()))
    Console().print(table)
    for name, value in about.items():
        print(f"{name}: {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def check_folder(path: Path) -> None:
    """Refuse to write where there is no folder: before hours of work, not after."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"the folder {path.absolute().parent} does not exist: make it.")


def chosen(found: Any) -> dict[str, float]:
    """The scores that are shown."""
    return {"RMSE": found.rmse, "NLPD": found.nlpd, "coverage of 95 %": found.coverage}
