"""GPflow's SGPR, fitted again every 100 samples: python gpflow_stream.py INPUT OUTPUT."""

import sys
import time
from typing import Any

import gpflow
import numpy as np

EVERY = 100
ITERATIONS = 10


def main(source: str, target: str) -> None:
    p = dict(np.load(source))
    X, y, first = p["X"], p["y"][:, None], int(p["first"])
    kernel = gpflow.kernels.SquaredExponential(float(p["variance"]), p["lengthscales"])
    noise = float(p["noise"])

    def fitted(rows: int) -> tuple[Any, float]:
        """The posterior with all that predictions share computed ahead, and the noise."""
        model = gpflow.models.SGPR((X[:rows], y[:rows]), kernel, p["R"], noise_variance=noise)
        gpflow.set_trainable(model.inducing_variable, False)
        options = {"maxiter": ITERATIONS}
        gpflow.optimizers.Scipy().minimize(
            model.training_loss, model.trainable_variables, options=options
        )
        return model.posterior(), float(model.likelihood.variance.numpy())

    posterior, added = fitted(first)
    times, answers = [], []
    for i in range(first, len(X)):
        a = time.perf_counter()
        mean, variance = posterior.predict_f(X[i : i + 1])
        answers.append((float(mean[0, 0]), float(variance[0, 0]) + added))
        b = time.perf_counter()
        if (i + 1) % EVERY == 0:
            posterior, added = fitted(i + 1)
        times.append((b - a, time.perf_counter() - b))
    np.savez(target, times=np.array(times), answers=np.array(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
