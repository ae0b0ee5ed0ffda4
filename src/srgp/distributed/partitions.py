"""Data in parts on a Dask cluster, as a source for every learner."""

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from srgp.checks import padded_blocks
from srgp.distributed import parts, tasks
from srgp.distributed.asking import answered, coming
from srgp.distributed.cluster import (
    client_or_current,
    dask_distributed,
    delayed,
    in_words,
    preferring,
)
from srgp.distributed.rounds import TOGETHER, by_number, by_turns
from srgp.drawing import drawn
from srgp.sources import Arrays, Batch, rebatched
from srgp.tables import Table

T = TypeVar("T")

FAN_IN = 8  # sums that one task adds up
ROOM = 0.5  # of the workers' memory, for rows that are kept in it


class Partitions:
    """Rows in parts on a Dask cluster: a source for `srgp.learn`, `srgp.value_and_grad`,
    `srgp.distributed.summarise` and `SparseGPRegressor.fit_source`.

    Each part is summed up where it is, and sums of M×M numbers are added in a tree: rows stay where
    they are, but for samples that learning draws. The answer is that of one machine, to
    rounding, whatever the number of parts and workers. A worker may die at any time: Dask does its
    share again, and every row still counts exactly once.

    parts:  (X, y) or (X, y, sample_weight) each, or a promise of it: a `dask.delayed` object, read
            anew at every pass, or a future on the cluster. A part must fit into a worker's memory,
            and all of them into that of all workers for `SRGP` and `Sites`: see `persist` and
            `reread`. Arrays are sent to the workers once, by way of the scheduler: for small data.
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
        self.parts = [
            self._sent(part) if isinstance(part, tuple | list) else part for part in parts
        ]
        if not self.parts:
            raise ValueError("there is no part of data.")
        self.names = [f"part {i}" for i in range(len(self.parts))] if names is None else list(names)
        self.places: Sequence[str | None] = [None] * len(self.parts)  # workers, where we chose
        self._sizes: list[tasks.Size] | None = None
        self._loaded = self._anew = False  # by `persist`, by `reread`

    @classmethod
    def from_arrays(cls, X: Any, y: Any, sample_weight: Any = None, client: Any = None) -> Self:
        """The chunks of dask arrays X (N, D), y (N,) or (N, Q) and weights (N,), row by row."""
        return cls(parts.of_dask_arrays(X, y, sample_weight), client)

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
        features = parts.features_of(frame, target, features, weight)
        cut = parts.of_frame(frame, target, features, weight, missing)
        return cls(cut, client)._named(features, target)

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

        Files are read by the workers, a piece at a time: for sums and exact gradients they may be
        larger than memory.
        """
        table = Table(where, target, features, weight, missing=missing, delimiter=delimiter)  # type: ignore[arg-type]
        return cls._from_table(table, client)

    @classmethod
    def _from_table(cls, table: Table, client: Any) -> Self:
        files = parts.of_files(table)
        named = cls(files, client, [file.path for file in files])
        return named._named(table.feature_names, table.target_names)

    @classmethod
    def of(cls, data: Any, client: Any = None) -> Self:
        """Anything that can be learned from: dask arrays (X, y) or (X, y, sample_weight), NumPy's,
        which are cut and sent, a `srgp.tables.Table` of files, or a list of parts."""
        if isinstance(data, cls):
            return data
        if isinstance(data, Table):
            return cls._from_table(data, client)
        if hasattr(data, "to_delayed"):
            raise ValueError(
                "one dask collection does not tell what to predict: give dask arrays (X, y), or "
                "Partitions.from_frame(frame, target=...)."
            )
        if callable(data) or hasattr(data, "columns") or not isinstance(data, Iterable):
            raise ValueError(
                "a cluster learns from arrays (X, y), a srgp.tables.Table of files, or a list of "
                f"parts, each (X, y) or promised by Dask; got {type(data).__name__}."
            )
        if not isinstance(data, tuple):
            return cls(data, client)
        if all(a is None or hasattr(a, "to_delayed") for a in data):
            X, y, weight = (*data, None)[:3]
            return cls.from_arrays(X, y, weight, client)
        return cls(parts.of_arrays(Arrays(*data)), client)

    def persist(self) -> Self:
        """The same, with all parts read once into the memory of the workers and kept there.

        Every core gets as many as the others; parts that are on the cluster already stay where
        they are.
        """
        cores, loaded, places = self._cores(), [], []
        for i, there in enumerate(self._held_by()):
            places.append(there or (cores[i % len(cores)] if cores else None))
            with preferring(places[-1]):
                loaded.append(self.promised(tasks.loaded, i))
        with in_words(self.client):
            other = self._like(self.client.persist(loaded))
        other.places, other._loaded = places, True
        return other

    def reread(self) -> Self:
        """The same, for rows that do not fit into the workers' memory together.

        `SRGP` and `Sites` then read them anew in every epoch, some parts at a time, and their
        batches depend on the parts; all else does so anyway, and stays the same.
        """
        other = self._like(self.parts)
        other._anew = True
        return other

    def __repr__(self) -> str:
        return f"Partitions({len(self.parts)} parts)"

    # -- a source -------------------------------------------------------------------------------

    def count(self) -> int:
        """How many rows there are."""
        return sum(size.rows for size in self.sizes())

    def present(self) -> int:
        """How many of them have a weight above 0."""
        return sum(size.present for size in self.sizes())

    @property
    def dropped(self) -> int:
        """How many rows of files are left out since a number is missing."""
        files = [part for part in self.parts if isinstance(part, tasks.File)]
        if not any(file.settings["missing"] == "drop" for file in files):
            return 0
        return sum(size.dropped for size in self.sizes())

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded, brought here.

        In a random order these are those of one machine's arrays, of parts in the workers' memory.
        """
        if seed is not None and self._loaded:
            return self._drawn(size, seed)
        rng = None if seed is None else np.random.default_rng(seed)
        order = self._filled() if rng is None else rng.permutation(self._filled())
        return rebatched(self._brought(order), size, rng, TOGETHER * size)

    # -- in several places ----------------------------------------------------------------------

    def reduce(self, work: Callable[..., T], *shared: Any) -> T:
        """The sum of work(part, *shared) over all parts, each a source: trees of arrays."""
        given = delayed()(tasks.plain(shared), pure=False, traverse=False)
        sums = []
        for i, place in enumerate(self._preferred()):
            with preferring(place):
                sums.append(self.promised(tasks.worked, i, work, given))
        while len(sums) > 1:
            sums = [
                delayed()(tasks.added, pure=False)(sums[i : i + FAN_IN])
                for i in range(0, len(sums), FAN_IN)
            ]
        found: T | None = answered(self.client, sums[0])
        if found is None:
            raise ValueError("the data have no rows.")
        return found

    def kept(self) -> Self:
        """The same in the workers' memory, where `SRGP` and `Sites` have it; after `reread`, as it
        is."""
        if self._loaded or self._anew:
            return self
        self._check_room()
        return self.persist()

    def rounds(self, size: int, seed: int) -> Iterator[Self]:
        """All rows once, in random batches of about `size`, each of several parts.

        Of parts in the workers' memory these are the batches of one machine's arrays.
        """
        for cuts in (by_number if self._loaded else by_turns)(self, size, seed):
            rows, names, places = zip(*cuts, strict=True)
            batch = type(self)(rows, self.client, names)
            batch.places = places
            yield batch

    def sample(self, count: int, seed: int) -> Batch:
        """The rows that `drawn` names, of those of weight above 0, in their order."""
        ends = np.cumsum([size.present for size in self.sizes()])
        chosen = drawn(int(ends[-1]), count, seed)
        where = np.searchsorted(ends, chosen, side="right")
        starts = ends - [size.present for size in self.sizes()]
        picked = [
            self.promised(tasks.picked, i, chosen[where == i] - starts[i]) for i in np.unique(where)
        ]
        found = answered(self.client, picked)
        return tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))  # type: ignore[return-value]

    def sizes(self) -> list[tasks.Size]:
        """What each part holds; the first call looks."""
        if self._sizes is None:
            promised = [self.promised(tasks.size, i) for i in range(len(self.parts))]
            found = answered(self.client, promised)
            filled = [(n, size) for n, size in zip(self.names, found, strict=True) if size.rows]
            if not filled:
                raise ValueError("the data have no rows.")
            first = filled[0][1]
            for name, size in filled:
                if (size.inputs, size.outputs) != (first.inputs, first.outputs):
                    raise ValueError(
                        f"{name} has {size.inputs} inputs and outputs {size.outputs}, but "
                        f"{filled[0][0]} has {first.inputs} and {first.outputs}."
                    )
            self._sizes = found
        return self._sizes

    # -- inside ---------------------------------------------------------------------------------

    def _named(self, features: Iterable[Any], target: Any) -> Self:
        self.feature_names = tuple(str(name) for name in features)
        self.target_names = (target,) if isinstance(target, str) else tuple(target)
        return self

    def _like(self, parts: list[Any]) -> Self:
        """Other promises of the same rows."""
        other = type(self)(parts, self.client, self.names)
        other._sizes = self._sizes
        for name in ("feature_names", "target_names"):
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        return other

    def _held_by(self) -> list[str | None]:
        """The worker that holds each part already, or most likely the first piece of it."""
        distributed = dask_distributed()
        futures = [distributed.futures_of(part) for part in self.parts]
        known = [some[0] for some in futures if some]
        if not known:
            return [None] * len(self.parts)
        with in_words(self.client):
            distributed.wait(known)
            found = self.client.who_has(known)
        holders = [found.get(some[0].key, ()) if some else () for some in futures]
        return [min(workers) if workers else None for workers in holders]

    def threads(self) -> dict[str, int]:
        """How many each worker has, by its address."""
        with in_words(self.client):
            return dict(self.client.nthreads())

    def _cores(self) -> list[str]:
        """The address of a worker, once for each of its threads."""
        return [worker for worker, n in self.threads().items() for _ in range(n)]

    def _check_room(self) -> None:
        """Refuse what the workers' memory does not hold: they would die of it, one by one."""
        numbers = (s.rows * (s.inputs + math.prod(s.outputs) + 1) for s in self.sizes())
        needed = 8e-9 * sum(numbers)
        with in_words(self.client):
            limits = self.client.run(tasks.memory_limit, on_error="ignore")
        room = 1e-9 * ROOM * sum(limits.values())
        if needed > room:
            raise ValueError(
                f"SRGP and Sites keep the rows in the workers' memory while they learn: these take "
                f"{needed:.3g} GB, and half of that memory is {room:.3g} GB. Add workers, or learn "
                "with 'auto' or 'exact', which read a piece at a time; or have them read anew in "
                "every epoch, by Partitions.reread()."
            )

    def _preferred(self) -> list[str | None]:
        """Where each part is worked on: files, which are nowhere yet, by turns."""
        read = any(isinstance(part, tasks.File) for part in self.parts)
        cores = self._cores() if read else []
        return [
            cores[i % len(cores)] if cores and isinstance(part, tasks.File) else place
            for i, (part, place) in enumerate(zip(self.parts, self.places, strict=True))
        ]

    def _sent(self, part: Any) -> Any:
        """A part of arrays, in a worker's memory; the scheduler can send it again."""
        with in_words(self.client):
            return self.client.persist(delayed()(tasks.as_tuple, pure=False)(*part))

    def _filled(self) -> list[int]:
        """The parts that have rows."""
        return [i for i, size in enumerate(self.sizes()) if size.rows]

    def _brought(self, order: Iterable[int]) -> Iterator[Batch]:
        return coming(self.client, (self.promised(tasks.arrays, i) for i in order))

    def _drawn(self, size: int, seed: int) -> Iterator[Batch]:
        promised = ([cut.rows for cut in cuts] for cuts in by_number(self, size, seed))
        for pieces in coming(self.client, promised):
            arrays = zip(*((piece.X, piece.y, piece.w) for piece in pieces), strict=True)
            yield from padded_blocks(tuple(map(np.concatenate, arrays)), size)  # type: ignore[misc]

    def promised(self, work: Callable[..., Any], i: int, *rest: Any) -> Any:
        """work(name, part, *rest) of the i-th part, under a key that says which part it is."""
        name = self.names[i]
        # Dask takes what stands before the dash for the kind of task, and spreads those of a kind.
        key = f"{work.__name__}-{uuid.uuid4().hex}, {name}"
        return delayed()(work, pure=False)(name, self.parts[i], *rest, dask_key_name=key)
