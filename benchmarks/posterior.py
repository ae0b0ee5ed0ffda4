"""One-pass posterior from arrays: rows per second, and the share of the machine's product rate.

Two products are needed: W = L⁻¹K and A = WWᵀ. `share` counts 2NM² flops for each, as a matrix
product does; `strict_share` counts only the triangular and the symmetric half, NM² each, for which
XLA has no routine of its own. The rate is measured right before and after each run; the larger one
counts.

    python -m benchmarks.posterior
"""

import json
import resource
import subprocess
import sys

import numpy as np

import srgp
from benchmarks.common import product_rate, seconds, write
from srgp import kernels as k

D = 8
N = 1_000_000


def problem(N: int, M: int, lengthscale: float) -> tuple[srgp.Model, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (N, D))
    y = np.sin(X.sum(1)) + 0.1 * rng.normal(size=N)
    kernel = k.SE(lengthscales=np.full(D, lengthscale))
    return srgp.Model(kernel, 0.01, rng.uniform(0, 1, (M, D))), X, y


def speed(M: int, lengthscale: float) -> dict[str, float]:
    model, X, y = problem(N, M, lengthscale)

    def run() -> None:
        srgp.posterior(model, srgp.summarise(model, X, y))

    before = product_rate(M)
    time = seconds(run, repeats=3)
    rate = max(before, product_rate(M))
    return {
        "M": M,
        "lengthscale": lengthscale,
        "condition_of_Krr": float(np.linalg.cond(model.kernel(model.inducing))),
        "seconds": time,
        "rows_per_second": N / time,
        "product_gflops": rate / 1e9,
        "share": 4 * N * M**2 / time / rate,
        "strict_share": 2 * N * M**2 / time / rate,
    }


def memory(N: int, M: int) -> dict[str, float]:
    """Growth of the peak resident memory while summarising, beyond the data themselves."""
    model, X, y = problem(N, M, 0.5)
    warm = srgp.summarise(model, X[:5000], y[:5000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = srgp.summarise(model, X, y)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum(np.asarray(part).nbytes for part in state.sums)
    assert size == sum(np.asarray(part).nbytes for part in warm.sums)
    return {"N": N, "M": M, "growth_MB": (after - before) / 1024, "state_MB": size / 1e6}


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
    peaks = []
    for size in (100_000, 1_000_000, 4_000_000):
        command = [sys.executable, "-m", "benchmarks.posterior", str(size), "500"]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peaks.append(json.loads(out))
        print(
            f"N = {size}: peak memory grew by {peaks[-1]['growth_MB']:.1f} MB, "
            f"state {peaks[-1]['state_MB']:.1f} MB"
        )
    write("posterior", {"N": N, "D": D, "speed": rows, "memory": peaks})


if __name__ == "__main__":
    main()
