"""Sources of data: every row once a pass, fixed shapes, orders by seed, and threads that end."""

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from srgp import drawing, sources
from srgp.drawing import drawn
from srgp.reading import _Reader, ahead
from srgp.sources import Arrays, Batches, Source, as_source, first_row, random_rows

N = 53  # no multiple of any batch size below


def rows(outputs: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that tell their own number: x = (i, i + ½), y = 2i, weight 1 + i."""
    i = np.arange(float(N))
    y = 2.0 * i if outputs is None else np.stack([2.0 * i] * outputs, 1)
    return np.stack([i, i + 0.5], 1), y, 1.0 + i


def parts(*sizes: int) -> list[tuple[np.ndarray, ...]]:
    cuts = np.cumsum(sizes)
    assert cuts[-1] < N
    return [tuple(a[r] for a in rows()) for r in np.split(np.arange(N), cuts)]


SOURCES: dict[str, Any] = {
    "Arrays": lambda: Arrays(*rows()),
    "one batch": lambda: Batches([rows()]),
    "small batches": lambda: Batches(parts(1, 2, 3, 1, 4)),
    "large batches": lambda: Batches(parts(30, 20)),
    "function": lambda: Batches(lambda: iter(parts(7, 7, 7, 7))),
}
any_source = pytest.mark.parametrize("name", SOURCES)


def passed(source: Source, size: int, seed: int | None = None) -> list[float]:
    """The numbers of the rows of a pass in order, after a look at shapes, padding and the rest."""
    numbers: list[float] = []
    batches = list(source.batches(size, seed))
    for k, (X, y, w) in enumerate(batches):
        assert X.shape == (size, 2)
        assert y.shape == w.shape == (size,)
        assert X.dtype == y.dtype == w.dtype == np.float64
        present = w > 0.0
        if k < len(batches) - 1:
            assert present.all()
        # Padding comes last, and holds numbers that no kernel chokes on.
        assert not present[np.argmin(present) :].any() or present.all()
        assert np.isfinite(X).all()
        i = X[present, 0]
        np.testing.assert_array_equal(X[present, 1], i + 0.5)
        np.testing.assert_array_equal(y[present], 2.0 * i)
        np.testing.assert_array_equal(w[present], 1.0 + i)
        numbers += i.tolist()
    return numbers


@any_source
@pytest.mark.parametrize("size", [1, 4, 10, N, 64])
def test_every_row_once_a_pass(name: str, size: int) -> None:
    source = SOURCES[name]()
    assert source.count() == N
    assert passed(source, size) == list(range(N))
    for seed in (0, 1):
        assert sorted(passed(source, size, seed)) == list(range(N))
    assert len(list(source.batches(size, 0))) == -(-N // size)


@any_source
def test_the_seed_decides_the_order(name: str) -> None:
    source = SOURCES[name]()
    first = passed(source, 4, seed=3)
    assert passed(source, 4, seed=3) == first
    assert passed(SOURCES[name](), 4, seed=3) == first
    assert passed(source, 4, seed=4) != first
    # It is the batches that differ, not only their order within.
    sets = [{frozenset(first[i : i + 4]) for i in range(0, N, 4)}]
    other = passed(source, 4, seed=4)
    sets.append({frozenset(other[i : i + 4]) for i in range(0, N, 4)})
    assert len(sets[0] & sets[1]) < 4


@pytest.mark.parametrize("count", [1, 24, 50, 99, 100, 101])
def test_draws_of_many_rows_need_no_number_for_each(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "MANY", 10)
    for seed in range(20):
        found = drawn(100, count, seed)
        assert len(found) == min(count, 100)
        assert (np.diff(found) > 0).all()
        assert found[0] >= 0
        assert found[-1] < 100


@any_source
@pytest.mark.parametrize("count", [1, 7, N, 3 * N])
def test_the_same_rows_are_drawn_wherever_they_are(name: str, count: int) -> None:
    expected = drawn(N, count, seed=5)
    assert len(expected) == min(count, N)
    X, y, w = random_rows(SOURCES[name](), count, seed=5)
    np.testing.assert_array_equal(X[:, 0], expected)
    np.testing.assert_array_equal(y, 2.0 * expected)
    np.testing.assert_array_equal(w, 1.0 + expected)


def test_rows_of_weight_0_are_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ONCE", 4)
    X, y, w = rows()
    w = np.where(np.arange(N) % 3 == 0, 0.0, w)
    for source in (Arrays(X, y, w), Batches([(X[:11], y[:11], w[:11]), (X[11:], y[11:], w[11:])])):
        found = random_rows(source, N, seed=0)[0][:, 0]
        np.testing.assert_array_equal(found, np.flatnonzero(w))
        some = random_rows(source, 5, seed=0)[0][:, 0]
        np.testing.assert_array_equal(some, np.flatnonzero(w)[drawn(len(found), 5, seed=0)])
    with pytest.raises(ValueError, match="every row has weight 0"):
        random_rows(Arrays(X, y, np.zeros(N)), 5, seed=0)


@pytest.mark.parametrize("many", [10, 100])
def test_every_row_is_drawn_as_often(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2000 draws of 5 among 50 each row is in 200, give or take 13.4."""
    monkeypatch.setattr(drawing, "MANY", many)
    counts = np.bincount(np.concatenate([drawn(50, 5, seed) for seed in range(2000)]))
    assert abs(counts - 200).max() < 5 * 13.4


def test_shuffling_a_stream_mixes_within_its_buffer() -> None:
    """Eight batches are held back: rows of one batch of the source end up in many."""
    source = Batches(parts(13, 13, 13, 13))
    order = np.array(passed(source, 4, seed=0))
    assert np.abs(order[:32] - np.arange(32)).max() > 8
    assert len({int(i) // 4 for i in order[:4]}) > 1


def test_memory_mapped_rows_are_copied_batch_by_batch(tmp_path: Any) -> None:
    X, y, w = rows()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    source = Arrays(mapped, y, w)
    assert np.shares_memory(source.X, mapped)
    assert sorted(passed(source, 8, seed=0)) == list(range(N))


def test_weights_are_one_by_default() -> None:
    X, y, _ = rows()
    for source in (Arrays(X, y), Batches([(X, y)]), as_source((X, y)), as_source([(X, y)])):
        *_, last = source.batches(10)
        np.testing.assert_array_equal(last[2], [1.0] * 3 + [0.0] * 7)


def test_several_outputs_keep_their_columns() -> None:
    X, y, w = rows(outputs=3)
    for source in (Arrays(X, y, w), Batches([(X[:20], y[:20]), (X[20:], y[20:])])):
        assert [batch[1].shape for batch in source.batches(30, 0)] == [(30, 3)] * 2


def test_as_source_knows_what_it_is_given() -> None:
    X, y, w = rows()
    assert isinstance(as_source((X, y)), Arrays)
    assert isinstance(as_source((X, y, w)), Arrays)
    assert isinstance(as_source([(X, y), (X, y)]), Batches)
    assert isinstance(as_source(((X, y), (X, y), (X, y), (X, y))), Batches)
    assert isinstance(as_source(lambda: [(X, y)]), Batches)
    source = Arrays(X, y)
    assert as_source(source) is source
    for found in (source, Batches([(X, y)])):
        assert first_row(found, 2)[0].shape == (1, 2)
        with pytest.raises(ValueError, match="columns"):
            first_row(found, 3)
    with pytest.raises(ValueError, match=r"got int\."):
        as_source(3)


def test_a_generator_is_refused_with_the_way_out() -> None:
    X, y, _ = rows()
    for once in ((b for b in [(X, y)]), iter([(X, y)]), map(tuple, [(X, y)])):
        with pytest.raises(ValueError, match=r"runs only once.*function that starts a new pass"):
            as_source(once)


def test_a_function_that_hands_out_the_same_generator_is_noticed() -> None:
    """Its second pass is empty, which must not pass for no data at all in silence."""
    X, y, _ = rows()
    once = (b for b in [(X, y)])
    source = Batches(lambda: once)
    assert source.count() == N
    with pytest.raises(ValueError, match="no batch"):
        list(source.batches(10))


@pytest.mark.parametrize("empty", [[], lambda: iter([])])
def test_an_empty_source_is_refused(empty: Any) -> None:
    source = Batches(empty)
    with pytest.raises(ValueError, match="no batch"):
        source.count()
    with pytest.raises(ValueError, match="no batch"):
        list(source.batches(5))
    with pytest.raises(ValueError, match="no batch"):
        first_row(source, 1)


def test_empty_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Arrays(np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(ValueError, match="empty"):
        list(Batches([(np.zeros((0, 2)), np.zeros(0))]).batches(3))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((np.zeros((3, 1)), np.zeros(3)), "columns"),
        ((np.zeros((3, 2)), np.zeros(4)), "y must have shape"),
        ((np.zeros((3, 2)), np.full(3, np.nan)), "nan at index 0"),
        ((np.zeros((3, 2)), np.zeros(3), np.full(3, -1.0)), "negative"),
        ((np.zeros((3, 2)),), "a batch is"),
        ((np.zeros((3, 2)), np.zeros(3), np.ones(3), 4), "a batch is"),
    ],
)
def test_a_bad_batch_is_named_wherever_it_comes(second: Any, message: str) -> None:
    X, y, _ = rows()
    source = Batches([(X, y), second])
    with pytest.raises(ValueError, match=message):
        source.count()
    for seed in (None, 0):
        with pytest.raises(ValueError, match=message):
            list(source.batches(10, seed))


def test_a_changing_number_of_outputs_is_refused() -> None:
    X, y, _ = rows()
    for other in (np.stack([y, y], 1), y[:, None]):
        for size in (5, 100):
            with pytest.raises(ValueError):
                list(Batches([(X, y), (X, other)]).batches(size))


# -- the reading thread -------------------------------------------------------------------------


def others() -> int:
    """Threads at work: those that read wait for the next pass."""
    return threading.active_count() - len(_Reader.idle)


def ends(before: int) -> bool:
    """Whether the threads started since are gone, or go within two seconds."""
    until = time.monotonic() + 2.0
    while others() > before and time.monotonic() < until:
        time.sleep(0.01)
    return others() <= before


def counting(seen: list[int], fail_at: int = 10**9) -> Iterator[Any]:
    for i in range(1000):
        if i == fail_at:
            raise RuntimeError("the disk is gone")
        seen.append(i)
        yield np.full((4, 1), float(i)), np.zeros(4)


def test_an_error_in_the_source_reaches_the_consumer() -> None:
    before = others()
    source = Batches(lambda: counting([], fail_at=5))
    found: list[float] = []
    with pytest.raises(RuntimeError, match="the disk is gone"):
        found.extend(batch[0][0, 0] for batch in source.batches(4))
    assert found == [0.0, 1.0, 2.0, 3.0, 4.0]  # what was read before it is not lost
    assert ends(before)


def test_an_error_at_once_and_in_the_function_itself() -> None:
    def broken() -> Any:
        raise OSError("no such file")

    before = others()
    with pytest.raises(OSError, match="no such file"):
        next(iter(Batches(broken).batches(4)))
    assert ends(before)


def test_an_early_stop_of_the_consumer_ends_the_thread() -> None:
    seen: list[int] = []
    before = others()
    for batch in Batches(lambda: counting(seen)).batches(4):
        if batch[0][0, 0] == 2.0:
            break
    gc.collect()
    assert ends(before)
    assert len(seen) < 10  # it does not read on to the end, nor far ahead


def test_an_error_of_the_consumer_ends_the_thread() -> None:
    before = others()

    def consume() -> None:
        for _ in Batches(lambda: counting([])).batches(4):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        consume()
    gc.collect()
    assert ends(before)


def test_a_pass_that_never_starts_starts_no_thread() -> None:
    seen: list[int] = []
    before = others()
    batches = Batches(lambda: counting(seen)).batches(4)
    assert others() == before
    assert seen == []
    del batches


def test_reading_goes_on_while_the_consumer_works() -> None:
    seen: list[int] = []
    batches = ahead((None, None, i) for i in _noted(seen))  # type: ignore[misc]
    assert next(batches)[2] == 0
    until = time.monotonic() + 2.0
    while len(seen) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    assert 3 <= len(seen) <= 5
    batches.close()  # type: ignore[attr-defined]


def _noted(seen: list[int]) -> Iterator[int]:
    for i in range(100):
        seen.append(i)
        yield i


def test_passes_do_not_disturb_each_other() -> None:
    source = Batches(lambda: iter(parts(7, 7, 7, 7)))
    together = list(zip(source.batches(6), source.batches(6), strict=True))
    for one, other in together:
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(together) == -(-N // 6)


def test_a_generator_may_reuse_its_arrays() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(700, 2)), rng.normal(size=700)

    def passes() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        inputs, targets = np.empty((70, 2)), np.empty(70)
        for i in range(0, 700, 70):
            inputs[:], targets[:] = X[i : i + 70], y[i : i + 70]
            yield inputs, targets

    seen = np.concatenate([batch[0] for batch in Batches(passes).batches(100)])
    np.testing.assert_array_equal(seen, X)
