"""Train GPflow's models: python gpflow_runner.py INPUT OUTPUT."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import scipy
import tensorflow as tf
from gpflow.keras import tf_keras
from loop import THETA, TIMED_STEPS, Array, Recorder, Rows, message, read, timing, train, write
from scipy.optimize import OptimizeResult, minimize


def kernel(p: dict[str, Array]) -> gpflow.kernels.Kernel:
    variance, lengthscales = float(p["variance"]), p["lengthscales"]
    return gpflow.kernels.SquaredExponential(variance=variance, lengthscales=lengthscales)


class Model:
    """What SVGP and SGPR share."""

    def __init__(self, model: gpflow.models.GPModel) -> None:
        self.model = model
        # The optimisers' own variables are added to these.
        self.variables = list(model.variables)

    def state(self) -> list[Array]:
        return [v.numpy().copy() for v in self.variables]

    def restore(self, state: list[Array]) -> None:
        for variable, value in zip(self.variables, state, strict=True):
            variable.assign(value)

    def finite(self) -> bool:
        return all(np.isfinite(v.numpy()).all() for v in self.model.variables)

    def theta(self) -> dict[str, Array]:
        k, noise = self.model.kernel, self.model.likelihood.variance
        values = (k.variance, k.lengthscales, noise, self.model.inducing_variable.Z)
        return {name: value.numpy().copy() for name, value in zip(THETA, values, strict=True)}

    def predict(self, X: Array) -> tuple[Array, Array]:
        mean, var = self.model.predict_y(X)
        return np.ravel(mean), np.ravel(var)


class SVGP(Model):
    """Adam for all parameters, or natural gradients for q and Adam for the others."""

    def __init__(self, p: dict[str, Array], settings: dict[str, Any]) -> None:
        X, y = tf.constant(p["X"]), tf.constant(p["y"][:, None])
        likelihood = gpflow.likelihoods.Gaussian(float(p["noise"]))
        model = gpflow.models.SVGP(
            kernel(p), likelihood, p["R"].copy(), num_data=len(p["X"]), whiten=True
        )
        super().__init__(model)
        natural = None
        if settings["method"] == "svgp-natgrad":
            natural = gpflow.optimizers.NaturalGradient(settings["gamma"])
            gpflow.set_trainable(model.q_mu, False)
            gpflow.set_trainable(model.q_sqrt, False)
        others = model.trainable_variables
        adam = tf_keras.optimizers.Adam(settings["learning_rate"])
        # Outside the compiled step, so that the state can be copied before the first one.
        adam.build(others)
        self.variables += list(adam.variables)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
        def compiled(rows: tf.Tensor) -> tf.Tensor:
            batch = tf.gather(X, rows), tf.gather(y, rows)
            loss_of = model.training_loss_closure(batch, compile=False)
            if natural is not None:
                natural.minimize(loss_of, [(model.q_mu, model.q_sqrt)])
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(others)
                loss = loss_of()
            adam.apply_gradients(zip(tape.gradient(loss, others), others, strict=True))
            return loss

        self.compiled = compiled

    def step(self, rows: Rows) -> float:
        return -float(self.compiled(tf.constant(rows)))


class OutOfTimeError(Exception):
    """The training clock has run out."""


class Objective:
    """Loss and gradient of SGPR for SciPy, and the clock, which stands still while recording."""

    def __init__(self, model: gpflow.models.SGPR, limit: float) -> None:
        self.optimizer = gpflow.optimizers.Scipy()
        self.variables = model.trainable_variables
        self.start = self.optimizer.initial_parameters(self.variables).numpy()
        self.compiled = self.optimizer.eval_func(
            model.training_loss, self.variables, tf_fun_args={}
        )
        self.limit = limit
        self.durations: list[float] = []
        self.reset_clock()

    def reset_clock(self) -> None:
        self.begin, self.paused, self.evaluations = time.perf_counter(), 0.0, 0

    def seconds(self) -> float:
        return time.perf_counter() - self.begin - self.paused

    def prepare(self, timed: int) -> float:
        """Compile, and time some evaluations; returns the bound at the start."""
        for _ in range(2 + timed):
            begin = time.perf_counter()
            loss, _ = self.compiled(self.start)
            self.durations.append(time.perf_counter() - begin)
        del self.durations[:2]
        return -float(loss)

    def __call__(self, x: Array) -> tuple[float, Array]:
        if self.seconds() >= self.limit:
            raise OutOfTimeError
        begin = time.perf_counter()
        loss, gradient = self.compiled(x)
        self.durations.append(time.perf_counter() - begin)
        self.evaluations += 1
        if not (np.isfinite(loss) and np.isfinite(gradient).all()):
            raise FloatingPointError(f"not finite at evaluation {self.evaluations}")
        return float(loss), gradient

    def assign(self, x: Array) -> None:
        values = self.optimizer.unpack_tensors(self.variables, x)
        self.optimizer.assign_tensors(self.variables, values)


@dataclass
class Iterate:
    """Where L-BFGS-B has arrived."""

    x: Array
    iteration: int = 0
    seconds: float = 0.0
    evaluations: int = 0
    bound: float = np.nan


def train_sgpr(
    p: dict[str, Array], settings: dict[str, Any]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """L-BFGS-B on the collapsed bound; an epoch is an evaluation, which passes over all data."""
    data = (p["X"], p["y"][:, None])
    model = gpflow.models.SGPR(data, kernel(p), p["R"].copy(), noise_variance=float(p["noise"]))
    iterations = settings.get("iterations") or settings["epochs"]
    recorder = Recorder(Model(model), iterations, 1, settings)
    objective = Objective(model, recorder.limit)
    reached = Iterate(objective.start)
    stopped, failed = "", None

    def record() -> None:
        objective.assign(reached.x)
        epoch = float(reached.evaluations)
        recorder.record(reached.iteration, reached.seconds, epoch, reached.bound)

    def callback(intermediate_result: OptimizeResult) -> None:
        nonlocal reached
        pause, seconds = time.perf_counter(), objective.seconds()
        x, bound = intermediate_result.x.copy(), -float(intermediate_result.fun)
        reached = Iterate(x, reached.iteration + 1, seconds, objective.evaluations, bound)
        if recorder.due(reached.iteration, seconds):
            record()
        objective.paused += time.perf_counter() - pause

    try:
        reached.bound = objective.prepare(TIMED_STEPS if settings["step_timing"] else 0)
        record()
        objective.reset_clock()
        stopped = minimize(
            objective,
            objective.start,
            jac=True,
            method="L-BFGS-B",
            callback=callback,
            options={"maxiter": iterations, "maxfun": 20 * iterations},
        ).message
    except OutOfTimeError:
        stopped = "out of time"
    except Exception as error:
        stopped = failed = message(error)
    record()
    info = {
        "steps": objective.evaluations,
        "iterations": reached.iteration,
        "seconds": reached.seconds,
        "stopped": stopped,
        **timing(objective.durations),
        "failed": failed,
    }
    return recorder.arrays(p["Xtest"]), info


def main(questions: Path, answers: Path) -> None:
    problem, settings = read(questions)
    if settings["method"] == "sgpr-lbfgs":
        trace, info = train_sgpr(problem, settings)
    else:
        trace, info = train(SVGP(problem, settings), problem, settings)
    versions = {
        "GPflow": gpflow.__version__,
        "TensorFlow": tf.__version__,
        "SciPy": scipy.__version__,
        "NumPy": np.__version__,
    }
    about = {"peer": "gpflow", "versions": versions, "settings": settings}
    write(answers, trace, {**about, "method": settings["method"], **info})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
