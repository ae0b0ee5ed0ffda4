"""The Kalman form against the information form, the paper's recursion, and the batch formulas."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import KERNELS, MODELS, dense, problem
from reference import models as reference
from reference import recursion

import srgp
from srgp import kernels as k

models = pytest.mark.parametrize("model_name", MODELS)


def run(model: srgp.Model, X: np.ndarray, y: np.ndarray, sizes: list[int]) -> srgp.Filter:
    f = srgp.Filter.start(model)
    start = 0
    for size in sizes:
        f = f.update(X[start : start + size], y[start : start + size])
        start += size
    return f


@models
@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=8))
def test_kalman_equals_information_form(model_name: str, sizes: list[int]) -> None:
    sizes = [7 * size for size in sizes]  # multiples of PITC's block
    p = problem(N=sum(sizes))
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, MODELS[model_name][0])
    f = run(model, p.X, p.y, sizes)
    s = srgp.summarise(model, p.X, p.y)
    assert f.n == len(p.X)
    assert f.log_bound == pytest.approx(srgp.log_bound(model, s), rel=1e-10)
    for found, expected in zip(
        f.predict(p.Xs), srgp.posterior(model, s).predict(p.Xs), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@models
def test_every_step_equals_the_papers_recursion(model_name: str) -> None:
    approximation, name, options = MODELS[model_name]
    options = {key: value for key, value in options.items() if key != "block_size"}
    kernel, reference_kernel = KERNELS["Matern52"]
    p = problem(N=12)
    Kxx, Kxr, Krr, _, _ = dense(reference_kernel, p)
    mean, cov, steps = recursion.kalman_filter(
        name, Kxx, Kxr, Krr, p.y, p.noise, block_size=1, sample_weight=p.weights, **options
    )
    f = srgp.Filter.start(srgp.Model(kernel, p.noise, p.R, approximation))
    bounds = []
    for x, y, weight in zip(p.X, p.y, p.weights, strict=True):
        f = f.update(x, y, weight)
        bounds.append(f.log_bound)
    np.testing.assert_allclose(np.diff([0.0, *bounds]), steps, rtol=1e-9)
    np.testing.assert_allclose(f.predict(p.R)[0], mean[:, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(f.posterior.covariance(p.R), cov, rtol=0, atol=1e-10)


def test_several_outputs_share_one_root() -> None:
    p = problem(Q=2)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R)
    f = srgp.Filter.start(model).update(p.X[:1], p.y[:1]).update(p.X[1:], p.y[1:])
    s = srgp.summarise(model, p.X, p.y)
    assert f.log_bound == pytest.approx(srgp.log_bound(model, s), rel=1e-10)
    np.testing.assert_allclose(
        f.predict(p.Xs)[0], srgp.posterior(model, s).predict(p.Xs)[0], rtol=0, atol=1e-10
    )


def test_starting_from_statistics_is_having_seen_the_data() -> None:
    p = problem()
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, srgp.FITC())
    f = srgp.Filter.start(model, srgp.summarise(model, p.X[:30], p.y[:30]))
    f = f.update(p.X[30:], p.y[30:])
    g = srgp.Filter.start(model).update(p.X, p.y)
    assert (f.n, f.log_bound) == (40, pytest.approx(g.log_bound, rel=1e-10))
    np.testing.assert_allclose(f.predict(p.Xs), g.predict(p.Xs), rtol=0, atol=1e-10)


def test_update_leaves_the_old_filter_as_it_was() -> None:
    p = problem()
    f = srgp.Filter.start(srgp.Model(KERNELS["SE"][0], p.noise, p.R)).update(p.X, p.y)
    before = f.predict(p.Xs), f.log_bound
    f.update(p.X[0], 5.0)
    f.update(p.X, p.y)
    f.forget(0.5)
    np.testing.assert_array_equal(before[0], f.predict(p.Xs))
    assert before[1] == f.log_bound


def test_a_factor_of_one_forgets_nothing() -> None:
    """Not even digits: at tiny noise the square of the root has too few of them."""
    p = problem()
    model = srgp.Model(k.SE(lengthscales=2.0), 1e-12, p.R)
    f = srgp.Filter.start(model).update(p.X, p.y)
    for towards in ("less data", "prior"):
        np.testing.assert_array_equal(f.forget(1.0, towards).predict(p.Xs), f.predict(p.Xs))
        near = f.forget(1.0 - 1e-12, towards).predict(p.Xs)
        assert np.isfinite(near).all()


@pytest.mark.parametrize("factor", [1.0, 0.999, 0.5, 0.01])
def test_both_ways_to_forget(factor: float) -> None:
    p = problem()
    kernel, K = KERNELS["SE"]
    Krr = K(p.R, p.R)
    model = srgp.Model(kernel, p.noise, p.R)
    f = srgp.Filter.start(model).update(p.X, p.y)
    u_mean, u_cov = f.predict(p.R)[0][:, None], f.posterior.covariance(p.R)

    less = f.forget(factor)
    mean, cov = recursion.forget_exponentially(u_mean, u_cov, Krr, factor)
    np.testing.assert_allclose(less.predict(p.R)[0], mean[:, 0], rtol=0, atol=1e-8)
    np.testing.assert_allclose(less.posterior.covariance(p.R), cov, rtol=0, atol=1e-8)
    by_sums = srgp.posterior(model, factor * srgp.summarise(model, p.X, p.y))
    np.testing.assert_allclose(less.predict(p.Xs), by_sums.predict(p.Xs), rtol=0, atol=1e-10)

    prior = f.forget(factor, towards="prior")
    mean, cov = recursion.forget_towards_prior(u_mean, u_cov, Krr, factor)
    np.testing.assert_allclose(prior.predict(p.R)[0], mean[:, 0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(prior.posterior.covariance(p.R), cov, rtol=0, atol=1e-9)


def test_moving_changes_the_noise_too_where_it_is_known() -> None:
    p = problem()
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R)
    louder = model.replace(noise=1.0)
    moved = srgp.Filter.start(model).update(p.X, p.y).move(louder)
    afresh = srgp.Filter.start(louder).update(p.X, p.y)
    np.testing.assert_allclose(moved.predict(p.Xs), afresh.predict(p.Xs), rtol=0, atol=1e-9)


@pytest.mark.parametrize("model_name", [name for name in MODELS if MODELS[name][0] != srgp.VFE()])
def test_moving_to_another_noise_keeps_that_of_rows_where_it_is_in_their_weight(
    model_name: str,
) -> None:
    """Then these rows were learned with their old noise, and the next ones with the new."""
    p = problem()
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, MODELS[model_name][0])
    louder = model.replace(noise=1.0)
    s = srgp.summarise(model, p.X[:28], p.y[:28])
    by_sums = srgp.move(s, model, louder) + srgp.summarise(louder, p.X[28:], p.y[28:])
    f = srgp.Filter.start(model).update(p.X[:28], p.y[:28]).move(louder)
    f = f.update(p.X[28:], p.y[28:])
    found = srgp.posterior(louder, by_sums).predict(p.Xs)
    np.testing.assert_allclose(f.predict(p.Xs), found, rtol=0, atol=1e-9)
    if model.approximation.noise_free:
        expected = srgp.summarise(louder, p.X, p.y)
    else:
        both = s.sums, srgp.summarise(louder, p.X[28:], p.y[28:]).sums
        added = type(s.sums)(*map(np.add, *both))
        expected = srgp.Statistics(added, louder.fingerprint)
    np.testing.assert_allclose(
        found, srgp.posterior(louder, expected).predict(p.Xs), rtol=0, atol=1e-9
    )


def one_by_one(f: srgp.Filter, X: np.ndarray, y: np.ndarray) -> srgp.Filter:
    for x_k, y_k in zip(X, y, strict=True):
        f = f.update(x_k, y_k)
    return f


@pytest.mark.parametrize(
    ("N", "learn"),
    [(1_000_000, srgp.Filter.update), (100_000, one_by_one)],
    ids=["in one call", "a call each"],
)
def test_stays_definite_and_exact_over_many_single_updates(N: int, learn: Any) -> None:
    """Drift against the batch answer, at a noise level that would break the plain covariance form.

    Rounding of 1e6 steps, eps·√1e6 ≈ 2e-13, is amplified by the posterior's spread of scales (from
    1, where no data are, down to √(σ²/N) = 1e-5): 1e-6 of a posterior deviation is the bar.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (N, 1))
    y = np.sin(12 * X[:, 0]) + 0.01 * rng.normal(size=N)
    R = np.linspace(0, 1.5, 12)[:, None]  # the last third sees no data: prior beside certainty
    model = srgp.Model(k.Matern32(lengthscales=0.3), 1e-4, R)
    f = learn(srgp.Filter.start(model), X, y)
    s = srgp.summarise(model, X, y)
    assert f.log_bound == pytest.approx(srgp.log_bound(model, s), rel=1e-9)
    Xs = np.linspace(0, 1.5, 50)[:, None]
    mean, var = f.predict(Xs)
    expected_mean, expected_var = srgp.posterior(model, s).predict(Xs)
    np.testing.assert_allclose(var, expected_var, rtol=1e-7)
    np.testing.assert_allclose((mean - expected_mean) / np.sqrt(expected_var), 0.0, atol=1e-6)
    eigenvalues = np.linalg.eigvalsh(f.posterior.covariance(R))
    assert eigenvalues.min() > 0


