"""What all learners share: the task they are given, what they report, and the loop around them."""

import dataclasses
import functools
import hashlib
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np

from srgp.bound import log_bound
from srgp.checks import as_inputs, as_targets
from srgp.compiled import quick_jit
from srgp.learners.journal import Forgetful, Journal
from srgp.learners.metric import Metric
from srgp.linalg import levels_to_the_caller, quiet, quiet_blas
from srgp.model import Model
from srgp.parameters import Coordinates, Prior, Values, check_priors, log_prior
from srgp.posterior import posterior
from srgp.precision import double
from srgp.sources import Source, Spread, as_source, digest, first_row
from srgp.statistics import Statistics, summarise_source

# Up to this share, refused steps change nothing that a user should hear of.
FEW = 0.01
# What a θ that has run away leads to; errors of the data are ValueError.
NUMERICS = (ArithmeticError, np.linalg.LinAlgError)


class Task(NamedTuple):
    """What a learner works on."""

    source: Source
    rows: int
    coordinates: Coordinates
    start: Values
    priors: tuple[tuple[str, Prior], ...]
    seed: int
    seconds: float  # how long learning may take
    present: int  # rows of weight above 0
    share: float = 1.0  # of the data, where the source is a sample: as much of the priors counts
    journal: Journal = Forgetful()
    metric: Metric | None = None  # what is known of the curvature of the bound


class Report(NamedTuple):
    """Where a learner stands: after an epoch, or an iteration over all data."""

    values: Values
    epoch: float  # passes over the data so far
    estimate: float | None = None  # of the bound, from mini-batches at changing θ
    bound: float | None = None  # at these values, where it is known anyway
    learning_rate: float | None = None
    refused: int = 0  # steps not taken since they would have given NaN
    steps: int = 0  # of mini-batches, those and all others
    done: float | None = None  # the share of the work, if no rule ends it sooner


# Hears where a learner stands, and answers whether it should stop.
Listener: TypeAlias = Callable[[Report], bool]


@runtime_checkable
class Learner(Protocol):
    """A way to learn θ."""

    def run(self, task: Task, report: Listener) -> None:
        """Learn, and report now and then; the result is among what was reported."""
        ...


class Record(NamedTuple):
    """One row of the history; None where a number was not asked for.

    bound is that of all data at the model of that moment, from a clean pass; estimate is what the
    learner itself could tell from its mini-batches; done is the share of the work behind it, if no
    rule ends learning sooner.
    """

    seconds: float
    epoch: float
    bound: float | None
    estimate: float | None
    rmse: float | None
    learning_rate: float | None
    refused: int
    done: float | None = None

    def shifted(self, by: float) -> "Record":
        """The same with other bounds: those of targets in other units."""
        moved = (None if v is None else v + by for v in (self.bound, self.estimate))
        bound, estimate = moved
        return self._replace(bound=bound, estimate=estimate)


class History(list[Record]):
    """The records of a run, in order.

    >>> from srgp.learners import History, Record
    >>> history = History([Record(0.1, 1.0, -3.0, None, None, 0.01, 0)])
    >>> history.column("bound")
    [-3.0]
    >>> print(history)
     seconds    epoch        bound     estimate         rmse learning_rate refused
         0.1        1           -3            -            -          0.01       0
    """

    def column(self, name: str) -> list[Any]:
        """One field of every record."""
        return [getattr(record, name) for record in self]

    def __str__(self) -> str:
        widths = dict(zip(Record._fields[:-1], (8, 8, 12, 12, 12, 13, 7), strict=True))
        lines = [" ".join(name.rjust(width) for name, width in widths.items())]
        for record in self:
            digits = (5, 5, 8, 8, 5, 4, 6)
            shown = (
                "-" if v is None else f"{v:.{d}g}" for v, d in zip(record[:-1], digits, strict=True)
            )
            lines.append(" ".join(v.rjust(w) for v, w in zip(shown, widths.values(), strict=True)))
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Learned:
    """The result of `srgp.learn`: the model at its best θ, and its statistics of all the data.

    Both come from one clean pass at the final θ, so posterior and bound are exact.

    >>> import numpy as np, srgp
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> start = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=X[::8])
    >>> learned = srgp.learn(start, (X, y), srgp.Exact(iterations=3))
    >>> learned.bound == srgp.log_bound(learned.model, learned.statistics)
    True
    >>> srgp.posterior(learned.model, learned.statistics).predict([[1.5]])[0].round(1)
    array([1.])
    """

    model: Model
    statistics: Statistics
    bound: float
    history: History

    def __repr__(self) -> str:
        return f"Learned(bound={self.bound:.6g}, rows={self.statistics.n:g}, {self.model!r})"


