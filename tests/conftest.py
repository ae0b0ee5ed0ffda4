"""Property tests draw the same examples on every run; what was compiled once is compiled for all.

The compiled code is shared by the processes that run the tests, and by later runs.
"""

import os
from pathlib import Path

from hypothesis import settings

# Before JAX is imported; processes that tests start inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
