"""Sums of data that know how they change with θ: the bound and its gradient, batch by batch.

The paper propagates the derivative of the posterior in each of the M·D + D + 2 parameters (eq. 27),
O(BM³D) time and O(M³D) memory. Where V̄ = 0 the derivative has the structure of `srgp.slopes`, which
makes both M times smaller, and nothing is approximated. Where V̄ ≠ 0 (FITC, FIC, PEP, PITC) every
row's noise depends on all of R, and the derivative is dense.

The regulariser a is a sum over rows, too, and is kept as one beside its derivative: taken from Φ
of all batches, at the θ of the moment, it would be the small difference of numbers that are many
times as large, divided by σ².
"""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from srgp.approximations import PITC, Approximation, TighterVFE, unexplained
from srgp.blas import Triangle
from srgp.checks import finite
from srgp.collapsed import (
    TOLERANCE,
    Factor,
    contract,
    factorise,
    raw_is_enough,
    trace_and_cotangents,
    traces,
    untraced_value_and_cotangents,
    value_and_cotangents,
)
from srgp.compiled import quick_jit
from srgp.linalg import Whitener, assemble, cholesky, steadied, whitener
from srgp.model import Basis, Model, whitener_of
from srgp.moments import BLOCK, Explained, se_products
from srgp.precision import Array, HostArray, Scalar
from srgp.slopes import (
    Products,
    Raw,
    Slopes,
    is_se,
    kernel_matrix,
    products,
    pullback_inducing,
    pulled_moments,
    slopes,
)
from srgp.statistics import rows_for
from srgp.sums import Sums, block_sums

# Bytes of temporary memory up to which the C library's allocator keeps pages that were used before.
ARENA = 2**24
# Parameters whose dense derivative is computed together: bounds the memory of a block.
TOGETHER = 16


class Regulariser(NamedTuple):
    """σ²a for VFE, which then is of any noise, a for TighterVFE; and its derivative."""

    a: Scalar
    at: Float[Array, " params"]  # in all parameters of the model, flat


class Structured(NamedTuple):
    """V̄ = 0: raw sums and their slopes, O(M²(D + P)) numbers; None where a = 0."""

    raw: Raw
    slopes: Slopes
    regulariser: Regulariser | None


class Dense(NamedTuple):
    """V̄ ≠ 0: unwhitened sums, and their derivative in every single parameter of the model."""

    sums: Sums
    slopes: Sums  # with a leading axis over the parameters


State: TypeAlias = Structured | Dense
Parts: TypeAlias = Any  # what blocks of one batch add up, before it becomes a state


def is_structured(approximation: Approximation) -> bool:
    """Whether V̄ = 0: then rows are weighed the same whatever R and φ."""
    return approximation.share == 0.0 and not isinstance(approximation, PITC)


def whitener_for(model: Model, tolerance: float = TOLERANCE) -> Whitener | None:
    """The factor of K_RR where VFE's regulariser needs it: Φ alone would not have the digits."""
    if not traces(model.approximation):
        return None
    whiten = whitener_of(model.kernel, model.inducing)
    return None if raw_is_enough(whiten, model.noise, tolerance) else whiten


def batch_parts(
    model: Model, whiten: Whitener | None, blocks: Iterable[tuple[HostArray, ...]]
) -> Parts:
    """The contribution of a batch at θ, in checked blocks of one shape; those of one θ add.

    whiten: from `whitener_for`.
    """
    if not (is_structured(model.approximation) and is_se(model.kernel)):
        return functools.reduce(_add, (_block_parts(model, whiten, *block) for block in blocks))
    if not isinstance(model.approximation, TighterVFE):
        lower = None if whiten is None else Triangle(np.asarray(whiten.lower))
        return se_products(model.kernel, model.inducing, blocks, lower)
    blocks = list(blocks)
    rows = [regulariser_of(model, X, w) for X, _, w in blocks]
    return se_products(model.kernel, model.inducing, blocks)[0], functools.reduce(_add, rows)


