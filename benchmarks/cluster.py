"""One worker against two, and what a cluster of many would do: a cost model fitted to measurements.

python -m benchmarks.cluster

N = 10⁶, D = 8, M = 200, in parts that the workers hold in memory. Workers are processes of one
thread, each held to a core of its own: left alone, one worker's kernel matrices would be made on
the other core while it waits. Beside the speed-up that of plain matrix products in the same
workers, which is what the machine gives (its cores may be shared, or slower together). What a task,
a level of the reduction and a byte cost comes from reductions without work; the prediction for more
workers and rows follows from these and one worker's speed.
"""

import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import srgp
from benchmarks.common import write
from srgp.distributed import Partitions, local_cluster, summarise
from srgp.distributed.partitions import FAN_IN

N, M, D = 1_000_000, 200, 8
PARTS = 8
TURNS, REPEATS = 5, 2


def model(M: int = M) -> srgp.Model:
    rng = np.random.default_rng(0)
    return srgp.Model(srgp.kernels.SE(1.0, np.ones(D)), 0.1, rng.uniform(-1, 1, (M, D)))


def made(seed: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (rows, D))
    return X, np.sin(3.0 * X.sum(1)) + 0.1 * rng.normal(size=rows)


def data(client: Any, rows: int = N, parts: int = PARTS) -> Partitions:
    import dask

    return Partitions(
        [dask.delayed(made)(i, rows // parts) for i in range(parts)], client
    ).persist()


def hold(cores: dict[str, int], dask_worker: Any) -> None:
    """All threads of a worker to its core; those to come inherit it."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {cores[dask_worker.address]})


def held(client: Any) -> Any:
    """The client, once each of its workers has a core."""
    workers = sorted(client.scheduler_info()["workers"])
    cores = sorted(os.sched_getaffinity(0))
    client.run(hold, {address: cores[i % len(cores)] for i, address in enumerate(workers)})
    return client


def seconds(run: Callable[[], Any]) -> float:
    run()  # compiles
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def products(source: Any, size: int) -> np.ndarray:
    """Work that needs nothing but the core, about as long as the others."""
    A = np.ones((size, size))
    for _ in range(8):
        A @ A
    return np.zeros(1)


def nothing(source: Any, size: int) -> np.ndarray:
    return np.zeros((size, size))


def measured() -> list[dict[str, float]]:
    """Seconds of one worker and of two, which take turns: a slow moment hits both alike.

    Each turn has a cluster of its own, for idle workers want some of the cores as well.
    """
    at, times = model(), {}
    jobs = {
        "summarise": lambda rows: summarise(at, rows),
        "gradient": lambda rows: srgp.value_and_grad(at, rows),
        "products": lambda rows: rows.reduce(products, 1500),
    }
    for _ in range(TURNS):
        for workers in (1, 2):
            with local_cluster(workers) as client:
                rows = data(held(client))
                for repeat in range(REPEATS + 1):
                    for job, run in jobs.items():
                        start = time.perf_counter()
                        run(rows)
                        if repeat:  # the first compiles
                            times.setdefault((workers, job), []).append(time.perf_counter() - start)
    return [
        {"workers": w, **{job: statistics.median(times[w, job]) for job in jobs}} for w in (1, 2)
    ]


def overheads() -> dict[str, float]:
    """Seconds a task, a level of the tree, and a byte of a sum, from reductions of zeros."""
    rows, targets = [], []
    with local_cluster(2) as client:
        for parts in (2, 8, 64, 256):
            few = data(client, parts * 10, parts)
            for size in (1, 500, 1000):
                took = seconds(lambda few=few, size=size: few.reduce(nothing, size))
                levels = math.ceil(math.log(parts, FAN_IN)) if parts > 1 else 0
                rows.append([1.0, parts, levels, parts * 8.0 * size**2])
                targets.append(took)
    # Relative errors count, and no cost is negative.
    from scipy.optimize import nnls

    A, t = np.array(rows), np.array(targets)
    fitted, _ = nnls(A / t[:, None], np.ones(len(t)))
    error = float(np.median(np.abs(A @ fitted / t - 1.0)))
    names = ("call", "task", "level", "byte")
    return {**dict(zip(names, fitted.tolist(), strict=True)), "median_relative_error": error}


def predicted(
    cost: dict[str, float], per_row: float, rows: float, workers: int, parts: int | None = None
) -> dict[str, Any]:
    """One value and gradient: two maps over parts, two reductions of M×M sums.

    parts: of a million rows by default, or one for each worker where that is more.
    """
    parts = parts or max(int(rows // N), workers)
    levels = math.ceil(math.log(parts, FAN_IN))
    compute = per_row * rows / workers
    scheduling = 2 * (cost["call"] + cost["task"] * parts)
    # Levels of the tree are one after the other; within a level, workers send at the same time. θ,
    # with the factor of K_RR, its inverse and the adjoint of the sums, is handed on by those who
    # have it.
    sums, shared, hands = 8.0 * M**2, 3 * 8.0 * M**2, math.ceil(math.log2(workers))
    collecting = levels * (cost["level"] + FAN_IN * sums * cost["byte"])
    network = 2 * (collecting + hands * shared * cost["byte"])
    total = compute + scheduling + network
    return {
        "workers": workers,
        "rows": rows,
        "seconds": total,
        "computing": compute / total,
        "scheduling": scheduling / total,
        "reduction": network / total,
        "moved_MB": 2e-6 * (parts * sums + workers * shared),
    }


def main() -> None:
    found = measured()
    one, two = found
    gains = {job: one[job] / two[job] for job in one if job != "workers"}
    print(found, gains, flush=True)
    cost = overheads()
    print(cost, flush=True)
    per_row = one["gradient"] / N
    ahead = [
        predicted(cost, per_row, rows, workers)
        for rows in (1e7, 1e9)
        for workers in (1, 2, 16, 64, 256)
    ]
    check = predicted(cost, per_row, N, 2, PARTS)["seconds"] / two["gradient"]
    for each in ahead:
        print(each)
    print(f"the model's time for two workers is {check:.2f} of the measured one")
    content = {
        "N": N,
        "M": M,
        "D": D,
        "parts": PARTS,
        "measured": found,
        "gains": gains,
        "cost": cost,
    }
    write("cluster", {**content, "predicted": ahead, "model_over_measured": check})


if __name__ == "__main__":
    main()
