"""Ill-conditioned, tiny, huge, repeated and constant: finite and right, or a clear error."""

import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import MODELS, problem
from reference import extended

import srgp
from srgp import kernels as k
from srgp.linalg import sample_normal

models = pytest.mark.parametrize("model_name", MODELS)


def fit(model: srgp.Model, X: np.ndarray, y: np.ndarray) -> tuple[float, srgp.Posterior]:
    s = srgp.summarise(model, X, y)
    return srgp.log_bound(model, s), srgp.posterior(model, s)


@models
def test_repeated_inducing_points_are_reported_and_harmless(model_name: str) -> None:
    p = problem()
    model = srgp.Model(k.SE(), p.noise, p.R, MODELS[model_name][0])
    twice = model.replace(inducing=np.concatenate([p.R, p.R[:3]]))
    with pytest.warns(srgp.JitterWarning, match="11 inducing inputs"):
        bound, post = fit(twice, p.X, p.y)
    assert 0 < twice.jitter < 1e-12
    expected, once = fit(model, p.X, p.y)
    assert bound == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(post.predict(p.Xs), once.predict(p.Xs), rtol=0, atol=1e-6)


def test_well_separated_inducing_points_need_no_jitter() -> None:
    p = problem()
    assert srgp.Model(k.SE(), p.noise, p.R).jitter == 0.0


@models
@pytest.mark.parametrize("noise", [1e-8, 1e-4, 1.0, 1e4])
def test_noise_from_tiny_to_huge(model_name: str, noise: float) -> None:
    p = problem()
    model = srgp.Model(k.Matern32(), noise, p.R, MODELS[model_name][0])
    bound, post = fit(model, p.X, p.y)
    f = srgp.Filter.start(model).update(p.X, p.y)
    mean, var = post.predict(p.Xs)
    assert np.isfinite(mean).all()
    assert (var >= 0).all()
    # The bound's terms are about c/σ² in size and cancel: eps · 1e9 of them is left.
    assert bound == pytest.approx(f.log_bound, rel=1e-7)
    np.testing.assert_allclose(f.predict(p.Xs)[0], mean, rtol=0, atol=1e-6)


