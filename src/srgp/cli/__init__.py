"""The `srgp` command: tables in, models and predictions out."""

import contextlib
import os
import signal
import sys
from typing import NoReturn

from srgp.cli.outputs import interrupted


def main() -> None:
    """Run the command line; what it needs beyond the core is an extra."""
    try:
        code = _run()
    except KeyboardInterrupt:
        print(f"srgp: {interrupted()}", file=sys.stderr)
        code = 130
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End; Ctrl-C while libraries put away what they have is no longer worth a traceback."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    sys.exit(code)


def _run() -> int:
    try:
        from srgp.cli import shows  # noqa: F401 - adds its commands
        from srgp.cli.commands import app
    except ImportError as error:
        sys.exit(f"srgp: the command line needs {error.name}: pip install 'srgp[cli]'.")
    try:
        return app(prog_name="srgp", standalone_mode=False) or 0
    except Exception as error:
        # Typer brings a Click of its own, or the other: they are alike in this.
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from None
        if not hasattr(error, "format_message"):
            raise
        return _tell_usage(error)


def _tell_usage(error: Exception) -> int:
    """A wrong command or option in one line; help, where it was called with nothing."""
    message: str = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    where = "srgp" if context is None else context.command_path
    if "\n" in message:
        print(message, file=sys.stderr)
    else:
        said = message.replace("Value error, ", "").rstrip(".")
        said += "" if said.endswith("?") else "."
        print(f"srgp: {said} See `{where} --help`.", file=sys.stderr)
    return 2
