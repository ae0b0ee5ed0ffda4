"""Data to learn from: the paper's synthetic GPs, and real tables read from a folder.

A problem holds X, y, Xtest, ytest, and the start that every method gets: R, variance, lengthscales
and noise (a variance).
"""

from pathlib import Path
from typing import TypeAlias

import numpy as np

import srgp

Problem: TypeAlias = dict[str, np.ndarray]

# Lengthscale and number of inducing inputs in D dimensions, as in the paper's simulation.
PAPER = {1: (0.1, 20), 2: (0.2, 50), 5: (0.5, 100)}
FEATURES = 5000


def synthetic(D: int, N: int = 100_000, test: int = 10_000, seed: int = 0) -> Problem:
    """A draw of a GP with SE kernel (σ0 = 1, σn = 0.1) on [−1, 1]^D; everything starts at 1.

    The function is a sum of 5000 random Fourier features: its covariance differs from the kernel's
    by about 1/√5000, and the data are exact given the function.
    """
    rng = np.random.default_rng(seed)
    lengthscale, M = PAPER[D]
    X = rng.uniform(-1.0, 1.0, (N + test, D))
    frequencies = rng.normal(size=(FEATURES, D)) / lengthscale
    phases, weights = rng.uniform(0.0, 2.0 * np.pi, FEATURES), rng.normal(size=FEATURES)
    f = np.concatenate(
        [np.cos(X[i : i + 5000] @ frequencies.T + phases) @ weights for i in range(0, len(X), 5000)]
    )
    y = np.sqrt(2.0 / FEATURES) * f + 0.1 * rng.normal(size=len(X))
    return {
        "X": X[:N],
        "y": y[:N],
        "Xtest": X[N:],
        "ytest": y[N:],
        "R": X[rng.permutation(N)[:M]],
        "variance": np.ones(()),
        "lengthscales": np.ones(D),
        "noise": np.ones(()),
    }


def toy(seed: int = 0) -> Problem:
    """One input, 1000 rows, 15 equidistant inducing inputs."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (2000, 1))
    frequencies, phases = rng.normal(size=(500, 1)) / 0.25, rng.uniform(0.0, 2.0 * np.pi, 500)
    f = np.sqrt(2.0 / 500) * np.cos(X @ frequencies.T + phases) @ rng.normal(size=500)
    y = f + 0.1 * rng.normal(size=2000)
    return {
        "X": X[:1000],
        "y": y[:1000],
        "Xtest": X[1000:],
        "ytest": y[1000:],
        "R": np.linspace(-1.0, 1.0, 15)[:, None],
        "variance": np.ones(()),
        "lengthscales": np.ones(1),
        "noise": np.ones(()),
    }


def real(name: str, folder: Path, M: int, seed: int = 0) -> Problem:
    """A table, standardised; R and the start come from a sample, the same for every method."""
    X, y = table(name, folder)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    test = order[: max(len(X) // 10, 1)] if name != "airline" else order[:50_000]
    train = order[len(test) :] if name != "airline" else order[50_000:1_050_000]
    centre, spread = X[train].mean(0), X[train].std(0)
    X = (X - centre) / np.where(spread > 0.0, spread, 1.0)
    y = (y - y[train].mean()) / y[train].std()
    sample = train[:5000]
    kernel, noise = srgp.inducing.starting_values(X[sample], y[sample])
    return {
        "X": X[train],
        "y": y[train],
        "Xtest": X[test],
        "ytest": y[test],
        "R": srgp.inducing.kmeans(X[sample], M, seed),
        "variance": np.asarray(kernel.variance),
        "lengthscales": np.asarray(kernel.lengthscales),
        "noise": np.asarray(noise),
    }


def start(problem: Problem) -> srgp.Model:
    """The model from which every method starts."""
    kernel = srgp.kernels.SE(problem["variance"], problem["lengthscales"])
    return srgp.Model(kernel, problem["noise"], problem["R"])


def table(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and target of a real data set, as they are."""
    if name == "airline":
        import pyarrow.parquet as pq

        flights = pq.read_table(next((folder / name).glob("*.parquet")))
        columns = [c for c in flights.column_names if c != "ArrDelay"]
        X = np.stack([np.asarray(flights[c], dtype=np.float64) for c in columns], 1)
        return X, np.asarray(flights["ArrDelay"], dtype=np.float64)
    with np.load(folder / name / f"{name}.npz") as f:
        return np.asarray(f["X"], dtype=np.float64), np.asarray(f["y"], dtype=np.float64).ravel()
