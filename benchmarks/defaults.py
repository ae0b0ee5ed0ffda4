"""SparseGPRegressor() as it comes, beside settings that someone tuned: errors, coverage, seconds.

python -m benchmarks.defaults [--data FOLDER]

Seconds are those of the whole `fit`, compilation included. The others are a longer search and other
kernels with the same number of inducing inputs, and three times as many inducing inputs.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import srgp
from benchmarks.common import write
from benchmarks.problems import Problem, synthetic, table
from srgp.metrics import scores

TUNED: dict[str, dict[str, Any]] = {
    "Exact(200)": {"learner": srgp.Exact(iterations=200)},
    "Matérn 3/2": {"kernel": "matern32"},
    "Matérn 5/2": {"kernel": "matern52"},
}
LARGER = {"n_inducing": 300}


def real(name: str, folder: Path) -> Problem:
    """A tenth of the rows, at most 20 000, to judge by; at most 100 000 to learn from."""
    X, y = table(name, folder)
    order = np.random.default_rng(0).permutation(len(X))
    test, train = np.split(order, [min(len(X) // 10, 20_000)])
    train = train[:100_000]
    return {"X": X[train], "y": y[train], "Xtest": X[test], "ytest": y[test]}


def judge(problem: Problem, settings: dict[str, Any]) -> dict[str, float]:
    start = time.perf_counter()
    est = srgp.SparseGPRegressor(**settings).fit(problem["X"], problem["y"])
    seconds = time.perf_counter() - start
    mean, deviation = est.predict(problem["Xtest"], return_std=True)
    found = scores(problem["ytest"], mean, deviation**2)
    return {
        "rmse": float(found.rmse),
        "nlpd": float(found.nlpd),
        "coverage": float(found.coverage),
        "bound": float(est.bound_),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of powerplant, protein_raw, airline")
    folder = parser.parse_args().data
    problems: dict[str, Any] = {}
    if folder is not None:
        for name in ("powerplant", "protein_raw", "airline"):
            problems[name] = (real, name, folder)
    problems |= {f"synthetic, D = {D}": (synthetic, D) for D in (1, 2, 5)}
    results = {}
    for name, (make, *arguments) in problems.items():
        problem = make(*arguments)
        runs = {"default": judge(problem, {})}
        for label, settings in (*TUNED.items(), ("M = 300", LARGER)):
            runs[label] = judge(problem, settings)
        results[name] = {"N": len(problem["X"]), "runs": runs}
        for label, run in runs.items():
            print(
                f"{name:18s} {label:12s} RMSE {run['rmse']:.4f}  NLPD {run['nlpd']:.4f}  "
                f"coverage {run['coverage']:.3f}  {run['seconds']:.1f} s",
                flush=True,
            )
        write("defaults", {"sets": results})  # as far as it has come


if __name__ == "__main__":
    main()
