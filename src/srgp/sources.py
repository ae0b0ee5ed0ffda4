"""Where rows of data come from: arrays, or batches that need not fit in memory together."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_inputs, as_targets, as_weights, padded_blocks
from srgp.drawing import Picker, drawn, shuffled_rows
from srgp.reading import ahead

# Inputs (B, D), targets (B,) or (B, Q), weights (B,); weight 0 marks padding.
Batch: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]

T = TypeVar("T")

BUFFER = 8  # batches held back to shuffle a stream of rows
ONCE = 16_384  # rows of a batch, where all are read once


@runtime_checkable
class Source(Protocol):
    """What learners ask of data: passes over batches of a fixed shape, as often as they like."""

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded; in a random order if a seed is given."""
        ...

    def count(self) -> int:
        """How many rows there are."""
        ...

    def present(self) -> int:
        """How many of them have a weight above 0."""
        ...


@runtime_checkable
class Sampled(Source, Protocol):
    """Data that find a few of their rows by themselves."""

    def sample(self, count: int, seed: int) -> Batch:
        """The rows that `drawn` names, of those of weight above 0, in their order."""
        ...


@runtime_checkable
class Spread(Sampled, Protocol):
    """Data in several places, whose parts are worked on where they are: see `srgp.distributed`."""

    def reduce(self, work: Callable[..., T], *shared: Any) -> T:
        """The sum of work(part, *shared) over all parts, each a source: trees of arrays."""
        ...

    def kept(self) -> Any:
        """The same, for many passes over random batches."""
        ...

    def rounds(self, size: int, seed: int) -> Iterator[Any]:
        """All rows once, in random batches of about `size`, each again in several places."""
        ...


def reduced(source: Source, work: Callable[..., T], *shared: Any) -> T:
    """work(source, *shared); or, where the data are in several places, the sum over their parts."""
    return source.reduce(work, *shared) if isinstance(source, Spread) else work(source, *shared)


class Held:
    """Rows in memory that have been checked, of inputs (N, D), targets (N, ...), weights (N,)."""

    def __init__(self, X: np.ndarray, y: np.ndarray, w: np.ndarray) -> None:
        self.X, self.y, self.w = X, y, w

    def __sizeof__(self) -> int:
        # What a cluster goes by when it moves data about.
        return object.__sizeof__(self) + sum(a.nbytes for a in (self.X, self.y, self.w))

    def count(self) -> int:
        """How many rows there are."""
        return len(self.X)

    def present(self) -> int:
        """How many of them have a weight above 0."""
        return int((self.w > 0.0).sum())

    def sample(self, count: int, seed: int) -> Batch:
        """The rows that `drawn` names, of those of weight above 0, in their order."""
        present = np.flatnonzero(self.w > 0.0)
        rows = present[drawn(len(present), count, seed)]
        return self.X[rows], self.y[rows], self.w[rows]

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded; in a random order if a seed is given."""
        arrays = (self.X, self.y, self.w)
        if seed is None:
            yield from padded_blocks(arrays, size)  # type: ignore[misc]
            return
        for rows in shuffled_rows(len(self.X), size, seed):
            (batch,) = padded_blocks(tuple(a[rows] for a in arrays), size)
            yield batch  # type: ignore[misc]


class Arrays(Held):
    """Rows in memory, or in a memory-mapped file: only the rows of a batch are ever copied.

    >>> from srgp.sources import Arrays
    >>> source = Arrays([[0.0], [1.0], [2.0]], [0.0, 0.5, 1.0])
    >>> [batch[0].ravel().tolist() for batch in source.batches(2)]
    [[0.0, 1.0], [2.0, 0.0]]
    """

    def __init__(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        X = as_inputs(X)
        super().__init__(X, as_targets(y, len(X)), as_weights(sample_weight, len(X)))


class Batches:
    """Batches (X, y) or (X, y, sample_weight) of any sizes, from something that can be restarted.

    passes: a list of batches, or a function without arguments that starts a new pass over them.

    A random order is drawn within a buffer of eight batches at a time, read ahead in a thread.

    >>> from srgp.sources import Batches
    >>> source = Batches(lambda: (([[float(i)]], [0.0]) for i in range(3)))
    >>> source.count()
    3
    >>> [batch[0].ravel().tolist() for batch in source.batches(2)]
    [[0.0, 1.0], [2.0, 0.0]]
    """

    def __init__(self, passes: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        if isinstance(passes, Iterator):
            raise ValueError(
                "learning passes over the data several times, but a generator runs only once: give "
                "a list of batches, or a function that starts a new pass."
            )
        self._start = passes if callable(passes) else lambda: passes
        self._counted: tuple[int, int] | None = None

    def count(self) -> int:
        """How many rows there are; the first call passes over them."""
        return self._counts()[0]

    def present(self) -> int:
        """How many of them have a weight above 0."""
        return self._counts()[1]

    def _counts(self) -> tuple[int, int]:
        if self._counted is None:
            weights = [(len(w), int((w > 0.0).sum())) for _, _, w in self._arriving()]
            rows, present = zip(*weights, strict=True)
            self._counted = (sum(rows), sum(present))
        return self._counted

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded; in a random order if a seed is given."""
        rng = None if seed is None else np.random.default_rng(seed)
        return ahead(rebatched(self._arriving(), size, rng, BUFFER * size))

    def _arriving(self) -> Iterator[Batch]:
        columns = None
        found = False
        for batch in self._start():
            if not 2 <= len(batch) <= 3:
                raise ValueError(f"a batch is (X, y) or (X, y, sample_weight), got {len(batch)}.")
            X = as_inputs(batch[0], columns=columns)
            columns, found = X.shape[1], True
            weights = as_weights(batch[2] if len(batch) == 3 else None, len(X))
            # Copies: read ahead, a generator may fill its own arrays again.
            yield np.array(X), np.array(as_targets(batch[1], len(X))), np.array(weights)
        if not found:
            raise ValueError("the source gave no batch of data.")


