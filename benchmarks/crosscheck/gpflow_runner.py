"""Solve a folder of problems with GPflow: python gpflow_runner.py PROBLEMS RESULTS."""

import json
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

STATIONARY = {
    "SE": gpflow.kernels.SquaredExponential,
    "Matern32": gpflow.kernels.Matern32,
    "Matern52": gpflow.kernels.Matern52,
}
MODELS = {"VFE": gpflow.models.SGPR, "FITC": gpflow.models.GPRFITC}


def kernel(p: dict[str, Any]) -> gpflow.kernels.Kernel:
    stationary, *linear = str(p["kernel"]).split("+")
    k = STATIONARY[stationary](variance=float(p["variance"]), lengthscales=p["lengthscales"])
    return k + gpflow.kernels.Linear(variance=float(p["linear_variance"])) if linear else k


def solve(p: dict[str, Any], jitter: float) -> dict[str, Any]:
    gpflow.config.set_default_jitter(jitter)
    noise = float(p["noise"])
    model = MODELS[str(p["model"])](
        (p["X"], p["y"][:, None]), kernel(p), inducing_variable=p["R"], noise_variance=noise
    )
    # Parameters pass through a softplus and back: make sure that nothing is lost on the way.
    if abs(model.likelihood.variance.numpy() / noise - 1.0) > 1e-13:
        raise ValueError("the noise variance was changed by its transformation")
    # For SGPR this is the ELBO, for GPRFITC the log marginal likelihood.
    bound = float(model.maximum_log_likelihood_objective())
    mean, var = model.predict_f(p["Xs"])
    # A failed factorisation raises in some versions of TensorFlow, and gives NaN in others.
    if not np.isfinite([bound, *np.ravel(mean), *np.ravel(var)]).all():
        raise FloatingPointError("K_RR could not be factorised")
    return {"bound": bound, "mean": np.ravel(mean), "var": np.ravel(var), "jitter": jitter}


def solve_with_least_jitter(p: dict[str, Any]) -> dict[str, Any]:
    """Start at the jitter asked for, and multiply by ten where K_RR cannot be factorised."""
    jitter = float(p["jitter"])
    while True:
        try:
            return solve(p, jitter)
        except (tf.errors.InvalidArgumentError, FloatingPointError):
            if jitter > 1e-3:
                raise
            jitter = max(10.0 * jitter, 1e-16)


def main(problems: Path, results: Path) -> None:
    versions = {
        "GPflow": gpflow.__version__,
        "TensorFlow": tf.__version__,
        "NumPy": np.__version__,
    }
    for path in sorted(problems.glob("*.npz")):
        with np.load(path) as p:
            answer = solve_with_least_jitter(dict(p))
        np.savez(results / path.name, versions=json.dumps(versions), **answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
