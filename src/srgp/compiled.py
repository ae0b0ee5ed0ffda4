"""Less waiting for the compiler: code that compiles quickly, and code kept on disk."""

import functools
import hashlib
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from srgp.precision import is_traced

T = TypeVar("T")

# XLA's newer way to write fused loops takes most of the time that our code needs to compile, and
# runs it no faster (but for loops over steps, such as the filter's). Neither does LLVM's full
# optimisation: kernel matrices take the same time without, random numbers compile three times as
# fast.
QUICK: dict[str, Any] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 1,
}
# Where LAPACK and products take the time, loops need not be the fastest.
PLAIN = {"xla_backend_optimization_level": 0}


class quick_jit(Generic[T]):
    """`jax.jit` that takes half as long to compile; a quarter, with `plain` loops."""

    def __init__(self, function: Callable[..., T], plain: bool = False, **options: Any) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._compiler = {**QUICK, **PLAIN} if plain else QUICK
        self._plain = jax.jit(function, **options)

    @functools.cached_property
    def _quick(self) -> Any:
        if not _are_known():
            return self._plain
        return jax.jit(self._function, compiler_options=self._compiler, **self._options)

    def __call__(self, *args: Any) -> T:
        """Within other compiled code the options are that code's."""
        compiled = self._plain if is_traced(args) else self._quick
        found: T = compiled(*args)
        return found

    def _cache_size(self) -> int:
        return int(self._quick._cache_size())


@functools.cache
def _are_known() -> bool:
    """Whether this version of XLA has these options."""
    try:
        jax.jit(lambda x: -x, compiler_options={**QUICK, **PLAIN})(np.zeros(()))
    except Exception:
        return False
    return True


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
