"""L-BFGS on the exact bound and gradient: two passes over the data for each evaluation."""

import dataclasses
import functools
import math
from collections import deque
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from srgp.checks import as_count
from srgp.compiled import quick_jit
from srgp.gradient import exact_gradient
from srgp.learners.base import Listener, Report, Task, model_at
from srgp.learners.metric import Metric
from srgp.model import Model
from srgp.parameters import Coordinates, Prior, Values, flat, log_prior, unflat
from srgp.precision import Array, Scalar
from srgp.statistics import rows_for


@dataclasses.dataclass(frozen=True)
class Exact:
    """Learns θ by L-BFGS (SciPy) on the exact gradient, for any model and any source of data.

    iterations: at most so many; each takes little more than one evaluation.
    memory:     pairs of steps and gradients that L-BFGS remembers.
    tolerance:  stop when an iteration improves the bound by less than this share of it, or of the
                number of rows if that is larger.
    window:     iterations over which the improvement is averaged: one can be small by chance.

    >>> import srgp
    >>> srgp.Exact(iterations=50)
    Exact(iterations=50, memory=20, tolerance=1e-09, window=1)
    """

    iterations: int = 200
    memory: int = 20
    tolerance: float = 1e-9
    window: int = 1

    def __post_init__(self) -> None:
        as_count(self.iterations, "iterations")
        as_count(self.memory, "memory")
        as_count(self.window, "window")

    def run(self, task: Task, report: Listener) -> None:
        """One report an iteration."""
        objective = Objective(task, rows_for(task.coordinates.template, task.rows))
        recent: deque[float] = deque(maxlen=self.window + 1)
        iterations = 0

        def heard(values: Values, bound: float | None) -> bool:
            nonlocal iterations
            refused, objective.refused = objective.refused, 0
            iterations += 1
            done, epochs = iterations / self.iterations, 2.0 * objective.calls
            stop = report(Report(values, epochs, bound=bound, refused=refused, done=done))
            recent.append(-math.inf if bound is None else bound)
            enough = self.tolerance * max(abs(recent[-1]), task.rows) * self.window
            stalled = len(recent) > self.window and recent[-1] - recent[0] < enough
            return stop or (self.window > 1 and stalled)

        # With a window of one, SciPy itself looks at the improvement.
        tolerance = self.tolerance if self.window == 1 else 0.0
        minimise(objective, task.start, self.iterations, self.memory, tolerance, heard, task.metric)


def minimise(
    objective: "Objective",
    start: Values,
    iterations: int,
    memory: int,
    tolerance: float,
    heard: Callable[[Values, float | None], bool],
    metric: Metric | None = None,
) -> tuple[Values, Metric | None]:
    """SciPy's L-BFGS-B, until it converges or `heard`, called every iteration, says stop.

    metric: of an objective much like this one, whose curvature is known. That of the last steps is
    given back.
    """
    from scipy.optimize import OptimizeResult, minimize

    first = flat(start)
    coordinates = _first_step(metric, objective(first)[1])
    passed = deque([objective.at(first)], memory + 1)

    def place(z: np.ndarray) -> np.ndarray:
        return first + coordinates(z)

    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(place(z))
        return value, coordinates(gradient)

    def callback(intermediate_result: OptimizeResult) -> None:
        x = place(intermediate_result.x)
        passed.append(objective.at(x))
        if heard(unflat(x.copy(), start), objective.bound_at(x)):
            raise StopIteration

    found = minimize(
        value_and_gradient,
        np.zeros_like(first),
        jac=True,
        method="L-BFGS-B",
        callback=callback,
        options={
            "maxiter": iterations,
            "maxfun": 10 * iterations,
            "maxcor": memory,
            "ftol": tolerance,
            "gtol": 0.0,
        },
    )
    return unflat(place(found.x), start), Metric.of([p for p in passed if p is not None])


def _first_step(metric: Metric | None, gradient: np.ndarray) -> Metric:
    """In these units SciPy's first step, of length one, is the whole quasi-Newton step."""
    if metric is None:
        return Metric.plain(len(gradient))
    length = float(np.linalg.norm(metric(gradient)))
    return metric.scaled(length) if length > 0.0 else metric


class Objective:
    """−(bound + log prior) per row of data, and its gradient, of flat unconstrained values."""

    def __init__(self, task: Task, rows: int) -> None:
        self.task, self.rows = task, rows
        self.calls = 0
        self.refused = 0
        self.worst = 0.0
        self._seen: dict[bytes, tuple[float, float, np.ndarray]] = {}

    def bound_at(self, x: np.ndarray) -> float | None:
        """The bound, at a point that was evaluated lately."""
        known = self._seen.get(x.tobytes())
        return None if known is None else known[0]

    def at(self, x: np.ndarray) -> np.ndarray | None:
        """The place and its gradient, at a point that was evaluated lately."""
        known = self._seen.get(x.tobytes())
        return None if known is None else np.stack([x, known[2]])

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient for a minimiser; a high wall where the bound is not a number."""
        known = self._seen.get(x.tobytes())
        if known is not None:
            return known[1:]
        self.calls += 1
        found = self.task.journal.step(lambda: self._evaluate(x), (0.0, 0.0, x))
        bound, prior, gradient = float(found[0]), float(found[1]), found[2] / -self.task.rows
        value = -(bound + prior) / self.task.rows
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            self.refused += 1
            return self.worst + 1e3, np.zeros_like(x)
        self.worst = max(self.worst, value)
        if len(self._seen) > 50:
            self._seen.clear()
        self._seen[x.tobytes()] = bound, value, gradient
        return value, gradient

    def _evaluate(self, x: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Bound, log prior, and the gradient of their sum."""
        task = self.task
        values = unflat(x, task.start)
        bound, at_model = exact_gradient(model_at(task.coordinates, values), task.source, self.rows)
        prior, gradient = _gradient(task.priors, task.coordinates, values, at_model, task.share)
        return float(bound), float(prior), np.asarray(gradient)


@functools.partial(quick_jit, plain=True, static_argnums=0)
def _gradient(
    priors: tuple[tuple[str, Prior], ...],
    coordinates: Coordinates,
    values: Values,
    at_model: Model,
    prior_share: Scalar,
) -> tuple[Scalar, Float[Array, " P"]]:
    def log_density(values: Values) -> Scalar:
        return prior_share * log_prior(priors, coordinates.model(values))

    prior, at_prior = jax.value_and_grad(log_density)(values)
    total = jax.tree.map(jnp.add, coordinates.gradient(values, at_model), at_prior)
    return prior, ravel_pytree(total)[0]
