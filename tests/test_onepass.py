"""Learning from a stream: F by two routes, its special cases, and what following is good for."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Problem, problem
from reference import gradients as differences

import srgp
from srgp import onepass
from srgp.approximations import Approximation
from srgp.compiled import quick_jit
from srgp.moving import carried
from srgp.onepass import OnePass

Rows = tuple[np.ndarray, np.ndarray]
slope_of_f = quick_jit(jax.value_and_grad(onepass._objective))


def halves(
    approximation: Approximation | None = None, Q: int | None = None
) -> tuple[Problem, srgp.Model, Rows, Rows]:
    p = problem(seed=3, N=80, M=6, Q=Q)
    model = srgp.Model(srgp.kernels.SE(1.3, [0.8, 1.2]), p.noise, p.R, approximation or srgp.VFE())
    return p, model, (p.X[:50], p.y[:50]), (p.X[50:], p.y[50:])


def total(model: srgp.Model, old: srgp.Model, past: srgp.Statistics, new: Rows) -> float:
    """F by NumPy's route: move, add, and take the bound."""
    return srgp.log_bound(model, carried(past, old, model)[0] + srgp.summarise(model, *new))


def test_without_a_past_f_is_the_batch_bound_and_its_gradient() -> None:
    _, model, _, rows = halves()
    nothing = 0.0 * srgp.summarise(model, *rows)
    value, gradient = srgp.value_and_grad(model, rows)
    w = np.ones(len(rows[0]))
    with jax.enable_x64(True):
        at = jax.tree.map(jnp.asarray, model)
        past = (model.basis, nothing.sums, jnp.zeros(()))
        found, slope = slope_of_f(at, past, *rows, w)
    assert float(found) == pytest.approx(value, rel=1e-11)
    for one, two in zip(jax.tree.leaves(slope), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-7 * np.abs(two).max())


