"""Rows at random, by their numbers: the same ones wherever the rows are."""

from collections.abc import Iterator

import numpy as np

MANY = 2**21  # rows: up to here, a number for each takes little memory


def shuffled_rows(count: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Numbers of rows for random batches of `size`, the last smaller: all rows, each once."""
    kind = np.int32 if count < 2**31 else np.int64  # 4 bytes for each row, where they are enough
    order = np.random.default_rng(seed).permutation(np.arange(count, dtype=kind))
    for start in range(0, count, size):
        # Sorted rows are read faster, and order within a batch means nothing.
        yield np.sort(order[start : start + size])


def drawn(present: int, count: int, seed: int) -> np.ndarray:
    """Numbers of rows at random, each at most once, in order: `count` of them, or all there are."""
    if present == 0:
        raise ValueError("every row has weight 0: there is nothing to learn from.")
    if count >= present:
        return np.arange(present)
    rng = np.random.default_rng(seed)
    if present <= MANY or count > present // 2:
        return np.sort(rng.choice(present, count, replace=False))
    # That would lay out a number for every row there is: draw until enough are different.
    found = np.zeros(0, dtype=np.int64)
    while len(found) < count:
        more = rng.integers(present, size=count)
        found, first = np.unique(np.concatenate([found, more]), return_index=True)
        found = found[np.argsort(first)][:count]
    return np.sort(found)


class Picker:
    """Finds rows of weight above 0 by their numbers, which are in order, as batches pass by."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows, self._start, self._found = rows, 0, 0
        self._arrays: tuple[np.ndarray, ...] = ()
        self.done = False

    def see(self, batch: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """The next batch of a pass."""
        if not self._arrays:
            # In place: pieces put together at the end would take as much memory again.
            self._arrays = tuple(np.empty((len(self._rows), *a.shape[1:])) for a in batch)
        present = np.flatnonzero(batch[2] > 0.0)
        first, end = np.searchsorted(self._rows, (self._start, self._start + len(present)))
        here = present[self._rows[first:end] - self._start]
        for array, a in zip(self._arrays, batch, strict=True):
            array[first:end] = a[here]
        self._start += len(present)
        self._found = int(end)
        self.done = self._found == len(self._rows)

    def found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All of them."""
        X, y, w = (array[: self._found] for array in self._arrays)
        return X, y, w
