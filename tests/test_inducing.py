"""Inducing inputs and starting values."""

import numpy as np
import pytest

import srgp
from srgp import inducing
from srgp import kernels as k


def cloud(N: int, D: int = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(N, D))


def rows_of(R: np.ndarray, X: np.ndarray) -> bool:
    return {tuple(r) for r in R} <= {tuple(x) for x in X}


def test_random_rows_are_distinct_and_reproducible() -> None:
    X = np.repeat(cloud(30), 50, 0)
    R = inducing.random(X, 30, seed=1)
    assert rows_of(R, X)
    assert len(np.unique(R, axis=0)) == 30
    np.testing.assert_array_equal(R, inducing.random(X, 30, seed=1))
    assert not np.array_equal(inducing.random(X, 10, 1), inducing.random(X, 10, 2))


@pytest.mark.parametrize("N", [500, 12_000])
def test_kmeans_covers_the_data_in_any_units(N: int) -> None:
    X = cloud(N)
    R = inducing.kmeans(X, 20, seed=0)
    assert R.shape == (20, 2)
    distance = np.sqrt(((X[:, None] - R[None]) ** 2).sum(-1)).min(1)
    assert distance.mean() < 0.5
    scaled = inducing.kmeans(X * [1e-6, 1e6], 20, seed=0)
    np.testing.assert_allclose(scaled / [1e-6, 1e6], R, rtol=1e-6, atol=1e-9)


def greedy_reference(K: np.ndarray, M: int) -> list[int]:
    """The next row by explicit conditional variances, from scratch each time."""
    picks: list[int] = []
    for _ in range(M):
        d = np.diag(K).copy()
        if picks:
            d -= np.einsum(
                "ij,ji->i", K[:, picks], np.linalg.solve(K[np.ix_(picks, picks)], K[picks])
            )
        picks.append(int(np.argmax(d)))
    return picks


@pytest.mark.parametrize("block", [1, 4, None])
def test_greedy_is_the_greedy_choice(block: int | None) -> None:
    """With all rows among the candidates, any block size makes the exact choice."""
    X = cloud(300)
    # A linear part gives unequal prior variances, so that the first choice is unique too.
    kernel = k.Matern32() + k.Linear(variance=0.1)
    expected = X[greedy_reference(kernel(X), 12)]
    np.testing.assert_array_equal(inducing.greedy(kernel, X, 12, block=block), expected)


def test_greedy_out_of_core_makes_the_same_choice_as_in_memory() -> None:
    X = cloud(9000)
    kernel = k.SE() + k.Linear(variance=0.1)
    passes = 0

    def batches() -> list[np.ndarray]:
        nonlocal passes
        passes += 1
        return np.array_split(X, 7)

    one_by_one = inducing.greedy(kernel, X, 10, block=1)
    np.testing.assert_array_equal(inducing.greedy(kernel, batches, 10, block=1), one_by_one)
    assert passes <= 10
    passes = 0
    blocks = inducing.greedy(kernel, batches, 10, block=5)
    assert passes <= 2
    assert rows_of(blocks, X)


def test_greedy_leaves_no_row_unexplained() -> None:
    """Rows drawn at random leave some far corner to the prior; the greedy choice does not."""
    X = cloud(5000)
    kernel = k.SE()

    def largest_unexplained(R: np.ndarray) -> float:
        K = kernel(R, X)
        return float(np.max(1.0 - np.sum(K * np.linalg.solve(kernel(R), K), 0)))

    chosen = inducing.greedy(kernel, X, 40)
    assert len(np.unique(chosen, axis=0)) == 40
    assert largest_unexplained(inducing.greedy(kernel, X, 40, block=1)) < 0.1
    assert largest_unexplained(chosen) < 0.15
    assert largest_unexplained(inducing.random(X, 40)) > 0.3


def test_greedy_stops_when_nothing_is_left_to_explain() -> None:
    X = np.repeat(cloud(6), 20, 0)
    with pytest.warns(UserWarning, match="6 inducing inputs explain all rows"):
        R = inducing.greedy(k.Matern12(), X, 10)
    assert len(np.unique(R, axis=0)) == len(R) == 6


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_starting_values_follow_the_units(scale: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (400, 2)) * [1.0, 100.0]
    y = scale * (np.sin(X[:, 0]) + 0.1 * rng.normal(size=400))
    kernel, noise = inducing.starting_values(X, y)
    assert kernel.lengthscales[1] / kernel.lengthscales[0] == pytest.approx(100, rel=0.2)
    assert kernel.variance == pytest.approx(y.var())
    assert 0.002 < noise / scale**2 < 0.2


def test_starting_values_know_noise_from_signal() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (500, 1))
    _, clean = inducing.starting_values(X, np.sin(X[:, 0]))
    _, noisy = inducing.starting_values(X, 0.1 * np.sin(X[:, 0]) + rng.normal(size=500))
    assert clean < 1e-2 < 0.3 < noisy


@pytest.mark.parametrize("kernel", [k.SE, k.Matern32])
def test_an_initial_model_predicts_well_untrained(kernel: type[k.Stationary]) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (1000, 1))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1000)
    model = inducing.initial_model(X, y, 25, kernel, srgp.FITC())
    mean, _ = srgp.posterior(model, srgp.summarise(model, X, y)).predict(X)
    assert np.sqrt(np.mean((mean - np.sin(X[:, 0])) ** 2)) < 0.05


def test_degenerate_data_still_give_a_model() -> None:
    X = np.concatenate([cloud(30), np.full((30, 1), 7.0), np.zeros((30, 1))], 1)
    for y in (np.zeros(30), np.full(30, 5.0), np.stack([X[:, 0], X[:, 1]], 1)):
        model = inducing.initial_model(X, y, 5)
        assert np.isfinite(srgp.log_bound(model, srgp.summarise(model, X, y)))
    one = inducing.initial_model([[1.0, 2.0]], [3.0], 1)
    mean, _ = srgp.posterior(one, srgp.summarise(one, [[1.0, 2.0]], [3.0])).predict([[1.0, 2.0]])
    assert np.isfinite(mean).all()
