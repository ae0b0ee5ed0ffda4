"""SRGP, the paper's algorithm: stochastic gradients by recursive propagation (section 4)."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from srgp.checks import as_count
from srgp.collapsed import FLOOR
from srgp.learners.base import Listener, Report, Task, batch_shape, chunks
from srgp.learners.stepping import (
    Optimizer,
    Schedule,
    as_optimizer,
    as_schedule,
    ascend,
    check_rate,
)
from srgp.model import Model
from srgp.parameters import Coordinates, Prior, Values
from srgp.precision import Scalar
from srgp.sensitivity import Parts, State, as_state, block_parts, parts_rows, step_gradient


@dataclasses.dataclass(frozen=True)
class SRGP:
    """Learns θ along recursive passes over the data: the paper's stochastic algorithm.

    In every epoch the rows are reshuffled and the recursion restarts from the prior. The k-th batch
    adds ψ_k(θ) to the bound; its gradient, through the posterior of all batches before (eq. 27,
    28), gives one step of the optimiser.

    batch_size:    rows of a mini-batch.
    epochs:        passes over the data.
    learning_rate: of the logarithms of positive parameters, and of R in units of its spread.
    optimizer:     "adam", "amsgrad", "sgd", or any from optax, which then brings its own rate:
                   learning_rate multiplies it.
    schedule:      "cosine" to zero over all epochs, "constant", or a function of the share done.
    warm_up:       batches at the start of each epoch that are learned without a step: they see
                   little but the prior, and their gradients are large and of another kind.
    average:       the last share of all steps whose θ are averaged for the result.

    `SRGP.paper(learning_rate)` has the paper's settings: no schedule, no warm-up, no average.

    >>> import srgp
    >>> srgp.SRGP(epochs=5).epochs
    5
    """

    batch_size: int = 5000
    epochs: int = 20
    learning_rate: float = 0.05
    optimizer: Optimizer = "adam"
    schedule: Schedule = "cosine"
    warm_up: int = 1
    average: float = 0.0

    def __post_init__(self) -> None:
        as_count(self.batch_size, "batch_size")
        as_count(self.epochs, "epochs")
        as_optimizer(self.optimizer)
        as_schedule(self.schedule)
        check_rate(self.learning_rate)

    @classmethod
    def paper(cls, learning_rate: float, batch_size: int = 5000, epochs: int = 50) -> "SRGP":
        """The algorithm as published.

        >>> import srgp
        >>> srgp.SRGP.paper(learning_rate=0.001).schedule
        'constant'
        """
        return cls(batch_size, epochs, learning_rate, schedule="constant", warm_up=0)

    def run(self, task: Task, report: Listener) -> None:
        """One report an epoch."""
        optimizer, schedule = as_optimizer(self.optimizer), as_schedule(self.schedule)
        template = task.coordinates.template
        unit = getattr(template.approximation, "block_size", 1)
        size, rows = batch_shape(
            self.batch_size, task.rows, parts_rows(template, self.batch_size), unit
        )
        steps = -(-task.rows // size)
        # With one batch an epoch, there is nothing but the first.
        warm_up = min(self.warm_up, steps - 1)
        values, memory = task.start, optimizer.init(task.start)
        mean, averaged, done = values, 0, 0
        for epoch in range(self.epochs):
            state: State | None = None
            estimate, refused, rate = jnp.zeros(()), jnp.zeros((), int), 0.0
            for k, batch in enumerate(task.source.batches(size, task.seed + epoch)):
                if not (batch[2] > 0.0).any():
                    continue
                rate = self.learning_rate * schedule(done / (self.epochs * steps))
                model = _model(task.coordinates, values)
                parts = functools.reduce(
                    _add, (block_parts(model, *c) for c in chunks(batch, rows))
                )
                if state is None:
                    state = _nothing(model, parts)
                values, memory, state, psi, wrong = _step(
                    (optimizer, task.priors),
                    task.coordinates,
                    values,
                    memory,
                    state,
                    parts,
                    1.0 / steps,
                    rate if k >= warm_up else 0.0,
                )
                estimate, refused, done = estimate + psi, refused + wrong, done + 1
                if done > (1.0 - self.average) * self.epochs * steps:
                    averaged += 1
                    mean = _towards(mean, values, 1.0 / averaged)
            last = epoch == self.epochs - 1 and averaged > 0
            stop = report(
                Report(
                    mean if last else values,
                    epoch + 1.0,
                    estimate=float(estimate),
                    learning_rate=rate,
                    refused=int(refused),
                )
            )
            if stop:
                return


@jax.jit
def _model(coordinates: Coordinates, values: Values) -> Model:
    return coordinates.model(values)


@jax.jit
def _add(total: Parts, parts: Parts) -> Parts:
    return jax.tree.map(jnp.add, total, parts)


@jax.jit
def _nothing(model: Model, parts: Parts) -> State:
    return jax.tree.map(jnp.zeros_like, as_state(model, parts))


@jax.jit
def _towards(mean: Values, values: Values, share: Scalar) -> Values:
    return jax.tree.map(lambda m, v: m + share * (v - m), mean, values)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(3, 4))
def _step(
    fixed: tuple[optax.GradientTransformation, tuple[tuple[str, Prior], ...]],
    coordinates: Coordinates,
    values: Values,
    memory: Any,
    state: State,
    parts: Parts,
    prior_share: Scalar,
    rate: Scalar,
) -> tuple[Values, Any, State, Scalar, Scalar]:
    """Add a batch to the state, and step along ∂ψ_k."""
    optimizer, priors = fixed
    model = coordinates.model(values)
    after = jax.tree.map(jnp.add, state, as_state(model, parts))
    psi, at_model = step_gradient(model, state, after, FLOOR)
    gradient = coordinates.gradient(values, at_model)
    new_values, new_memory, wrong = ascend(
        optimizer, priors, coordinates, values, memory, gradient, prior_share, rate
    )
    # While warming up, the optimiser does not remember either.
    memory = jax.tree.map(lambda new, old: jnp.where(rate > 0.0, new, old), new_memory, memory)
    return new_values, memory, after, psi, wrong
