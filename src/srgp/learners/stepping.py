"""Optimiser steps in compiled code: any optax optimiser, ascent, and no step into NaN."""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from srgp.parameters import Coordinates, Prior, Values, log_prior
from srgp.precision import Array, Scalar

if TYPE_CHECKING:
    import optax  # takes most of a second: only when a learner needs it

LARGEST_LOGARITHM = 200.0
# A gradient so many times the usual one is the sign of sums that have lost their digits.
OUTLIER, OUTLIER_MEMORY = 5.0, 0.9

NAMED = ("adam", "quick-adam", "amsgrad", "sgd")

Transformation: TypeAlias = "optax.GradientTransformation"
Optimizer: TypeAlias = "str | optax.GradientTransformation"
Schedule: TypeAlias = str | Callable[[float], float]


class Usual(NamedTuple):
    """How large gradients have been: the mean of their squared size, over OUTLIER_MEMORY steps."""

    square: Scalar
    steps: Scalar


def shrink_outliers(times: float) -> Transformation:
    """A gradient `times` larger than usual is shrunk to that: it would blind Adam for long."""
    import optax

    def update(gradient: Any, usual: Usual, values: Any = None) -> tuple[Any, Usual]:
        square = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient))
        known = usual.square / (1.0 - OUTLIER_MEMORY ** jnp.maximum(usual.steps, 1))
        most = jnp.where(usual.steps > 0, times**2 * known, jnp.inf)
        shrunk = jnp.sqrt(jnp.minimum(1.0, most / jnp.maximum(square, 1e-300)))
        seen = jnp.minimum(square, most)
        new = Usual(OUTLIER_MEMORY * usual.square + (1.0 - OUTLIER_MEMORY) * seen, usual.steps + 1)
        return jax.tree.map(lambda leaf: shrunk * leaf, gradient), new

    return optax.GradientTransformation(lambda _: Usual(jnp.zeros(()), jnp.zeros(())), update)


@functools.cache
def _named(name: str) -> Transformation:
    # Made once: compiled steps are found again by these very functions.
    import optax

    made: dict[str, Callable[[], optax.GradientTransformation]] = {
        "adam": optax.scale_by_adam,
        "quick-adam": lambda: optax.chain(shrink_outliers(OUTLIER), optax.scale_by_adam(b2=0.9)),
        "amsgrad": optax.scale_by_amsgrad,
        "sgd": optax.identity,
    }
    return optax.chain(made[name](), optax.scale(-1.0))


def check_optimizer(optimizer: Optimizer) -> None:
    """Refuse what is no optimiser."""
    if isinstance(optimizer, str):
        if optimizer not in NAMED:
            names = ", ".join(NAMED)
            raise ValueError(f"optimizer must be one of {names} or from optax, got {optimizer!r}.")
    elif not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ValueError(f"optimizer must be a name or come from optax, got {optimizer!r}.")


def as_optimizer(optimizer: Optimizer) -> Transformation:
    """A named optimiser at learning rate 1, or the user's own from optax."""
    check_optimizer(optimizer)
    return _named(optimizer) if isinstance(optimizer, str) else optimizer


def as_schedule(schedule: Schedule) -> Callable[[float], float]:
    """The learning rate's factor as a function of the share of all steps done, 0 to 1."""
    if callable(schedule):
        return schedule
    known: dict[str, Callable[[float], float]] = {
        "constant": lambda share: 1.0,
        "cosine": lambda share: 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0))),
    }
    if schedule not in known:
        raise ValueError(f"schedule must be 'constant', 'cosine' or a function, got {schedule!r}.")
    return known[schedule]


def check_rate(learning_rate: float) -> None:
    """Refuse what is no learning rate."""
    if not (math.isfinite(learning_rate) and learning_rate >= 0.0):
        raise ValueError(f"learning_rate must be a finite number ≥ 0, got {learning_rate}.")


def ascend(
    optimizer: Transformation,
    priors: tuple[tuple[str, Prior], ...],
    coordinates: Coordinates,
    values: Values,
    memory: Any,
    gradient: Values,
    prior_share: Scalar,
    learning_rate: Scalar,
) -> tuple[Values, Any, Scalar]:
    """One step up the objective, and 0; where it would leave the finite numbers, none, and 1."""
    if priors:
        at_prior = jax.grad(lambda values: log_prior(priors, coordinates.model(values)))(values)
        gradient = jax.tree.map(lambda g, p: g + prior_share * p, gradient, at_prior)
    descent = jax.tree.map(jnp.negative, gradient)
    updates, new_memory = optimizer.update(descent, memory, values)
    new_values = jax.tree.map(lambda v, u: v + learning_rate * u, values, updates)
    fine = jnp.all(
        jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((new_values, gradient))])
    )
    # The parameters themselves must be numbers, too: exp overflows, and underflows to zero.
    for name in coordinates.logarithmic:
        fine = fine & jnp.all(jnp.abs(new_values[name]) < LARGEST_LOGARITHM)
    keep: Callable[[Array, Array], Array] = lambda new, old: jnp.where(fine, new, old)  # noqa: E731
    return (
        jax.tree.map(keep, new_values, values),
        jax.tree.map(keep, new_memory, memory),
        1 - fine.astype(int),
    )
