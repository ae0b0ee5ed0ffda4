"""Weights that count rows, as everywhere in scikit-learn."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from srgp.sources import Arrays

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
