"""The one idea: a sparse GP posterior is a sum over data.

Batches, streams, machines and forgetting are all ways to add up the same few numbers.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from srgp.approximations import PITC, Approximation, Observation, Projection
from srgp.blas import (
    add_gram,
    begun_ahead,
    executor,
    grouped,
    in_order,
    mirrored,
    solve_lower,
    workers,
)
from srgp.checks import as_inputs, as_targets, as_weights, padded_blocks
from srgp.compiled import quick_jit
from srgp.kernels import Stationary
from srgp.kernels.stationary import distances, is_stationary
from srgp.linalg import gram_rows, quiet_blas
from srgp.model import Basis, Model
from srgp.precision import Array, Scalar, double
from srgp.single import Single
from srgp.sources import Batch, Held, Source, reduced

# About this many entries of k(R, X) at a time: fast products, buffers that stay in reach.
BLOCK_ENTRIES = 2**20
# Entries of it that are worth the calls of compiled code for a block, and still near the core.
WORTH_A_CALL = 2**17.5
# Up to here a stream's small batches cost no more than they must.
FEW = 256
# About so many rows are added up plainly, before one careful addition; few enough of them that all
# cores end at about the same time.
GROUP_ROWS = 2**13


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
    single = model.single if len(X) == 1 and weights[0] > 0.0 else None
    if single is not None:
        return Statistics(_single_sums(model, single, X[0], y[0], weights[0]), model.fingerprint)
    rows = block_rows(model, len(X))
    return summarise_blocks(model, padded_blocks((X, y, weights), rows), count=len(X))


def summarise_source(model: Model, source: Source) -> Statistics:
    """The statistics of all rows of a source, here or where they are; one pass."""
    return summarise_weighed(model, source)[0]


def summarise_weighed(model: Model, source: Source) -> tuple[Statistics, float]:
    """The statistics of a source, and the sum of its rows' weights."""
    # The factor of K_RR goes along: elsewhere it might round differently.
    sums, weight = reduced(source, _sums_and_weight, model, model.basis)
    return Statistics(sums, model.fingerprint), float(weight)


def _sums_and_weight(source: Source, model: Model, basis: Basis) -> tuple[Sums, Any]:
    weight = np.zeros(())
    inputs = model.inducing.shape[1]
    rows = block_rows(model, known_count(source))

    def tallied() -> Iterator[Batch]:
        nonlocal weight
        for batch in source.batches(rows):
            if batch[0].shape[1] != inputs:
                as_inputs(batch[0], columns=inputs)  # says what is wrong
            weight = weight + batch[2].sum()
            yield batch

    return summarise_blocks(model, tallied(), basis).sums, weight


