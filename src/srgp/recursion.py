"""The steps of the square-root Kalman filter, in compiled code: see `srgp.filtering`."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from srgp.approximations import PITC, Approximation, Observation
from srgp.bound import WeightPosterior, terms
from srgp.compiled import quick_jit
from srgp.linalg import cholesky, inverse_lower, lower_factor, solve
from srgp.model import Basis
from srgp.moving import scatter, transfer
from srgp.precision import Array, Scalar
from srgp.sums import Sums, observe

# Samples whose updates of the M×M root are applied together.
GROUP = 16


class State(NamedTuple):
    """v | y_1:k ~ N(mean, root rootᵀ), and the cumulative bound Σ ψ_k over n rows."""

    mean: Float[Array, "M *Q"]
    root: Float[Array, "M M"]
    log_bound: Scalar
    n: Scalar


def _step(
    state: State,
    h: Float[Array, " M"],
    y: Float[Array, "*Q"],
    log_noise: Scalar,
    a: Scalar,
    present: Scalar,
) -> State:
    """One row y = hᵀv + N(0, 1). Padding has h = 0 and y = 0, and changes nothing."""
    phi = h @ state.root  # much faster than root.T @ h in XLA
    s = 1.0 + phi @ phi
    r = y - h @ state.mean
    gain = state.root @ phi / s
    return State(
        mean=state.mean + jnp.multiply.outer(gain, r),
        # Potter: S(I − γφφᵀ) with γ = 1/(s + √s), so that SSᵀ loses exactly s·gain·gainᵀ.
        root=state.root - jnp.outer(gain, phi) / (1.0 + 1.0 / jnp.sqrt(s)),
        log_bound=state.log_bound + _psi(r, s, log_noise, a, present),
        n=state.n + present,
    )


def _psi(r: Float[Array, "*Q"], s: Scalar, log_noise: Scalar, a: Scalar, present: Scalar) -> Scalar:
    """ψ = log N(r; 0, s) − a in the units of the data, summed over outputs; 0 for padding."""
    log_variance = jnp.log(2.0 * jnp.pi) + log_noise + jnp.log(s)
    return -present * 0.5 * (r.size * log_variance + jnp.sum(r**2) / s) - r.size * a


@functools.partial(jax.jit, static_argnums=0)
def update_one(
    approximation: Approximation, basis: Basis, state: State, sample: Float[Array, " D+2"]
) -> State:
    """One sample (x, y, w) as a row of D + 2 numbers."""
    if isinstance(approximation, PITC):
        approximation = PITC(block_size=1)
    X, y, weights = sample[None, :-2], sample[-2:-1], sample[-1:]
    seen = observe(approximation, basis, X, y, weights, basis.noise)
    row = (seen.W[:, 0], seen.y[0], seen.log_noise[0], seen.regulariser[0], seen.present[0])
    return _step(state, *row)


@functools.partial(quick_jit, static_argnums=0)
def observed(
    approximation: Approximation,
    basis: Basis,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> Observation:
    """A block as rows with unit noise: all that depends on the kernel and the model."""
    return observe(approximation, basis, X, y, weights, basis.noise)


# Loops over steps run faster in XLA's usual code, slow to compile: once for all kernels.
@jax.jit
def learned(state: State, seen: Observation, count: Int[Array, ""]) -> State:
    """The first `count` rows of a padded block, one after the other, `GROUP` at a time."""
    rows = (seen.W.T, seen.y, seen.log_noise, seen.regulariser, seen.present)
    groups = tuple(_in_groups(part) for part in rows)
    return jax.lax.fori_loop(
        0, -(-count // GROUP), lambda g, state: _steps(state, *(part[g] for part in groups)), state
    )


def _in_groups(part: Float[Array, "B ..."]) -> Float[Array, "_ G ..."]:
    """Rows by groups, the last filled with zeros: padding, as `_step` has it."""
    missing = -len(part) % GROUP
    filled = jnp.pad(part, [(0, missing)] + [(0, 0)] * (part.ndim - 1)) if missing else part
    return filled.reshape(-1, GROUP, *part.shape[1:])


def _steps(
    state: State,
    H: Float[Array, "G M"],
    y: Float[Array, "G *Q"],
    log_noise: Float[Array, " G"],
    a: Float[Array, " G"],
    present: Float[Array, " G"],
) -> State:
    """G steps of `_step`, with S touched once: S ← ST, T = Π_k (I − γ_k φ_k φ_kᵀ).

    As blocks of Householder reflections are: T = I − YᵀZ grows by a row of Y and Z a step, at a
    cost of O(GM), and the mean is kept as μ + Sq.
    """
    C, residual = H @ state.root, y - H @ state.mean

    def step(k: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        Y, Z, q, log_bound = carry
        phi = C[k] - (Y @ C[k]) @ Z
        T_phi = phi - (Z @ phi) @ Y
        s = 1.0 + phi @ phi
        r = residual[k] - C[k] @ q
        return (
            Y.at[k].set(T_phi / (s + jnp.sqrt(s))),
            Z.at[k].set(phi),
            q + jnp.multiply.outer(T_phi / s, r),
            log_bound + _psi(r, s, log_noise[k], a[k], present[k]),
        )

    start = (jnp.zeros_like(H), jnp.zeros_like(H), jnp.zeros_like(state.mean), state.log_bound)
    Y, Z, q, log_bound = jax.lax.fori_loop(0, GROUP, step, start)
    return State(
        mean=state.mean + state.root @ q,
        root=state.root - (state.root @ Y.T) @ Z,
        log_bound=log_bound,
        n=state.n + jnp.sum(present),
    )


@functools.partial(quick_jit, plain=True, static_argnums=0)
def from_sums(
    approximation: Approximation, sums: Sums, noise: Scalar
) -> tuple[State, WeightPosterior]:
    """The state that these sums lead to, and the weights to report on."""
    values, weights = terms(approximation, sums, noise)
    root = inverse_lower(weights.lower).T
    return State(weights.mean, root, jnp.sum(values), jnp.asarray(sums.n)), weights


@functools.partial(quick_jit, plain=True)
def forget_data(state: State, factor: Scalar) -> State:
    """Λ and η of the data scaled by λ: exponential forgetting."""
    # Σ′ = ((1−λ)I + λΣ⁻¹)⁻¹ = S (λI + (1−λ)SᵀS)⁻¹ Sᵀ, and λΣ′Σ⁻¹ = I − (1−λ)Σ′.
    S = state.root
    C = lower_factor(factor * jnp.eye(len(S)) + (1.0 - factor) * (S.T @ S))
    root = jax.scipy.linalg.solve_triangular(C, S.T, lower=True).T
    mean = state.mean - (1.0 - factor) * (root @ (root.T @ state.mean))
    return state._replace(mean=mean, root=root)


@functools.partial(quick_jit, plain=True)
def forget_towards_prior(state: State, factor: Scalar) -> State:
    """Mean √λ μ and covariance λΣ + (1 − λ)I: a random walk back to the prior."""
    S = state.root
    root = lower_factor(factor * (S @ S.T) + (1.0 - factor) * jnp.eye(len(S)))
    return state._replace(mean=jnp.sqrt(factor) * state.mean, root=root)


@functools.partial(quick_jit, plain=True)
def moved(
    state: State, G: Float[Array, "M M2"], ratio: Scalar
) -> tuple[State, jax.Array, jax.Array]:
    """The state at other inducing inputs, G = L⁻¹K_RR′L′⁻ᵀ; and the factor, with its jitter."""
    # A = Σ⁻¹ − I and b = Σ⁻¹μ of the data alone; A′ = ratio·GᵀAG, b′ = ratio·Gᵀb.
    M = len(state.root)
    columns = jnp.concatenate([G, state.mean.reshape(M, -1)], 1)
    solved = solve(state.root, columns)
    Z, z = solved[:, : G.shape[1]], solved[:, G.shape[1] :]
    B = jnp.eye(G.shape[1]) + ratio * (Z.T @ Z - G.T @ G)
    lower, jitter = cholesky(B, jnp.diagonal(B))
    root = inverse_lower(lower).T
    mean = (root @ (root.T @ (ratio * Z.T @ z))).reshape(G.shape[1], *state.mean.shape[1:])
    return state._replace(mean=mean, root=root), lower, jitter


@functools.partial(quick_jit, plain=True)
def lost(old: Basis, new: Basis, root: Float[Array, "M M"]) -> jax.Array:
    """½ tr AC with A = Σ⁻¹ − I of the data alone, and C the scatter of the old inducing points."""
    C = scatter(old, new, transfer(old, new))
    return 0.5 * (jnp.trace(solve(root, solve(root, C).T)) - jnp.trace(C))
