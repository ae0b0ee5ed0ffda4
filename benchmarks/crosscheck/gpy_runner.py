"""Solve a folder of problems with GPy: python gpy_runner.py PROBLEMS RESULTS."""

import json
import sys
from pathlib import Path
from typing import Any

import GPy
import numpy as np
from GPy.inference.latent_function_inference import FITC, PEP, VarDTC

STATIONARY = {"SE": GPy.kern.RBF, "Matern32": GPy.kern.Matern32, "Matern52": GPy.kern.Matern52}


def kernel(p: dict[str, Any]) -> GPy.kern.Kern:
    D = p["X"].shape[1]
    stationary, *linear = str(p["kernel"]).split("+")
    k = STATIONARY[stationary](D, float(p["variance"]), p["lengthscales"], ARD=True)
    return k + GPy.kern.Linear(D, variances=float(p["linear_variance"])) if linear else k


def inference(p: dict[str, Any], jitter: float) -> VarDTC | FITC | PEP:
    model = str(p["model"])
    method = PEP(float(p["alpha"])) if model == "PEP" else {"VFE": VarDTC, "FITC": FITC}[model]()
    method.const_jitter = jitter
    return method


def solve(p: dict[str, Any], jitter: float) -> dict[str, Any]:
    # GPy would add 1e-6 of the mean diagonal in silence; without tries the same routine raises.
    K = np.asarray(kernel(p).K(p["R"]))
    GPy.util.linalg.jitchol(K + jitter * np.eye(len(K)), maxtries=0)
    model = GPy.core.SparseGP(
        p["X"],
        p["y"][:, None],
        p["R"],
        kernel(p),
        GPy.likelihoods.Gaussian(variance=float(p["noise"])),
        inference_method=inference(p, jitter),
    )
    mean, var = model.predict_noiseless(p["Xs"])
    bound = float(np.squeeze(model.log_likelihood()))
    return {"bound": bound, "mean": np.ravel(mean), "var": np.ravel(var), "jitter": jitter}


def solve_with_least_jitter(p: dict[str, Any]) -> dict[str, Any]:
    """Start at the jitter asked for, and multiply by ten where K_RR cannot be factorised."""
    jitter = float(p["jitter"])
    while True:
        try:
            return solve(p, jitter)
        except np.linalg.LinAlgError:
            if jitter > 1e-3:
                raise
            jitter = max(10.0 * jitter, 1e-16)


def main(problems: Path, results: Path) -> None:
    versions = {"GPy": GPy.__version__, "NumPy": np.__version__}
    for path in sorted(problems.glob("*.npz")):
        with np.load(path) as p:
            answer = solve_with_least_jitter(dict(p))
        np.savez(results / path.name, versions=json.dumps(versions), **answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
