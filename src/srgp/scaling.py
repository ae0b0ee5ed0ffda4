"""Standardised inputs and targets around a learner, and the way back to the user's units."""

import dataclasses
from collections.abc import Iterator
from typing import Self

import numpy as np
from jaxtyping import Float

from srgp.sources import Batch, Source


@dataclasses.dataclass(frozen=True)
class Scaler:
    """x ↦ (x − centre)/spread for inputs, and the same for targets; the identity if all is trivial.

    >>> import numpy as np
    >>> from srgp.scaling import Scaler
    >>> from srgp.sources import Arrays
    >>> scaler, weight = Scaler.of(Arrays([[1.0, 5.0], [3.0, 5.0]], [10.0, 30.0]))
    >>> scaler.inputs(np.array([[3.0, 5.0]])), scaler.targets(np.array([30.0]))
    (array([[1., 0.]]), array([1.]))
    """

    x_centre: Float[np.ndarray, " D"]
    x_spread: Float[np.ndarray, " D"]
    y_centre: Float[np.ndarray, "*Q"]
    y_spread: Float[np.ndarray, "*Q"]

    @classmethod
    def of(cls, source: Source, rows: int = 65536) -> tuple[Self, float]:
        """Weighted means and deviations of one pass, and the sum of the weights.

        A constant column keeps its scale.
        """
        total = 0.0
        moments: tuple[np.ndarray, ...] = (np.zeros(()),) * 4
        for X, y, w in source.batches(rows):
            if not w.any():
                continue
            # Chan's update: means and squared deviations of batches combine without cancellation.
            added = w.sum()
            share, total = added / (total + added), total + added
            new = (*_moments(X, w), *_moments(y, w))
            moments = tuple(
                combined
                for i in (0, 2)
                for combined in _combine(moments[i : i + 2], new[i : i + 2], total - added, share)
            )
        if total == 0.0:
            raise ValueError("every row has weight 0: there is nothing to learn from.")
        x_mean, x_squares, y_mean, y_squares = moments
        x_spread, y_spread = _spread(x_mean, x_squares / total), _spread(y_mean, y_squares / total)
        return cls(x_mean, x_spread, y_mean, y_spread), total

    @classmethod
    def identity(cls, inputs: int, outputs: tuple[int, ...]) -> Self:
        """Everything stays as it is."""
        return cls(np.zeros(inputs), np.ones(inputs), np.zeros(outputs), np.ones(outputs))

    def inputs(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """X as the model sees it."""
        return (X - self.x_centre) / self.x_spread

    def inputs_back(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """X in the user's units."""
        return X * self.x_spread + self.x_centre

    def targets(self, y: Float[np.ndarray, "N *Q"]) -> Float[np.ndarray, "N *Q"]:
        """y as the model sees it."""
        return (y - self.y_centre) / self.y_spread

    def targets_back(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Targets, means or samples in the user's units."""
        return y * self.y_spread + self.y_centre

    def log_scale(self) -> float:
        """Σ log spread of the outputs: a density of y is that of its scaled value, less this."""
        return float(np.sum(np.log(self.y_spread)))

    def arrays(self) -> dict[str, np.ndarray]:
        """The four arrays by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclasses.dataclass(frozen=True)
class Scaled:
    """A source whose batches arrive standardised; nothing is copied ahead."""

    source: Source
    scaler: Scaler

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded; in a random order if a seed is given."""
        for X, y, w in self.source.batches(size, seed):
            yield self.scaler.inputs(X), self.scaler.targets(y), w

    def count(self) -> int:
        """How many rows there are."""
        return self.source.count()

    def present(self) -> int:
        """How many of them have a weight above 0."""
        return self.source.present()


def _moments(a: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean, and weighted sum of squared deviations from it."""
    mean = np.tensordot(w, a, 1) / w.sum()
    return mean, np.tensordot(w, (a - mean) ** 2, 1)


def _combine(
    old: tuple[np.ndarray, ...], new: tuple[np.ndarray, ...], before: float, share: float
) -> tuple[np.ndarray, np.ndarray]:
    step = new[0] - old[0]
    return old[0] + share * step, old[1] + new[1] + before * share * step**2


def _spread(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Standard deviations; where a column is constant to rounding, 1."""
    spread = np.sqrt(variance)
    return np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)
