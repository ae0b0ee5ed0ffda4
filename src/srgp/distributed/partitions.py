"""Data in parts on a Dask cluster, as a source for every learner."""

import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import jax
import numpy as np

from srgp.blas import one_at_a_time
from srgp.distributed.cluster import MISSING, client_or_current, in_words
from srgp.precision import double
from srgp.sources import Arrays, Batch, Held, Source, as_source, rebatched

T = TypeVar("T")

FAN_IN = 8  # sums that one task adds up
TOGETHER = 16  # parts that are in the workers' memory for random batches, and as many ahead
PER_WORKER = 4  # parts of arrays that are sent to the workers
ROWS = 65536  # of a part, read at once
PIECE = 1024  # rows of a part in a random batch, at least: fewer cost as much


class Size(NamedTuple):
    """What a part holds."""

    rows: int
    present: int  # of weight above 0
    inputs: int
    outputs: tuple[int, ...]


class Partitions:
    """Rows in parts on a Dask cluster: a source for `srgp.learn`, `srgp.value_and_grad`,
    `srgp.distributed.summarise` and `SparseGPRegressor.fit_source`.

    Each part is summed up where it is, and sums of M×M numbers are added in a tree: no row of data
    crosses the network, but for a sample that learning starts from. The answer is that of one
    machine, to rounding, whatever the number of parts and workers. A worker may die at any time:
    Dask does its share again, and every row still counts exactly once.

    parts:  (X, y) or (X, y, sample_weight) each, or a promise of it: a `dask.delayed` object, read
            anew at every pass, or a future on the cluster. A part must fit into a worker's memory.
    client: the `distributed.Client`; None: the one in use.

    >>> import numpy as np, srgp
    >>> from srgp.distributed import Partitions, local_cluster, summarise
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=X[::10])
    >>> with local_cluster(workers=1) as client:
    ...     data = Partitions([(X[:30], X[:30, 0]), (X[30:], X[30:, 0])])
    ...     summarise(model, data)
    Statistics(rows=40, inducing=4)
    """

    def __init__(
        self, parts: Iterable[Any], client: Any = None, names: Sequence[str] | None = None
    ) -> None:
        self.client = client_or_current(client)
        self.parts = list(parts)
        if not self.parts:
            raise ValueError("there is no part of data.")
        self.names = [f"part {i}" for i in range(len(self.parts))] if names is None else list(names)
        self._sizes: list[Size] | None = None

    @classmethod
    def from_arrays(cls, X: Any, y: Any, sample_weight: Any = None, client: Any = None) -> Self:
        """The chunks of dask arrays X (N, D), y (N,) or (N, Q) and weights (N,), row by row."""
        X = X.rechunk({1: -1})
        if any(np.isnan(size) for size in X.chunks[0]):
            raise ValueError(
                "the chunks of X have unknown sizes: call X.compute_chunk_sizes() first."
            )
        arrays = [X]
        for name, a in (("y", y), ("sample_weight", sample_weight)):
            if a is None:
                continue
            if a.shape[0] != X.shape[0]:
                raise ValueError(f"{name} has {a.shape[0]} rows, but X has {X.shape[0]}.")
            arrays.append(a.rechunk({0: X.chunks[0], **dict.fromkeys(range(1, a.ndim), -1)}))
        columns = [a.to_delayed().ravel() for a in arrays]
        delayed = _delayed()
        return cls([delayed(_tuple)(*rows) for rows in zip(*columns, strict=True)], client)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        target: Any,
        features: Any = None,
        weight: str | None = None,
        *,
        missing: str = "error",
        client: Any = None,
    ) -> Self:
        """The partitions of a dask DataFrame; the rest as in `srgp.tables.Table`."""
        if features is None:
            others = {weight, *([target] if isinstance(target, str) else target)}
            features = [name for name in frame.columns if name not in others]
        opened = functools.partial(_framed, target, list(features), weight, missing)
        delayed = _delayed()
        parts = [delayed(opened)(part) for part in frame.to_delayed()]
        return cls(parts, client)._named(features, target)

    @classmethod
    def from_files(
        cls,
        where: Any,
        target: Any,
        features: Any = None,
        weight: str | None = None,
        *,
        missing: str = "error",
        delimiter: str = ",",
        client: Any = None,
    ) -> Self:
        """CSV or Parquet files that every worker can read, one part each; see `srgp.tables.Table`.

        Files are read by the workers, a piece at a time: they may be larger than memory.
        """
        from srgp.tables import Table

        table = Table(where, target, features, weight, missing=missing, delimiter=delimiter)  # type: ignore[arg-type]
        files = table.files()
        if not files:
            raise ValueError("only files can be read by workers: give paths, folders or patterns.")
        settings = {"missing": missing, "delimiter": delimiter}
        parts = [_File(file, target, list(table.feature_names), weight, settings) for file in files]
        return cls(parts, client, files)._named(table.feature_names, target)

    @classmethod
    def of(cls, data: Any, client: Any = None) -> Self:
        """Anything that can be learned from: dask arrays (X, y) or (X, y, sample_weight), NumPy's,
        which are cut and sent, a `srgp.tables.Table` of files, or a list of parts."""
        from srgp.tables import Table

        if isinstance(data, cls):
            return data
        if isinstance(data, Table):
            return cls.from_files(client=client, **data.settings())
        if not isinstance(data, tuple):
            return cls(data, client)
        if all(a is None or hasattr(a, "to_delayed") for a in data):
            X, y, weight = (*data, None)[:3]
            return cls.from_arrays(X, y, weight, client=client)
        held, client = Arrays(*data), client_or_current(client)
        count = min(PER_WORKER * max(len(client.scheduler_info()["workers"]), 1), held.count())
        cut = [np.array_split(a, count) for a in (held.X, held.y, held.w)]
        return cls(client.scatter(list(zip(*cut, strict=True))), client)

    def persist(self) -> Self:
        """The same, with all parts read once into the memory of the workers and kept there."""
        delayed = _delayed()
        loaded = [delayed(_loaded)(n, p) for n, p in zip(self.names, self.parts, strict=True)]
        return self._with(self.client.persist(loaded))

    def __repr__(self) -> str:
        return f"Partitions({len(self.parts)} parts)"

    # -- a source -------------------------------------------------------------------------------

    def count(self) -> int:
        """How many rows there are."""
        return sum(size.rows for size in self.sizes())

    def present(self) -> int:
        """How many of them have a weight above 0."""
        return sum(size.present for size in self.sizes())

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded, brought here part by part."""
        rng = None if seed is None else np.random.default_rng(seed)
        order = range(len(self.parts)) if rng is None else rng.permutation(len(self.parts))
        return rebatched(self._brought(order), size, rng, TOGETHER * size)

    # -- in several places ----------------------------------------------------------------------

    def reduce(self, work: Callable[..., T], *shared: Any) -> T:
        """The sum of work(part, *shared) over all parts, each a source: trees of arrays."""
        delayed = _delayed()
        given = delayed(_plain(shared), pure=False, traverse=False)
        sums = [
            delayed(_worked, pure=False)(name, part, work, given)
            for name, part in zip(self.names, self.parts, strict=True)
        ]
        while len(sums) > 1:
            sums = [
                delayed(_added, pure=False)(sums[i : i + FAN_IN])
                for i in range(0, len(sums), FAN_IN)
            ]
        found: T = self._computed(sums[0])
        return found

    def rounds(self, size: int, seed: int) -> Iterator[Self]:
        """All rows once, in random batches of about `size`, each on several workers.

        Parts are taken in a random order, sixteen at a time, shuffled in the workers' memory; the
        next sixteen are read meanwhile.
        """
        delayed, rng = _delayed(), np.random.default_rng(seed)
        order = rng.permutation(len(self.parts))
        groups = [order[i : i + TOGETHER] for i in range(0, len(order), TOGETHER)]
        together = max(size // PIECE, 1)

        def shuffled(group: np.ndarray) -> Any:
            return self.client.persist(
                [
                    delayed(_shuffled, pure=False)(self.names[i], self.parts[i], seed + int(i))
                    for i in group
                ]
            )

        ahead = shuffled(groups[0])
        for number, group in enumerate(groups):
            loaded, ahead = ahead, shuffled(groups[number + 1]) if groups[number + 1 :] else None
            pieces = self._pieces(group, max(size // min(together, len(group)), 1))
            while pieces:
                some, pieces = pieces[:together], pieces[together:]
                cuts = [delayed(_cut, pure=False)(loaded[i], *rows) for i, rows in some]
                yield type(self)(cuts, self.client, [self.names[group[i]] for i, _ in some])

    def sample(self, count: int, seed: int) -> Batch:
        """So many rows at random, or all there are."""
        delayed, rng = _delayed(), np.random.default_rng(seed)
        sizes = np.array([size.rows for size in self.sizes()])
        wanted = sizes
        if count < sizes.sum():
            wanted = np.minimum(rng.multinomial(count, sizes / sizes.sum()), sizes)
        chosen = [
            delayed(_picked, pure=False)(
                self.names[i],
                self.parts[i],
                np.sort(rng.choice(sizes[i], wanted[i], replace=False)),
            )
            for i in np.flatnonzero(wanted)
        ]
        found = self._computed_all(chosen)
        return tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))  # type: ignore[return-value]

    def sizes(self) -> list[Size]:
        """What each part holds; the first call looks."""
        if self._sizes is None:
            delayed = _delayed()
            pairs = zip(self.names, self.parts, strict=True)
            found = self._computed_all([delayed(_size, pure=False)(*pair) for pair in pairs])
            for name, size in zip(self.names, found, strict=True):
                if (size.inputs, size.outputs) != (found[0].inputs, found[0].outputs):
                    raise ValueError(
                        f"{name} has {size.inputs} inputs and outputs {size.outputs}, but "
                        f"{self.names[0]} has {found[0].inputs} and {found[0].outputs}."
                    )
            self._sizes = found
        return self._sizes

    # -- inside ---------------------------------------------------------------------------------

    def _named(self, features: Iterable[Any], target: Any) -> Self:
        self.feature_names = tuple(str(name) for name in features)
        self.target_names = (target,) if isinstance(target, str) else tuple(target)
        return self

    def _with(self, parts: list[Any]) -> Self:
        other = type(self)(parts, self.client, self.names)
        other._sizes = self._sizes
        for name in ("feature_names", "target_names"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    def _pieces(self, group: np.ndarray, rows: int) -> list[tuple[int, tuple[int, int]]]:
        """Stretches of about `rows` rows of the parts of a group, in turns."""
        cuts = []
        for i, part in enumerate(group):
            count = self.sizes()[part].rows
            edges = np.linspace(0, count, max(round(count / rows), 1) + 1).astype(int).tolist()
            cuts.append([(i, rows) for rows in itertools.pairwise(edges)])
        return [cut for turn in itertools.zip_longest(*cuts) for cut in turn if cut is not None]

    def _brought(self, order: Iterable[int]) -> Iterator[Batch]:
        delayed, coming = _delayed(), None
        for i in order:
            part = delayed(_arrays, pure=False)(self.names[i], self.parts[i])
            coming, ready = self._begun(part), coming
            if ready is not None:
                yield self._answer(ready)
        yield self._answer(coming)

    def _computed(self, task: Any) -> Any:
        return self._answer(self._begun(task))

    def _computed_all(self, tasks: list[Any]) -> list[Any]:
        found: list[Any] = self._answer(self._begun(tasks))
        return found

    def _answer(self, futures: Any) -> Any:
        with in_words():
            return self.client.gather(futures)

    def _begun(self, tasks: Any) -> Any:
        with warnings.catch_warnings(), in_words():
            # θ and its M×M matrices travel with the tasks, so that a lost worker loses nothing.
            warnings.filterwarnings("ignore", message="Sending large graph")
            return self.client.compute(tasks)


class _File(NamedTuple):
    """A file, before it is opened by a worker."""

    path: str
    target: Any
    features: list[str]
    weight: str | None
    settings: dict[str, Any]

    def open(self) -> Source:
        from srgp.tables import Table

        return Table(self.path, self.target, self.features, self.weight, **self.settings)


def _delayed() -> Callable[..., Any]:
    try:
        from dask.delayed import delayed
    except ImportError as error:
        raise ImportError(MISSING) from error
    made: Callable[..., Any] = delayed
    return made


def _plain(tree: Any) -> Any:
    """With NumPy's arrays for JAX's, which would be read back in the precision of the moment."""
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, tree)


# -- on the workers -----------------------------------------------------------------------------


def _opened(part: Any) -> Source:
    return part.open() if isinstance(part, _File) else as_source(part)


def _at(name: str, work: Callable[[], T]) -> T:
    """What goes wrong says in which part."""
    try:
        return work()
    except ValueError as error:
        if name in str(error):  # a file's name
            raise
        raise ValueError(f"{name}: {error}") from error


def _worked(name: str, part: Any, work: Callable[..., T], shared: tuple[Any, ...]) -> T:
    with one_at_a_time():
        found = _at(name, lambda: double(work)(_opened(part), *shared))
    return _plain(found)


def _added(sums: list[T]) -> T:
    return functools.reduce(lambda a, b: jax.tree.map(np.add, a, b), sums)


def _arrays(name: str, part: Any) -> Batch:
    source = _at(name, lambda: _opened(part))
    if isinstance(source, Held):
        return source.X, source.y, source.w
    (batch,) = _at(name, lambda: list(source.batches(source.count())))
    return batch


def _loaded(name: str, part: Any) -> Held:
    return Held(*_arrays(name, part))


def _shuffled(name: str, part: Any, seed: int) -> Held:
    arrays = _arrays(name, part)
    order = np.random.default_rng(seed).permutation(len(arrays[0]))
    return Held(*(a[order] for a in arrays))


def _cut(part: Held, start: int, stop: int) -> Held:
    return Held(part.X[start:stop], part.y[start:stop], part.w[start:stop])


def _picked(name: str, part: Any, rows: np.ndarray) -> Batch:
    source = _at(name, lambda: _opened(part))
    found, start = [], 0
    for batch in source.batches(ROWS):
        inside = rows[(start <= rows) & (rows < start + ROWS)] - start
        found.append(tuple(a[inside] for a in batch))
        start += ROWS
    return tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))  # type: ignore[return-value]


def _size(name: str, part: Any) -> Size:
    source = _at(name, lambda: _opened(part))

    def look() -> Size:
        X, y, _ = next(iter(source.batches(1)))
        return Size(source.count(), source.present(), X.shape[1], y.shape[1:])

    return _at(name, look)


def _tuple(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return arrays


def _framed(target: Any, features: list[str], weight: str | None, missing: str, frame: Any) -> Held:
    from srgp.tables import Table

    return _loaded("", Table(frame, target, features, weight, missing=missing))  # type: ignore[arg-type]
