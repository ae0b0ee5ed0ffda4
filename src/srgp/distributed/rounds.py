"""Random batches of rows on a cluster, which stay where they are."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from srgp.distributed import tasks
from srgp.distributed.cluster import delayed, in_words, preferring
from srgp.drawing import shuffled_rows

if TYPE_CHECKING:
    from srgp.distributed.partitions import Partitions

TOGETHER = 16  # parts, at least, in the workers' memory for random batches, and as many ahead
MIXED = 4  # random batches, at least, that these hold
PIECE = 512  # rows of a part in a random batch, if it has as many: fewer cost as much


class Cut(NamedTuple):
    """Some rows of a batch, promised by one worker."""

    rows: Any
    name: str
    place: str | None


def by_number(data: "Partitions", size: int, seed: int) -> Iterator[list[Cut]]:
    """The batches that one machine draws from the same rows; of parts in the workers' memory.

    Every core of a worker gathers its rows of a batch from all of its parts, at once.
    """
    ends = np.cumsum([part.rows for part in data.sizes()])
    starts = ends - [part.rows for part in data.sizes()]
    groups = list(_by_core(data.places, data.threads()))
    for rows in shuffled_rows(int(ends[-1]), size, seed):
        each = np.split(rows, np.searchsorted(rows, ends[:-1]))
        cuts = []
        for place, group in groups:
            some = [i for i in group if len(each[i])]
            if some:
                wanted = [each[i] - starts[i] for i in some]
                with preferring(place):
                    gathered = delayed()(tasks.gathered, pure=False)(
                        [data.parts[i] for i in some], wanted
                    )
                others = f" and {len(some) - 1} more" if some[1:] else ""
                cuts.append(Cut(gathered, f"{data.names[some[0]]}{others}", place))
        yield cuts


def _by_core(
    places: Iterable[str | None], threads: Mapping[str, int]
) -> Iterator[tuple[str | None, list[int]]]:
    """The parts of each core; one whose place is not known stands for itself."""
    found: dict[str, list[int]] = {}
    for i, place in enumerate(places):
        if place is None:
            yield None, [i]
        else:
            found.setdefault(place, []).append(i)
    for place, parts in found.items():
        cores = threads.get(place, 1)
        yield from ((place, parts[core::cores]) for core in range(min(cores, len(parts))))


def by_turns(data: "Partitions", size: int, seed: int) -> Iterator[list[Cut]]:
    """Batches of about `size`, of parts that need not fit into the workers' memory together.

    They are taken in a random order, at least sixteen at a time, and shuffled in the workers'
    memory; the next ones are read meanwhile.
    """
    rng = np.random.default_rng(seed)
    counts = [part.rows for part in data.sizes()]
    groups = _grouped(rng.permutation(np.flatnonzero(counts)), counts, MIXED * size)

    def shuffled(group: list[int]) -> Any:
        with in_words(data.client):
            parts = [data.promised(tasks.shuffled, i, seed + i) for i in group]
            return data.client.persist(parts)

    ahead = shuffled(groups[0])
    for number, group in enumerate(groups):
        loaded, ahead = ahead, shuffled(groups[number + 1]) if groups[number + 1 :] else None
        for batch in _dealt([counts[i] for i in group], size):
            yield [
                Cut(delayed()(tasks.cut, pure=False)(loaded[i], *rows), data.names[group[i]], None)
                for i, rows in batch
            ]


def _grouped(order: Iterable[int], counts: list[int], rows: int) -> list[list[int]]:
    """Parts to be held together: at least so many, and of so many rows."""
    groups: list[list[int]] = [[]]

    def held() -> int:
        return sum(counts[i] for i in groups[-1])

    for i in order:
        if len(groups[-1]) >= TOGETHER and held() >= rows:
            groups.append([])
        groups[-1].append(int(i))
    if len(groups) > 1 and held() < rows:
        last = groups.pop()
        groups[-1] += last
    return groups


def _dealt(counts: list[int], size: int) -> list[list[tuple[int, tuple[int, int]]]]:
    """Stretches of rows of parts of so many rows, in turns, dealt into batches of about `size`.

    Each is (number of the part, (first row, end)).
    """
    rows = max(size // max(min(size // PIECE, len(counts)), 1), 1)
    cuts = []
    for i, count in enumerate(counts):
        edges = np.linspace(0, count, max(round(count / rows), 1) + 1).astype(int).tolist()
        cuts.append([(i, stretch) for stretch in itertools.pairwise(edges)])
    turns = [cut for turn in itertools.zip_longest(*cuts) for cut in turn if cut is not None]
    total = sum(counts)
    batches: list[list[Any]] = [[] for _ in range(max(round(total / size), 1))]
    done = 0
    for cut in turns:
        # Where its middle falls: batches differ by less than a stretch.
        length = cut[1][1] - cut[1][0]
        batches[min(int((done + 0.5 * length) * len(batches) / total), len(batches) - 1)].append(
            cut
        )
        done += length
    return [batch for batch in batches if batch]
