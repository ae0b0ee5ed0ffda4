"""The paper's recursive gradient propagation for the user: sums of rows that know their derivative.

For SRGP's own loop see `srgp.learners`; what both are made of is in `srgp.sensitivity`.
"""

import dataclasses
import functools
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_inputs, as_targets, as_weights, padded_blocks
from srgp.compiled import quick_jit
from srgp.linalg import quiet_blas
from srgp.model import Model
from srgp.precision import double
from srgp.sensitivity import (
    Dense,
    Parts,
    State,
    as_state,
    batch_parts,
    factor_of,
    finite_gradient,
    parts_rows,
    state_gradient,
    whitener_for,
)
from srgp.slopes import Raw
from srgp.sums import Sums


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sensitivities:
    """Additive summary of data under one model that also knows its derivative in θ.

    `+`, `-` and a factor work as for `Statistics`. Memory: O(M²(D + P)) for SoR, DTC, VFE and
    TighterVFE with P kernel parameters, O(M³D) for the other models.

    >>> import numpy as np, srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> first = srgp.sensitivities(model, [[0.1], [0.4]], [1.0, 0.5])
    >>> both = first + srgp.sensitivities(model, [[0.9]], [0.2])
    >>> both
    Sensitivities(rows=3, inducing=2)
    >>> value, gradient = both.value_and_grad()
    >>> gradient.inducing.shape
    (2, 1)
    """

    model: Model
    state: State

    @property
    def n(self) -> float:
        """How many rows were learned."""
        return float(_sums(self.state).n)

    def __add__(self, other: Self) -> Self:
        return self._combine(other, 1.0)

    def __radd__(self, other: int) -> Self:
        return self if other == 0 else NotImplemented

    def __sub__(self, other: Self) -> Self:
        return self._combine(other, -1.0)

    def __mul__(self, factor: float) -> Self:
        if not np.isfinite(factor) or factor < 0.0:
            raise ValueError(f"sensitivities can be scaled by a finite factor ≥ 0, got {factor}.")
        return dataclasses.replace(self, state=jax.tree.map(lambda x: factor * x, self.state))

    __rmul__ = __mul__

    def _combine(self, other: Self, sign: float) -> Self:
        if not isinstance(other, Sensitivities):
            return NotImplemented
        # The slopes hold σ² or not as the sums do, but they all belong to one θ.
        if other.model.fingerprint != self.model.fingerprint:
            raise ValueError(
                "these sensitivities belong to models with different kernel parameters, inducing "
                "inputs, approximation or noise: make them at one model."
            )
        state = jax.tree.map(lambda x, y: x + sign * y, self.state, other.state)
        return dataclasses.replace(self, state=state)

    @double
    def value_and_grad(self) -> tuple[float, Model]:
        """The bound of the rows summed up so far, and its gradient in the shape of a model."""
        value, gradient = _state_gradient(jax.tree.map(jnp.asarray, self.model), self.state, None)
        return finite_gradient(value, gradient)

    def __repr__(self) -> str:
        return f"Sensitivities(rows={self.n:g}, inducing={len(self.model.inducing)})"


@double
def sensitivities(
    model: Model, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> Sensitivities:
    """The sums of data X (N, D), y (N,) or (N, Q), and their derivatives in θ; O(NM²(D + P)).

    Proposition 1 of the paper, for every model and kernel: the gradients of the steps, each the
    difference that one batch makes, add up to the gradient of the batch bound.

    >>> import srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> value, gradient = srgp.sensitivities(model, [[0.5]], [1.0]).value_and_grad()
    >>> round(value - srgp.log_bound(model, srgp.summarise(model, [[0.5]], [1.0])), 9) + 0.0
    0.0
    """
    X = as_inputs(X, columns=model.inducing.shape[1])
    y = as_targets(y, len(X))
    weights = as_weights(sample_weight, len(X))
    at = jax.tree.map(jnp.asarray, model)
    with quiet_blas():
        blocks = padded_blocks((X, y, weights), parts_rows(model, len(X)))
        total = batch_parts(at, whitener_for(at), blocks)
    return Sensitivities(model, jax.tree.map(np.asarray, _as_state(at, total)))


def _sums(state: State) -> Raw | Sums:
    return state.sums if isinstance(state, Dense) else state.raw


_state_gradient = functools.partial(quick_jit, static_argnums=2)(state_gradient)


@quick_jit
def _as_state(model: Model, parts: Parts) -> State:
    return as_state(model, factor_of(model, None), parts)
