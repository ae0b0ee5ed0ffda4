"""Standardised inputs and targets around a learner, and the way back to the user's units."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from jaxtyping import Float

from srgp.drawing import Picker, drawn
from srgp.sources import Batch, Sampled, Source, Spread, random_rows, reduced

T = TypeVar("T")

AMIDST = 1024  # rows whose mean is a point amidst the data
ROWS = 65536  # of a batch, for moments


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
    def of(cls, source: Source, some: Batch | None = None) -> tuple[Self, float]:
        """Weighted means and deviations of one pass, and the sum of the weights.

        A constant column keeps its scale. `some` are a few of the rows, if they are known already.
        """
        X, y, w = random_rows(source, AMIDST, 0) if some is None else some
        # About a point amidst the data, squares lose nothing to cancellation.
        about = _About.of(*((a, np.average(a, 0, w)) for a in (X, y)))
        return cls._from(about, reduced(source, _moments, about))

    @classmethod
    def with_rows(cls, source: Source, count: int, seed: int) -> tuple[Batch, Self, float]:
        """So many rows at random, and what `of` gives; one pass, where rows have to be read."""
        if isinstance(source, Sampled):
            some = random_rows(source, count, seed)
            return some, *cls.of(source, some)
        picker = Picker(drawn(source.present(), count, seed))
        about: _About | None = None
        sums: Any = None
        for batch in source.batches(ROWS):
            picker.see(batch)
            if about is None:
                present = batch[2] > 0.0
                rows = [a[present if present.any() else ...] for a in batch[:2]]
                about = _About.of(*((a, a.mean(0)) for a in rows))
            new = _block_moments(*batch, about)
            sums = new if sums is None else tuple(map(np.add, sums, new))
        assert about is not None
        return picker.found(), *cls._from(about, sums)

    @classmethod
    def _from(cls, about: "_About", moments: tuple[np.ndarray, ...]) -> tuple[Self, float]:
        total, *sums = moments
        points, units = (about.x, about.y), (about.x_unit, about.y_unit)
        for name, unit, squares in zip("Xy", units, sums[2:], strict=True):
            _check_finite(unit, squares, name)
        (x_mean, x_spread), (y_mean, y_spread) = (
            _centre_and_spread(point, unit, first / total, second / total)
            for point, unit, first, second in zip(points, units, sums[:2], sums[2:], strict=True)
        )
        return cls(x_mean, x_spread, y_mean, y_spread), float(total)

    @classmethod
    def identity(cls, inputs: int, outputs: tuple[int, ...]) -> Self:
        """Everything stays as it is."""
        return cls(np.zeros(inputs), np.ones(inputs), np.zeros(outputs), np.ones(outputs))

    def inputs(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """X as the model sees it."""
        _check_shape(X, self.x_centre, "X", "inputs")
        return (X - self.x_centre) / self.x_spread

    def inputs_back(self, X: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
        """X in the user's units."""
        return X * self.x_spread + self.x_centre

    def targets(self, y: Float[np.ndarray, "N *Q"]) -> Float[np.ndarray, "N *Q"]:
        """y as the model sees it."""
        _check_shape(y, self.y_centre, "y", "outputs")
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


def _check_finite(unit: np.ndarray, squares: np.ndarray, name: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        wrong = np.flatnonzero(~np.isfinite(np.atleast_1d(squares * unit * unit)))
    if wrong.size:
        raise ValueError(
            f"{name} has numbers too large to be squared, first in column {wrong[0]}: give it in "
            "larger units."
        )


def _check_shape(rows: np.ndarray, like: np.ndarray, name: str, what: str) -> None:
    # NumPy would repeat a single column, without a word.
    if rows.shape[1:] != like.shape:
        raise ValueError(
            f"{name} has {what} of shape {rows.shape[1:]}, but {like.shape} were learned: give "
            "rows with the same columns."
        )


def scaled(source: Source, scaler: Scaler) -> "Scaled":
    """A source as the model sees it: here, or where its parts are."""
    return (ScaledParts if isinstance(source, Spread) else Scaled)(source, scaler)


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

    def sample(self, count: int, seed: int) -> Batch:
        """So many rows at random, or all there are."""
        X, y, w = random_rows(self.source, count, seed)
        return self.scaler.inputs(X), self.scaler.targets(y), w


class ScaledParts(Scaled):
    """The same of data in several places: each part is standardised where it is."""

    source: Spread

    def reduce(self, work: Callable[..., T], *shared: Any) -> T:
        """The sum of work(part, *shared) over all parts."""
        return self.source.reduce(_work_scaled, self.scaler, work, *shared)

    def kept(self) -> Self:
        """The same, for many passes."""
        return type(self)(self.source.kept(), self.scaler)

    def rounds(self, size: int, seed: int) -> Iterator[Self]:
        """All rows once, in random batches of about `size`."""
        for batch in self.source.rounds(size, seed):
            yield type(self)(batch, self.scaler)


def _work_scaled(part: Source, scaler: Scaler, work: Callable[..., T], *shared: Any) -> T:
    return work(Scaled(part, scaler), *shared)


class _About(NamedTuple):
    """A point amidst the rows, and powers of two as large as they are spread about it.

    In such units, which change no digit, the squares of very small numbers do not vanish.
    """

    x: np.ndarray
    y: np.ndarray
    x_unit: np.ndarray
    y_unit: np.ndarray

    @classmethod
    def of(cls, *rows_and_points: tuple[np.ndarray, np.ndarray]) -> Self:
        """From some of the rows of X and of y, each with a point amidst them."""
        with np.errstate(over="ignore"):  # told by `_check_finite`
            spreads = [np.max(np.abs(rows - point), axis=0) for rows, point in rows_and_points]
        units = (np.ldexp(1.0, np.frexp(spread)[1]) for spread in spreads)
        return cls(*(point for _, point in rows_and_points), *units)


def _moments(source: Source, about: _About) -> tuple[np.ndarray, ...]:
    """Of all rows about a point; see `_block_moments`."""
    sums: Any = None
    for batch in source.batches(ROWS):
        new = _block_moments(*batch, about)
        sums = new if sums is None else tuple(map(np.add, sums, new))
    assert sums is not None
    return sums


def _block_moments(
    X: np.ndarray, y: np.ndarray, w: np.ndarray, about: _About
) -> tuple[np.ndarray, ...]:
    """Σw, Σw(x − x0), Σw(y − y0), Σw(x − x0)², Σw(y − y0)², in the units of `about`."""
    with np.errstate(over="ignore", invalid="ignore"):  # told by `_check_finite`
        X, y = (X - about.x) / about.x_unit, (y - about.y) / about.y_unit
        return (w.sum(), *(np.tensordot(w, a, 1) for a in (X, y, X**2, y**2)))


def _centre_and_spread(
    about: np.ndarray, unit: np.ndarray, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations from the moments about a point; where a column is constant, 1."""
    mean, spread = about + unit * first, unit * np.sqrt(np.maximum(second - first**2, 0.0))
    return mean, np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)
