"""The curvature that one run of L-BFGS leaves to the next."""

from collections.abc import Callable

import numpy as np
import pytest

import srgp
from srgp import kernels as k
from srgp.learners.base import Task
from srgp.learners.exact import Objective, minimise
from srgp.learners.metric import Metric
from srgp.parameters import Coordinates, Values, flat
from srgp.precision import double
from srgp.sources import Held

SIZE = 7


def hessian(seed: int = 0) -> np.ndarray:
    """Curvatures from 0.01 to 100."""
    vectors, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(SIZE, SIZE)))
    return (vectors * np.geomspace(0.01, 100.0, SIZE)) @ vectors.T


def passed(A: np.ndarray, count: int, seed: int = 1) -> list[np.ndarray]:
    """Places and gradients of xᵀAx/2."""
    places = np.random.default_rng(seed).normal(size=(count, SIZE))
    return [np.stack([x, A @ x]) for x in places]


def matrix(metric: Metric) -> np.ndarray:
    return np.stack([metric(e) for e in np.eye(SIZE)], 1)


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_the_inverse_hessian_is_that_of_bfgs(count: int) -> None:
    """Its textbook update, on dense matrices: more pairs than parameters included."""
    points = passed(hessian(), count)
    metric = Metric.of(points)
    assert metric is not None
    s, y = np.diff(points, axis=0).swapaxes(0, 1)
    expected = np.eye(SIZE) * (s[-1] @ y[-1]) / (y[-1] @ y[-1])
    for step, change in zip(s, y, strict=True):
        rho = 1.0 / (step @ change)
        left = np.eye(SIZE) - rho * np.outer(step, change)
        expected = left @ expected @ left.T + rho * np.outer(step, step)
    S = matrix(metric)
    np.testing.assert_allclose(S, S.T, rtol=0, atol=1e-12 * np.abs(S).max())
    # Curvatures differ by 10⁴: so many digits are lost.
    np.testing.assert_allclose(S @ S, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_of_no_curvature_nothing_is_told() -> None:
    x = np.arange(SIZE, dtype=float)
    assert Metric.of([]) is None
    assert Metric.of([np.stack([x, x])]) is None
    assert Metric.of([np.stack([x, x])] * 3) is None  # no step at all
    assert Metric.of([np.stack([c * x, -c * x]) for c in (1, 2, 3)]) is None  # a maximum
    # One of two steps does tell something.
    assert Metric.of([np.stack([c * x, abs(c) * x]) for c in (-1, 0, 1)]) is not None


@pytest.mark.parametrize("tiny", [0.0, 1e-300, 1e-30])
def test_no_direction_is_lost(tiny: float) -> None:
    """Curvatures so different that the smaller root is nothing beside the other one."""
    A = np.diag([1e12] + [1.0] * (SIZE - 1))
    points = [np.stack([x, A @ x]) for x in np.eye(SIZE)]
    points.append(points[-1] + tiny)
    metric = Metric.of(points)
    assert metric is not None
    roots = np.linalg.eigvalsh(matrix(metric))
    assert np.isfinite(roots).all()
    assert roots.min() > 0.0


# -- the bound ----------------------------------------------------------------------------------


def objective(seed: int, rows: slice = slice(None)) -> tuple[Objective, Values]:
    """Of the first of 600 rows of a wavy function, or all, and where to start."""
    draw = np.random.default_rng(seed)
    X = draw.uniform(0, 6, (600, 2))
    waves = np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    y = waves + 0.3 * X[:, 1] + 0.1 * draw.normal(size=600)
    model = srgp.Model(k.SE(lengthscales=[1.0, 1.0]), 0.3, X[:40])
    coordinates = Coordinates.of(model)
    part = Held(X[rows], y[rows, None], np.ones(len(y[rows])))
    count = len(part.y)
    start = coordinates.values(model)
    return Objective(Task(part, count, coordinates, start, (), 0, np.inf, count), 600), start


def never(values: Values, bound: float | None) -> bool:
    return False


def until(wanted: float) -> Callable[[Values, float | None], bool]:
    return lambda _, bound: bound is not None and bound >= wanted


@double
def test_what_half_of_the_data_tell_saves_evaluations_of_all() -> None:
    """Calls to half-way from where half of the data lead, with what they tell and without."""
    calls = np.zeros(2)
    for seed in range(3):
        half, start = objective(seed, slice(0, 300))
        begin, metric = minimise(half, start, 15, 20, 0.0, never)
        assert metric is not None
        whole, _ = objective(seed)
        end, _ = minimise(whole, begin, 200, 20, 1e-12, never)
        wanted = -300 * sum(whole(flat(values))[0] for values in (begin, end))
        for i, known in enumerate((metric, None)):
            goal, _ = objective(seed)
            minimise(goal, begin, 100, 20, 0.0, until(wanted), known)
            calls[i] += goal.calls
    assert calls[0] <= 0.7 * calls[1]
