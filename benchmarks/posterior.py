"""One-pass posterior from arrays: rows per second, and the share of the machine's product rate.

Two products are needed: W = L⁻¹K and A = WWᵀ. `share` counts 2NM² flops for each, as a matrix
product does; `strict_share` counts only the triangular and the symmetric half, NM² each, for which
XLA has no routine of its own; `profile` says what keeps it from more. The million rows are taken in
four parts, five times over, and the product rate is measured before and after each part; the median
share of the parts counts, and their quartiles say how far the machine's mood goes.

    python -m benchmarks.posterior
"""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_limits

import srgp
from benchmarks.common import product_rate, seconds, write
from srgp import kernels as k
from srgp.blas import Triangle, add_gram
from srgp.kernels.stationary import distances

D = 8
N = 1_000_000
PARTS = 4
PASSES = 5


def problem(N: int, M: int, lengthscale: float) -> tuple[srgp.Model, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (N, D))
    y = np.sin(X.sum(1)) + 0.1 * rng.normal(size=N)
    kernel = k.SE(lengthscales=np.full(D, lengthscale))
    return srgp.Model(kernel, 0.01, rng.uniform(0, 1, (M, D))), X, y


def speed(M: int, lengthscale: float) -> dict[str, float]:
    """The pass in parts, each beside the product rate of its moment, so that the mood cancels."""
    model, X, y = problem(N, M, lengthscale)
    srgp.posterior(model, srgp.summarise(model, X[:20_000], y[:20_000]))  # compiles
    flops = 4 * (N // PARTS) * M**2
    rates, times, passes = [product_rate(M)], [], []
    for _ in range(PASSES):
        total = None
        for part in np.array_split(np.arange(N), PARTS):
            rows = slice(part[0], part[-1] + 1)
            start = time.perf_counter()
            s = srgp.summarise(model, X[rows], y[rows])
            total = s if total is None else total + s
            times.append(time.perf_counter() - start)
            rates.append(product_rate(M))
        start = time.perf_counter()
        srgp.posterior(model, total)
        passes.append(sum(times[-PARTS:]) + time.perf_counter() - start)
    seconds = float(np.median(passes))
    shares = [2 * flops / t / (rates[i] + rates[i + 1]) for i, t in enumerate(times)]
    low, middle, high = np.quantile(shares, (0.25, 0.5, 0.75))
    return {
        "M": M,
        "lengthscale": lengthscale,
        "condition_of_Krr": float(np.linalg.cond(model.kernel(model.inducing))),
        "seconds": seconds,
        "rows_per_second": N / seconds,
        "product_gflops": float(np.median(rates)) / 1e9,
        "share": middle,
        "strict_share": middle / 2,
        "strict_share_quartiles": [low / 2, high / 2],
    }


def profile(M: int) -> dict[str, float]:
    """One core, one block: the share of each part of the pass, and of the product rate in each.

    `ceiling` is the strict share that the two BLAS routines alone would reach, were all else free.
    """
    model, X, _ = problem(2048, M, 0.5)
    lower = Triangle(np.asarray(model.basis.whiten.lower))
    profile = jax.jit(lambda kernel, r2: kernel.at_distance(r2))

    def kernel(basis: Any, X: np.ndarray) -> Any:
        return profile(basis.kernel, distances(basis.kernel, basis.inducing, X))

    def by_halves(K: np.ndarray) -> None:
        """What processors get for which BLAS has no good substitution of its own."""
        for step in lower._halves:
            step(lower._lower, K, False)

    total, flops = np.zeros((M, M)), len(X) * M**2
    with jax.enable_x64(True), threadpool_limits(1):
        K = np.asarray(kernel(model.basis, X))
        # XLA spreads a kernel matrix over all cores; the pass keeps them all busy at once.
        evaluate = len(os.sched_getaffinity(0)) * seconds(
            lambda: jax.block_until_ready(kernel(model.basis, X)), 15
        )
        copy = seconds(lambda: K.copy(), 15)
        solve = seconds(lambda: lower.solve(K.copy()), 15) - copy
        halves = seconds(lambda: by_halves(K.copy()), 15) - copy
        square = seconds(lambda: add_gram(K, total), 15)
        product = 2 * flops / seconds(lambda: total @ K, 15)
    parts = {"kernel": evaluate, "solve": solve, "square": square}
    return {
        "M": M,
        **{name: value / sum(parts.values()) for name, value in parts.items()},
        "solve_of_product_rate": flops / solve / product,
        "halves_of_product_rate": flops / halves / product,
        "square_of_product_rate": flops / square / product,
        "ceiling": 2 * flops / (solve + square) / product,
    }


def resident() -> float:
    """Resident memory of this process, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def memory(N: int, M: int) -> dict[str, float]:
    """Growth of the resident memory while summarising, beyond the data, and size of the state."""
    model, X, y = problem(N, M, 0.5)
    srgp.summarise(model, X[:20_000], y[:20_000])
    peak = start = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    state = srgp.summarise(model, X, y)
    done.set()
    watcher.join()
    size = sum(np.asarray(part).nbytes for part in state.sums)
    return {"N": N, "M": M, "growth_MB": peak - start, "state_MB": size / 1e6}


def main() -> None:
    if len(sys.argv) > 1:  # a process of its own, so that the peak is its own
        print(json.dumps(memory(int(sys.argv[1]), int(sys.argv[2]))))
        return
    rows = []
    print("   M   lengthscale  cond(K_RR)     rows/s  share  strict  product GFlop/s")
    for M in (100, 500):
        for lengthscale in (0.5, 2.0):
            r = speed(M, lengthscale)
            rows.append(r)
            print(
                f"{M:4d} {lengthscale:12.1f} {r['condition_of_Krr']:12.1e} "
                f"{r['rows_per_second']:10.0f} {r['share']:6.2f} {r['strict_share']:6.2f} "
                f"{r['product_gflops']:10.0f}",
                flush=True,
            )
    found = profile(500)
    print(", ".join(f"{name} {value:.0%}" for name, value in found.items() if name != "M"))
    peaks = []
    for size in (100_000, 1_000_000, 4_000_000):
        command = [sys.executable, "-m", "benchmarks.posterior", str(size), "500"]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peaks.append(json.loads(out))
        print(
            f"N = {size}: memory grew by {peaks[-1]['growth_MB']:.1f} MB, "
            f"state {peaks[-1]['state_MB']:.1f} MB"
        )
    write("posterior", {"N": N, "D": D, "speed": rows, "profile": found, "memory": peaks})


if __name__ == "__main__":
    main()
