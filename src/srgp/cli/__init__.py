"""The `srgp` command: tables in, models and predictions out."""

import sys

from srgp.compiled import keep_compiled_code


def main() -> None:
    """Run the command line; what it needs beyond the core is an extra."""
    keep_compiled_code()  # for the next command
    try:
        from srgp.cli import shows  # noqa: F401 - adds its commands
        from srgp.cli.commands import app
    except ImportError as error:
        sys.exit(f"srgp: the command line needs {error.name}: pip install 'srgp[cli]'.")
    app(prog_name="srgp")
