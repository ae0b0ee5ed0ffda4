"""The exact bound and gradient where V̄ ≠ 0: whitened sums, blocks by automatic differentiation."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from srgp.bound import terms
from srgp.compiled import quick_jit
from srgp.linalg import Whitener, assemble
from srgp.model import Basis, Model, lower_of, whitener_of
from srgp.precision import Array, Scalar
from srgp.sensitivity import shaped_like
from srgp.sources import Source, Spread, reduced
from srgp.statistics import part_rows
from srgp.sums import Sums, block_sums


def differentiated(model: Model, source: Source, rows: int) -> tuple[Scalar, Model]:
    """Bound and gradient of any model, in blocks of so many rows."""
    whiten = whitener_of(model.kernel, model.inducing)
    rows_there = None if isinstance(source, Spread) else rows
    sums = reduced(source, _first_whitened, model, whiten, rows_there)
    value, at_sums, at_noise = _cotangent(model, sums)
    pulled = reduced(source, _second_whitened, model, whiten, at_sums, rows_there)
    return value, _finish_whitened(model, pulled, at_noise)


def _plus(total: Any, new: Any) -> Any:
    return new if total is None else jax.tree.map(jnp.add, total, new)


def _first_whitened(source: Source, model: Model, whiten: Whitener, rows: int | None) -> Sums:
    total: Any = None
    for block in source.batches(rows or part_rows(model, source)):
        total = _add_whitened(model, whiten, total, *block)
    return total


def _second_whitened(
    source: Source, model: Model, whiten: Whitener, at_sums: Sums, rows: int | None
) -> tuple[Model, Array]:
    pulled: Any = None
    for block in source.batches(rows or part_rows(model, source)):
        pulled = _pull_whitened(model, whiten, at_sums, pulled, *block)
    return pulled


@functools.partial(quick_jit, donate_argnums=2)
def _add_whitened(model: Model, whiten: Whitener, total: Sums | None, *block: Array) -> Sums:
    return _plus(total, _whole_sums(model, whiten, *block))


def _whole_sums(model: Model, whiten: "Whitener | Tracked", *block: Array) -> Sums:
    basis = Basis(model.kernel, model.inducing, whiten, model.noise)  # type: ignore[arg-type]
    sums = block_sums(model.approximation, basis, *block)
    return sums._replace(A=assemble(sums.A))  # type: ignore[arg-type]


class Tracked(NamedTuple):
    """A whitener whose factor L is differentiated by hand: L̄ = −L⁻ᵀ W̄ Wᵀ, K̄ = L⁻ᵀ W̄."""

    lower: Float[Array, "M M"]
    whiten: Whitener

    def __call__(self, K: Float[Array, "M B"]) -> Float[Array, "M B"]:
        """W = L⁻¹K."""
        return _solve(self.lower, self.whiten, K)


@jax.custom_vjp
def _solve(lower: Array, whiten: Whitener, K: Array) -> Array:
    return whiten(K)


def _solve_forward(lower: Array, whiten: Whitener, K: Array) -> tuple[Array, Any]:
    W = whiten(K)
    return W, (whiten, W)


def _solve_backward(saved: Any, at_W: Array) -> tuple[Array, Any, Array]:
    whiten, W = saved
    at_K = whiten.inverse.T @ at_W
    return -jnp.tril(at_K @ W.T), jax.tree.map(jnp.zeros_like, whiten), at_K


_solve.defvjp(_solve_forward, _solve_backward)


@quick_jit
def _cotangent(model: Model, sums: Sums) -> tuple[Scalar, Sums, Scalar]:
    def bound(sums: Sums, noise: Scalar) -> Scalar:
        return jnp.sum(terms(model.approximation, sums, noise)[0])

    value, (at_sums, at_noise) = jax.value_and_grad(bound, (0, 1))(sums, model.noise)
    return value, at_sums, at_noise


@functools.partial(quick_jit, donate_argnums=3)
def _pull_whitened(
    model: Model, whiten: Whitener, at_sums: Sums, total: Any, *block: Array
) -> tuple[Model, Array]:
    def sums(model: Model, lower: Array) -> Sums:
        return _whole_sums(model, Tracked(lower, whiten), *block)

    _, pull = jax.vjp(sums, model, whiten.lower)
    return _plus(total, pull(at_sums))


@quick_jit
def _finish_whitened(model: Model, pulled: tuple[Model, Array], at_noise: Scalar) -> Model:
    """Add what came through L, the factor of K_RR, and through σ²."""
    gradient, at_lower = pulled
    _, pull = jax.vjp(lambda model: lower_of(model.kernel, model.inducing)[0], model)
    gradient = jax.tree.map(jnp.add, gradient, pull(at_lower)[0])
    return shaped_like(model, gradient.kernel, gradient.noise + at_noise, gradient.inducing)
