"""The learner for those who do not want to choose: a sample first, then mini-batches, then all."""

import dataclasses
import math

import numpy as np
from jax.flatten_util import ravel_pytree

from srgp.checks import as_count
from srgp.collapsed import traces
from srgp.learners.base import Listener, Report, Task
from srgp.learners.exact import Exact, Objective, minimise
from srgp.learners.sites import Sites, default_batch_size
from srgp.sources import Arrays, Source
from srgp.statistics import rows_for

SAMPLE = 2048  # rows of the first sample
PER_INDUCING = 8  # but at least so many for each inducing input
GROWTH = 4
LARGEST = 2**17  # beyond, an exact gradient of all data costs more than it brings
STEPS = 1000  # of mini-batches, at least


@dataclasses.dataclass(frozen=True)
class Auto:
    """Chooses by the size of the data and the model, and combines.

    1. L-BFGS on the exact bound of a small random sample, which finds the right magnitudes.
    2. VFE: mini-batches of all data with `Sites`. Other models: L-BFGS on samples four times
       larger each.
    3. L-BFGS on the exact bound of all data, where they are at most about 10⁵ rows.

    iterations: of L-BFGS on each sample; twice as many on all data.
    tolerance:  stop when an iteration on all data improves the bound by less than this share of it.

    >>> import srgp
    >>> srgp.Auto()
    Auto(iterations=60, tolerance=1e-07)
    """

    iterations: int = 60
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        as_count(self.iterations, "iterations")

    def run(self, task: Task, report: Listener) -> None:
        """One report a sample, then those of the learners that follow."""
        watched = _Relay(task, report)
        model = task.coordinates.template
        size = max(SAMPLE, PER_INDUCING * len(model.inducing))
        while size < min(task.rows, LARGEST) / 2 and not watched.stopped:
            self._on_sample(size, watched)
            size *= GROWTH
            if traces(model.approximation):
                break
        if task.rows > SAMPLE and traces(model.approximation) and not watched.stopped:
            steps = task.rows / default_batch_size(model)
            watched.follow(Sites(epochs=math.ceil(STEPS / steps), learning_rate=0.1))
        if watched.stopped:
            return
        if task.rows <= LARGEST:
            watched.follow(Exact(iterations=2 * self.iterations, tolerance=self.tolerance))
        elif not traces(model.approximation):
            watched.follow(Exact(iterations=10))

    def _on_sample(self, size: int, watched: "_Relay") -> None:
        task = watched.task
        part = task._replace(
            source=random_rows(task.source, size, task.seed),
            rows=size,
            present=size,
            prior_share=size / task.rows,
        )
        objective = Objective(part, rows_for(task.coordinates.template, SAMPLE))
        values = minimise(objective, task.start, self.iterations, 20, 1e-6, lambda *_: False)
        bound = objective.bound_at(np.asarray(ravel_pytree(values)[0]))
        scale = task.rows / size
        watched(
            Report(
                values,
                2.0 * objective.calls / scale,
                estimate=None if bound is None else scale * bound,
                refused=objective.refused,
            )
        )
        watched.advance()


class _Relay:
    """Passes reports on, counting epochs through, and starts each learner where the last ended."""

    def __init__(self, task: Task, report: Listener) -> None:
        self.task, self.report = task, report
        self.stopped, self.spent, self.last = False, 0.0, Report(task.start, 0.0)

    def __call__(self, report: Report) -> bool:
        self.last = report
        self.stopped = self.report(report._replace(epoch=self.spent + report.epoch))
        return self.stopped

    def advance(self) -> None:
        """The next learner starts from the last report."""
        self.spent += self.last.epoch
        self.task = self.task._replace(start=self.last.values)

    def follow(self, learner: Exact | Sites) -> None:
        """Let a learner go on from here."""
        learner.run(self.task, self)
        self.advance()


def random_rows(source: Source, count: int, seed: int) -> Arrays:
    """The first rows of a shuffled pass."""
    held, rows = [], 0
    for X, y, w in source.batches(min(count, SAMPLE), seed):
        present = w > 0.0
        held.append((X[present], y[present], w[present]))
        rows += int(present.sum())
        if rows >= count:
            break
    return Arrays(*(np.concatenate(parts)[:count] for parts in zip(*held, strict=True)))
