"""Solve a folder of problems with scikit-learn: python sklearn_runner.py PROBLEMS RESULTS."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Kernel, Matern


def stationary(name: str, lengthscales: np.ndarray) -> Kernel:
    if name == "SE":
        return RBF(lengthscales, "fixed")
    return Matern(lengthscales, "fixed", nu={"Matern32": 1.5, "Matern52": 2.5}[name])


def kernel(p: dict[str, Any]) -> Kernel:
    name, *linear = str(p["kernel"]).split("+")
    k = ConstantKernel(float(p["variance"]), "fixed") * stationary(name, p["lengthscales"])
    if not linear:
        return k
    # DotProduct carries a bias of its own, which is switched off here.
    return k + ConstantKernel(float(p["linear_variance"]), "fixed") * DotProduct(0.0, "fixed")


def solve(p: dict[str, Any]) -> dict[str, Any]:
    # alpha is what goes on the diagonal: the noise, and no jitter beside it.
    gp = GaussianProcessRegressor(kernel(p), alpha=float(p["noise"]), optimizer=None)
    gp.fit(p["X"], p["y"])
    mean, std = gp.predict(p["Xs"], return_std=True)
    bound = gp.log_marginal_likelihood_value_
    return {"bound": bound, "mean": mean, "var": std**2, "jitter": 0.0}


def main(problems: Path, results: Path) -> None:
    versions = {"scikit-learn": sklearn.__version__, "NumPy": np.__version__}
    for path in sorted(problems.glob("*.npz")):
        with np.load(path) as p:
            answer = solve(dict(p))
        np.savez(results / path.name, versions=json.dumps(versions), **answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
