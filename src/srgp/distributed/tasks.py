"""What the workers of a cluster do with a part of the data."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sized
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from srgp import sources
from srgp.blas import one_at_a_time
from srgp.precision import double
from srgp.sources import Batch, Held, Source, as_source
from srgp.tables import Nothing, Table

T = TypeVar("T")


class Size(NamedTuple):
    """What a part holds."""

    rows: int
    present: int  # of weight above 0
    inputs: int
    outputs: tuple[int, ...]
    dropped: int = 0  # since a number is missing


@dataclasses.dataclass(frozen=True)
class File:
    """A file, before it is opened by a worker."""

    path: str
    target: Any
    features: list[str]
    weight: str | None
    settings: dict[str, Any]
    size: int  # in bytes, when the data were named

    def open(self) -> Table:
        """As a source; a pass must find the file that the one before it found."""
        if os.path.getsize(self.path) != self.size:
            raise ValueError(
                f"{self.path} has changed since it was named: learn from files that nobody writes "
                "to."
            )
        return Table(self.path, self.target, self.features, self.weight, **self.settings)


def plain(tree: Any) -> Any:
    """With NumPy's arrays for JAX's, which would be read back in the precision of the moment."""
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, tree)


def _opened(part: Any) -> Source:
    return part.open() if isinstance(part, File) else as_source(part)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """What goes wrong says in which part; a file's errors do so by themselves."""
    try:
        yield
    except Nothing:
        raise
    except (ValueError, OSError) as error:
        if isinstance(error, ValueError) and name in str(error):
            raise
        raise ValueError(f"{name}: {error}") from error


def _is_empty(part: Any) -> bool:
    """Whether a part in memory has no rows, as filters leave them behind."""
    rows = part.X if isinstance(part, Held) else part
    if isinstance(part, tuple | list) and len(part):
        rows = part[0]
    return isinstance(rows, Sized) and len(rows) == 0


def worked(name: str, part: Any, work: Callable[..., T], shared: tuple[Any, ...]) -> T | None:
    """work(part, *shared) in double precision on one core; None for a part without rows."""
    if _is_empty(part):
        return None
    try:
        with _naming(name), one_at_a_time():
            return plain(double(work)(_opened(part), *shared))
    except Nothing:
        return None


def added(sums: list[T | None]) -> T | None:
    """The sum of trees of arrays; None stands for no rows."""
    there = [tree for tree in sums if tree is not None]
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree.leaves(tree)) for tree in there}
    if len(shapes) > 1:
        raise ValueError("the parts of the data differ in their number of inputs or outputs.")
    if not there:
        return None
    return functools.reduce(lambda a, b: jax.tree.map(np.add, a, b), there)


def arrays(name: str, part: Any) -> Batch:
    """All rows of a part."""
    with _naming(name):
        source = _opened(part)
        if isinstance(source, Held):
            return source.X, source.y, source.w
        (batch,) = source.batches(source.count())
        return batch


def loaded(name: str, part: Any) -> Held:
    """A part, in memory."""
    with contextlib.suppress(Nothing):
        if not _is_empty(part):
            return Held(*arrays(name, part))
    return Held(np.zeros((0, 0)), np.zeros(0), np.zeros(0))


def gathered(parts: list[Held], rows: list[np.ndarray]) -> Held:
    """Of each part the rows with these numbers, all together."""
    pieces = [
        (part.X[some], part.y[some], part.w[some]) for part, some in zip(parts, rows, strict=True)
    ]
    return Held(*map(np.concatenate, zip(*pieces, strict=True)))


def memory_limit(dask_worker: Any) -> float:
    """Bytes that a worker may use, as far as anyone has said."""
    return dask_worker.memory_manager.memory_limit or np.inf


def shuffled(name: str, part: Any, seed: int) -> Held:
    """A part in a random order, in memory."""
    rows = arrays(name, part)
    order = np.random.default_rng(seed).permutation(len(rows[0]))
    return Held(*(a[order] for a in rows))


def cut(part: Held, start: int, stop: int) -> Held:
    """A stretch of its rows."""
    return Held(part.X[start:stop], part.y[start:stop], part.w[start:stop])


def picked(name: str, part: Any, rows: np.ndarray) -> Batch:
    """Of the rows of weight above 0, those with these numbers."""
    with _naming(name):
        return sources.picked(_opened(part), rows)


def size(name: str, part: Any) -> Size:
    """What a part holds."""
    nothing = Size(0, 0, 0, ())
    if _is_empty(part):
        return nothing
    try:
        with _naming(name):
            source = _opened(part)
            X, y, _ = next(iter(source.batches(1)))
            counts = source.count(), source.present()
            return Size(*counts, X.shape[1], y.shape[1:], getattr(source, "dropped", 0))
    except Nothing as error:
        return nothing._replace(dropped=error.dropped)


def as_tuple(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Arrays that were promised one by one."""
    return arrays


def framed(
    target: Any, features: list[str], weight: str | None, missing: str, name: str, frame: Any
) -> Held:
    """A partition of a data frame."""
    with _naming(name):
        table = Table(frame, target, features, weight, missing=missing)  # type: ignore[arg-type]
    return loaded(name, table)
