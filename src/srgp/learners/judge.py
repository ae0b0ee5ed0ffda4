"""Which θ is better: by the bound of all data, not by those of the mini-batches that led there."""

import math
from typing import Any, NamedTuple

import jax

from srgp.bound import log_bound
from srgp.chained import can_be_fresh
from srgp.gradient import cotangents, whitener_where_needed
from srgp.learners.base import NUMERICS, Task, as_model, check_factor, model_at
from srgp.linalg import quiet
from srgp.parameters import Values, log_prior
from srgp.passes import first_pass
from srgp.sources import Held, Source, Spread, random_rows, reduced
from srgp.statistics import summarise_source

# Rows that tell one θ from another: at least so many, and so many for each inducing input.
ENOUGH, PER_INDUCING = 2**15, 100


def part_of(task: Task, sample: Source) -> Task:
    """The same on a sample of the data."""
    size = sample.count()
    return task._replace(source=sample, rows=size, share=size / task.present)


def judged(task: Task, values: Values) -> float:
    """The bound of all data and the prior, or −∞; of a sample, with its sums scaled."""
    try:
        with quiet():
            bound = _bound(task, values, 1.0 / task.share)
            objective = bound + float(log_prior(task.priors, as_model(task, values)))
    except NUMERICS:
        return -math.inf
    return objective if math.isfinite(objective) else -math.inf


def _bound(task: Task, values: Values, times: float) -> float:
    """With every row counted so many times; by the sums that gradients are made of, where these
    will do: they cost less than statistics, which are always whitened.
    """
    if not can_be_fresh(task.coordinates.template):
        model = as_model(task, values)
        check_factor(model)
        return log_bound(model, times * summarise_source(model, task.source))
    at = model_at(task.coordinates, values)
    whiten = whitener_where_needed(at)
    raw = reduced(task.source, first_pass, at, whiten, None)
    return float(cotangents(at, whiten, jax.tree.map(lambda total: times * total, raw))[0])


class Judge:
    """Judges by all data, or by enough random rows of them, the same at every call."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.rows = max(ENOUGH, PER_INDUCING * len(task.coordinates.template.inducing))
        # Files are read once for it, however few their rows.
        here, whole = isinstance(task.source, Held | Spread), task.share == 1.0
        self.ready = here and whole and task.rows <= self.rows

    def __call__(self, values: Values) -> float:
        """The bound of these rows at these values, and the prior; −∞ where there is none."""
        # Drawn once they are needed: what goes on after its last epoch reads no row.
        if not self.ready:
            sample = Held(*random_rows(self.task.source, self.rows, self.task.seed))
            self.task, self.ready = part_of(self.task, sample), True
        return judged(self.task, values)


class Best(NamedTuple):
    """The best place that a learner was in when it was judged."""

    objective: Any
    place: Any

    def or_else(self, objective: float, place: Any) -> "Best":
        """The better of two, the later if they are as good."""
        return Best(objective, place) if objective >= self.objective else self
