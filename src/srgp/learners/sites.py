"""Learning with running sites: a stochastic bound without the factor D of the recursive gradient.

The data enter the posterior of the weights only through Φ and b. Running averages of them, the
sites, give a posterior q at any time; θ steps up the mini-batch bound under q, whose gradient needs
one product forward and one back (in the spirit of Adam, Chang, Khan and Solin 2021).
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Float

from srgp.blocks import learned as blocks_of
from srgp.blocks import pulled
from srgp.checks import as_count
from srgp.collapsed import RawCotangent, factorise, inverse_and_log_determinant, traces
from srgp.compiled import quick_jit
from srgp.learners.base import Listener, Task, kept, model_at
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
from srgp.linalg import steadied
from srgp.model import Model
from srgp.parameters import Coordinates, Prior, Values
from srgp.precision import Array, Scalar
from srgp.sensitivity import shaped_like
from srgp.slopes import Raw, pullback_inducing


class State(NamedTuple):
    """Sites, and all that a step changes."""

    values: Values
    memory: Any
    Phi: Float[Array, "M M"]  # running estimate of Φ of all rows
    b: Float[Array, "M *Q"]


@dataclasses.dataclass(frozen=True)
class Sites:
    """Learns θ on mini-batches under a posterior from running sites. For VFE.

    batch_size:    rows of a mini-batch; by default 1000, or 10 for each inducing input if more.
    epochs:        passes over the data.
    learning_rate: of the logarithms of positive parameters, and of R in units of its spread.
    memory:        how much of the sites stays at each step: 0 takes them from the batch alone. A
                   short memory follows θ faster, a long one is truer to all the data.
    optimizer:     "adam", "amsgrad", "sgd", or any from optax.
    schedule:      "cosine" to zero over all epochs, "constant", or a function of the share done.

    A run-away is noticed by the mini-batch bound itself: where its average over a window of steps
    falls below the best one by more than its scatter explains, learning goes back to where the best
    window ended, at half the rate. What mini-batches cannot see, for they flatter themselves, the
    bound of all data does, or of 2¹⁵ rows at random (100 for each inducing input, if more): the θ
    with the best one at the end of an epoch is given back, or the start, and learning goes back to
    it, at half the rate, once more than half of what was gained is lost.

    >>> import srgp
    >>> srgp.Sites(epochs=5).learning_rate
    0.05
    """

    batch_size: int | None = None
    epochs: int = 10
    learning_rate: float = 0.05
    memory: float = 0.1
    optimizer: Optimizer = "adam"
    schedule: Schedule = "cosine"

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            as_count(self.batch_size, "batch_size")
        as_count(self.epochs, "epochs")
        check_optimizer(self.optimizer)
        as_schedule(self.schedule)
        check_rate(self.learning_rate)
        if not 0.0 <= self.memory < 1.0:
            raise ValueError(f"memory must lie in [0, 1), got {self.memory}.")

    def run(self, task: Task, report: Listener) -> None:
        """One report an epoch."""
        check_learnable(task.coordinates.template)
        task = kept(task)
        memory = as_optimizer(self.optimizer).init(task.start)
        # The sites take their shape from the first batch.
        state = State(task.start, memory, jnp.zeros(0), jnp.zeros(0))
        place = Place(state, 0, Guard.start(state), Best(-math.inf, state), -math.inf)
        epoch = functools.partial(self._epoch, task, Judge(task))
        run_epochs(task, report, self.epochs, place, epoch)

    def _epoch(self, task: Task, judge: Judge, number: int, place: "Place") -> tuple["Place", Told]:
        optimizer, schedule = as_optimizer(self.optimizer), as_schedule(self.schedule)
        model = task.coordinates.template
        chosen = self.batch_size or default_batch_size(model)
        size = min(chosen, task.rows)
        steps = -(-task.rows // size)
        window = max(5, min(20, steps))
        state, done, guard, best, before = place
        done = int(done)
        estimate, heard = jnp.zeros(()), jnp.zeros(())
        refused, rate = jnp.zeros((), int), 0.0
        for batch in task.source.batches(size, task.seed + number):
            if not (batch[2] > 0.0).any():
                continue
            share = schedule(done / (self.epochs * steps))
            rate = float(guard.factor) * self.learning_rate * share
            model = model_at(task.coordinates, state.values)
            blocks, raw = blocks_of(model, batch)
            if done == 0:
                state = _first(optimizer, state.values, raw)
                before = judge(state.values)
                best = Best(before, state)
            keep = self.memory if done else 0.0
            at, gradient, elbo, state = _sites_cotangent(model, state, raw, task.present, keep)
            gradient = pulled(model, at, gradient, blocks)
            state, wrong = _step((optimizer, task.priors), task.coordinates, state, gradient, rate)
            guard, state = guard.watch(elbo, state, window)
            # A batch without a finite bound, whose step was refused, tells nothing.
            tells = jnp.isfinite(elbo)
            estimate, heard = estimate + jnp.where(tells, elbo, 0.0), heard + tells
            refused, done = refused + wrong, done + 1
        after = judge(state.values)
        best = best.or_else(after, state)
        if not after >= 0.5 * (best.objective + before):
            state = best.place
            guard = Guard.start(state, 0.5 * float(guard.factor))
        steps = done - int(place.done)
        told = Told(best.place.values, estimate / heard, rate, refused, steps)
        return Place(state, done, guard.packed(), best, before), told


class Guard(NamedTuple):
    """Keeps the state after the best window of steps, and goes back to it after a bad one."""

    factor: Any  # of the learning rate
    best: Any  # the mean bound of the best window
    kept: State  # after it
    recent: Any  # bounds of the window that is not full yet

    @classmethod
    def start(cls, state: State, factor: float = 1.0) -> "Guard":
        """Nothing seen yet."""
        return cls(factor, -math.inf, state, jnp.zeros(0))

    def packed(self) -> "Guard":
        """The same with the bounds in one array."""
        return self._replace(recent=jnp.asarray(self.recent))

    def watch(self, elbo: Scalar, state: State, window: int) -> tuple["Guard", State]:
        """The state to go on from; numbers are looked at once a window only."""
        recent = [*self.recent, elbo]
        if len(recent) < window:
            return self._replace(recent=recent), state
        values = jnp.stack(recent)
        mean, scatter = float(jnp.mean(values)), float(jnp.std(values))
        guard, best = self._replace(recent=[]), float(self.best)
        if math.isfinite(best) and not mean > best - 4.0 * scatter - 1e-3 * abs(best):
            return guard._replace(factor=0.5 * float(self.factor)), self.kept
        if math.isfinite(mean) and mean > best:
            guard = guard._replace(best=mean, kept=state)
        return guard, state


class Place(NamedTuple):
    """Where Sites stand between two epochs."""

    state: State
    done: int  # steps
    guard: Guard
    best: Best  # of the start and the ends of epochs
    before: Any  # the objective of the start


def default_batch_size(model: Model) -> int:
    """Enough rows for a batch to tell something about every inducing input."""
    return max(1000, 10 * len(model.inducing))


def check_learnable(model: Model) -> None:
    """Sites need the trace term of VFE."""
    if not traces(model.approximation):
        raise ValueError(
            f"srgp.Sites learns the VFE bound, the model has {model.approximation!r}: learn it "
            "with srgp.Exact or srgp.SRGP, or use approximation=srgp.VFE() for learning."
        )


@functools.partial(quick_jit, static_argnums=0)
def _first(optimizer: Transformation, values: Values, raw: Raw) -> State:
    Phi, b = jnp.zeros_like(raw.Phi), jnp.zeros_like(raw.b)
    return State(values, optimizer.init(values), Phi, b)


@quick_jit
def _sites_cotangent(
    model: Model, state: State, raw: Raw, rows: Scalar, keep: Scalar
) -> tuple[RawCotangent, Model, Scalar, State]:
    """Update the sites; the mini-batch bound under q, its derivatives, and what comes through K."""
    scale = rows / raw.n
    Phi = keep * state.Phi + (1.0 - keep) * scale * raw.Phi
    b = keep * state.b + (1.0 - keep) * scale * raw.b
    factor = factorise(model.kernel.covariance(model.inducing, model.inducing))
    # Any sites give a bound, these as well as those without.
    precision = steadied(Phi) / model.noise
    elbo, at = site_bound(factor, raw, model.noise, precision, b / model.noise, scale)
    kernel, R = pullback_inducing(model.kernel, model.inducing, factor.K, at.K)
    return at, shaped_like(model, kernel, at.noise, R), elbo, state._replace(Phi=Phi, b=b)


def site_bound(
    factor: Any,
    raw: Raw,
    noise: Scalar,
    precision: Float[Array, "M M"],
    shift: Float[Array, "M *Q"],
    scale: Scalar,
) -> tuple[Scalar, RawCotangent]:
    """The bound of all data estimated from a batch, under q(w) = N(P λ₁, P), P = (K + λ₂)⁻¹:

    scale·E_q[log N(y; Kᵀw, σ²/w_i)] − scale·Σ d/2σ² − KL(q ‖ N(0, K⁻¹)),

    and its derivatives, the sites λ₁ (`shift`) and λ₂ (`precision`) held fixed.
    """
    K, Ki, beta, Q = factor.K, factor.inverse, 1.0 / noise, raw.c.size
    P, log_det = inverse_and_log_determinant(K + precision)
    w = (P @ shift).reshape(len(K), -1)
    b = raw.b.reshape(w.shape)
    Phi_w, K_w = raw.Phi @ w, K @ w
    misfit = (
        jnp.sum(raw.c)
        + jnp.sum(w * (Phi_w - 2.0 * b))
        + Q * (raw.kappa + jnp.sum((P - Ki) * raw.Phi))
    )
    kl = 0.5 * (Q * (jnp.sum(K * P) - len(K) + log_det - factor.log_determinant) + jnp.sum(w * K_w))
    log_noise = raw.n * jnp.log(2.0 * jnp.pi * noise) - raw.log_weight
    elbo = -0.5 * scale * (Q * log_noise + beta * misfit) - kl
    weight, ww = scale * beta, w @ w.T
    at_w = -weight * (Phi_w - b) - K_w
    through_w = (P @ at_w) @ w.T
    at_K = 0.5 * (
        Q * (P @ (weight * raw.Phi + K) @ P - weight * Ki @ raw.Phi @ Ki)
        - (through_w + through_w.T)
        - Q * (2.0 * P - Ki)
        - ww
    )
    at_noise = 0.5 * scale * beta * (beta * misfit - Q * raw.n)
    return elbo, RawCotangent(
        at_K,
        -0.5 * weight * (ww + Q * (P - Ki)),
        (weight * w).reshape(raw.b.shape),
        -0.5 * weight * Q,
        at_noise,
    )


@functools.partial(quick_jit, static_argnums=0)
def _step(
    fixed: tuple[Transformation, tuple[tuple[str, Prior], ...]],
    coordinates: Coordinates,
    state: State,
    gradient: Model,
    rate: Scalar,
) -> tuple[State, Scalar]:
    optimizer, priors = fixed
    at_values = coordinates.gradient(state.values, gradient)
    values, memory, wrong = ascend(
        optimizer,
        priors,
        coordinates,
        state.values,
        state.memory,
        at_values,
        jnp.ones(()),
        rate,
    )
    return state._replace(values=values, memory=memory), wrong
