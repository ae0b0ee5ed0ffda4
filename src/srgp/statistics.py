"""The one idea: a sparse GP posterior is a sum over data.

Batches, streams, machines and forgetting are all ways to add up the same few numbers.
"""

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from srgp.approximations import PITC, Approximation, Observation
from srgp.checks import as_inputs, as_targets, as_weights, padded_blocks
from srgp.linalg import assemble, gram_rows
from srgp.model import Basis, Model
from srgp.precision import Array, Scalar, double

# About this many entries of k(R, X) at a time: fast products, buffers that stay in reach.
BLOCK_ENTRIES = 2**20


class Sums(NamedTuple):
    """What a sparse model remembers of its data, with W = L⁻¹K_RX and K_RR = LLᵀ:

    A = W V⁻¹ Wᵀ,  b = W V⁻¹ y,  c = yᵀV⁻¹y,  log_noise = log |V|,  a, and n rows.

    Where V̄ = 0, V is divided by σ² (see `at_noise`), so that σ can change at any time.
    """

    A: Float[Array, "M M"]
    b: Float[Array, "M *Q"]
    c: Float[Array, "*Q"]
    log_noise: Scalar
    a: Scalar
    n: Scalar


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Additive summary of data under one model: size O(M²), whatever the number of rows.

    Add to learn together, subtract to unlearn, multiply by a factor below 1 to forget:

    >>> import numpy as np, srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=np.linspace(0, 1, 5)[:, None])
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> first, rest = srgp.summarise(model, X[:5], np.sin(X[:5, 0])), srgp.summarise(
    ...     model, X[5:], np.sin(X[5:, 0]))
    >>> first + rest
    Statistics(rows=20, inducing=5)
    >>> (first + rest) - first
    Statistics(rows=15, inducing=5)
    >>> 0.5 * rest
    Statistics(rows=7.5, inducing=5)

    The prior is kept out, so a merge never counts it twice. Statistics of models that differ in
    kernel, inducing inputs, approximation (or noise, where the sums hold it) are refused.
    """

    sums: Sums
    fingerprint: str

    @property
    def n(self) -> float:
        """How many rows were learned; a fraction after forgetting."""
        return float(self.sums.n)

    def __add__(self, other: Self) -> Self:
        return self._combine(other, 1.0)

    def __radd__(self, other: int) -> Self:
        # Python's sum() starts from 0.
        return self if other == 0 else NotImplemented

    def __sub__(self, other: Self) -> Self:
        difference = self._combine(other, -1.0)
        if difference is NotImplemented:
            return difference
        if difference.n < -0.5:
            raise ValueError(
                f"cannot unlearn {other.n:g} rows from statistics of {self.n:g} rows: "
                "only what was learned can be removed."
            )
        return difference

    def __mul__(self, factor: float) -> Self:
        if not np.isfinite(factor) or factor < 0.0:
            raise ValueError(f"statistics can be scaled by a finite factor ≥ 0, got {factor}.")
        scaled = as_sums(np.asarray(x) * factor for x in self.sums)
        return dataclasses.replace(self, sums=scaled)

    __rmul__ = __mul__

    def _combine(self, other: Self, sign: float) -> Self:
        if not isinstance(other, Statistics):
            return NotImplemented
        if other.fingerprint != self.fingerprint:
            raise ValueError(
                "these statistics belong to models with different kernel parameters, inducing "
                "inputs, approximation or noise. Summarise the data again at one model, or bring "
                "one over with srgp.move(statistics, old_model, new_model)."
            )
        if np.shape(self.sums.b) != np.shape(other.sums.b):
            raise ValueError(
                f"statistics of targets with different outputs cannot be combined: b has shapes "
                f"{np.shape(self.sums.b)} and {np.shape(other.sums.b)}."
            )
        pairs = zip(self.sums, other.sums, strict=True)
        return dataclasses.replace(self, sums=as_sums(np.add(x, sign * y) for x, y in pairs))

    def __repr__(self) -> str:
        return f"Statistics(rows={self.n:g}, inducing={len(self.sums.b)})"


@double
def summarise(
    model: Model, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> Statistics:
    """The statistics of data X (N, D), y (N,) or (N, Q), under `model`; O(NM²), one pass.

    sample_weight: w ≥ 0 of shape (N,), the noise variance of row i being σ²/w_i. Weight 2 is not
    the same as two rows: it says that one measurement is twice as precise.

    >>> import numpy as np, srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> srgp.summarise(model, [[0.5], [0.7]], [1.0, 2.0])
    Statistics(rows=2, inducing=2)
    """
    X = as_inputs(X, columns=model.inducing.shape[1])
    y = as_targets(y, len(X))
    weights = as_weights(sample_weight, len(X))
    return summarise_blocks(model, padded_blocks((X, y, weights), block_rows(model)))


@double
def summarise_blocks(model: Model, blocks: Iterable[tuple[np.ndarray, ...]]) -> Statistics:
    """The statistics of checked blocks of (X, y, weights), each of `block_rows(model)` rows."""
    approximation, basis = model.approximation, model.basis
    total: Any = None
    for block in blocks:
        if total is None:
            total = _start(approximation, basis, *block)
        total = _add_block(approximation, basis, *total, *block)
    sums = as_sums(np.asarray(x) for x in _whole(total[0]))
    return Statistics(sums, model.fingerprint)


def block_rows(model: Model) -> int:
    """Rows of one compiled block: one shape for each model, whatever the number of rows."""
    rows = int(2 ** round(np.log2(np.clip(BLOCK_ENTRIES / len(model.inducing), 256, 8192))))
    if isinstance(model.approximation, PITC):
        size = model.approximation.block_size
        return max(rows // size, 1) * size
    return rows


def rows_for(model: Model, count: int, at_most: int | None = None) -> int:
    """As `block_rows`, but fewer for few rows: in steps of two, so that shapes stay few."""
    size = getattr(model.approximation, "block_size", 1)
    bucket = 2 ** int(np.ceil(np.log2(max(count, 256))))
    rows = min(bucket, block_rows(model), at_most or bucket)
    return int(max(-(-rows // size), 1) * size)


def as_sums(parts: Iterable[Any]) -> Sums:
    """Sums from NumPy arrays, which statistics are kept in."""
    return Sums(*parts)


def observe(
    approximation: Approximation,
    basis: Basis,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
    noise: Scalar,
) -> Observation:
    """A batch as rows of a linear regression with unit noise, in the whitened basis."""
    return approximation.observe(basis.kernel, basis.project, X, y, noise, weights)


def block_sums(
    approximation: Approximation,
    basis: Basis,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> Sums:
    """The sums of one block; A as the block rows of its lower half, until `_whole`.

    Whitening comes before squaring, which would lose twice the digits: see docs/design.md.
    """
    noise = jnp.ones(()) if approximation.noise_free else basis.noise
    seen = observe(approximation, basis, X, y, weights, noise)
    return Sums(
        A=gram_rows(seen.W),  # type: ignore[arg-type]
        b=seen.W @ seen.y,
        c=jnp.sum(seen.y**2, 0),
        log_noise=jnp.sum(seen.log_noise),
        a=jnp.sum(seen.regulariser),
        n=jnp.sum(seen.present),
    )


@functools.partial(jax.jit, static_argnums=0)
def _start(approximation: Approximation, basis: Basis, *block: Array) -> tuple[Sums, Sums]:
    """Nothing seen, and no rounding error so far."""
    shapes = jax.eval_shape(functools.partial(block_sums, approximation), basis, *block)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape), shapes)
    return zeros, zeros


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(2, 3))
def _add_block(
    approximation: Approximation, basis: Basis, total: Sums, rounding: Sums, *block: Array
) -> tuple[Sums, Sums]:
    # Kahan's summation: the error does not grow with the number of blocks.
    new = block_sums(approximation, basis, *block)
    term = jax.tree.map(jnp.subtract, new, rounding)
    updated = jax.tree.map(jnp.add, total, term)
    rounding = jax.tree.map(lambda u, t, x: (u - t) - x, updated, total, term)
    return updated, rounding


@jax.jit
def _whole(total: Sums) -> Sums:
    return total._replace(A=assemble(total.A))  # type: ignore[arg-type]


def at_noise(approximation: Approximation, sums: Sums, noise: Scalar) -> Sums:
    """The sums with V at noise variance σ², from the noise-free form where the model allows it."""
    if not approximation.noise_free:
        return sums
    return Sums(
        A=sums.A / noise,
        b=sums.b / noise,
        c=sums.c / noise,
        log_noise=sums.log_noise + sums.n * jnp.log(noise),
        a=sums.a / noise,
        n=sums.n,
    )


def check_belongs(model: Model, statistics: Statistics) -> None:
    """Refuse statistics that were made at another θ."""
    if statistics.fingerprint != model.fingerprint:
        raise ValueError(
            "these statistics were made with a model of other kernel parameters, inducing inputs, "
            "approximation or noise: summarise the data again with this model, or bring them over "
            "with srgp.move(statistics, old_model, new_model)."
        )