def toy() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 10, (100, 1))
    y = np.sin(X[:, 0]) + 0.5 * np.cos(3 * X[:, 0]) + 0.2 * rng.normal(size=100)
    return X, y, np.linspace(0, 10, 15)[:, None]


def test_the_papers_toy_example() -> None:
    """N = 100, M = 15, PEP α = 0.5, B = 1: cumulative bound, its derivative and the predictions.

    The derivative is carried along by forward differentiation of the recursion, which is eq. 27,
    and compared with extrapolated differences of the dense batch bound, good to 1e-8.
    """
    from reference import gradients
    from reference import kernels as rk

    X, y, R = toy()

    def model(lengthscale: jax.Array | float) -> srgp.Model:
        kernel = k.SE(lengthscales=lengthscale)
        return srgp.Model(kernel, 0.04, R, srgp.PEP(alpha=0.5))

    def dense_bound(log_lengthscale: np.ndarray) -> float:
        scale = float(np.exp(log_lengthscale[0]))
        Kxx, Kxr, Krr = (rk.se(A, B, lengthscales=scale) for A, B in [(X, X), (X, R), (R, R)])
        return reference.log_bound("PEP", Kxx, Kxr, Krr, y, 0.04, alpha=0.5)

    f = srgp.Filter.start(model(0.6))
    for x_k, y_k in zip(X, y, strict=True):
        f = f.update(x_k, y_k)
    assert f.log_bound == pytest.approx(dense_bound(np.log([0.6])), rel=1e-10)

    with jax.enable_x64(True):

        def recursive_bound(log_lengthscale: jax.Array) -> jax.Array:
            f = srgp.Filter.start(model(jnp.exp(log_lengthscale)))
            return f.update(X, y).state.log_bound

        value, slope = jax.jvp(recursive_bound, (jnp.log(0.6),), (jnp.ones(()),))
    assert float(value) == pytest.approx(f.log_bound, rel=1e-12)
    expected = gradients.gradient(dense_bound, np.log([0.6]))[0]
    assert float(slope) == pytest.approx(expected, rel=1e-7)

    Xs = np.linspace(-1, 11, 40)[:, None]
    batch = srgp.posterior(model(0.6), srgp.summarise(model(0.6), X, y))
    np.testing.assert_allclose(f.predict(Xs), batch.predict(Xs), rtol=0, atol=1e-10)


