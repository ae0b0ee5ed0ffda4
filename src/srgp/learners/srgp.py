"""SRGP, the paper's algorithm: stochastic gradients by recursive propagation (section 4)."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from srgp import chained
from srgp.checks import as_count
from srgp.collapsed import FLOOR
from srgp.compiled import quick_jit
from srgp.learners.base import Listener, Task, batch_shape, kept, model_at
from srgp.learners.epochs import Told, run_epochs
from srgp.learners.judge import Best, Judge
from srgp.learners.stepping import (
    Optimizer,
    Schedule,
    Transformation,
    as_optimizer,
    as_schedule,
    ascend,
    check_optimizer,
    check_rate,
)
from srgp.linalg import Whitener
from srgp.model import Model
from srgp.parameters import Coordinates, Prior, Values
from srgp.precision import Scalar
from srgp.sensitivity import (
    Parts,
    State,
    as_state,
    batch_parts,
    factor_of,
    most,
    parts_rows,
    step_gradient,
    whitener_for,
)
from srgp.sources import Batch, Held, Source, Spread, reduced

# Rounding error of ψ, per row of a batch, that counts for nothing beside the choice of its rows.
ROUGH = 1e-4
# Rows for each inducing input: up to so many, an epoch is a chain of its own; from so many on, a
# longer chain tells no more.
FEW, ENOUGH = 100, 400


@dataclasses.dataclass(frozen=True)
class SRGP:
    """Learns θ along recursive passes over the data: the paper's stochastic algorithm.

    In every epoch the rows are reshuffled and the recursion restarts from the prior. The k-th batch
    adds ψ_k(θ) to the bound; its gradient, through the posterior of all batches before (eq. 27,
    28), gives one step of the optimiser.

    While θ moves fast, the sums of earlier batches belong to another θ before the epoch is over.
    The recursion therefore restarts more often than the paper's: after `restart` batches at the
    full learning rate, and after restart/√s batches once the schedule has lowered it to a share s.
    And while few batches have been learned since, their sums are made anew at each θ.

    batch_size:    rows of a mini-batch.
    epochs:        passes over the data.
    learning_rate: of the logarithms of positive parameters, and of R in units of its spread.
    optimizer:     "adam", "quick-adam" (a second moment of ten steps, for gradients whose size
                   changes with every restart), "amsgrad", "sgd", or any from optax, which then
                   brings its own rate: learning_rate multiplies it.
    schedule:      "cosine" to zero over all epochs, "constant", or a function of the share done.
    restart:       batches after which the recursion restarts; None: only with each epoch.
    warm_up:       batches after each restart that are learned without a step: they see little but
                   the prior, and their gradients are large and of another kind. None are left out
                   once the restarts have become as rare as epochs.
    average:       the last share of all steps whose θ are averaged for the result.
    fresh:         make the sums of the batches since the restart anew at each θ, as long as these
                   are at most 20. An epoch of up to 100 rows for each inducing input is not cut
                   then, and no chain has more than 400. Not where V̄ ≠ 0, with the tighter VFE, or
                   on a cluster, where the rows are not at hand. False: the sums stay those of the
                   θ of their time, as published.
    keep_best:     give back the best θ of the start and the ends of epochs, by the bound of all
                   data, or of 2¹⁵ rows at random (100 for each inducing input, if more). False: the
                   last, as published.

    `SRGP.paper(learning_rate)` has the paper's settings: Adam, and none of the rest.

    >>> import srgp
    >>> srgp.SRGP(epochs=5).epochs
    5
    """

    batch_size: int = 2000
    epochs: int = 20
    learning_rate: float = 0.1
    optimizer: Optimizer = "quick-adam"
    schedule: Schedule = "cosine"
    restart: int | None = 5
    warm_up: int = 1
    average: float = 0.0
    fresh: bool = True
    keep_best: bool = True

    def __post_init__(self) -> None:
        as_count(self.batch_size, "batch_size")
        as_count(self.epochs, "epochs")
        if self.restart is not None:
            as_count(self.restart, "restart")
        check_optimizer(self.optimizer)
        as_schedule(self.schedule)
        check_rate(self.learning_rate)

    @classmethod
    def paper(cls, learning_rate: float, batch_size: int = 5000, epochs: int = 50) -> "SRGP":
        """The algorithm as published.

        >>> import srgp
        >>> srgp.SRGP.paper(learning_rate=0.001).schedule
        'constant'
        """
        adam = functools.partial(cls, optimizer="adam", schedule="constant")
        none: dict[str, Any] = {"restart": None, "warm_up": 0, "fresh": False, "keep_best": False}
        return adam(batch_size, epochs, learning_rate, **none)

    def run(self, task: Task, report: Listener) -> None:
        """One report an epoch."""
        task = kept(task)
        memory = as_optimizer(self.optimizer).init(task.start)
        place = Place(task.start, memory, task.start, 0, 0, Best(-math.inf, task.start))
        epoch = functools.partial(self._epoch, task, Judge(task))
        run_epochs(task, report, self.epochs, place, epoch)

    def _epoch(self, task: Task, judge: Judge, number: int, place: "Place") -> tuple["Place", Told]:
        optimizer, schedule = as_optimizer(self.optimizer), as_schedule(self.schedule)
        size, rows = self._shape(task)
        fresh, steps = self._is_fresh(task), -(-task.rows // size)
        values, memory, mean = place.values, place.memory, place.mean
        averaged, done = int(place.averaged), int(place.done)
        state: State | list[Batch] | None = None
        estimate, refused, rate = jnp.zeros(()), jnp.zeros((), int), 0.0
        learned, length = 0, 0  # batches since the restart, and until the next
        stepped = 0  # batches of the epoch with a step
        for batch in _batches(task.source, size, task.seed + number):
            share = schedule(min(done / (self.epochs * steps), 1.0))
            rate = self.learning_rate * share
            model = model_at(task.coordinates, values)
            if learned >= length:
                length = self._chain(share, steps, size, len(model.inducing) if fresh else None)
                state = [] if fresh and chained.is_short(model, length, size) else None
                learned = 0
            # Over a whole epoch the gradients sum up to that of the bound: none may be missing.
            whole = self.restart is not None and length == steps
            steps_now = learned >= (0 if whole else min(self.warm_up, length - 1))
            here = (optimizer, task.priors), task.coordinates, values, memory
            taken = _taken(
                here, task.share / steps, rate if steps_now else None, model, state, batch, rows
            )
            values, memory, state, psi, wrong = taken
            refused, done, learned = refused + wrong, done + 1, learned + 1
            if steps_now:
                estimate, stepped = estimate + psi, stepped + 1
            if done > (1.0 - self.average) * self.epochs * steps:
                averaged += 1
                mean = _towards(mean, values, 1.0 / averaged)
        last = number == self.epochs - 1 and averaged > 0
        found, best = mean if last else values, place.best
        if self.keep_best:
            best = best if number else Best(judge(task.start), task.start)
            best = best.or_else(judge(found), found)
            found = best.place
        whole_estimate = estimate * (steps / max(stepped, 1)) / task.share
        told = Told(found, whole_estimate, rate, refused, steps)
        return Place(values, memory, mean, averaged, done, best), told

    def _shape(self, task: Task) -> tuple[int, int]:
        template = task.coordinates.template
        unit = getattr(template.approximation, "block_size", 1)
        at_most = parts_rows(template, self.batch_size)
        return batch_shape(self.batch_size, task.rows, at_most, unit)

    def _is_fresh(self, task: Task) -> bool:
        """Whether sums of earlier batches can be made anew."""
        at_hand = not isinstance(task.source, Spread)
        return self.fresh and at_hand and chained.can_be_fresh(task.coordinates.template)

    def _chain(self, share: float, steps: int, size: int, inducing: int | None) -> int:
        """Batches from one restart to the next, at a share of the full learning rate.

        inducing: inducing inputs, if sums are made anew.
        """
        if self.restart is None:
            return steps
        least, most = self.restart, steps
        if inducing is not None:
            whole = steps * size <= FEW * inducing
            least = steps if whole else least
            most = min(steps, max(least, -(-ENOUGH * inducing // size)))
        slowed = math.sqrt(max(share, 0.0))
        return most if least >= most * slowed else int(least / slowed)


def _batches(source: Source, size: int, seed: int) -> Iterator[Source]:
    """Random batches, each a source: of rows that are here, or that stay where they are."""
    if isinstance(source, Spread):
        some_absent = source.present() < source.count()
        for batch in source.rounds(size, seed):
            if not some_absent or batch.present():
                yield batch
        return
    for batch in source.batches(size, seed):
        if (batch[2] > 0.0).any():
            yield Held(*batch)


def _batch_parts(batch: Source, model: Model, whiten: Whitener | None, rows: int | None) -> Parts:
    rows = rows or parts_rows(model, batch.count())
    return batch_parts(model, whiten, batch.batches(rows))


def _taken(
    here: tuple[Any, ...],
    prior_share: float,
    rate: float | None,
    model: Model,
    state: State | list[Batch] | None,
    batch: Source,
    rows: int,
) -> tuple[Values, Any, State | list[Batch], Scalar, Scalar]:
    """One batch: the new θ, memory of the optimiser and state, ψ_k, and whether it was refused.

    rate: None while warming up, when the batch is learned without a step.
    """
    if isinstance(state, list):
        assert isinstance(batch, Held)
        return _fresh_step(here, prior_share, rate, model, state, (batch.X, batch.y, batch.w))
    return _carried_step(here, prior_share, rate or 0.0, model, state, batch, rows)


def _carried_step(
    here: tuple[Any, ...],
    prior_share: float,
    rate: float,
    model: Model,
    state: State | None,
    batch: Source,
    rows: int,
) -> tuple[Values, Any, State, Scalar, Scalar]:
    """With the slopes of all batches since the restart carried along."""
    at_a_time = None if isinstance(batch, Spread) else rows
    parts = reduced(batch, _batch_parts, model, whitener_for(model, ROUGH), at_a_time)
    state = _nothing(model, parts) if state is None else state
    return _step(*here, state, parts, prior_share, rate)


def _fresh_step(
    here: tuple[Any, ...],
    prior_share: float,
    rate: float | None,
    model: Model,
    earlier: list[Batch],
    batch: Batch,
) -> tuple[Values, Any, list[Batch], Scalar, Scalar]:
    """With the sums of all batches since the restart made anew."""
    if rate is None:
        _, _, values, memory = here
        nothing = jnp.zeros((), int)
        return values, memory, [*earlier, batch], nothing, nothing
    found = chained.stepped(model, earlier, batch)
    values, memory, wrong = _follow(*here, found.gradient, found.possible, prior_share, rate)
    # Beyond what is possible the sums are worth nothing: the chain restarts from this batch.
    return values, memory, [*earlier, batch] if found.possible else [batch], found.psi, wrong


class Place(NamedTuple):
    """Where SRGP stands between two epochs."""

    values: Values
    memory: Any  # of the optimiser
    mean: Values  # of the last θ
    averaged: int  # so many of them
    done: int  # steps
    best: Best  # of the start and the ends of epochs


@quick_jit
def _nothing(model: Model, parts: Parts) -> State:
    return jax.tree.map(jnp.zeros_like, as_state(model, factor_of(model, FLOOR), parts))


@quick_jit
def _towards(mean: Values, values: Values, share: Scalar) -> Values:
    return jax.tree.map(lambda m, v: m + share * (v - m), mean, values)


@functools.partial(quick_jit, static_argnums=0, donate_argnums=(3, 4))
def _step(
    fixed: tuple[Transformation, tuple[tuple[str, Prior], ...]],
    coordinates: Coordinates,
    values: Values,
    memory: Any,
    state: State,
    parts: Parts,
    prior_share: Scalar,
    rate: Scalar,
) -> tuple[Values, Any, State, Scalar, Scalar]:
    """Add a batch to the state, and step along ∂ψ_k."""
    model = coordinates.model(values)
    factor = factor_of(model, FLOOR)
    batch = as_state(model, factor, parts)
    after = jax.tree.map(jnp.add, state, batch)
    psi, at_model = step_gradient(model, factor, state, after, FLOOR)
    limit = most(model, batch)
    # Beyond what is possible the sums are worth nothing, nor is NaN: the recursion restarts from
    # this batch, and θ coasts on what the optimiser remembers. Staying, all rows as one batch would
    # be refused for ever.
    possible = psi <= limit + 1e-6 * jnp.abs(limit)
    after = jax.tree.map(lambda both, one: jnp.where(possible, both, one), after, batch)
    told = fixed, coordinates, values, memory, at_model, possible, prior_share, rate
    values, memory, wrong = _followed(*told)
    return values, memory, after, psi, wrong


def _followed(
    fixed: tuple[Transformation, tuple[tuple[str, Prior], ...]],
    coordinates: Coordinates,
    values: Values,
    memory: Any,
    at_model: Model,
    possible: Scalar,
    prior_share: Scalar,
    rate: Scalar,
) -> tuple[Values, Any, Scalar]:
    """A step along the gradient of ψ_k; without it, where ψ_k is not possible."""
    optimizer, priors = fixed
    at_model = jax.tree.map(lambda g: jnp.where(possible, g, 0.0), at_model)
    gradient = coordinates.gradient(values, at_model)
    new_values, new_memory, wrong = ascend(
        optimizer, priors, coordinates, values, memory, gradient, prior_share, rate
    )
    # While warming up, the optimiser does not remember either.
    memory = jax.tree.map(lambda new, old: jnp.where(rate > 0.0, new, old), new_memory, memory)
    return new_values, memory, jnp.maximum(wrong, 1 - jnp.asarray(possible, int))


_follow = functools.partial(quick_jit, static_argnums=0, donate_argnums=3)(_followed)
