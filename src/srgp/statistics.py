"""The one idea: a sparse GP posterior is a sum over data.

Batches, streams, machines and forgetting are all ways to add up the same few numbers.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from srgp.approximations import PITC
from srgp.blas import Triangle, executor, grouped, in_order, mirrored, workers
from srgp.checks import as_inputs, as_number, as_targets, as_weights, finite, padded_blocks
from srgp.linalg import quiet_blas
from srgp.model import Basis, Model
from srgp.precision import double
from srgp.sources import Batch, Held, Source, reduced
from srgp.sums import CarefulSum, Sums, as_sums, group_sums, single_sums

# About this many entries of k(R, X) at a time: fast products, buffers that stay in reach.
BLOCK_ENTRIES = 2**20
# Entries of it that are worth the calls of compiled code for a block, and still near the core.
WORTH_A_CALL = 2**17.5
# Up to here a stream's small batches cost no more than they must.
FEW = 256
# About so many rows are added up plainly, before one careful addition; few enough of them that all
# cores end at about the same time.
GROUP_ROWS = 2**13


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Additive summary of data under one model: size O(M²), whatever the number of rows.

        A = W V⁻¹ Wᵀ,  b = W V⁻¹ y,  c = yᵀV⁻¹y,  log|V|,  a,  n;   W = L⁻¹ k(R, X),  K_RR = LLᵀ

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
        factor = as_number(factor, "the factor of statistics")
        if not 0.0 <= factor < np.inf:
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

        A = Σ W V⁻¹ Wᵀ,  b = Σ W V⁻¹ y,  c = Σ yᵀV⁻¹y,  Σ log|V|,  Σ a,  n     over blocks of rows

    with σ² = 1 in V and a where the model allows it, see `Statistics`. (paper: eq. 15)

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
        sums = single_sums(model, single, X[0], y[0], weights[0])
    else:
        blocks = padded_blocks((X, y, weights), block_rows(model, len(X)))
        sums = summarise_blocks(model, blocks, count=len(X)).sums
    return Statistics(_finite(sums), model.fingerprint)


def summarise_source(model: Model, source: Source) -> Statistics:
    """The statistics of all rows of a source, here or where they are; one pass.

    source: `Batches` or `Arrays` of `srgp.sources`, a table, or `Partitions` on a cluster.

    >>> import srgp
    >>> from srgp.distributed import summarise
    >>> from srgp.sources import Batches
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> summarise(model, Batches([([[0.1], [0.4]], [1.0, 2.0]), ([[0.9]], [3.0])]))
    Statistics(rows=3, inducing=2)
    """
    return summarise_weighed(model, source)[0]


def summarise_weighed(model: Model, source: Source) -> tuple[Statistics, float]:
    """The statistics of a source, and the sum of its rows' weights."""
    # The factor of K_RR goes along: elsewhere it might round differently.
    sums, weight = reduced(source, _sums_and_weight, model, model.basis)
    return Statistics(_finite(sums), model.fingerprint), float(weight)


def _finite(sums: Sums) -> Sums:
    """The sums, unless they overflowed: what they are added to would be lost."""
    for part in sums:
        finite(np.asarray(part), "a sum over these rows")
    return sums


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
    lower = Triangle(np.asarray(basis.whiten.lower))
    work = functools.partial(group_sums, approximation, basis, lower)
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


def check_belongs(model: Model, statistics: Statistics) -> None:
    """Refuse statistics that were made at another θ."""
    if statistics.fingerprint != model.fingerprint:
        raise ValueError(
            "these statistics were made with a model of other kernel parameters, inducing inputs, "
            "approximation or noise: summarise the data again with this model, or bring them over "
            "with srgp.move(statistics, old_model, new_model)."
        )