@pytest.mark.parametrize("approximation", [srgp.VFE(), srgp.DTC(), srgp.FITC(), srgp.PEP(0.5)])
def test_f_and_its_gradient_by_two_routes(approximation: Approximation) -> None:
    _, old, first, second = halves(approximation)
    past = srgp.summarise(old, *first)
    model = old.replace(kernel=srgp.kernels.SE(1.1, [0.9, 1.0]), inducing=old.inducing + 0.05)
    w = np.ones(len(second[0]))
    with jax.enable_x64(True):
        at = jax.tree.map(jnp.asarray, model)
        state = (old.basis, past.sums, jnp.zeros(()))
        found, slope = slope_of_f(at, state, *second, w)
    assert float(found) == pytest.approx(total(model, old, past, second), rel=1e-10)

    def along(theta: np.ndarray) -> float:
        lengthscales, R = np.exp(theta[:2]), theta[2:].reshape(model.inducing.shape)
        moved = model.replace(kernel=srgp.kernels.SE(1.1, lengthscales), inducing=R)
        return total(moved, old, past, second)

    theta = np.concatenate([np.log([0.9, 1.0]), np.ravel(model.inducing)])
    expected = differences.gradient(along, theta, step=0.02, levels=4)
    by_hand = np.concatenate(
        [np.asarray(slope.kernel.lengthscales) * [0.9, 1.0], np.ravel(slope.inducing)]
    )
    np.testing.assert_allclose(by_hand, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_moving_with_its_loss_keeps_a_lower_bound_and_is_exact_for_a_superset() -> None:
    p, old, first, _ = halves()
    past = srgp.summarise(old, *first)
    more = old.replace(inducing=np.concatenate([old.inducing, p.X[:3]]))
    moved, _ = carried(past, old, more)
    # Exact: nothing scatters, and the bound of the data at the old R is what remains.
    assert srgp.log_bound(more, moved) == pytest.approx(srgp.log_bound(old, past), rel=1e-9)
    full = srgp.FullGP(old.kernel, old.noise, *first).log_likelihood
    for shift in (0.05, 0.3, 1.0):
        away = old.replace(inducing=old.inducing + shift)
        assert srgp.log_bound(away, carried(past, old, away)[0]) < full


@pytest.mark.parametrize("Q", [None, 2])
@pytest.mark.parametrize("approximation", [srgp.VFE(), srgp.FITC()])
def test_the_loss_of_a_move_by_three_routes(approximation: Approximation, Q: int | None) -> None:
    """Of the sums, of a filter, and as dense matrices; rounding times cond(K_RR) leaves 1e-7."""
    p, old, first, _ = halves(approximation, Q=Q)
    past = srgp.summarise(old, *first)
    more = old.replace(inducing=np.concatenate([old.inducing, p.X[:3]]))
    assert srgp.move_loss(past, old, more) == pytest.approx(0.0, abs=1e-7)
    noise = 1.3 * old.noise if approximation.noise_free else old.noise
    new = old.replace(inducing=old.inducing + 0.3, noise=noise)
    K, cross, other = (
        np.asarray(old.kernel(a, b))
        for a, b in (
            (old.inducing, old.inducing),
            (old.inducing, new.inducing),
            (new.inducing, new.inducing),
        )
    )
    lower = np.asarray(old.basis.whiten.lower)
    A = np.asarray(past.sums.A) / (noise if approximation.noise_free else 1.0)
    information = np.linalg.solve(lower.T, np.linalg.solve(lower.T, A).T)
    lost = 0.5 * np.trace(information @ (K - cross @ np.linalg.solve(other, cross.T))) * (Q or 1)
    assert lost > 0.01
    assert srgp.move_loss(past, old, new) == pytest.approx(lost, rel=1e-6)
    f = srgp.Filter.start(old).update(*first)
    assert f.move_loss(new) == pytest.approx(lost, rel=1e-6)


@pytest.mark.parametrize("Q", [None, 2])
def test_a_rate_of_zero_only_adds(Q: int | None) -> None:
    _, model, first, second = halves(Q=Q)
    past = srgp.summarise(model, *first)
    new, statistics, _ = OnePass(learning_rate=0.0).update(model, past, *second)
    exact = past + srgp.summarise(model, *second)
    assert srgp.log_bound(new, statistics) == pytest.approx(srgp.log_bound(model, exact), rel=1e-9)
    for one, two in zip(jax.tree.leaves(new), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-14)


def test_f_never_ends_below_its_start() -> None:
    _, model, first, second = halves()
    past = srgp.summarise(model, *first)
    start = srgp.log_bound(model, past + srgp.summarise(model, *second))
    for rate in (0.01, 0.1, 1.0, 100.0):
        new, statistics, _ = OnePass(learning_rate=rate).update(model, past, *second)
        assert srgp.log_bound(new, statistics) >= start - 1e-9 * abs(start)


def test_noise_stays_where_the_sums_hold_it() -> None:
    _, model, first, second = halves(srgp.FITC())
    past = srgp.summarise(model, *first)
    new, statistics, _ = OnePass().update(model, past, *second)
    assert new.noise == model.noise
    assert not np.array_equal(new.inducing, model.inducing)
    assert statistics.n == 80


def test_fixed_parameters_stay() -> None:
    _, model, first, second = halves()
    past = srgp.summarise(model, *first)
    new, _, _ = OnePass(fixed="inducing").update(model, past, *second)
    np.testing.assert_array_equal(new.inducing, model.inducing)
    assert new.noise != model.noise
    with pytest.raises(ValueError, match="no parameter"):
        OnePass(fixed=("inducings",)).update(model, past, *second)


# Fifteen inducing inputs and batches of 100 rows throughout: one step is compiled for all.
def stream(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (count, 1))
    return X, np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=count)


def test_theta_follows_a_stream() -> None:
    """From a start far off, one pass ends close to what learning from all rows finds."""
    X, y = stream(2000)
    test, truth = stream(500, seed=1)
    start = srgp.Model(srgp.kernels.SE(1.0, [1.2]), 1.0, np.linspace(-3, 3, 15)[:, None])
    model, statistics, memory = start, srgp.summarise(start, X[:100], y[:100]), None
    follow = OnePass(steps=10, learning_rate=0.05)
    for i in range(100, 2000, 100):
        model, statistics, memory = follow.update(
            model, statistics, X[i : i + 100], y[i : i + 100], memory=memory
        )
    assert statistics.n == 2000
    mean, _ = srgp.posterior(model, statistics).predict(test)
    fixed, _ = srgp.posterior(start, srgp.summarise(start, X, y)).predict(test)
    errors = [np.sqrt(np.mean((m - truth) ** 2)) for m in (mean, fixed)]
    assert errors[0] < 0.115 < errors[1]
    assert 0.005 < model.noise < 0.02
    best = srgp.learn(start, (X, y), srgp.Exact()).bound
    assert srgp.log_bound(model, srgp.summarise(model, X, y)) > best - 0.05 * abs(best)


