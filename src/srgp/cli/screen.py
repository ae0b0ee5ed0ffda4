"""What the commands tell: a closing table or JSON, and errors in one line."""

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

from srgp.cli.outputs import check_output, interrupted, written, written_before
from srgp.cli.words import said

# JAX and Rich are imported when they are needed: help comes at once.

P = ParamSpec("P")

# Errors of the user's data, files and options; anything else is ours, and keeps its traceback.
EXPECTED = (ValueError, OSError, ImportError, ArithmeticError)


def clean(command: Callable[P, None]) -> Callable[P, None]:
    """Errors that a user can mend in one line and exit code 2; Ctrl-C is 130."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        warnings.showwarning = _show_warning
        written.clear()
        try:
            from srgp.compiled import keep_compiled_code

            keep_compiled_code()  # for the next command
            command(*args, **kwargs)
        except EXPECTED as error:
            print(f"srgp: {said(error)}{written_before()}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            tell(interrupted())
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
    from srgp.compiled import drop_damaged

    if drop_damaged(str(message)):
        return  # compiled again, and kept whole
    print(f"srgp: warning: {said(message)}", file=sys.stderr)


def closing(title: str, values: dict[str, Any], as_json: bool) -> None:
    """What a command did: a table for people, or one JSON object for machines."""
    if as_json:
        print(json.dumps(values, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table as Shown

    table = Shown(title=title, show_header=False, title_justify="left")
    for name, value in _lines(values):
        table.add_row(_plain(name), _plain(_text(value)))
    Console().print(table)


def comparison(
    title: str, columns: dict[str, dict[str, Any]], about: dict[str, Any], as_json: bool
) -> None:
    """Several columns of the same numbers, and what they have in common below."""
    if as_json:
        print(json.dumps({**about, **columns}, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table as Shown

    table = Shown(title=title, title_justify="left")
    for header in ("", *columns):
        table.add_column(_plain(header))
    for name in next(iter(columns.values())):
        table.add_row(*map(_plain, (name, *(_text(c[name]) for c in columns.values()))))
    Console().print(table)
    for name, value in about.items():
        print(f"{name}: {_text(value)}")


def _lines(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values; those of a part with its name before."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{name}: ")
        else:
            yield before + name, value


def _plain(text: str) -> Any:
    """A text as it is: Rich would take [kW] for a style, and cut long paths."""
    from rich.text import Text

    return Text(text, overflow="fold")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_text(v) for v in value)
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def check_folder(path: Path) -> None:
    """Refuse to write where no file can be: before hours of work, not after."""
    check_output(path)


def chosen(found: Any) -> dict[str, float]:
    """The scores that are shown."""
    return {"RMSE": found.rmse, "NLPD": found.nlpd, "coverage of 95 %": found.coverage}
