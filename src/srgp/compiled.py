"""Compiled code kept on disk, so that the next process need not compile it again."""

import hashlib
import os
import platform
import re
from pathlib import Path
from typing import Any

import jax


def keep_compiled_code(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep what JAX compiles in a folder, and use what is there; call it before the first fit.

    folder: by default one in the user's cache, for this kind of processor.

    A first fit then takes the seconds of compilation only once on a machine, not once in every
    process. This is a setting of JAX for the whole process, so it is left to you; where JAX has
    been given a folder already, that one stays. Gives the folder, or None where none can be made.

    >>> import tempfile, srgp
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     srgp.keep_compiled_code(folder)
    """
    config: Any = jax.config
    if config.jax_compilation_cache_dir is not None:
        return Path(config.jax_compilation_cache_dir)
    try:
        chosen = _default() if folder is None else Path(folder)
        chosen.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None  # it is only slower without
    config.update("jax_compilation_cache_dir", str(chosen))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return chosen


def drop_damaged(warning: str) -> bool:
    """Remove what JAX warns that it cannot read: a process was killed while it wrote it."""
    found = re.match(r"Error reading persistent compilation cache entry for '([\w<>.-]+)'", warning)
    folder: Any = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if found is None or folder is None:
        return False
    for file in Path(folder).glob(f"{found[1]}-*"):
        file.unlink(missing_ok=True)
    return True


def _default() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "srgp" / _processor()


def _processor() -> str:
    """A name for this kind of processor: compiled code does not run on every other."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        features = ""
    told = f"{platform.platform()} {platform.processor()} {features}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]
