"""Single-sample updates: through Python, inside one compiled loop, and in plain NumPy; and drift.

NumPy does the same job in the plain covariance form: kernel vector, triangular solve, rank-1
update of mean and covariance, log density. `numpy_update_us` is its rank-1 update alone.

    python -m benchmarks.filter
"""

import time
from typing import Any

import jax
import numpy as np
import scipy.linalg

import srgp
from benchmarks.common import write
from srgp import kernels as k

D, STEPS, REPEATS = 4, 1000, 15
NOISE = 0.1


def problem(M: int) -> tuple[srgp.Model, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (STEPS, D))
    model = srgp.Model(k.SE(lengthscales=np.ones(D)), NOISE, rng.uniform(-2, 2, (M, D)))
    return model, X, np.sin(X[:, 0])


def through_python(f: srgp.Filter, X: np.ndarray, y: np.ndarray) -> srgp.Filter:
    for x_i, y_i in zip(X, y, strict=True):
        f = f.update(x_i, y_i)
    jax.block_until_ready(f.state)
    return f


def compiled(f: srgp.Filter, X: np.ndarray, y: np.ndarray) -> srgp.Filter:
    f = f.update(X, y)
    jax.block_until_ready(f.state)
    return f


def plain_numpy(R: np.ndarray, L: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    mean, P, bound, update_time = np.zeros(len(R)), np.eye(len(R)), 0.0, 0.0
    for x_i, y_i in zip(X, y, strict=True):
        difference = R - x_i
        kx = np.exp(-0.5 * np.sum(difference * difference, 1))
        h = scipy.linalg.solve_triangular(L, kx, lower=True, check_finite=False)
        start = time.perf_counter()
        Ph = P @ h
        s = h @ Ph + NOISE
        r = y_i - h @ mean
        mean = mean + Ph * (r / s)
        P = P - np.outer(Ph, Ph / s)
        update_time += time.perf_counter() - start
        bound += -0.5 * (np.log(2 * np.pi * s) + r * r / s) - 0.5 * (1.0 - h @ h) / NOISE
    return mean, P, bound, update_time


def microseconds(M: int) -> dict[str, Any]:
    model, X, y = problem(M)
    start = srgp.Filter.start(model)
    R, L = model.inducing, np.linalg.cholesky(model.kernel(model.inducing))
    # The three take turns, so that a busy moment of the machine hits all of them alike.
    times: dict[str, list[float]] = {"python": [], "compiled": [], "numpy": [], "numpy_update": []}
    for repeat in range(REPEATS + 1):
        a = time.perf_counter()
        f = through_python(start, X, y)
        b = time.perf_counter()
        g = compiled(start, X, y)
        c = time.perf_counter()
        *_, bound, update_time = plain_numpy(R, L, X, y)
        d = time.perf_counter()
        assert np.allclose([f.log_bound, g.log_bound], bound, rtol=1e-8)
        if repeat:  # the first round compiles
            found = (b - a, c - b, d - c, update_time)
            for name, value in zip(times, found, strict=True):
                times[name].append(1e6 * value / STEPS)
    medians = {f"{name}_us": float(np.median(values)) for name, values in times.items()}
    return {
        "M": M,
        **medians,
        # Slowest and fastest round: how far a single ratio can be trusted on this machine.
        "python_vs_numpy_rounds": sorted(
            n / p for n, p in zip(times["numpy"], times["python"], strict=True)
        )[:: REPEATS - 1],
        "python_vs_numpy": medians["numpy_us"] / medians["python_us"],
        "compiled_vs_numpy": medians["numpy_us"] / medians["compiled_us"],
    }


def drift(N: int, noise: float, calls: str) -> dict[str, Any]:
    """N single updates against the batch answer, with part of the input space never visited.

    calls: "one" for all of them, which runs in compiled code; or "each" a call of its own.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (N, 1))
    y = np.sin(12 * X[:, 0]) + np.sqrt(noise) * rng.normal(size=N)
    model = srgp.Model(k.Matern32(lengthscales=0.3), noise, np.linspace(0, 1.5, 12)[:, None])
    learn = {"one": compiled, "each": through_python}[calls]
    f = learn(srgp.Filter.start(model), X, y)
    s = srgp.summarise(model, X, y)
    grid = np.linspace(0, 1.5, 50)[:, None]
    mean, variance = f.predict(grid)
    batch_mean, batch_variance = srgp.posterior(model, s).predict(grid)
    return {
        "N": N,
        "noise": noise,
        "calls": calls,
        "bound": abs(f.log_bound / srgp.log_bound(model, s) - 1),
        "variance": float(np.max(np.abs(variance / batch_variance - 1))),
        "mean_in_deviations": float(np.max(np.abs(mean - batch_mean) / np.sqrt(batch_variance))),
        "smallest_eigenvalue": float(np.linalg.eigvalsh(f.posterior.covariance(model.inducing))[0]),
    }


def main() -> None:
    speeds = []
    print(
        "   M   python µs  compiled µs  NumPy µs  (its update alone)   NumPy/python NumPy/compiled"
    )
    for M in (15, 100, 300):
        r = microseconds(M)
        speeds.append(r)
        print(
            f"{M:4d} {r['python_us']:11.1f} {r['compiled_us']:12.1f} {r['numpy_us']:9.1f} "
            f"{r['numpy_update_us']:15.1f} {r['python_vs_numpy']:18.1f} "
            f"{r['compiled_vs_numpy']:14.1f}",
            flush=True,
        )
    drifts = []
    print("\n      N    noise calls   bound   variance   mean/deviation   smallest eigenvalue")
    cases = ((10_000, 1e-4, "one"), (1_000_000, 1e-4, "one"), (1_000_000, 1e-8, "one"))
    for N, noise, calls in (*cases, (1_000_000, 1e-4, "each")):
        r = drift(N, noise, calls)
        drifts.append(r)
        print(
            f"{N:8d} {noise:7.0e} {calls:5s} {r['bound']:8.1e} {r['variance']:8.1e} "
            f"{r['mean_in_deviations']:14.1e} {r['smallest_eigenvalue']:18.1e}",
            flush=True,
        )
    write("filter", {"D": D, "speed": speeds, "drift": drifts})


if __name__ == "__main__":
    main()