@double
def summarise_blocks(
    model: Model,
    blocks: Iterable[tuple[np.ndarray, ...]],
    basis: Basis | None = None,
    count: float = np.inf,
) -> Statistics:
    """The statistics of checked blocks of (X, y, weights), all of the same number of rows.

    count: of all rows, where it is known: few of them are not worth a thread.

    A group of blocks for each core at a time. The groups are the same however many cores there
    are, and added in their order: so is the sum, to the last bit.
    """
    approximation = model.approximation
    basis = model.basis if basis is None else jax.tree.map(jnp.asarray, basis)
    lower = np.ascontiguousarray(basis.whiten.lower)
    work = functools.partial(_group_sums, approximation, basis, lower)
    groups = grouped(blocks, max(GROUP_ROWS // block_rows(model), 1))
    total = CarefulSum()
    with quiet_blas(), executor(2.0 * count * len(lower) ** 2) as pool:
        for sums in in_order(pool, work, groups, workers()):
            total.add(sums)
    return Statistics(total.value._replace(A=mirrored(total.value.A)), model.fingerprint)


def block_rows(model: Model, count: int | None = None) -> int:
    """Rows of one compiled block: two shapes for each model, one for few rows and one for many."""
    rows = int(2 ** round(np.log2(np.clip(BLOCK_ENTRIES / len(model.inducing), FEW, 4096))))
    if count is not None and count <= FEW:
        rows = FEW
    if isinstance(model.approximation, PITC):
        size = model.approximation.block_size
        return max(rows // size, 1) * size
    return rows


def rows_for(model: Model, count: int, at_most: int | None = None) -> int:
    """As `block_rows`, but fewer for few rows, in steps of two, so that shapes stay few; more of
    them for few inducing inputs, so that calls do not cost more than the work.
    """
    size = getattr(model.approximation, "block_size", 1)
    bucket = 2 ** int(np.ceil(np.log2(max(count, 256))))
    many = 2 ** round(np.log2(min(WORTH_A_CALL / len(model.inducing), 2**14)))
    rows = min(bucket, max(block_rows(model), many), at_most or bucket)
    return int(max(-(-rows // size), 1) * size)


def part_rows(model: Model, source: Source) -> int:
    """As `rows_for`, of one part of the data."""
    count = known_count(source)
    return block_rows(model) if count is None else rows_for(model, count)


def known_count(source: Source) -> int | None:
    """How many rows there are, where counting them costs no pass."""
    within = getattr(source, "source", source)  # of scaled rows
    return source.count() if isinstance(within, Held) else None


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
    project: Projection | None = None,
) -> Observation:
    """A batch as rows of a linear regression with unit noise, in the whitened basis."""

    def compiled(X: Array, scale: Array) -> tuple[Array, Array]:
        W = basis.project(X, scale)
        return W, jnp.sum(W**2, 0)

    return approximation.observe(basis.kernel, project or compiled, X, y, noise, weights)


def block_sums(
    approximation: Approximation,
    basis: Basis,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> Sums:
    """The sums of one block, in compiled code; A as the block rows of its lower half.

    Whitening comes before squaring, which would lose twice the digits: see docs/design.md.
    """
    seen = observe(approximation, basis, X, y, weights, _kept_noise(approximation, basis))
    return Sums(
        A=gram_rows(seen.W),  # type: ignore[arg-type]
        b=seen.W @ seen.y,
        c=jnp.sum(seen.y**2, 0),
        log_noise=jnp.sum(seen.log_noise),
        a=jnp.sum(seen.regulariser),
        n=jnp.sum(seen.present),
    )


def _kept_noise(approximation: Approximation, basis: Basis) -> Scalar:
    """The σ² that sums are in units of: 1 where the model allows it, see `at_noise`."""
    return jnp.ones(()) if approximation.noise_free else basis.noise


@functools.partial(quick_jit, static_argnums=0)
def _asked(
    approximation: Approximation,
    basis: Basis,
    r2: Float[Array, "M B"] | None,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> tuple[Float[Array, "M B"], "Rest | None"]:
    """What `observe` wants whitened: k(R, X), in units of the noise where that is known before.

    r2: the distances of a stationary kernel, made in a call of their own. With it comes the rest of
    what is seen, where that does not depend on W: V̄ = 0, and a regulariser that is a trace.
    """
    kernel, asked = basis.kernel, []

    def project(X: Array, scale: Array) -> tuple[Array, Array]:
        if r2 is None:
            K = kernel.covariance(basis.inducing, X)
        else:
            K = cast(Stationary, kernel).at_distance(r2)
        asked.append(K * scale)
        return asked[0], jnp.zeros_like(scale)

    noise = _kept_noise(approximation, basis)
    seen = observe(approximation, basis, X, y, weights, noise, project)
    known = seen.W is asked[0] and approximation.regulariser_slope is not None
    return asked[0], _rest(seen) if known else None


@functools.partial(quick_jit, static_argnums=0)
def _seen(
    approximation: Approximation,
    basis: Basis,
    W: Float[Array, "M B"],
    squares: Float[Array, " B"],
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> tuple[Float[Array, "M B"] | None, "Rest"]:
    """The rest of `observe`, from the whitened matrix; it comes back only if V̄ changed it."""
    noise = _kept_noise(approximation, basis)
    seen = observe(approximation, basis, X, y, weights, noise, lambda X, scale: (W, squares))
    return None if seen.W is W else seen.W, _rest(seen)


class Rest(NamedTuple):
    """What is seen of a block beside W: its targets, and sums over its rows."""

    y: Float[Array, "B *Q"]
    log_noise: Scalar
    a: Scalar
    n: Scalar


def _rest(seen: Observation) -> Rest:
    return Rest(seen.y, *map(jnp.sum, (seen.log_noise, seen.regulariser, seen.present)))


# What overflows is refused where the sums are used, with a message of its own.
@np.errstate(over="ignore", invalid="ignore")
@double
def _group_sums(
    approximation: Approximation,
    basis: Basis,
    lower: np.ndarray,
    blocks: Iterable[tuple[np.ndarray, ...]],
) -> Sums:
    """The sums of a few blocks; A as its lower half.

    Kernel and noise are compiled code; the two products, L⁻¹K and WWᵀ, are triangular and
    symmetric, and so BLAS's: half the flops of a plain product, and a substitution that keeps
    its digits however ill-conditioned K_RR is.
    """
    A, parts = np.zeros(lower.shape), []
    kernel, slope = basis.kernel, approximation.regulariser_slope

    def ask(block: tuple[np.ndarray, ...]) -> tuple[Array, Rest | None]:
        r2 = distances(kernel, basis.inducing, block[0]) if is_stationary(kernel) else None
        return _asked(approximation, basis, r2, *block)

    for block, (asked, rest) in begun_ahead(ask, blocks):
        W = np.asarray(asked)  # its memory: nobody else has seen it, so it may change
        solve_lower(lower, W)
        if rest is None:
            # The regulariser needs those of single rows, or only their sum, the trace of A.
            squares = np.einsum("mb,mb->b", W, W) if slope is None else np.zeros(W.shape[1])
            changed, rest = _seen(approximation, basis, W, squares, *block)
            W = W if changed is None else np.ascontiguousarray(changed)
        add_gram(W, A)
        y, *totals = map(np.asarray, rest)
        parts.append((W @ y, np.sum(y**2, 0), *totals))
    sums = as_sums((A, *(sum(part) for part in zip(*parts, strict=True))))
    return sums if slope is None else sums._replace(a=np.maximum(sums.a - slope * np.trace(A), 0.0))


# What overflows is refused where the sums are used, with a message of its own.
@np.errstate(over="ignore", invalid="ignore")
def _single_sums(model: Model, single: Single, x: np.ndarray, y: np.ndarray, weight: float) -> Sums:
    """The sums of one row, without a compiled call."""
    noise = 1.0 if model.approximation.noise_free else float(model.noise)
    w, y, log_noise, a = single.observe(x, y, weight, noise)
    numbers = (np.asarray(number) for number in (log_noise, a, 1.0))
    return as_sums((np.outer(w, w), np.multiply.outer(w, y), y**2, *numbers))


class CarefulSum:
    """Kahan's summation of `Sums`: the error does not grow with the number of terms."""

    def __init__(self) -> None:
        self.value: Any = None
        self._lost: Any = None

    @np.errstate(over="ignore", invalid="ignore")
    def add(self, term: Sums) -> None:
        """Add one more."""
        if self.value is None:
            self.value, self._lost = term, as_sums(np.zeros_like(x) for x in term)
            return
        term = as_sums(map(np.subtract, term, self._lost))
        value = as_sums(map(np.add, self.value, term))
        gained = map(np.subtract, value, self.value)
        self.value, self._lost = value, as_sums(map(np.subtract, gained, term))


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