class Once(Batches):
    """The batches of a generator, for what needs a single pass.

    >>> from srgp.sources import Once
    >>> source = Once(([[float(i)]], [0.0]) for i in range(3))
    >>> [batch[0].ravel().tolist() for batch in source.batches(2)]
    [[0.0, 1.0], [2.0, 0.0]]
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        super().__init__(lambda: batches)

    def _counts(self) -> tuple[int, int]:
        raise ValueError("a generator runs only once: its rows cannot be counted beforehand.")


def as_source(data: Any) -> Source:
    """(X, y), (X, y, sample_weight), a list of such, a function that starts a pass, or a source."""
    if isinstance(data, Source):
        return data
    if isinstance(data, str | os.PathLike):
        raise ValueError(
            f"{os.fspath(data)!r} is a path: open it as srgp.tables.Table({os.fspath(data)!r}, "
            "target=...), the target being the column to predict."
        )
    if isinstance(data, tuple) and 2 <= len(data) <= 3:
        return Arrays(*data)
    if callable(data) or isinstance(data, Iterable):
        return Batches(data)
    raise ValueError(
        f"data must be (X, y), a list of batches (X, y), or a function that starts a pass over "
        f"batches; got {type(data).__name__}."
    )


def rebatched(
    arriving: Iterator[Batch], size: int, rng: np.random.Generator | None, buffer: int
) -> Iterator[Batch]:
    """Batches of exactly `size` rows, the last padded; shuffled `buffer` rows at a time by rng."""
    room = size if rng is None else max(buffer, size)
    held: list[Batch] = []
    rows = 0
    for batch in arriving:
        held.append(batch)
        rows += len(batch[0])
        if rows >= room:
            full, whole = _joined(held, rng), rows // size * size
            # Copies, and nothing else: what is handed out must not stay in memory for them.
            held, rows = [tuple(np.array(a[whole:]) for a in full)], rows - whole  # type: ignore[list-item]
            yield from padded_blocks(tuple(a[:whole] for a in full), size)  # type: ignore[misc]
            del full
    if rows:
        yield from padded_blocks(tuple(_joined(held, rng)), size)  # type: ignore[misc]


def _joined(held: list[Batch], rng: np.random.Generator | None) -> tuple[np.ndarray, ...]:
    if rng is None:
        return tuple(np.concatenate(parts) for parts in zip(*held, strict=True))
    ends = np.cumsum([len(batch[0]) for batch in held])
    order = rng.permutation(ends[-1])
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    # Straight to where they belong: all rows side by side would take as much memory again.
    arrays = tuple(np.empty((len(order), *a.shape[1:])) for a in held[0])
    for batch, place in zip(held, np.split(places, ends[:-1]), strict=True):
        for array, rows in zip(arrays, batch, strict=True):
            array[place] = rows
    return arrays


def first_row(source: Source, columns: int) -> Batch:
    """One row, after a look whether it has as many inputs as the model."""
    if isinstance(source, Spread):
        X, y, w = source.sample(1, 0)
        as_inputs(X, columns=columns)
        return X, y, w
    rows = source.batches(1)
    try:
        X, y, w = next(rows)
    except StopIteration:
        raise ValueError("the source gave no batch of data.") from None
    finally:
        if hasattr(rows, "close"):
            rows.close()
    as_inputs(X, columns=columns)
    return X, y, w


def random_rows(source: Source, count: int, seed: int) -> Batch:
    """So many rows of weight above 0: the same ones wherever they are, and all equally likely.

    The head of a shuffled pass would be cheaper on files, but comes from few of their row groups.
    """
    if isinstance(source, Sampled):
        return source.sample(count, seed)
    return picked(source, drawn(source.present(), count, seed))


def picked(source: Source, rows: np.ndarray) -> Batch:
    """Of the rows of weight above 0, those with these numbers, which are in order."""
    picker = Picker(rows)
    batches = source.batches(ONCE)
    try:
        for batch in batches:
            picker.see(batch)
            if picker.done:
                break
    finally:
        if hasattr(batches, "close"):
            batches.close()
    return picker.found()


def digest(source: Source) -> str:
    """A name for all rows in their order; of data in several places, for the rows of each."""
    return hashlib.sha256(np.asarray(reduced(source, _digested)).tobytes()).hexdigest()


def _digested(source: Source) -> np.ndarray:
    found = hashlib.blake2b(digest_size=32)
    for batch in source.batches(ONCE):
        for array in batch:
            found.update(np.ascontiguousarray(array).data)
    # Numbers that add up over the parts without rounding.
    return np.frombuffer(found.digest(), np.uint32).astype(np.float64)
