"""Property tests draw the same examples on every run; what was compiled once is compiled for all.

The compiled code is shared by the processes that run the tests, and by later runs.
"""

import itertools
import os
from pathlib import Path

from hypothesis import settings

# Before JAX is imported; processes that tests start inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Every core runs tests: threads of BLAS would wait for each other, busily.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

MAPS = Path("/proc/self/maps")
# Linux gives a process 65 530 memory maps; each compiled function takes a few, and one too many
# crashes it.
MANY_MAPS = 25_000
_tests = itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Thousands of tests in one process compile thousands of functions: let them go in time."""
    if next(_tests) % 20 == 0 and MAPS.exists():
        with MAPS.open("rb") as file:
            count = sum(1 for _ in file)
        if count > MANY_MAPS:
            import jax

            jax.clear_caches()
