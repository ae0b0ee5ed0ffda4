"""Rows at random, by their numbers: the same ones wherever the rows are."""

from collections.abc import Iterator

import numpy as np


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
    return np.sort(np.random.default_rng(seed).choice(present, count, replace=False))


class Picker:
    """Finds rows of weight above 0 by their numbers, which are in order, as batches pass by."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows, self._start = rows, 0
        self._held: list[tuple[np.ndarray, ...]] = []
        self.done = False

    def see(self, batch: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """The next batch of a pass."""
        present = np.flatnonzero(batch[2] > 0.0)
        first, end = np.searchsorted(self._rows, (self._start, self._start + len(present)))
        here = present[self._rows[first:end] - self._start]
        self._held.append(tuple(a[here] for a in batch))
        self._start += len(present)
        self.done = bool(end == len(self._rows))

    def found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All of them."""
        return tuple(np.concatenate(parts) for parts in zip(*self._held, strict=True))  # type: ignore[return-value]