def _block_parts(
    model: Model, whiten: Whitener | None, X: HostArray, y: HostArray, w: HostArray
) -> Parts:
    if is_structured(model.approximation):
        K = kernel_matrix(model.kernel, model.inducing, X, w)
        made = _products(model.kernel, model.inducing, K, X, y, w)
        by_rows = whiten is not None or isinstance(model.approximation, TighterVFE)
        return made, regulariser_of(model, X, w) if by_rows else None
    # A few directions at a time: their tangents of k(R, X) are held in memory together.
    count = sum(np.size(leaf) for leaf in jax.tree.leaves(model))
    directions = np.eye(-(-count // TOGETHER) * TOGETHER, count)
    groups = [
        _dense_slopes(model, X, y, w, directions[i : i + TOGETHER])
        for i in range(0, count, TOGETHER)
    ]
    slopes = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *groups)
    return Dense(_unwhitened(model, X, y, w), slopes)


def parts_rows(model: Model, count: int) -> int:
    """Rows of a block: as for statistics, but fewer where many derivatives are held at once."""
    M, D = model.inducing.shape
    if is_structured(model.approximation) and is_se(model.kernel):
        return rows_for(model, count, at_most=max(BLOCK // M, 256))
    # One copy of k(R, X) for each input, or of its derivative in each direction.
    copies = 8 * M * (D + 1 if is_structured(model.approximation) else TOGETHER)
    return rows_for(model, count, at_most=max(ARENA // copies, 64))


def as_state(model: Model, factor: Factor, parts: Parts) -> State:
    """The parts added up over the blocks of a batch, at the θ they were made with."""
    if isinstance(parts, Dense):
        return parts
    made, regulariser = parts
    raw, slopes_ = slopes(model.kernel, model.inducing, made)
    if isinstance(regulariser, Explained):
        regulariser = _from_explained(model, factor, made, regulariser)
    elif regulariser is None and traces(model.approximation):
        regulariser = _from_sums(model, factor, raw, slopes_)
    return Structured(raw, slopes_, regulariser)


def _from_sums(model: Model, factor: Factor, raw: Raw, slopes_: Slopes) -> Regulariser:
    """½ Σ w d = ½ (κ − tr K_RR⁻¹Φ) and its derivative, from the sums of the batch."""
    half, at = trace_and_cotangents(factor, raw)
    at_phi, at_R = contract(at, slopes_)
    through_sums = ravel_pytree(model.kernel)[1](at_phi), at_R
    through_K = pullback_inducing(model.kernel, model.inducing, factor.K, at.K)
    return Regulariser(half, _flat(model, through_sums, through_K))


def _from_explained(model: Model, factor: Factor, made: Products, by: Explained) -> Regulariser:
    """The same from what R explains: the derivative in K is −V, that in K_RR is ½ VVᵀ."""
    assert is_se(model.kernel)
    through_rows = pulled_moments(model.kernel, model.inducing, by.moments, -by.variance)
    through_K = pullback_inducing(model.kernel, model.inducing, factor.K, 0.5 * by.gram)
    prior = ravel_pytree(model.kernel)[1](0.5 * made.kappa), jnp.zeros_like(model.inducing)
    half = 0.5 * jnp.maximum(made.raw.kappa - by.variance, 0.0)
    return Regulariser(half, _flat(model, through_rows, through_K, prior))


def _flat(model: Model, *gradients: tuple[Any, Array]) -> Float[Array, " params"]:
    """The sum of gradients in kernel and R, as one vector in the order of the model's."""
    kernel, R = jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *gradients)
    return ravel_pytree(shaped_like(model, kernel, jnp.zeros(()), R))[0]


def state_gradient(model: Model, state: State, floor: float | None) -> tuple[Scalar, Model]:
    """Ψ(θ; S(θ)) and its derivative in θ, the sums moving with θ along their slopes.

    For sums made at this θ that is the gradient of the bound of all their rows.
    """
    values, gradients = _gradients(model, factor_of(model, floor), [state], floor)
    return values[0], gradients[0]


def step_gradient(
    model: Model, factor: Factor, before: State, after: State, floor: float | None
) -> tuple[Scalar, Model]:
    """The paper's ψ_k and its derivative (eq. 23, 28): what the k-th batch adds to the bound."""
    (psi0, psi1), (at0, at1) = _gradients(model, factor, [before, after], floor)
    return psi1 - psi0, jax.tree.map(jnp.subtract, at1, at0)


def factor_of(model: Model, floor: float | None) -> Factor:
    """K_RR and its inverse, in compiled code."""
    return factorise(model.kernel.covariance(model.inducing, model.inducing), floor)


def most(model: Model, state: State) -> Scalar:
    """What the bound of these rows cannot exceed: that of rows predicted without any error."""
    if isinstance(state, Structured):
        return most_of_raw(state.raw, model.noise)
    sums = state.sums
    return -0.5 * sums.c.size * (sums.n * jnp.log(2.0 * jnp.pi) + sums.log_noise)


def most_of_raw(raw: Raw, noise: Scalar) -> Scalar:
    """The same, from raw sums: log|V| = n log σ² − Σ log w."""
    return -0.5 * raw.c.size * (raw.n * jnp.log(2.0 * jnp.pi * noise) - raw.log_weight)


def _gradients(
    model: Model, factor: Factor, states: list[State], floor: float | None
) -> tuple[list[Scalar], list[Model]]:
    values, gradients = [], []
    for state in states:
        if floor is not None:
            state = _steadied(state)
        value, at_K, gradient = _through_sums(model, factor, state)
        kernel, R = pullback_inducing(model.kernel, model.inducing, factor.K, at_K)
        through_K = shaped_like(model, kernel, jnp.zeros(()), R)
        values.append(value)
        gradients.append(jax.tree.map(jnp.add, gradient, through_K))
    return values, gradients


def _steadied(state: State) -> State:
    if isinstance(state, Dense):
        return state._replace(sums=state.sums._replace(A=steadied(state.sums.A)))
    return state._replace(raw=state.raw._replace(Phi=steadied(state.raw.Phi)))


def _through_sums(model: Model, factor: Factor, state: State) -> tuple[Scalar, Array, Model]:
    """Ψ, its derivative in K_RR, and its gradient through the sums and σ²."""
    if isinstance(state, Dense):
        value, (at_K, at_A, at_b) = value_and_cotangents(factor, state.sums)
        s = state.slopes
        flat = (
            jnp.einsum("mj,pmj->p", at_A, s.A)
            + jnp.einsum("m...,pm...->p", at_b, s.b)
            - 0.5 * jnp.sum(s.c.reshape(len(s.c), -1), 1)
            - state.sums.c.size * (0.5 * s.log_noise + s.a)
        )
        return value, at_K, ravel_pytree(model)[1](flat)
    value, at = untraced_value_and_cotangents(factor, state.raw, model.noise)
    at_phi, at_R = contract(at, state.slopes)
    gradient = shaped_like(model, ravel_pytree(model.kernel)[1](at_phi), at.noise, at_R)
    if state.regulariser is None:
        return value, at.K, gradient
    # VFE's is kept without σ², so that it stands for any.
    times = 1.0 / model.noise if traces(model.approximation) else 1.0
    a, slope = times * state.regulariser.a, ravel_pytree(model)[1](times * state.regulariser.at)
    at_noise = -times * a if traces(model.approximation) else slope.noise
    slope = shaped_like(model, slope.kernel, at_noise, slope.inducing)
    outputs = state.raw.c.size
    gradient = jax.tree.map(lambda g, s: g - outputs * s, gradient, slope)
    return value - outputs * a, at.K, gradient


def shaped_like(model: Model, kernel: Any, noise: Any, R: Any) -> Model:
    """A gradient in the shape of the model."""
    return jax.tree.unflatten(jax.tree.structure(model), [*jax.tree.leaves(kernel), noise, R])


@quick_jit
def regulariser_of(model: Model, X: Array, w: Array) -> Regulariser:
    """a = ½ Σ log(1 + w d/σ²) of TighterVFE, σ²a = ½ Σ w d of VFE; differentiated through L."""
    flat, unravel = ravel_pytree(model)

    def a(flat: Array) -> Scalar:
        model = unravel(flat)
        d = w * unexplained(model.kernel, _basis(model).project(X), X)
        if isinstance(model.approximation, TighterVFE):
            d = jnp.log1p(d / model.noise)
        return 0.5 * jnp.sum(d)

    return Regulariser(*jax.value_and_grad(a)(flat))


def unwhitened(model: Model, X: Array, y: Array, w: Array) -> Sums:
    """The sums of a block with A = K V⁻¹ Kᵀ and b = K V⁻¹ y, differentiable in the model."""
    basis = _basis(model)
    L = basis.whiten.lower
    s = block_sums(model.approximation, basis, X, y, w)
    return s._replace(A=L @ assemble(s.A) @ L.T, b=L @ s.b)  # type: ignore[arg-type]


@quick_jit
def _dense_slopes(
    model: Model, X: Array, y: Array, w: Array, directions: Float[Array, "G params"]
) -> Sums:
    """The derivative of the sums along each direction in the flat parameters."""
    flat, unravel = ravel_pytree(model)

    def along(direction: Array) -> Sums:
        return jax.jvp(lambda f: unwhitened(unravel(f), X, y, w), (flat,), (direction,))[1]

    return jax.vmap(along)(directions)


def _basis(model: Model) -> Basis:
    """A basis that is differentiated through, unlike the one a model keeps."""
    krr = model.kernel.covariance(model.inducing, model.inducing)
    factor = cholesky(krr, jnp.full(len(krr), jnp.max(jnp.diagonal(krr))))
    return Basis(model.kernel, model.inducing, whitener(*factor), model.noise)


def finite_gradient(value: Any, gradient: Model) -> tuple[float, Model]:
    """Value and gradient as NumPy numbers; NaN never leaves silently."""
    for leaf in jax.tree.leaves(gradient):
        finite(np.asarray(leaf), "the gradient of the bound")
    return float(finite(np.asarray(value), "the bound")), jax.tree.map(np.asarray, gradient)


_unwhitened = quick_jit(unwhitened)
_products = quick_jit(products)


@functools.partial(quick_jit, donate_argnums=0)
def _add(total: Parts, parts: Parts) -> Parts:
    return jax.tree.map(jnp.add, total, parts)
