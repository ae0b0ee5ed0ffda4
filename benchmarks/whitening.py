"""Whiten before squaring or after? Errors against 60-digit arithmetic, for VFE.

A = L⁻¹ K Kᵀ L⁻ᵀ / σ² can be summed as
  squared first: KKᵀ over the data, L⁻¹ on both sides at the end (one product a batch);
  inverse:       W = (L⁻¹)K with an explicit inverse, then WWᵀ;
  substitution:  W = L⁻¹K by LAPACK's triangular solve, then WWᵀ;
  srgp:          W by blocked substitution with refinement (`srgp.linalg.substitute`).
All share K, L, and what follows. The error is the largest in the predictive mean, in predictive
standard deviations, and the relative one of the bound.

    python -m benchmarks.whitening
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import srgp
from benchmarks.common import seconds, write
from srgp import kernels as k
from srgp.linalg import substitute
from tests.reference import extended

N, M = 100, 10
Order = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def solve(L: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.asarray(scipy.linalg.solve_triangular(L, B, lower=True))


def squared_first(L: np.ndarray, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return solve(L, solve(L, K @ K.T).T), solve(L, K)


def inverse(L: np.ndarray, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    W = solve(L, np.eye(len(L))) @ K
    return W @ W.T, W


def substitution(L: np.ndarray, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    W = solve(L, K)
    return W @ W.T, W


def predict(
    order: Order, kernel: k.Kernel, data: tuple[np.ndarray, ...], noise: float
) -> tuple[float, np.ndarray]:
    """Bound and mean of VFE from one order of summation."""
    X, y, R, Xs = data
    L = np.linalg.cholesky(kernel(R))
    A, W = order(L, kernel(R, X))
    B = np.eye(len(R)) + A / noise
    C = np.linalg.cholesky(0.5 * (B + B.T))
    b = solve(C, W @ y / noise)
    mean = order(L, kernel(R, Xs))[1].T @ scipy.linalg.solve_triangular(C.T, b)
    fit = len(X) * np.log(2 * np.pi * noise) + 2 * np.log(np.diag(C)).sum() + y @ y / noise - b @ b
    return -0.5 * fit - 0.5 * (len(X) - np.trace(A)) / noise, mean


def errors(lengthscale: float, noise: float) -> dict[str, object]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (N, 1))
    y = np.sin(6 * X[:, 0]) + np.sqrt(noise) * rng.normal(size=N)
    R, Xs = np.linspace(0, 1, M)[:, None], np.linspace(-0.2, 1.2, 15)[:, None]
    kernel = k.SE(lengthscales=lengthscale)
    options = {"variance": 1.0, "lengthscales": lengthscale, "noise": noise}
    exact_bound = extended.log_bound("VFE", X, R, y, **options)
    exact_mean, exact_variance = extended.predict("VFE", X, R, y, Xs, **options)
    deviation = np.sqrt(exact_variance + 1e-300)

    model = srgp.Model(kernel, noise, R)
    s = srgp.summarise(model, X, y)
    found = {"srgp": (srgp.log_bound(model, s), srgp.posterior(model, s).predict(Xs)[0])}
    orders = {"squared first": squared_first, "inverse": inverse, "substitution": substitution}
    for name, order in orders.items():
        try:
            found[name] = predict(order, kernel, (X, y, R, Xs), noise)
        except np.linalg.LinAlgError:
            found[name] = (np.nan, np.full(len(Xs), np.nan))
    return {
        "lengthscale": lengthscale,
        "noise": noise,
        "condition_of_Krr": float(np.linalg.cond(kernel(R))),
        "mean": {
            n: float(np.max(np.abs(m - exact_mean[:, 0]) / deviation))
            for n, (_, m) in found.items()
        },
        "bound": {n: float(abs(b / exact_bound - 1)) for n, (b, _) in found.items()},
    }


def many_rows(rows: int, noise: float) -> dict[str, object]:
    """Both orders against the square-root filter, at a size where 60 digits cannot be had."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (rows, 1))
    y = np.sin(12 * X[:, 0]) + np.sqrt(noise) * rng.normal(size=rows)
    kernel = k.Matern32(lengthscales=0.3)
    model = srgp.Model(kernel, noise, np.linspace(0, 1.5, 12)[:, None])
    Xs = np.linspace(0, 1.5, 50)[:, None]
    mean, variance = srgp.Filter.start(model).update(X, y).predict(Xs)
    found = {
        "squared first": predict(squared_first, kernel, (X, y, model.inducing, Xs), noise)[1],
        "srgp": srgp.posterior(model, srgp.summarise(model, X, y)).predict(Xs)[0],
    }
    return {
        "N": rows,
        "noise": noise,
        "condition_of_Krr": float(np.linalg.cond(kernel(model.inducing))),
        "mean": {n: float(np.max(np.abs(m - mean) / np.sqrt(variance))) for n, m in found.items()},
    }


def cost(M: int = 500, B: int = 2048) -> dict[str, float]:
    """Seconds of each way to whiten, beside one product of the same size."""
    rng = np.random.default_rng(0)
    R, X = rng.uniform(0, 1, (M, 2)), rng.uniform(0, 1, (B, 2))
    kernel = k.SE(lengthscales=0.1)
    with jax.enable_x64(True):
        whiten = srgp.Model(kernel, 1.0, R).basis.whiten
        K = jnp.asarray(kernel(R, X))
        ways = {
            "product": jax.jit(lambda w, K: K @ K.T),
            "inverse": jax.jit(lambda w, K: w.inverse @ K),
            "srgp": jax.jit(lambda w, K: substitute(w.lower, w.leaves, K)),
            "lapack": jax.jit(
                lambda w, K: jax.scipy.linalg.solve_triangular(w.lower, K, lower=True)
            ),
        }
        return {
            name: seconds(lambda way=way: jax.block_until_ready(way(whiten, K)), repeats=25)
            for name, way in ways.items()
        }


def main() -> None:
    names = ("squared first", "inverse", "substitution", "srgp")
    print("            " + " " * 12 + "".join(f"{name:>28}" for name in names))
    print("cond(K_RR)      noise   " + "     mean / bound           " * 4)
    rows = []
    for lengthscale in (0.1, 0.2, 0.35, 0.5, 0.65):
        for noise in (1e-2, 1e-6):
            r = errors(lengthscale, noise)
            rows.append(r)
            mean, bound = r["mean"], r["bound"]
            assert isinstance(mean, dict)
            assert isinstance(bound, dict)
            cells = "".join(f"{mean[n]:16.1e} / {bound[n]:7.1e} " for n in names)
            print(f"{r['condition_of_Krr']:10.1e} {noise:10.0e}  {cells}", flush=True)
    many = [
        many_rows(n, noise) for n, noise in ((10_000, 1e-2), (1_000_000, 1e-2), (1_000_000, 1e-4))
    ]
    for r in many:
        print(r)
    times = cost()
    print("milliseconds:", {name: round(1e3 * t, 1) for name, t in times.items()})
    write("whitening", {"N": N, "M": M, "errors": rows, "many_rows": many, "cost": times})


if __name__ == "__main__":
    main()
