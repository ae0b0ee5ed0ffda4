"""Learning θ from a stream: every row is seen once, and the past only through its sums."""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from srgp.approximations import Approximation
from srgp.bound import terms
from srgp.checks import as_count, as_inputs, as_targets, as_weights, padded_blocks
from srgp.compiled import quick_jit
from srgp.learners.stepping import (
    Optimizer,
    Transformation,
    as_optimizer,
    ascend,
    check_optimizer,
    check_rate,
)
from srgp.linalg import assemble, whitener
from srgp.model import Basis, Model, lower_of
from srgp.moving import carried, moved_sums
from srgp.parameters import Coordinates, Values
from srgp.precision import Array, Scalar, double
from srgp.statistics import Statistics, check_belongs, rows_for, summarise
from srgp.sums import Sums, block_sums

# Rows that one step differentiates at once.
MOST_ROWS = 2048


class Followed(NamedTuple):
    """What a batch made of model and statistics, and what the optimiser remembers for the next."""

    model: Model
    statistics: Statistics
    memory: list[np.ndarray] | None


@dataclasses.dataclass(frozen=True)
class OnePass:
    """Learns θ along a stream, with the posterior carried to each new θ; constant memory.

    With S the sums of the rows before, made at θ, and S_k(θ′) those of a new batch, θ′ climbs

        F(θ′) = Ψ(θ′; S moved to θ′ + S_k(θ′)) − ½ tr Λ(K_RR − Q_RR),

    a few steps from θ. The first term is the bound, the past moved as `srgp.move` does. The second,
    `srgp.move_loss`, is what f(R) scatters about its prediction from f(R′), weighed by what the
    data said of it: it keeps inducing inputs where they hold something (Bui, Nguyen, Turner 2017,
    in information form). Where F ends below its start, θ stays.

    steps:         of the optimiser, for each batch.
    learning_rate: of the logarithms of positive parameters, and of R in units of its spread.
    optimizer:     as for `srgp.SRGP`; it remembers from batch to batch.
    fixed:         names of parameters to keep, such as "inducing" or "kernel.variance". Where the
                   sums hold σ² (FITC, FIC, PITC, PEP, TighterVFE), the noise is kept anyway.

    >>> import numpy as np, srgp
    >>> model = srgp.Model(srgp.kernels.SE(lengthscales=3.0), 1.0, np.linspace(0, 6, 8)[:, None])
    >>> rng, follow, memory = np.random.default_rng(0), srgp.OnePass(steps=5), None
    >>> X = rng.uniform(0, 6, (400, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=400)
    >>> statistics = srgp.summarise(model, X[:50], y[:50])
    >>> for i in range(50, 400, 50):
    ...     model, statistics, memory = follow.update(
    ...         model, statistics, X[i : i + 50], y[i : i + 50], memory=memory)
    >>> statistics
    Statistics(rows=400, inducing=8)
    >>> bool(model.noise < 1.0)
    True
    """

    steps: int = 3
    learning_rate: float = 0.02
    optimizer: Optimizer = "adam"
    fixed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        as_count(self.steps, "steps")
        check_optimizer(self.optimizer)
        check_rate(self.learning_rate)
        fixed = (self.fixed,) if isinstance(self.fixed, str) else tuple(self.fixed)
        object.__setattr__(self, "fixed", fixed)

    @double
    def update(
        self,
        model: Model,
        statistics: Statistics,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        memory: list[np.ndarray] | None = None,
        repeated: float = 0.0,
    ) -> Followed:
        """Learn a batch X (B, D), y (B,) or (B, Q), and let θ follow; O(BM² + M³) a step.

        memory:   of the optimiser, from the batch before; None for the first. One of other
                  shapes, from another optimiser or other `fixed`, is left aside.
        repeated: rows, in the past and in this batch, that weights stand for beyond their number.
        """
        X = as_inputs(X, columns=model.inducing.shape[1])
        y = as_targets(y, len(X))
        weights = as_weights(sample_weight, len(X))
        check_belongs(model, statistics)
        rows = rows_for(model, min(len(X), MOST_ROWS), at_most=MOST_ROWS)
        for block in padded_blocks((X, y, weights), rows):
            model, statistics, memory = self._follow(model, statistics, block, memory, repeated)
        return Followed(model, statistics, memory)

    def _follow(
        self,
        model: Model,
        statistics: Statistics,
        block: tuple[np.ndarray, ...],
        memory: list[np.ndarray] | None,
        repeated: float,
    ) -> Followed:
        optimizer = as_optimizer(self.optimizer)
        coordinates = jax.tree.map(jnp.asarray, Coordinates.of(model, self._fixed(model)))
        values = coordinates.values(model)
        new_memory = _remembered(optimizer.init(values), memory)
        past = (model.basis, statistics.sums, np.float64(repeated))
        reached = []
        for k in range(self.steps + 1):
            rate = self.learning_rate if k < self.steps else 0.0  # the last only looks
            last = values
            values, new_memory, value = _climb(
                optimizer, coordinates, values, new_memory, past, rate, *block
            )
            reached.append(float(value))
        # NaN compares false.
        if not reached[-1] >= reached[0]:
            return Followed(model, statistics + summarise(model, *block), memory)
        new = jax.tree.map(np.asarray, coordinates.model(last))
        moved, _ = carried(statistics, model, new)
        # Plain arrays, which a file can hold.
        kept = [np.asarray(leaf) for leaf in jax.tree.leaves(new_memory)]
        return Followed(new, moved + summarise(new, *block), kept)

    def _fixed(self, model: Model) -> Iterable[str]:
        return self.fixed if model.approximation.noise_free else {*self.fixed, "noise"}


def _remembered(fresh: Any, memory: list[np.ndarray] | None) -> Any:
    """What the optimiser remembers, where it is of this kind; else what it starts with."""
    leaves, structure = jax.tree.flatten(fresh)
    if memory is None or [np.shape(x) for x in memory] != [np.shape(x) for x in leaves]:
        return fresh
    return jax.tree.unflatten(structure, memory)


@functools.partial(quick_jit, static_argnums=0)
def _climb(
    optimizer: Transformation,
    coordinates: Coordinates,
    values: Values,
    memory: Any,
    past: tuple[Basis, Sums, Scalar],
    rate: Scalar,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> tuple[Values, Any, Scalar]:
    """One step up F, and F before it."""

    def objective(values: Values) -> Scalar:
        return _objective(coordinates.model(values), past, X, y, weights)

    value, gradient = jax.value_and_grad(objective)(values)
    new_values, new_memory, _ = ascend(
        optimizer, (), coordinates, values, memory, gradient, jnp.zeros(()), rate
    )
    return new_values, new_memory, value


def _objective(
    model: Model, past: tuple[Basis, Sums, Scalar], X: Array, y: Array, weights: Array
) -> Scalar:
    old, sums, repeated = past
    approximation: Approximation = model.approximation
    factor = whitener(*lower_of(model.kernel, model.inducing))
    new = Basis(model.kernel, model.inducing, factor, model.noise)
    fresh = block_sums(approximation, new, X, y, weights)
    fresh = fresh._replace(A=assemble(fresh.A))  # type: ignore[arg-type]
    total = jax.tree.map(jnp.add, moved_sums(old, new, sums)[0], fresh)
    # A weight that counts rows leaves n log 2πσ² short of them.
    short = 0.5 * sums.c.size * repeated * jnp.log(2.0 * jnp.pi * model.noise)
    return jnp.sum(terms(approximation, total, model.noise)[0]) - short