def test_bad_input_is_refused_and_changes_nothing() -> None:
    _, model, first, second = halves()
    past = srgp.summarise(model, *first)
    before = past.sums.A.copy()
    with pytest.raises(ValueError, match="holds nan"):
        OnePass().update(model, past, second[0] * np.nan, second[1])
    with pytest.raises(ValueError, match="made with a model of other"):
        OnePass().update(model.replace(inducing=model.inducing + 1.0), past, *second)
    for wrong in ({"steps": 0}, {"learning_rate": -1.0}, {"optimizer": "newton"}):
        with pytest.raises(ValueError):
            OnePass(**wrong)  # type: ignore[arg-type]
    np.testing.assert_array_equal(past.sums.A, before)


class TestRegressor:
    def test_partial_fit_lets_theta_follow(self) -> None:
        X, y = stream(1500)
        first = srgp.SparseGPRegressor(n_inducing=15, learner=None, adapt=OnePass(steps=10))
        est = first.fit(X[:100], 5.0 + 2.0 * y[:100])
        before = est.model_
        for i in range(100, 1500, 100):
            est.partial_fit(X[i : i + 100], 5.0 + 2.0 * y[i : i + 100])
        assert est.n_samples_seen_ == 1500
        assert est.model_.noise != before.noise
        test, truth = stream(500, seed=1)
        mean, deviation = est.predict(test, return_std=True)
        inside = np.abs(mean - 5.0 - 2.0 * truth) < 1.96 * deviation
        assert 0.9 < inside.mean() < 0.99
        with pytest.raises(ValueError, match="unlearned"):
            est.unlearn(X[:10], y[:10])

    def test_a_weight_is_a_number_of_rows(self) -> None:
        X, y = stream(150)
        made = []
        for repeat in (False, True):
            est = srgp.SparseGPRegressor(n_inducing=15, learner=None, adapt=True).fit(
                X[:100], y[:100]
            )
            if repeat:
                # Equal rows would be merged, and come to weights after all.
                again = X[100:] * (1.0 + 1e-14)
                est.partial_fit(np.concatenate([X[100:], again]), np.tile(y[100:], 2))
            else:
                est.partial_fit(X[100:], y[100:], np.full(50, 2.0))
            made.append(est.model_)
        for one, two in zip(*map(jax.tree.leaves, made), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-8)

    def test_it_is_kept_in_files(self, tmp_path: Path) -> None:
        X, y = stream(300)
        est = srgp.SparseGPRegressor(n_inducing=15, learner=None, adapt=OnePass(steps=2))
        est.fit(X[:100], y[:100]).partial_fit(X[100:200], y[100:200])
        est.save(tmp_path / "model.srgp")
        again = srgp.SparseGPRegressor.load(tmp_path / "model.srgp")
        assert again.adapt == OnePass(steps=2)
        np.testing.assert_array_equal(again.predict(X), est.predict(X))
        # The optimiser's memory is kept, too: both go on alike, to the last bit.
        for one in (est, again):
            one.partial_fit(X[200:], y[200:])
        for a, b in zip(*map(jax.tree.leaves, (est.model_, again.model_)), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_another_optimiser_starts_anew(self) -> None:
        X, y = stream(300)
        model = srgp.Model(srgp.kernels.SE(1.0, [1.2]), 0.1, np.linspace(-3, 3, 15)[:, None])
        past = srgp.summarise(model, X[:100], y[:100])
        memory = OnePass().update(model, past, X[100:200], y[100:200]).memory
        other = OnePass(optimizer="sgd", learning_rate=1e-4)
        both = [other.update(model, past, X[200:], y[200:], memory=m) for m in (None, memory)]
        np.testing.assert_array_equal(*(found.model.inducing for found in both))

    def test_other_values_are_refused(self) -> None:
        X, y = stream(100)
        est = srgp.SparseGPRegressor(n_inducing=8, learner=None, adapt="yes").fit(X, y)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="OnePass"):
            est.partial_fit(X, y)
