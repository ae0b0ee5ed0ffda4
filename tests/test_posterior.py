"""Covariances and samples of the posterior, and of the full GP."""

import numpy as np
import pytest
from problems import KERNELS, MODELS, dense, problem
from reference import models as reference

import srgp
from srgp import kernels as k

P = problem(N=12, M=5)
DRAWS, PATHS = 20_000, 3000


def posterior(model_name: str, kernel: k.Kernel = k.SE()) -> srgp.Posterior:  # noqa: B008
    model = srgp.Model(kernel, P.noise, P.R, MODELS[model_name][0])
    return srgp.posterior(model, srgp.summarise(model, P.X, P.y))


def assert_moments(draws: np.ndarray, mean: np.ndarray, cov: np.ndarray, slack: float) -> None:
    """Empirical mean and covariance within six standard errors, plus what features cost."""
    sd = np.sqrt(np.diag(cov))
    assert (np.abs(draws.mean(0) - mean) <= 6 * sd / np.sqrt(len(draws)) + slack * sd + 1e-9).all()
    error = np.sqrt((np.outer(sd, sd) ** 2 + cov**2) / len(draws))
    assert (np.abs(np.cov(draws.T) - cov) <= 6 * error + slack * np.outer(sd, sd) + 1e-9).all()


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("model_name", ["SoR", "FIC", "VFE"])
def test_joint_samples_have_the_posterior_moments(model_name: str, noise: bool) -> None:
    post = posterior(model_name)
    draws = post.sample(1, P.Xs, DRAWS, noise=noise)
    assert draws.shape == (DRAWS, 11)
    mean, var = post.predict(P.Xs, noise=noise)
    cov = post.covariance(P.Xs, noise=noise)
    np.testing.assert_allclose(np.diag(cov), var, rtol=1e-10, atol=1e-12)
    assert_moments(draws, mean, cov, slack=0.0)


@pytest.mark.parametrize("model_name", ["SoR", "FIC", "FITC", "VFE"])
@pytest.mark.parametrize(
    "kernel",
    [
        k.SE(),
        k.Matern32() + k.Linear() * 0.3,
        k.Periodic(period=3.0),
        k.SE() + k.White(variance=0.1),
    ],
    ids=["SE", "sum", "Periodic", "White"],
)
def test_sampled_functions_have_the_posterior_moments(model_name: str, kernel: k.Kernel) -> None:
    post = posterior(model_name, kernel)
    draws = post.sample_functions(2, n=PATHS, features=4096)(P.Xs)
    mean, _ = post.predict(P.Xs)
    # 4096 features know the prior covariance to about 1/√4096 ≈ 1.6 %; allow five times that.
    assert_moments(draws, mean, post.covariance(P.Xs), slack=0.08)


@pytest.mark.parametrize("model_name", ["SoR", "FIC", "VFE"])
def test_a_sampled_function_is_a_function(model_name: str) -> None:
    f = posterior(model_name).sample_functions(3, n=4)
    everywhere = f(P.Xs)
    one_by_one = np.concatenate([f(x[None]) for x in P.Xs], 1)
    np.testing.assert_allclose(one_by_one, everywhere, rtol=0, atol=1e-9)
    many = f(np.tile(P.Xs, (100, 1)))
    np.testing.assert_allclose(many[:, -11:], everywhere, rtol=0, atol=1e-9)


def test_samples_of_several_outputs() -> None:
    p = problem(N=12, M=5, Q=2)
    model = srgp.Model(k.SE(), p.noise, p.R)
    post = srgp.posterior(model, srgp.summarise(model, p.X, p.y))
    draws = post.sample(0, p.Xs, DRAWS)
    paths = post.sample_functions(0, n=PATHS, features=4096)(p.Xs)
    assert (draws.shape, paths.shape) == ((DRAWS, 11, 2), (PATHS, 11, 2))
    mean, _ = post.predict(p.Xs)
    for q in range(2):
        assert_moments(draws[:, :, q], mean[:, q], post.covariance(p.Xs), slack=0.0)
        assert_moments(paths[:, :, q], mean[:, q], post.covariance(p.Xs), slack=0.08)


def test_the_same_key_gives_the_same_sample() -> None:
    import jax

    post = posterior("VFE")
    np.testing.assert_array_equal(post.sample(7, P.Xs), post.sample(jax.random.key(7), P.Xs))
    assert not np.allclose(post.sample(7, P.Xs), post.sample(8, P.Xs))


def test_a_kernel_without_features_says_so_at_once() -> None:
    plain = k.Function(lambda x, z: np.float64(1.0) * (x[0] == z[0]) + 0.5)
    with pytest.raises(TypeError, match=r"Posterior\.sample"):
        posterior("VFE", plain).sample_functions(0)


def test_many_points_are_predicted_block_by_block() -> None:
    post = posterior("VFE")
    X = np.random.default_rng(0).uniform(-3, 3, (2500, 2))
    mean, var = post.predict(X)
    for rows in (slice(0, 1), slice(1020, 1030), slice(2499, 2500)):
        np.testing.assert_allclose(post.predict(X[rows]), (mean[rows], var[rows]), rtol=1e-10)


@pytest.mark.parametrize("Q", [None, 2])
@pytest.mark.parametrize("name", ["SE", "Linear", "White"])
def test_full_gp_equals_the_dense_formulas(name: str, Q: int | None) -> None:
    kernel, K = KERNELS[name]
    p = problem(Q=Q)
    gp = srgp.FullGP(kernel, p.noise, p.X, p.y, sample_weight=p.weights)
    Kxx = K(p.X, p.X)
    expected = reference.full_gp_log_likelihood(Kxx, p.y, p.noise, sample_weight=p.weights)
    assert gp.log_likelihood == pytest.approx(expected, rel=1e-11)
    mean, cov = reference.full_gp_predict(
        Kxx, p.y, p.noise, K(p.Xs, p.X), dense(K, p)[-1], sample_weight=p.weights
    )
    found_mean, found_var = gp.predict(p.Xs)
    np.testing.assert_allclose(found_mean.reshape(mean.shape), mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found_var.reshape(11, -1)[:, 0], np.diag(cov), rtol=0, atol=1e-10)
    np.testing.assert_allclose(gp.covariance(p.Xs), cov, rtol=0, atol=1e-10)
    _, noisy = gp.predict(p.Xs, noise=True)
    np.testing.assert_allclose(noisy, found_var + p.noise, rtol=1e-12)


def test_full_gp_samples() -> None:
    gp = srgp.FullGP(k.SE(), P.noise, P.X, P.y)
    draws = gp.sample(0, P.Xs, DRAWS)
    assert_moments(draws, gp.predict(P.Xs)[0], gp.covariance(P.Xs), slack=0.0)


@pytest.mark.parametrize("noise", [0.0, 0.7, np.float32(0.5), 1])
def test_a_measurement_may_have_a_noise_of_its_own(noise: float) -> None:
    p = problem()
    model = srgp.Model(k.SE(), p.noise, p.R)
    post = srgp.posterior(model, srgp.summarise(model, p.X, p.y))
    for gp in (post, srgp.FullGP(k.SE(), p.noise, p.X, p.y)):
        added = gp.predict(p.Xs, noise=noise)[1] - gp.predict(p.Xs)[1]
        np.testing.assert_allclose(added, noise, atol=1e-15)  # rounding of variances about 1
        added = gp.covariance(p.Xs, noise=noise) - gp.covariance(p.Xs)
        np.testing.assert_allclose(added, noise * np.eye(len(p.Xs)), atol=1e-15)
