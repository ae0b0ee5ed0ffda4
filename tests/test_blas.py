"""BLAS through its addresses: against SciPy, and refusing what it would misread."""

import threading
import time

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

import srgp
from srgp import blas, statistics
from srgp.approximations import Approximation
from srgp.linalg import quiet_blas


@pytest.fixture(params=[True, False], ids=["BLAS's own", "by halves"])
def substitution(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way of L⁻¹K, whatever the processor."""
    monkeypatch.setattr(blas, "_substitutes_well", lambda: request.param)


@pytest.mark.usefixtures("substitution")
@pytest.mark.parametrize(
    ("B", "M"), [(1, 1), (3, 7), (200, 5), (3, 33), (5, 64), (4, 150), (2, 300)]
)
def test_products_equal_scipys(B: int, M: int) -> None:
    rng = np.random.default_rng(B)
    lower = np.tril(rng.normal(size=(M, M))) / M**0.5 + 3 * np.eye(M)
    K = rng.normal(size=(M, B))
    W = K.copy()
    blas.Triangle(lower).solve(W)
    expected = scipy.linalg.solve_triangular(lower, K, lower=True)
    np.testing.assert_allclose(W, expected, rtol=1e-12, atol=1e-14)
    V = K.copy()
    blas.Triangle(lower).solve(V, transposed=True)
    expected = scipy.linalg.solve_triangular(lower, K, lower=True, trans="T")
    np.testing.assert_allclose(V, expected, rtol=1e-12, atol=1e-14)
    start = np.tril(rng.normal(size=(M, M)))
    total = start.copy()
    blas.add_gram(W, total)
    np.testing.assert_allclose(total, np.tril(start + W @ W.T), rtol=1e-12, atol=1e-13)
    whole = blas.mirrored(total)
    np.testing.assert_array_equal(whole, whole.T)
    np.testing.assert_array_equal(np.tril(whole), total)


@pytest.mark.usefixtures("substitution")
def test_ill_conditioned_leaves_are_substituted() -> None:
    """cond(L) = 1e12: the residual stays at rounding, which that of an inverse would not."""
    M = 2 * blas.SMALL
    lower = np.tril(np.random.default_rng(0).normal(size=(M, M))) / M**0.5 + np.eye(M)
    lower[: blas.SMALL] *= np.logspace(0, -12, blas.SMALL)[:, None]
    K = np.random.default_rng(1).normal(size=(M, 40))
    for transposed in (False, True):
        W = K.copy()
        blas.Triangle(lower).solve(W, transposed)
        L = lower.T if transposed else lower
        # Backward error: |LW − K| ≤ M eps |L||W|, entry by entry.
        assert (np.abs(L @ W - K) <= M * 2.3e-16 * (np.abs(L) @ np.abs(W))).all()
    assert blas._harmless_inverse(lower[: blas.SMALL, : blas.SMALL]) is None


def test_other_layouts_and_types_are_refused() -> None:
    lower, K = np.eye(3), np.ones((3, 4))
    for wrong in (K.astype(np.float32), np.asfortranarray(K), K[:, ::-1]):
        with pytest.raises(TypeError, match="float64"):
            blas.Triangle(lower).solve(wrong)
    for rows in (2, 4):
        with pytest.raises(ValueError, match=f"L has 3 rows, but K has {rows}"):
            blas.Triangle(lower).solve(np.ones((rows, 4)))
    with pytest.raises(TypeError, match="float64"):
        blas.add_gram(K, np.arange(9.0).reshape(3, 3).T)  # in columns, not in rows


def test_rows_are_put_where_numpy_would_not() -> None:
    K = np.zeros((4, 3))
    K.flags.writeable = False
    blas.put_rows(K, 2, np.arange(6.0).reshape(3, 2).T)
    np.testing.assert_array_equal(K, [[0, 0, 0], [0, 0, 0], [0, 2, 4], [1, 3, 5]])
    for start, rows in ((3, np.ones((2, 3))), (0, np.ones((2, 2)))):
        with pytest.raises(ValueError, match="do not fit"):
            blas.put_rows(K, start, rows)


def test_small_work_is_done_at_once_and_large_work_in_threads() -> None:
    for flops in (1.0, 1e12):
        with blas.executor(flops) as pool:
            assert [pool.submit(pow, 2, i).result() for i in range(4)] == [1, 2, 4, 8]
    assert isinstance(blas.executor(1.0), blas.AtOnce)


def test_threads_are_kept_and_leaving_waits_for_them() -> None:
    def named(seconds: float) -> str:
        time.sleep(seconds)
        done.append(seconds)
        return threading.current_thread().name

    done: list[float] = []
    seen: set[str] = set()
    for _ in range(5):
        with blas.executor(1e12) as pool:
            futures = [pool.submit(named, 0.01) for _ in range(8)]
        assert all(future.done() for future in futures)
        seen |= {future.result() for future in futures}
    assert len(done) == 40
    assert 1 <= len(seen) <= blas.workers()

    def fails() -> None:
        with blas.executor(1e12) as pool:
            futures.append(pool.submit(named, 0.2))
            pool.submit(divmod, 1, 0).result()

    with pytest.raises(ZeroDivisionError):
        fails()
    assert futures[-1].done()


def test_every_thread_has_threads_of_its_own() -> None:
    """Work that waits for the work of another must not keep that one from its cores."""

    def waits() -> None:
        with blas.executor(1e12) as pool:
            for future in [pool.submit(both.wait, 10.0) for _ in range(blas.workers())]:
                future.result()

    both = threading.Barrier(2 * blas.workers())
    threads = [threading.Thread(target=waits) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not both.broken


@pytest.mark.parametrize("approximation", [srgp.VFE(), srgp.FITC()])
def test_sums_do_not_depend_on_the_number_of_cores(
    monkeypatch: pytest.MonkeyPatch, approximation: Approximation
) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30_000, 2))
    y = np.sin(5 * X).sum(1)
    monkeypatch.setattr(statistics, "GROUP_ROWS", 4096)  # several groups of few rows
    model = srgp.Model(srgp.kernels.SE(lengthscales=0.3), 0.1, X[:20], approximation)
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(statistics, "workers", lambda cores=cores: cores)
        found.append(srgp.summarise(model, X, y).sums)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_blas_gets_its_threads_back_after_the_last_who_held_it() -> None:
    """Two threads that overlap: the first to enter is the first to leave."""

    def threads() -> set[int]:
        return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

    entered, left, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with quiet_blas():
            entered.set()
            left.wait()
            with quiet_blas():
                pass
            seen.append(threads())

    with threadpool_limits(2, user_api="blas"):
        thread = threading.Thread(target=other)
        with quiet_blas():
            thread.start()
            entered.wait()
        left.set()
        thread.join()
        assert seen == [{1}]
        assert threads() == {2}


def test_a_product_is_added() -> None:
    """To what is there; factors that do not fit are refused, since BLAS would go on."""
    rng = np.random.default_rng(3)
    A, B, total = rng.normal(size=(5, 3)), rng.normal(size=(3, 7)), rng.normal(size=(5, 7))
    expected = total + A @ B
    blas.add_product(A, B, total)
    np.testing.assert_allclose(total, expected, rtol=1e-14, atol=1e-14)
    with pytest.raises(ValueError, match="is not"):
        blas.add_product(A, B[:2], total)
    with pytest.raises(TypeError, match="contiguous"):
        blas.add_product(A, B.T.copy().T, total)