@pytest.mark.parametrize("approximation", ["VFE", "FITC"])
@pytest.mark.parametrize("noise", [1e-8, 1e-6, 1e-2, 1e4])
def test_ill_conditioned_kernel_against_sixty_digits(approximation: str, noise: float) -> None:
    """cond(K_RR) ≈ 1e12: the triangular solve loses half of these digits, squaring first all."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 1, (60, 1)), 0)
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=60)
    R = np.linspace(0, 1, 10)[:, None]
    Xs = np.linspace(0, 1, 7)[:, None]
    model = srgp.Model(k.SE(lengthscales=0.5), noise, R, MODELS[approximation][0])
    assert np.linalg.cond(model.kernel(R)) > 1e11
    assert model.jitter == 0.0
    options = {"variance": 1.0, "lengthscales": 0.5, "noise": noise}
    bound, post = fit(model, X, y)
    # Rounding errors of d = k − wᵀw are divided by σ², in FITC's V and in VFE's a.
    room = max(1.0, 1e-6 / noise)
    exact = extended.log_bound(approximation, X, R, y, **options)
    assert bound == pytest.approx(exact, rel=room * 1e-8)
    mean, var = extended.predict(approximation, X, R, y, Xs, **options)
    found_mean, found_var = post.predict(Xs)
    np.testing.assert_allclose(found_mean, mean[:, 0], rtol=0, atol=room * 1e-8)
    np.testing.assert_allclose(found_var, var, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e4, 1e8])
def test_units_of_the_inputs_do_not_matter(scale: float) -> None:
    p = problem()
    model = srgp.Model(k.SE(lengthscales=0.7), p.noise, p.R)
    bound, post = fit(model, p.X, p.y)
    scaled = srgp.Model(k.SE(lengthscales=0.7 * scale), p.noise, p.R * scale)
    other_bound, other = fit(scaled, p.X * scale, p.y)
    assert other_bound == pytest.approx(bound, rel=1e-10)
    np.testing.assert_allclose(other.predict(p.Xs * scale), post.predict(p.Xs), rtol=0, atol=1e-10)


def test_inputs_far_from_the_origin_keep_their_digits() -> None:
    """Seconds since 1970: differences are exact where |x|² + |z|² − 2x·z would have none left."""
    p = problem(D=1)
    shift = 2.0**31  # so that the shifted grid points are exact
    grid = np.round(p.X * 2**20) / 2**20
    model = srgp.Model(k.Matern12(), p.noise, grid[:8])
    moved = srgp.Model(k.Matern12(), p.noise, grid[:8] + shift)
    assert fit(model, grid, p.y)[0] == pytest.approx(fit(moved, grid + shift, p.y)[0], rel=1e-12)


@models
def test_one_sample_and_fewer_samples_than_inducing_points(model_name: str) -> None:
    p = problem(N=3, M=8)
    model = srgp.Model(k.SE(), p.noise, p.R, MODELS[model_name][0])
    for n in (1, 3):
        bound, post = fit(model, p.X[:n], p.y[:n])
        f = srgp.Filter.start(model).update(p.X[:n], p.y[:n])
        assert bound == pytest.approx(f.log_bound, rel=1e-10)
        np.testing.assert_allclose(post.predict(p.Xs), f.predict(p.Xs), rtol=0, atol=1e-10)


@models
def test_constant_targets_and_constant_columns(model_name: str) -> None:
    p = problem()
    X = np.concatenate([p.X, np.full((40, 1), 5.0)], 1)
    R = np.concatenate([p.R, np.full((8, 1), 5.0)], 1)
    model = srgp.Model(k.SE(), p.noise, R, MODELS[model_name][0])
    plain = srgp.Model(k.SE(), p.noise, p.R, MODELS[model_name][0])
    assert fit(model, X, p.y)[0] == pytest.approx(fit(plain, p.X, p.y)[0], rel=1e-12)
    _, post = fit(plain, p.X, np.zeros(40))
    np.testing.assert_array_equal(post.predict(p.Xs)[0], 0.0)
    bound, _ = fit(plain, p.X, np.full(40, 3.0))
    assert np.isfinite(bound)


def test_a_kernel_without_variance_anywhere_is_named() -> None:
    model = srgp.Model(k.Linear(), 0.1, np.zeros((3, 1)))
    with pytest.raises(ValueError, match="no positive finite variance"):
        srgp.summarise(model, [[1.0]], [1.0])


def test_a_kernel_that_is_none_is_named() -> None:
    not_a_kernel = k.Function(lambda x, z: -((x[0] - z[0]) ** 2) + 0.1)
    model = srgp.Model(not_a_kernel, 0.1, [[0.0], [1.0], [2.0]])
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        srgp.summarise(model, [[1.0]], [1.0])


def test_overflow_does_not_leave_silently() -> None:
    p = problem()
    model = srgp.Model(k.SE(), 1e-200, p.R)
    s = srgp.summarise(model, p.X, p.y * 1e90)  # in units of the noise, beyond double precision
    with pytest.raises(FloatingPointError, match="rescale"):
        srgp.log_bound(model, s)
    f = srgp.Filter.start(model).update(p.X, p.y * 1e90)
    with pytest.raises(FloatingPointError, match="rescale"):
        _ = f.log_bound


def test_a_precision_that_double_cannot_factorise_is_reported() -> None:
    """Three rows of immense weight: beside them, the prior of the other directions is rounding."""
    p = problem(N=3)
    model = srgp.Model(k.SE(), 1e-8, p.R)
    certain = 1e16 * srgp.summarise(model, p.X, p.y)
    with pytest.warns(srgp.JitterWarning, match="posterior precision of the inducing points"):
        mean, var = srgp.posterior(model, certain).predict(p.Xs)
    assert np.isfinite(mean).all()
    assert (var >= 0).all()
    with pytest.warns(srgp.JitterWarning, match="posterior precision of the inducing points"):
        assert np.isfinite(srgp.log_bound(model, certain))


def test_a_full_gp_that_double_cannot_factorise_is_reported() -> None:
    gp = srgp.FullGP(k.SE(), 1e-20, np.zeros((3, 1)), np.ones(3))
    with pytest.warns(srgp.JitterWarning, match="diagonal"):
        mean, var = gp.predict([[0.0]])
    np.testing.assert_allclose(mean, 1.0, rtol=1e-6)
    assert np.isfinite(var).all()


NAMED = (ValueError, FloatingPointError, np.linalg.LinAlgError)


@pytest.mark.parametrize("kernel", [k.SE(), k.Matern12(), k.Linear() + 1.0, k.Polynomial()])
@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e4, 1e8])
def test_a_kernel_that_does_not_fit_the_units_is_finite_or_named(
    kernel: k.Kernel, scale: float
) -> None:
    """Lengthscales stay at 1: all rows coincide, or none has to do with another."""
    p = problem()
    model = srgp.Model(kernel, p.noise, p.R * scale)
    problem_named = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", srgp.JitterWarning)
        try:
            bound, post = fit(model, p.X * scale, p.y)
            f = srgp.Filter.start(model).update(p.X * scale, p.y)
            answers = [*post.predict(p.Xs * scale), *f.predict(p.Xs * scale)]
        except NAMED as error:
            problem_named = str(error)
    if problem_named:
        assert len(problem_named) > 20
        return
    assert np.isfinite(bound)
    assert np.isfinite(answers).all()
    assert min(answers[1].min(), answers[3].min()) >= 0.0


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_starting_values_follow_the_units(scale: float) -> None:
    p = problem(N=300)
    here, there = (srgp.inducing.initial_model(s * p.X, p.y, n_inducing=10) for s in (1.0, scale))
    ratio = np.ravel(there.kernel.lengthscales) / np.ravel(here.kernel.lengthscales)  # type: ignore[attr-defined]
    np.testing.assert_allclose(ratio / scale, 1.0, rtol=1e-3)
    bounds = [
        srgp.log_bound(m, srgp.summarise(m, s * p.X, p.y)) for m, s in ((here, 1.0), (there, scale))
    ]
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-2)


def test_sums_stay_accurate_over_many_blocks() -> None:
    """Ten million rows in one pass: a thousand equal blocks add up to a thousand times one.

    Without compensation the error grows with the number of blocks; with it, it does not.
    """
    rng = np.random.default_rng(0)
    rows, repeats = 16384, 611
    X, y = rng.uniform(-2, 2, (rows, 1)), rng.normal(size=rows) + 100.0
    model = srgp.Model(k.SE(), 0.1, [[-1.0], [0.3], [1.0]])
    once = srgp.summarise(model, X, y).sums
    many = srgp.summarise(model, np.tile(X, (repeats, 1)), np.tile(y, repeats)).sums
    assert many.n == rows * repeats > 10_000_000
    for found, expected in zip(many, once, strict=True):
        np.testing.assert_allclose(found, np.asarray(expected) * repeats, rtol=4e-16 * 2)


def test_pitc_at_tiny_noise_stays_definite() -> None:
    p = problem(N=30)
    model = srgp.Model(k.SE(), 1e-15, p.X[:20], srgp.PITC(block_size=10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", srgp.JitterWarning)
        mean, var = srgp.Filter.start(model).update(p.X, p.y).predict(p.Xs)
    assert np.isfinite(mean).all()
    assert (var >= 0).all()


def test_draws_tell_of_jitter_that_shows() -> None:
    """Close points are singular to rounding, which is no news; a covariance that is none, is."""
    model = srgp.Model(k.SE(), 0.1, np.linspace(0, 1, 5)[:, None])
    post = srgp.posterior(model, srgp.summarise(model, [[0.5]], [1.0]))
    post.sample(0, np.linspace(0, 1e-3, 200)[:, None])  # warnings are errors
    with jax.enable_x64(True):
        key, mean = jax.random.key(0), jnp.zeros(2)
        indefinite = jnp.array([[1.0, 1.0 + 1e-5], [1.0 + 1e-5, 1.0]])
        with pytest.warns(srgp.JitterWarning, match="joint covariance"):
            sample_normal(key, mean, indefinite, 1)
        with pytest.raises(np.linalg.LinAlgError, match="joint covariance"):
            sample_normal(key, mean, jnp.array([[1.0, 3.0], [3.0, 1.0]]), 1)


def test_pitc_takes_the_noise_as_it_is() -> None:
    """Rows far from R and from one another: V = (k(x, x) + s) I, and log |V| to the last digits."""
    noise, rows = 0.3, 256
    approximation = srgp.PITC(block_size=rows)
    model = srgp.Model(k.SE(), noise, [[0.0]], approximation)
    s = srgp.summarise(model, 1e3 * np.arange(1, rows + 1)[:, None], np.zeros(rows))
    exact = rows * math.log1p(noise)
    # Rounding of 256 terms, some 1e-15; noise larger by 256 eps would show as 2e-13.
    assert float(s.sums.log_noise) == pytest.approx(exact, rel=1e-14)
