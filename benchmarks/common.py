"""What the benchmarks share: the machine, its matrix-product rate, timing, results files."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from srgp.experiments.results import machine as machine  # for all benchmarks

RESULTS = Path(__file__).parent / "results"


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Median wall time, after one call that compiles and warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def product_rate(M: int, B: int = 4096) -> float:
    """Flops per second of a float64 product (M, B) × (B, M), as XLA runs it on this machine."""
    with jax.enable_x64(True):
        K = jnp.asarray(np.random.default_rng(0).normal(size=(M, B)))
        product = jax.jit(lambda K: K @ K.T)

        def run() -> None:
            jax.block_until_ready([product(K) for _ in range(8)])

        return 8 * 2 * M * M * B / seconds(run, repeats=3)


def write(name: str, content: dict[str, Any]) -> None:
    """Write benchmarks/results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **content}, indent=2) + "\n")
    print(f"written: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