Callback: TypeAlias = Callable[[Record, Model], Any]


@double
def run(
    model: Model,
    data: Any,
    learner: Learner,
    *,
    fixed: str | Iterable[str] = (),
    priors: Mapping[str, Prior] | None = None,
    validation: tuple[Any, Any] | None = None,
    callback: Callback | None = None,
    patience: int | None = None,
    max_seconds: float | None = None,
    seed: int = 0,
    journal: Journal | None = None,
) -> Learned:
    """Let a learner work until it, the callback, patience or the clock says stop."""
    source = as_source(data)
    _, y, _ = first_row(source, model.inducing.shape[1])
    task = make_task(model, source, fixed, priors, seed, max_seconds)
    if journal is not None:
        task = task._replace(journal=journal)
        journal.check(_job(task, learner, model))
    held_out = None if validation is None else _checked(model, y.shape[1:], *validation)
    watch = _Watch(task, callback, patience, held_out)
    with quiet_blas():
        learner.run(task, watch)
    _warn_refused(watch.refused, watch.steps)
    chosen, statistics = watch.result()
    try:
        if statistics is None:
            check_factor(chosen)
            statistics = summarise_source(chosen, source)
        return Learned(chosen, statistics, log_bound(chosen, statistics), watch.history)
    except NUMERICS as error:
        # Where the start has no finite bound either, that is all there is to say.
        statistics = summarise_source(model, source)
        result = Learned(model, statistics, log_bound(model, statistics), watch.history)
        warnings.warn(
            f"learning ran away, to a model without a finite bound ({error}): the start is given "
            "back. A smaller learning rate, or data scaled to about one, avoids that.",
            stacklevel=levels_to_the_caller(),
        )
        return result


def make_task(
    model: Model,
    source: Source,
    fixed: str | Iterable[str],
    priors: Mapping[str, Prior] | None,
    seed: int,
    max_seconds: float | None,
) -> Task:
    """Check what learning is given, before any of it starts."""
    rows, present = source.count(), source.present()
    if present == 0:
        raise ValueError("every row has weight 0: there is nothing to learn from.")
    coordinates = jax.device_put(Coordinates.of(model, fixed))
    return Task(
        source,
        rows,
        coordinates,
        coordinates.values(model),
        check_priors(model, priors),
        seed,
        math.inf if max_seconds is None else float(max_seconds),
        present,
    )


