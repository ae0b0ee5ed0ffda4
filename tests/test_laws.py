"""Laws that hold for every model: what the additive form promises.

Tolerances: re-ordered sums of N ≈ 40 terms differ by a few rounding errors, amplified by the
condition number of I + A (about 1e3): 1e-10 relative.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import KERNELS, MODELS, Problem, problem

import srgp

RTOL = 1e-10
models = pytest.mark.parametrize("model_name", MODELS)
# PITC alone depends on the batching: its blocks are part of the model.
batch_free = pytest.mark.parametrize("model_name", [m for m in MODELS if m != "PITC"])
seeds = st.integers(0, 2**32 - 1)
law = settings(max_examples=15, deadline=None)


def make(model_name: str, p: Problem, kernel: str = "Matern32") -> srgp.Model:
    return srgp.Model(KERNELS[kernel][0], p.noise, p.R, MODELS[model_name][0])


def assert_same(model: srgp.Model, s: srgp.Statistics, t: srgp.Statistics) -> None:
    p = problem()
    assert s.n == pytest.approx(t.n)
    assert srgp.log_bound(model, s) == pytest.approx(srgp.log_bound(model, t), rel=RTOL)
    pairs = zip(
        srgp.posterior(model, s).predict(p.Xs), srgp.posterior(model, t).predict(p.Xs), strict=True
    )
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=RTOL, atol=RTOL)


@models
@pytest.mark.parametrize("kernel_name", KERNELS)
def test_laws_of_every_model_with_every_kernel(model_name: str, kernel_name: str) -> None:
    """Batching, order, merging, unlearning, weights of zero, and Kalman = information form."""
    p = problem(N=42)
    model = make(model_name, p, kernel_name)
    rows = np.split(np.arange(42), [14, 28])  # multiples of PITC's block
    whole = srgp.summarise(model, p.X, p.y)
    parts = [srgp.summarise(model, p.X[r], p.y[r]) for r in rows]
    assert_same(model, sum(parts[::-1]), whole)
    assert_same(model, whole - parts[1], parts[0] + parts[2])
    order = np.concatenate([rows[2], rows[0], rows[1]])
    assert_same(model, srgp.summarise(model, p.X[order], p.y[order]), whole)
    absent = np.where(np.arange(42) < 28, 1.0, 0.0)
    assert_same(model, srgp.summarise(model, p.X, p.y, absent), parts[0] + parts[1])
    f = srgp.Filter.start(model)
    for r in rows:
        f = f.update(p.X[r], p.y[r])
    assert f.log_bound == pytest.approx(srgp.log_bound(model, whole), rel=RTOL)
    expected = srgp.posterior(model, whole).predict(p.Xs)
    np.testing.assert_allclose(f.predict(p.Xs), expected, rtol=RTOL, atol=RTOL)


@pytest.mark.parametrize("kernel_name", KERNELS)
def test_single_samples_of_every_kernel(kernel_name: str) -> None:
    p = problem(N=20)
    model = make("PEP(0.5)", p, kernel_name)
    f = srgp.Filter.start(model)
    for x_k, y_k, weight in zip(p.X, p.y, p.weights, strict=True):
        f = f.update(x_k, y_k, weight)
    s = srgp.summarise(model, p.X, p.y, p.weights)
    assert f.log_bound == pytest.approx(srgp.log_bound(model, s), rel=RTOL)
    expected = srgp.posterior(model, s).predict(p.Xs)
    np.testing.assert_allclose(f.predict(p.Xs), expected, rtol=RTOL, atol=RTOL)


@batch_free
@law
@given(seed=seeds, cuts=st.sets(st.integers(1, 39), max_size=8))
def test_batching_never_matters(model_name: str, seed: int, cuts: set[int]) -> None:
    p = problem(seed % 5)
    model = make(model_name, p)
    rows = np.split(np.arange(40), sorted(cuts))
    parts = [srgp.summarise(model, p.X[r], p.y[r], p.weights[r]) for r in rows]
    assert_same(model, sum(parts), srgp.summarise(model, p.X, p.y, p.weights))


def test_batching_at_block_borders_never_matters_to_pitc() -> None:
    p = problem()
    model = make("PITC", p)  # block_size 7
    rows = np.split(np.arange(40), [7, 21, 35])
    parts = [srgp.summarise(model, p.X[r], p.y[r]) for r in rows]
    assert_same(model, sum(parts), srgp.summarise(model, p.X, p.y))


@batch_free
@law
@given(seed=seeds)
def test_order_never_matters(model_name: str, seed: int) -> None:
    p = problem()
    model = make(model_name, p)
    order = np.random.default_rng(seed).permutation(40)
    shuffled = srgp.summarise(model, p.X[order], p.y[order])
    assert_same(model, shuffled, srgp.summarise(model, p.X, p.y))


@models
@law
@given(cut=st.integers(1, 5))
def test_learning_then_unlearning_is_nothing(model_name: str, cut: int) -> None:
    p = problem()
    model = make(model_name, p)
    first = srgp.summarise(model, p.X[: 7 * cut], p.y[: 7 * cut])
    rest = srgp.summarise(model, p.X[7 * cut :], p.y[7 * cut :])
    assert_same(model, (first + rest) - rest, first)


@models
def test_nothing_seen_is_the_prior(model_name: str) -> None:
    p = problem()
    model = make(model_name, p)
    s = srgp.summarise(model, p.X, p.y)
    mean, var = srgp.posterior(model, s - s).predict(p.Xs)
    prior = (
        np.ones(11)
        if model_name != "SoR"
        else np.sum(
            np.linalg.solve(np.linalg.cholesky(model.kernel(p.R)), model.kernel(p.R, p.Xs)) ** 2, 0
        )
    )
    np.testing.assert_allclose(mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(var, prior, rtol=1e-10)
    assert srgp.log_bound(model, 0.0 * s) == 0.0
    f = srgp.Filter.start(model)
    np.testing.assert_allclose(f.predict(p.Xs)[1], prior, rtol=1e-10)
    assert f.log_bound == 0.0


@models
def test_zero_weight_and_padding_change_nothing(model_name: str) -> None:
    p = problem(N=35)
    model = make(model_name, p)
    X = np.concatenate([p.X, np.full((7, 2), 1e3)])
    y = np.concatenate([p.y, np.full(7, 1e3)])
    weights = np.concatenate([np.ones(35), np.zeros(7)])
    assert_same(model, srgp.summarise(model, X, y, weights), srgp.summarise(model, p.X, p.y))


@models
def test_a_weight_is_a_precision(model_name: str) -> None:
    """All weights equal to w is the model with noise σ²/w."""
    p = problem()
    model = make(model_name, p)
    s = srgp.summarise(model, p.X, p.y, np.full(40, 4.0))
    twin = model.replace(noise=p.noise / 4.0)
    t = srgp.summarise(twin, p.X, p.y)
    assert srgp.log_bound(model, s) == pytest.approx(srgp.log_bound(twin, t), rel=RTOL)


@pytest.mark.parametrize(
    ("model_name", "kernel_name"),
    [(name, "Matern32") for name in MODELS] + [("VFE", name) for name in KERNELS],
)
def test_inducing_at_the_data_is_the_full_gp(model_name: str, kernel_name: str) -> None:
    p = problem(N=25)
    kernel = KERNELS[kernel_name][0]
    model = srgp.Model(kernel, p.noise, p.X, MODELS[model_name][0])
    s = srgp.summarise(model, p.X, p.y)
    full = srgp.FullGP(kernel, p.noise, p.X, p.y)
    assert srgp.log_bound(model, s) == pytest.approx(full.log_likelihood, rel=1e-9)
    mean, var = srgp.posterior(model, s).predict(p.Xs)
    expected_mean, expected_var = full.predict(p.Xs)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-9)
    if model_name != "SoR":  # whose variance leaves out what R does not explain
        np.testing.assert_allclose(var, expected_var, rtol=0, atol=1e-9)


@pytest.mark.parametrize("outputs", [None, 2])
def test_the_full_gp_predicts_block_by_block(
    outputs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = problem(N=25, Q=outputs)
    full = srgp.FullGP(KERNELS["Matern32"][0], p.noise, p.X, p.y)
    whole = full.predict(p.Xs, noise=True)
    monkeypatch.setattr("srgp.fullgp.ENTRIES", 3 * 25)
    assert len(p.Xs) % 3
    for found, expected in zip(full.predict(p.Xs, noise=True), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@models
def test_outputs_are_independent_problems(model_name: str) -> None:
    p = problem(Q=3)
    model = make(model_name, p)
    together = srgp.summarise(model, p.X, p.y)
    apart = [srgp.summarise(model, p.X, p.y[:, q]) for q in range(3)]
    total = sum(srgp.log_bound(model, s) for s in apart)
    assert srgp.log_bound(model, together) == pytest.approx(total, rel=RTOL)
    mean, _ = srgp.posterior(model, together).predict(p.Xs)
    for q in range(3):
        expected, _ = srgp.posterior(model, apart[q]).predict(p.Xs)
        np.testing.assert_allclose(mean[:, q], expected, rtol=0, atol=1e-11)


def test_forgetting_scales_the_data_not_the_prior() -> None:
    p = problem()
    model = make("VFE", p)
    s = srgp.summarise(model, p.X, p.y)
    quieter = srgp.summarise(model, p.X, p.y, np.full(40, 0.3))
    mean, var = srgp.posterior(model, 0.3 * s).predict(p.Xs)
    expected_mean, expected_var = srgp.posterior(model, quieter).predict(p.Xs)
    np.testing.assert_allclose(mean, expected_mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(var, expected_var, rtol=0, atol=1e-12)
    assert (0.3 * s).n == pytest.approx(12.0)


@models
def test_moving_to_a_superset_is_exact_and_back_is_the_same(model_name: str) -> None:
    p = problem()
    model = make(model_name, p)
    extra = np.random.default_rng(9).uniform(-2, 2, (4, 2))
    larger = model.replace(inducing=np.concatenate([extra, p.R]))
    s = srgp.summarise(model, p.X, p.y)
    moved = srgp.move(s, model, larger)
    # u and what it says about f(R) are the same; V_* shrinks as R′ explains more.
    before, after = srgp.posterior(model, s), srgp.posterior(larger, moved)
    np.testing.assert_allclose(before.predict(p.Xs)[0], after.predict(p.Xs)[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(before.covariance(p.R), after.covariance(p.R), rtol=0, atol=1e-9)
    back = srgp.move(moved, larger, model)
    np.testing.assert_allclose(back.sums.A, s.sums.A, rtol=0, atol=1e-8 * np.abs(s.sums.A).max())


def test_moving_to_another_kernel_follows_the_definition_in_u() -> None:
    from reference import recursion

    p = problem()
    model = make("FITC", p, "SE")
    new = srgp.Model(KERNELS["Matern52"][0], p.noise, p.R[:5] + 0.1, srgp.FITC())
    s = srgp.summarise(model, p.X, p.y)
    old_K, new_K = KERNELS["SE"][1], KERNELS["Matern52"][1]
    L = np.linalg.cholesky(old_K(p.R, p.R))
    A, b = L @ s.sums.A @ L.T, L @ s.sums.b
    information = recursion.information_from_statistics(A, b[:, None], old_K(p.R, p.R))
    R2 = new.inducing
    moved = recursion.move(*information, new_K(p.R, R2), new_K(R2, R2))
    mean, cov = recursion.belief(*moved, new_K(R2, R2))
    post = srgp.posterior(new, srgp.move(s, model, new))
    np.testing.assert_allclose(post.predict(R2)[0], mean[:, 0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(post.covariance(R2), cov, rtol=1e-8, atol=1e-10)
    f = srgp.Filter.start(model, s).move(new)
    np.testing.assert_allclose(f.predict(R2)[0], mean[:, 0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(f.posterior.covariance(R2), cov, rtol=1e-8, atol=1e-10)
