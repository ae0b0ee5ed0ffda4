"""The `srgp` command: tables in, models and predictions out."""

import hashlib
import os
import platform
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the command line; what it needs beyond the core is an extra."""
    share_compiled_code()
    try:
        from srgp.cli.commands import app
    except ImportError as error:
        sys.exit(f"srgp: the command line needs {error.name}: pip install 'srgp[cli]'.")
    app(prog_name="srgp")


def share_compiled_code() -> None:
    """What one command compiled is ready for the next, unless JAX was told otherwise."""
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None:
        return
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        folder = caches / "srgp" / _processor()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return  # it is only slower without
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def _processor() -> str:
    """A name for this kind of processor: compiled code does not run on every other."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = ""
    told = f"{platform.platform()} {platform.processor()} {features}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]