def _job(task: Task, learner: Learner, model: Model) -> dict[str, Any]:
    """What tells one job of learning from another: all that its steps are computed from."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(model)]
    return {
        "learner": learner,
        "start": hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest(),
        "model": model.fingerprint,
        "data": (task.rows, task.present, digest(task.source)),
        "fixed": [
            n for n, f in zip(task.coordinates.names, task.coordinates.free, strict=True) if not f
        ],
        "priors": task.priors,
        "seed": task.seed,
    }


def kept(task: Task) -> Task:
    """The same, with data in several places ready for many passes over random batches."""
    source = task.source
    return task._replace(source=source.kept()) if isinstance(source, Spread) else task


def as_model(task: Task, values: Values) -> Model:
    """The model at these values, in NumPy arrays."""
    return jax.tree.map(np.asarray, model_at(task.coordinates, values))


@functools.partial(quick_jit, plain=True)
def model_at(coordinates: Coordinates, values: Values) -> Model:
    """The model at these values, in compiled code."""
    return coordinates.model(values)


def clean_pass(model: Model, source: Source) -> tuple[Statistics, float]:
    """Statistics and bound of all data at one θ, without the warnings that only the result gets."""
    with quiet():
        check_factor(model)
        statistics = summarise_source(model, source)
        return statistics, log_bound(model, statistics)


def check_factor(model: Model) -> None:
    """FloatingPointError where θ has run away to a kernel without a variance: no error of data."""
    try:
        _ = model.basis
    except ValueError as error:
        raise FloatingPointError(str(error)) from error


def batch_shape(batch_size: int, total: int, at_most: int, unit: int = 1) -> tuple[int, int]:
    """Rows of a (padded) batch and of the equal chunks it is computed in, multiples of `unit`."""
    size = min(batch_size, total)
    pieces = -(-size // max(at_most, unit))
    rows = -(-size // (pieces * unit)) * unit
    return rows * pieces, rows


class _Watch:
    """Listens to a learner: keeps the history and the best model, and knows when to stop."""

    def __init__(
        self,
        task: Task,
        callback: Callback | None,
        patience: int | None,
        held_out: tuple[np.ndarray, np.ndarray] | None,
    ) -> None:
        self.task, self.callback, self.patience = task, callback, patience
        self.held_out = held_out
        self.history = History()
        self.best: tuple[float, Model | None, Statistics | None] = (-math.inf, None, None)
        self.since = 0  # reports without an improvement
        self.refused = self.steps = 0  # of mini-batches
        self.started = time.perf_counter()

    def __call__(self, report: Report) -> bool:
        """Take a report down; True asks the learner to stop."""
        seconds = time.perf_counter() - self.started + self.task.journal.seconds
        model = as_model(self.task, report.values)
        statistics, bound, rmse = None, report.bound, None
        if self.held_out is not None or (self.patience is not None and bound is None):
            try:
                statistics, bound = clean_pass(model, self.task.source)
            except NUMERICS:
                bound = -math.inf
        if self.held_out is not None and statistics is not None:
            rmse = _rmse(model, statistics, *self.held_out)
        estimate = report.estimate
        if estimate is not None and not math.isfinite(estimate):
            estimate = None  # a step that was refused has none
        # An exact line search tries too long a step now and then, and takes a shorter one.
        self.refused += report.refused if report.steps else 0
        self.steps += report.steps
        numbers = (estimate, rmse, report.learning_rate, report.refused, report.done)
        self.history.append(Record(seconds, report.epoch, bound, *numbers))
        self._compare(model, statistics, bound)
        stop = self.callback is not None and self.callback(self.history[-1], model) is True
        stalled = self.patience is not None and self.since >= self.patience
        return stop or stalled or seconds > self.task.seconds

    def result(self) -> tuple[Model, Statistics | None]:
        """The best model where bounds were known along the way, otherwise the last."""
        _, model, statistics = self.best
        return (self.task.coordinates.template, None) if model is None else (model, statistics)

    def _compare(self, model: Model, statistics: Statistics | None, bound: float | None) -> None:
        if bound is None:
            self.best = (-math.inf, model, None)
            return
        objective = bound + float(log_prior(self.task.priors, model))
        self.since = 0 if objective > self.best[0] else self.since + 1
        if objective >= self.best[0]:
            self.best = (objective, model, statistics)


def _checked(
    model: Model, outputs: tuple[int, ...], X: Any, y: Any
) -> tuple[np.ndarray, np.ndarray]:
    X = as_inputs(X, "the held-out X", columns=model.inducing.shape[1])
    y = as_targets(y, len(X))
    if y.shape[1:] != outputs:
        raise ValueError(
            f"the held-out y has shape {y.shape}, but the targets have {outputs or 'no'} columns."
        )
    return X, y


def _rmse(model: Model, statistics: Statistics, X: np.ndarray, y: np.ndarray) -> float:
    with quiet():
        mean, _ = posterior(model, statistics).predict(X)
    return float(np.sqrt(np.mean((mean - y) ** 2)))


def _warn_refused(refused: int, steps: int) -> None:
    # A few are made good by those that follow; the history counts them all.
    if refused > FEW * steps:
        warnings.warn(
            f"{refused} of {steps} steps would have led to numbers that are not finite, or came "
            "from a bound that is not possible, and were not taken: a smaller learning rate, or "
            "inputs and targets scaled to about one, avoids that.",
            stacklevel=levels_to_the_caller(),
        )
