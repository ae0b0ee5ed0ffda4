"""The SE kernel's rows by NumPy and BLAS: against formulas written out, and against compiled code.

Tolerances: r² of points S lengthscales apart carries the rounding of their coordinates, S·eps, and
the kernel a few eps more.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Problem, problem

import srgp
from srgp import blocks, passes, stacked
from srgp import kernels as k
from srgp.collapsed import RawCotangent
from srgp.gradient import exact_gradient
from srgp.model import whitener_of
from srgp.passes import Compiled, Passes, first_pass, passes_of, second_pass
from srgp.slopes import raw_sums
from srgp.sources import Arrays, Held
from srgp.stacked import Exponent, Factor, Stack, job_rows

EPS = np.finfo(np.float64).eps


def places(D: int, spread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """R and X in a cube of so many lengthscales; some of X next to R, and one at it."""
    rng = np.random.default_rng(seed)
    R, X = rng.uniform(0, spread, (12, D)), rng.uniform(0, spread, (40, D))
    X[:12] = R + np.geomspace(1e-15, 1.0, 12)[:, None] * rng.normal(size=(12, D))
    X[12] = R[0]
    return R, X


def exponent(kernel: k.SE, R: np.ndarray, X: np.ndarray) -> np.ndarray:
    out = np.empty((len(R), len(X)))
    found = Exponent(kernel, R)
    found(found.factors(found.centred(X)), out)
    return out


def by_hand(R: np.ndarray, X: np.ndarray, scales: Any = 1.0) -> np.ndarray:
    """−r²/2 in extended precision."""
    wide = (R[:, None].astype(np.longdouble) - X) / np.asarray(scales, np.longdouble)
    return np.asarray(-0.5 * np.sum(wide**2, -1))


@pytest.mark.parametrize("D", [1, 2, 3, 5, 8, 40])
@pytest.mark.parametrize("spread", [1.0, 30.0, 700.0, 1e5])
def test_distances_do_not_cancel(D: int, spread: float) -> None:
    """Relative to the kernel, whose error is that of r²/2: as good as by differences."""
    R, X = places(D, spread)
    found, expected = exponent(k.SE(lengthscales=1.0), R, X), by_hand(R, X)
    r = np.sqrt(-2.0 * expected)
    near = r < 39.0
    # Coordinates, a few roundings of r² itself, and those of what lies below the grid, if any does.
    below = D * (spread + 39.0) ** 2 * 2.0**-20 if Exponent(k.SE(), R).by_products else 0.0
    tolerance = 4.0 * EPS * (spread * r * np.sqrt(D) + r**2 + below)
    assert (np.abs(found - expected) <= tolerance)[near].all()
    assert (found[~near] < -700.0).all()


@pytest.mark.parametrize("by_products", [True, False])
def test_both_ways_to_the_distance_are_the_same(
    by_products: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked, "FEW_INPUTS", 0 if by_products else 99)
    for D in (1, 2, 6):
        R, X = places(D, 10.0)
        scales = np.linspace(0.5, 2.0, D)
        kernel = k.SE(variance=3.0, lengthscales=scales)
        assert Exponent(kernel, R).by_products == by_products
        found = exponent(kernel, R, X)
        np.testing.assert_allclose(
            found, np.log(3.0) + by_hand(R, X, scales), rtol=1e-14, atol=1e-13
        )


def test_far_rows_are_far() -> None:
    """Whatever their coordinates, and however far from the origin all of them are."""
    R, _ = places(4, 3.0)
    X = np.concatenate([R + 1e3, R - 1e150, R * 1e300, np.full((1, 4), -1e308)])
    assert (np.exp(exponent(k.SE(), R, X)) == 0.0).all()
    offset = 1.7e9  # seconds since 1970, say
    here, there = exponent(k.SE(), R, R + 0.25), exponent(k.SE(), R + offset, R + offset + 0.25)
    np.testing.assert_allclose(here, there, atol=1e-5)  # what is left of the coordinates there
    assert not Exponent(k.SE(lengthscales=1e-200), R).by_products
    with np.errstate(over="ignore"):
        tiny = exponent(k.SE(lengthscales=1e-200), R, R)
    assert (np.diag(tiny) == 0.0).all()
    assert (tiny[~np.eye(12, dtype=bool)] < -1e300).all()


KERNELS = {
    "one each": k.SE(variance=1.3, lengthscales=[0.5, 0.8, 1.1]),
    "shared": k.SE(variance=0.7, lengthscales=0.8),
    "of shape (1,)": k.SE(lengthscales=[0.8]),
    "active": k.SE(lengthscales=[0.6, 0.9], active_dims=[2, 0]),
    "one active": k.SE(lengthscales=0.6, active_dims=[1]),
}


def some_problem(Q: int | None = None) -> Problem:
    """With weights, some of them zero."""
    p = problem(seed=4, N=37, M=6, D=3, Q=Q)
    return p._replace(weights=np.where(np.arange(37) % 6 == 0, 0.0, p.weights))


@pytest.mark.parametrize("variance", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("lengthscale", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("far", [1.0, 1e308])
def test_where_a_line_search_has_run_away(variance: float, lengthscale: float, far: float) -> None:
    """A bound with its gradient, or none: no warning, and nothing in between."""
    p = some_problem()
    with jax.enable_x64(True):
        structure = jax.tree.structure(srgp.Model(k.SE(1.0, 1.0), p.noise, p.R))
        leaves = variance, lengthscale, p.noise, far * p.R
        model = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
        value, gradient = exact_gradient(model, Held(p.X, p.y, p.weights), 8)
        if variance == lengthscale == far == 1.0:
            assert np.isfinite(value)
        if np.isfinite(value):
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def both_passes(
    passes: Passes, model: srgp.Model, source: Held, at: RawCotangent, whiten: Any
) -> tuple[Any, srgp.Model]:
    raw = first_pass(source, model, whiten, passes)
    return raw, second_pass(source, model, at, whiten, passes)


def close(found: Any, expected: Any, rtol: float = 1e-11) -> None:
    """Relative to the largest entry of each leaf."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=0, atol=rtol * np.abs(y).max())


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("pieces", [1, 5])
@pytest.mark.parametrize("Q", [None, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_the_passes_are_those_of_compiled_code(
    name: str, Q: int | None, pieces: int, whitened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums, and the gradient of any function of them, by another route: XLA, reverse mode."""
    monkeypatch.setattr(stacked, "PIECE", 6 * 37 // pieces)
    p = some_problem(Q)
    with jax.enable_x64(True):
        model = jax.tree.map(jnp.asarray, srgp.Model(KERNELS[name], p.noise, p.R))
        whiten = whitener_of(model.kernel, model.inducing) if whitened else None
        rng = np.random.default_rng(0)
        outputs = () if Q is None else (Q,)
        symmetric = rng.normal(size=(6, 6))
        at = RawCotangent(
            K=jnp.zeros((6, 6)),
            Phi=jnp.asarray(symmetric + symmetric.T),
            b=jnp.asarray(rng.normal(size=(6, *outputs))),
            kappa=jnp.asarray(0.3),
            noise=jnp.zeros(()),
        )
        source = Held(p.X, p.y, p.weights)
        stack = passes_of(model, 37)
        assert isinstance(stack, Stack)
        raw, gradient = both_passes(stack, model, source, at, whiten)
        K = model.kernel.covariance(p.R, p.X) * np.sqrt(p.weights)
        W = K if whiten is None else whiten(K)
        expected = raw_sums(model.kernel, W, p.X, p.y, p.weights)
        close(raw, expected._replace(Phi=W @ W.T))
        pulled = blocks.raw_pullback(
            model, at, K, p.X, p.y, p.weights, whiten and (W, whiten.inverse)
        )
        close(gradient, pulled, 1e-10)
        # And the blocks of other kernels, here in several.
        compiled = Compiled(model, 8, passes.KEPT)
        found = both_passes(compiled, model, source, at, whiten)
        close(found, (raw, gradient), 1e-10)


class Reordered(Held):
    """Another order of rows in every pass."""

    def batches(self, size: int, seed: int | None = None) -> Any:
        self.passes = getattr(self, "passes", 0) + 1
        return super().batches(size, seed=self.passes)


@pytest.mark.parametrize("room", [0, 6 * 8 * 20, passes.KEPT])
def test_what_is_kept_is_that_of_these_rows(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All, some or none of the kernel matrix kept; a second pass in another order starts anew."""
    monkeypatch.setattr(stacked, "LEAST", 6 * 9)  # four jobs
    p = some_problem()
    X = np.repeat(p.X[:1], 37, 0)  # equal rows of other targets: the targets must be compared, too
    with jax.enable_x64(True):
        model = jax.tree.map(jnp.asarray, srgp.Model(KERNELS["shared"], p.noise, p.R))
        at = RawCotangent(*(jnp.ones((6, 6)),) * 2, jnp.ones(6), jnp.ones(()), jnp.ones(()))
        for inputs in (p.X, X):
            found = []
            for kind in (Held, Reordered):
                source = kind(inputs, p.y, p.weights)
                stack = Stack(model.kernel, model.inducing, 37, room)
                assert stack.rows == 10
                found.append(both_passes(stack, model, source, at, None))
                assert not stack.kept
            close(found[0], found[1])


@pytest.mark.parametrize("M", [1, 20, 100, 500, 10_000])
def test_jobs_of_rows(M: int) -> None:
    """As many for each core, none too large, and for few rows no more than they are worth."""
    assert job_rows(1, M) == 1
    for count in (10, 1000, 30_000, 100_000, 2_000_000):
        rows = job_rows(count, M)
        jobs = -(-count // rows)
        assert rows * M <= max(stacked.JOB, M) + M * stacked.JOBS
        if count * M > stacked.JOBS * stacked.LEAST and rows > 1000:
            assert jobs % stacked.JOBS == 0
        elif rows < count and rows > 1000:
            assert jobs in (2, 4, 8)


def test_a_gradient_is_the_same_bits_on_any_number_of_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = problem(seed=5, N=60_000, M=4, D=3)
    model = srgp.Model(KERNELS["shared"], p.noise, p.R)
    found = []
    for cores in (1, 2, 3):
        monkeypatch.setattr(passes, "workers", lambda cores=cores: cores)
        monkeypatch.setattr(passes, "ELEMENTWISE", 1e6)  # worth threads
        found.append(srgp.value_and_grad(model, Arrays(p.X, p.y)))
    for value, gradient in found[1:]:
        assert value == found[0][0]
        for x, y in zip(jax.tree.leaves(gradient), jax.tree.leaves(found[0][1]), strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_factor_leaves_the_targets_as_they_are() -> None:
    p = some_problem()
    with jax.enable_x64(True):
        kernel = jax.tree.map(jnp.asarray, KERNELS["shared"])
        whiten = whitener_of(kernel, jnp.asarray(p.R))
    factor = Factor.of(whiten)
    assert Factor.of(None) is None
    assert factor is not None
    Z = np.random.default_rng(0).normal(size=(8, 37))
    before = Z.copy()
    W = factor.whitened(Z, 6)
    np.testing.assert_array_equal(Z, before)
    np.testing.assert_array_equal(W[6:], Z[6:])
    np.testing.assert_allclose(np.asarray(whiten.lower) @ W[:6], Z[:6], atol=1e-12)