ON_HOST: dict[str, k.Kernel] = {
    "SE": k.SE(variance=1.3, lengthscales=[0.5, 0.8]),
    "Matern12": k.Matern12(variance=0.7, lengthscales=0.9),
    "Matern32": k.Matern32(lengthscales=[0.6, 0.9]),
    "Matern52": k.Matern52(lengthscales=0.7, active_dims=[1]),
    "RationalQuadratic": k.RationalQuadratic(lengthscales=0.6, mixture=0.8),
}


class TestOnTheHost:
    """One sample in NumPy against the same in compiled code, which `1.0 *` a kernel asks for."""

    # A kernel is one column of K_RX, whatever the model makes of it: not every pair is needed.
    @pytest.mark.parametrize(
        ("kernel_name", "model_name"),
        [
            *(("SE", model) for model in MODELS),
            *((kernel, model) for kernel in ON_HOST if kernel != "SE" for model in ("VFE", "FITC")),
        ],
    )
    def test_equals_compiled_code(self, model_name: str, kernel_name: str) -> None:
        kernel = ON_HOST[kernel_name]
        approximation = MODELS[model_name][0]
        p = problem(N=12)
        model = srgp.Model(kernel, p.noise, p.R, approximation)
        compiled = model.replace(kernel=1.0 * kernel)
        assert compiled.single is None
        assert (model.single is None) == isinstance(approximation, srgp.PITC)
        f, g = srgp.Filter.start(model), srgp.Filter.start(compiled)
        for x, y, weight in zip(p.X, p.y, p.weights, strict=True):
            np.testing.assert_allclose(
                f.tested(x, y)[:2], g.tested(x, y)[:2], rtol=1e-12, atol=1e-12
            )
            f, g = f.update(x, y, weight), g.update(x, y, weight)
        assert (f.n, f.log_bound) == pytest.approx((g.n, g.log_bound), rel=1e-12)
        np.testing.assert_allclose(f.predict(p.Xs), g.predict(p.Xs), rtol=0, atol=1e-12)
        np.testing.assert_allclose(f.predict(p.Xs[:1]), g.predict(p.Xs[:1]), rtol=0, atol=1e-12)

        for row in range(3):
            for y in (p.y, np.stack([p.y, 2.0 - p.y], 1)):  # one output, and two
                one = slice(row, row + 1)
                host, device = (
                    srgp.summarise(m, p.X[one], y[one], p.weights[one]) for m in (model, compiled)
                )
                for a, b in zip(host.sums, device.sums, strict=True):
                    assert np.shape(a) == np.shape(b)
                    np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)

    def test_a_profile_of_the_users_own_is_compiled(self) -> None:
        class Cauchy(k.SE):
            def profile(self, r2: jax.Array) -> jax.Array:
                return 1.0 / (1.0 + jnp.abs(r2))

        p = problem(N=12)
        model = srgp.Model(Cauchy(), p.noise, p.R)
        assert model.single is None
        f = srgp.Filter.start(model)
        for x, y in zip(p.X, p.y, strict=True):
            f = f.update(x, y)
        batch = srgp.log_bound(model, srgp.summarise(model, p.X, p.y))
        assert f.log_bound == pytest.approx(batch, rel=1e-10)

    def test_extreme_weights_and_the_old_state(self) -> None:
        p = problem(N=3)
        f = srgp.Filter.start(srgp.Model(k.SE(), p.noise, p.R)).update(p.X[0], p.y[0])
        mean, root = np.array(f.state.mean), np.array(f.state.root)
        nothing = f.update(p.X[1], p.y[1], 0.0)
        assert (nothing.n, nothing.log_bound) == (f.n, f.log_bound)
        for weight in (1e-300, 1e-101):
            np.testing.assert_allclose(f.update(p.X[1], p.y[1], weight).state.mean, mean)
        f.update(p.X[1], p.y[1])
        np.testing.assert_array_equal(f.state.mean, mean)  # updates leave the old filter alone
        np.testing.assert_array_equal(f.state.root, root)


@pytest.mark.parametrize(("block_size", "rows"), [(3, 126), (50, 100), (301, 301)])
def test_blocks_of_pitc_are_padded_no_more_than_they_must(
    block_size: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows are padded to whole blocks of PITC's, of one size whatever their number."""
    recursion = importlib.import_module("srgp.recursion")
    compiled, taken = recursion.observed, set()

    def observed(*args: Any) -> Any:
        taken.add(args[2].shape)
        return compiled(*args)

    monkeypatch.setattr(recursion, "observed", observed)
    p = problem(N=120)
    model = srgp.Model(k.Matern32(), p.noise, p.R, srgp.PITC(block_size=block_size))
    for count in (10, 50, 120):
        X, y = p.X[:count], p.y[:count]
        expected = srgp.log_bound(model, srgp.summarise(model, X, y))
        assert srgp.Filter.start(model).update(X, y).log_bound == pytest.approx(expected, rel=1e-10)
    assert taken == {(rows, 2)}
