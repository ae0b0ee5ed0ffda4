"""SparseGPRegressor() as it comes, beside settings that someone tuned: errors, coverage, seconds.

python -m benchmarks.defaults [--data FOLDER] [--untuned]

Seconds are those of the whole `fit`, compilation included. The others are a longer search and other
kernels with the same number of inducing inputs, and three times as many inducing inputs. Before
them, the first fit of a new process, of 500 rows, with nothing kept from earlier ones.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import srgp
from benchmarks.common import RESULTS, machine, write
from benchmarks.problems import Problem, synthetic, table
from srgp.metrics import scores

TUNED: dict[str, dict[str, Any]] = {
    "Exact(200)": {"learner": srgp.Exact(iterations=200)},
    "Matérn 3/2": {"kernel": "matern32"},
    "Matérn 5/2": {"kernel": "matern52"},
}
LARGER = {"n_inducing": 300}

FIRST = """
import json, time
begin = time.perf_counter()
import numpy as np
from srgp import SparseGPRegressor
imported = time.perf_counter()
import jax
compiling = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **rest: compiling.append(seconds * event.startswith("/jax/core/compile"))
)
rng = np.random.default_rng(0)
X = rng.uniform(size=(500, 2))
y = np.sin(6.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=500)
est = SparseGPRegressor().fit(X, y)
fitted = time.perf_counter()
est.predict(X[:10], return_std=True)
end = time.perf_counter()
print(json.dumps({
    "import": imported - begin,
    "fit": fitted - imported,
    "predict": end - fitted,
    "compiling": sum(compiling),  # of fit and predict
}))
"""


def first_fits(count: int = 5) -> list[dict[str, float]]:
    """Seconds of import, a small fit and a prediction, each time in a new process."""
    plain = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    with tempfile.TemporaryDirectory() as nothing:
        plain["XDG_CACHE_HOME"] = nothing
        command = [sys.executable, "-c", FIRST]
        runs = [
            subprocess.run(command, env=plain, capture_output=True, text=True, check=True)
            for _ in range(count)
        ]
    return [json.loads(run.stdout) for run in runs]


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
    parser.add_argument(
        "--untuned", action="store_true", help="the defaults alone; the others' results stay"
    )
    chosen = parser.parse_args()
    folder = chosen.data
    before = json.loads((RESULTS / "defaults.json").read_text()) if chosen.untuned else None
    known = before["sets"] if before else {}
    # Where and when the others were run.
    others = before.get("others", before["machine"]) if before else machine()
    problems: dict[str, Any] = {}
    if folder is not None:
        for name in ("powerplant", "protein_raw", "airline"):
            problems[name] = (real, name, folder)
    problems |= {f"synthetic, D = {D}": (synthetic, D) for D in (1, 2, 5)}
    first, results = first_fits(), {}
    print(first, flush=True)
    for name, (make, *arguments) in problems.items():
        problem = make(*arguments)
        runs = {"default": judge(problem, {})}
        if chosen.untuned:
            runs = {**known.get(name, {"runs": {}})["runs"], **runs}
        else:
            tuned = {**TUNED, "M = 300": LARGER}
            runs |= {label: judge(problem, settings) for label, settings in tuned.items()}
        results[name] = {"N": len(problem["X"]), "runs": runs}
        for label, run in runs.items():
            print(
                f"{name:18s} {label:12s} RMSE {run['rmse']:.4f}  NLPD {run['nlpd']:.4f}  "
                f"coverage {run['coverage']:.3f}  {run['seconds']:.1f} s",
                flush=True,
            )
        # As far as it has come.
        write("defaults", {"others": others, "first": first, "sets": {**known, **results}})


if __name__ == "__main__":
    main()
