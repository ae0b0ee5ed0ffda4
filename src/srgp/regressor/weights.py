"""Weights that count rows, as everywhere in scikit-learn, and sums that rows can have."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from srgp.sources import Arrays
from srgp.statistics import Statistics

# Of correlations: sums of 10⁹ rows round by 1e-11 at most, a row too many is 1/n of them.
ROUNDING = 1e-10
MERGED_BELOW = 10_000  # rows up to which repeated rows are looked for


@dataclasses.dataclass(frozen=True)
class Repeats:
    """What the bound lacks where a weight w means that a row stands w times, not one of σ²/w.

    Both give the same posterior; only the number of rows in n log 2πσ² differs, and so this is a
    function of σ² alone, which learning takes as a prior of the noise.
    """

    extra: float  # Q (Σ w − n)

    def __call__(self, noise: Any) -> Any:
        """−½ Q (Σ w − n) log 2πσ²."""
        return -0.5 * self.extra * jnp.log(2.0 * jnp.pi * noise)


def merge_repeats(source: Arrays) -> Arrays:
    """Few rows: sorted, each distinct one once, with the sum of its weights.

    So that a row given twice, or once with weight 2, is the same to the last bit.
    """
    if len(source.X) > MERGED_BELOW:
        return source
    present = source.w > 0.0
    if not present.any():
        raise ValueError("every row has weight 0: there is nothing to learn from.")
    rows = np.column_stack([source.X, source.y])[present]
    distinct, where = np.unique(rows, axis=0, return_inverse=True)
    inputs = source.X.shape[1]
    y = distinct[:, inputs:].reshape(len(distinct), *source.y.shape[1:])
    return Arrays(distinct[:, :inputs], y, np.bincount(where.ravel(), source.w[present]))


def check_left(before: Statistics, after: Statistics) -> None:
    """A ValueError where what is left after unlearning can be the sums of no rows at all.

    [[A, b], [bᵀ, c]] is a sum of squares, and so has no negative eigenvalue.
    """
    for mine, old in zip(_squares(after), _squares(before), strict=True):
        scale = np.sqrt(np.where(np.diag(old) > 0.0, np.diag(old), 1.0))
        if np.linalg.eigvalsh(mine / np.outer(scale, scale))[0] < -ROUNDING * len(old):
            raise ValueError(
                "some of these rows were never learned, or with other values or weights: without "
                "them the sums would be impossible. Nothing was unlearned."
            )


def _squares(statistics: Statistics) -> list[np.ndarray]:
    """The sums of squares and products, a matrix for each output."""
    A, b, c = (np.asarray(part) for part in statistics.sums[:3])
    pairs = zip(b.reshape(len(A), -1).T, c.reshape(-1), strict=True)
    return [np.block([[A, bq[:, None]], [bq[None, :], cq]]) for bq, cq in pairs]
