"""The reference against itself: identities between models, and between routes to one result."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from . import extended, gradients, kernels, models, recursion
from .models import MODELS, Array

VARIANCE, LENGTHSCALES, NOISE = 1.3, np.array([0.7, 1.1]), 0.05


class Problem(NamedTuple):
    """A small regression problem: N = 30, M = 7, A = 5, D = 2, Q = 2."""

    X: Array
    R: Array
    Xs: Array
    y: Array
    weight: Array

    def kernel(self, a: Array, b: Array) -> Array:
        return kernels.se(a, b, variance=VARIANCE, lengthscales=LENGTHSCALES)

    def training(self) -> tuple[Array, Array, Array, Array, float]:
        """Kxx, Kxr, Krr, y and the noise, in the order the reference takes them."""
        X, R, k = self.X, self.R, self.kernel
        return k(X, X), k(X, R), k(R, R), self.y, NOISE

    def test(self) -> tuple[Array, Array]:
        """Ksr and Kss."""
        return self.kernel(self.Xs, self.R), self.kernel(self.Xs, self.Xs)


@pytest.fixture(name="p")
def problem() -> Problem:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (30, 2))
    # Seven separated points keep Krr well conditioned, so that tolerances can be tight.
    R = np.array([[-1.5, -1.5], [-1.5, 1.5], [1.5, -1.5], [1.5, 1.5], [0, 0], [0, 2], [0.1, -1.9]])
    signal = np.stack([np.sin(2.0 * X[:, 0]), X[:, 1] * np.cos(X[:, 0])], axis=1)
    y = signal + np.sqrt(NOISE) * rng.standard_normal((30, 2))
    return Problem(X, R, rng.uniform(-2.0, 2.0, (5, 2)), y, rng.uniform(0.3, 3.0, 30))


def close(a: Any, b: Any, tolerance: float = 1e-9) -> None:
    """Equal to a tolerance relative to the largest entry."""
    scale = max(1.0, float(np.max(np.abs(b))))
    np.testing.assert_allclose(a, b, rtol=0.0, atol=tolerance * scale)


STATIONARY: dict[str, dict[str, Any]] = {
    "se": {"lengthscales": [0.5, 2.0]},
    "matern12": {"lengthscales": 0.8},
    "matern32": {"lengthscales": [0.5, 2.0]},
    "matern52": {"lengthscales": [0.5, 2.0]},
    "rational_quadratic": {"lengthscales": [0.5, 2.0], "mixture": 0.7},
    "periodic": {"lengthscales": [0.9, 1.2], "period": [1.5, 2.5]},
}
OTHERS: dict[str, dict[str, Any]] = {
    "linear": {"variances": [0.4, 1.7]},
    "polynomial": {"variance": 0.6, "offset": 0.9, "degree": 3},
    "constant": {"variance": 1.4},
    "white": {"variance": 1.4},
}


@pytest.mark.parametrize(("name", "parameters"), [*STATIONARY.items(), *OTHERS.items()])
def test_kernels_are_symmetric_and_positive(
    p: Problem, name: str, parameters: dict[str, Any]
) -> None:
    kernel: Callable[..., Array] = getattr(kernels, name)
    K = kernel(p.X, p.X, **parameters)
    np.testing.assert_array_equal(K, K.T)
    assert np.min(np.linalg.eigvalsh(K)) > -1e-12 * np.max(np.abs(K))
    np.testing.assert_allclose(kernel(p.X, p.R, **parameters), kernel(p.R, p.X, **parameters).T)


@pytest.mark.parametrize(("name", "parameters"), STATIONARY.items())
def test_stationary_kernels(p: Problem, name: str, parameters: dict[str, Any]) -> None:
    kernel: Callable[..., Array] = getattr(kernels, name)
    K = kernel(p.X, p.R, variance=1.4, **parameters)
    np.testing.assert_allclose(kernel(p.X + 3.0, p.R + 3.0, variance=1.4, **parameters), K)
    np.testing.assert_allclose(np.diag(kernel(p.X, p.X, variance=1.4, **parameters)), 1.4)
    assert np.all(K <= 1.4)


def test_kernel_values_by_hand() -> None:
    """Each formula written out for x = (1, 2), z = (2, 0), l = (1, 4): r2 = 1 + 1/4."""
    x, z, scales = np.array([[1.0, 2.0]]), np.array([[2.0, 0.0]]), {"lengthscales": [1.0, 4.0]}
    r = np.sqrt(1.25)
    expected = {
        "se": np.exp(-0.625),
        "matern12": np.exp(-r),
        "matern32": (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        "matern52": (1 + np.sqrt(5) * r + 5 / 3 * 1.25) * np.exp(-np.sqrt(5) * r),
    }
    for name, value in expected.items():
        assert getattr(kernels, name)(x, z, **scales).item() == pytest.approx(value, rel=1e-14)
    rational = kernels.rational_quadratic(x, z, mixture=2.0, lengthscales=[1.0, 4.0])
    assert rational.item() == pytest.approx((1 + 1.25 / 4) ** -2)
    wave = kernels.periodic(x, z, period=[4.0, 8.0], lengthscales=[1.0, 4.0])
    # sin^2(pi/4) = 1/2 in both dimensions: the exponent is -2 (1/2 + 1/32).
    assert wave.item() == pytest.approx(np.exp(-1.0625))
    assert kernels.linear(x, z, variances=[3.0, 5.0]).item() == 6.0
    assert kernels.polynomial(x, z, variance=2.0, offset=1.0, degree=3).item() == 125.0
    assert kernels.constant(x, z, variance=3.0).item() == 3.0
    assert kernels.white(x, z).item() == 0.0
    assert kernels.white(x, x, variance=3.0).item() == 3.0


def test_smooth_limits_of_kernels(p: Problem) -> None:
    many = kernels.rational_quadratic(p.X, p.R, mixture=1e8)
    close(many, kernels.se(p.X, p.R), 1e-7)
    # A long period makes the sine its argument: an SE kernel of lengthscale l p / (2 pi).
    slow = kernels.periodic(p.X, p.R, period=1e5, lengthscales=2e-5 * np.pi)
    close(slow, kernels.se(p.X, p.R), 1e-7)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_inducing_inputs_at_the_data_give_the_full_gp(
    p: Problem, model: str, weighted: bool
) -> None:
    weight = p.weight if weighted else None
    # Matern 1/2 keeps Kxx invertible without jitter.
    K = kernels.matern12(p.X, p.X, lengthscales=LENGTHSCALES)
    Ksx = kernels.matern12(p.Xs, p.X, lengthscales=LENGTHSCALES)
    Kss = kernels.matern12(p.Xs, p.Xs, lengthscales=LENGTHSCALES)
    bound = models.log_bound(model, K, K, K, p.y, NOISE, sample_weight=weight, block_size=4)
    close(bound, models.full_gp_log_likelihood(K, p.y, NOISE, sample_weight=weight))
    mean, cov = models.predict(
        model, K, K, K, p.y, NOISE, Ksx, Kss, sample_weight=weight, block_size=4
    )
    full_mean, full_cov = models.full_gp_predict(K, p.y, NOISE, Ksx, Kss, sample_weight=weight)
    close(mean, full_mean)
    if model == "FIC":
        close(np.diag(cov), np.diag(full_cov))
    elif model != "SoR":
        close(cov, full_cov)


@pytest.mark.parametrize("block_size", [1, 4, 13, None])
@pytest.mark.parametrize("model", MODELS)
def test_recursion_is_the_batch(p: Problem, model: str, block_size: int | None) -> None:
    for weight in (None, p.weight):
        options: dict[str, Any] = {
            "sample_weight": weight,
            "alpha": 0.4,
            "block_size": block_size,
        }
        mean, cov, psi = recursion.kalman_filter(model, *p.training(), **options)
        batch_mean, batch_cov = models.posterior_u(model, *p.training(), **options)
        close(mean, batch_mean)
        close(cov, batch_cov)
        close(sum(psi), models.log_bound(model, *p.training(), **options))
        assert len(psi) == len(models.blocks(30, block_size))


@pytest.mark.parametrize("model", MODELS)
def test_prediction_through_u(p: Problem, model: str) -> None:
    """H_* mu and H_* Sigma H_*^T + V_* (paper, eq. batch_pred) are the N x N prediction."""
    options: dict[str, Any] = {"sample_weight": p.weight, "alpha": 0.4, "block_size": 4}
    Krr, (Ksr, Kss) = p.training()[2], p.test()
    mean, cov = models.predict(model, *p.training(), Ksr, Kss, **options)
    mu, Sigma = models.posterior_u(model, *p.training(), **options)
    H = Ksr @ np.linalg.inv(Krr)
    Vs = models.prediction_covariance(model, models.remainder(Kss, Ksr, Krr))
    close(mean, H @ mu)
    close(cov, H @ Sigma @ H.T + Vs)
    assert np.min(np.linalg.eigvalsh(cov)) > -1e-10


def test_pep_between_vfe_and_fitc(p: Problem) -> None:
    weight: dict[str, Any] = {"sample_weight": p.weight}

    def bound(model: str, alpha: float = 0.5) -> float:
        return models.log_bound(model, *p.training(), alpha=alpha, **weight)

    def prediction(model: str, alpha: float = 0.5) -> tuple[Array, Array]:
        return models.predict(model, *p.training(), *p.test(), alpha=alpha, **weight)

    close(bound("PEP", 1.0), bound("FITC"), 1e-13)
    close(bound("PEP", 0.0), bound("VFE"), 1e-13)
    close(bound("PEP", 1e-6), bound("VFE"), 1e-4)
    # The difference is of first order in alpha.
    first, second = (bound("PEP", a) - bound("VFE") for a in (1e-6, 2e-6))
    assert second / first == pytest.approx(2.0, rel=1e-3)
    for alpha, model in ((1.0, "FITC"), (0.0, "VFE")):
        for a, b in zip(prediction("PEP", alpha), prediction(model), strict=True):
            close(a, b, 1e-13)


def test_models_that_share_a_part(p: Problem) -> None:
    """SoR, DTC, VFE and TighterVFE share V; FITC, FIC and PITC of blocks of one too."""
    for family in (("SoR", "DTC", "VFE", "TighterVFE"), ("FITC", "FIC", "PITC")):
        means = [models.predict(m, *p.training(), *p.test(), block_size=1)[0] for m in family]
        for mean in means[1:]:
            close(mean, means[0], 1e-13)
    close(
        models.log_bound("PITC", *p.training(), block_size=1),
        models.log_bound("FITC", *p.training()),
        1e-13,
    )
    # One block of everything restores Kxx in the likelihood.
    close(
        models.log_bound("PITC", *p.training()),
        models.full_gp_log_likelihood(p.training()[0], p.y, NOISE),
        1e-11,
    )


def test_prediction_covariances_of_the_table(p: Problem) -> None:
    """V_* is 0 for SoR, Diag d_* for FIC and D_* for their relatives DTC and FITC."""
    Krr, (Ksr, Kss) = p.training()[2], p.test()
    D = Kss - Ksr @ np.linalg.inv(Krr) @ Ksr.T

    def covariance(model: str) -> Array:
        return models.predict(model, *p.training(), Ksr, Kss)[1]

    close(covariance("DTC") - covariance("SoR"), D, 1e-12)
    close(covariance("FITC") - covariance("FIC"), D - np.diag(np.diag(D)), 1e-12)


@pytest.mark.parametrize("noise", [1e-3, 0.05, 2.0])
def test_order_of_the_bounds(p: Problem, noise: float) -> None:
    Kxx, Kxr, Krr, y, _ = p.training()
    for weight in (None, p.weight):
        full = models.full_gp_log_likelihood(Kxx, y, noise, sample_weight=weight)
        tighter, vfe = (
            models.log_bound(m, Kxx, Kxr, Krr, y, noise, sample_weight=weight)
            for m in ("TighterVFE", "VFE")
        )
        assert full > tighter > vfe


def test_outputs_add_up(p: Problem) -> None:
    Kxx, Kxr, Krr, y, noise = p.training()
    for model in MODELS:
        both = models.log_bound(model, Kxx, Kxr, Krr, y, noise, block_size=4)
        single = [models.log_bound(model, Kxx, Kxr, Krr, c, noise, block_size=4) for c in y.T]
        close(both, sum(single), 1e-13)


@pytest.mark.parametrize("model", ["SoR", "DTC", "VFE", "TighterVFE"])
def test_a_weight_of_two_is_a_repeated_sample(p: Problem, model: str) -> None:
    """The posterior of two equal observations is that of one at half the noise, where Vbar = 0."""
    Kxx, Kxr, Krr, y, noise = p.training()
    weight = np.where(np.arange(30) < 6, 2.0, 1.0)
    rows = np.repeat(np.arange(30), weight.astype(int))
    repeated = models.posterior_u(model, Kxx[np.ix_(rows, rows)], Kxr[rows], Krr, y[rows], noise)
    weighted = models.posterior_u(model, Kxx, Kxr, Krr, y, noise, sample_weight=weight)
    for a, b in zip(weighted, repeated, strict=True):
        close(a, b, 1e-10)


def test_vfe_bound_is_the_uncollapsed_bound_at_its_optimum(p: Problem) -> None:
    """sum_i E_q log N(y_i; f_i, s_i) - KL(q(u), p(u)), one output (paper, eq. uncollapsed_bound).

    The paper's display lacks the logarithm of the likelihood and has a factor K too many.
    """
    Kxx, Kxr, Krr, y, noise = p.training()
    target, s = y[:, 0], noise / p.weight
    mu, Sigma = models.posterior_u("VFE", Kxx, Kxr, Krr, target, noise, sample_weight=p.weight)
    H = Kxr @ np.linalg.inv(Krr)
    spread = np.diag(H @ Sigma @ H.T + models.remainder(Kxx, Kxr, Krr))
    residual = target - (H @ mu)[:, 0]
    expected = -0.5 * np.sum(np.log(2 * np.pi * s) + (residual**2 + spread) / s)
    log_ratio = np.linalg.slogdet(Krr)[1] - np.linalg.slogdet(Sigma)[1]
    moments = np.trace(np.linalg.solve(Krr, Sigma + mu @ mu.T))
    divergence = 0.5 * (moments - len(Krr) + log_ratio)
    collapsed = models.log_bound("VFE", Kxx, Kxr, Krr, target, noise, sample_weight=p.weight)
    close(collapsed, expected - divergence, 1e-11)


def test_tighter_bound_is_a_variational_bound(p: Problem) -> None:
    """E_q log N(y; f, S) - KL for q(f|u) = N(H u, W v W^T), W W^T = D, at v_i = 1/(1 + d_i/s_i).

    W = S^1/2 (S^-1/2 D S^-1/2)^1/2 whitens the noise, which the weights make unequal.
    """
    target, s = p.y[:, 0], NOISE / p.weight
    k = kernels.matern12
    Kxx, Kxr, Krr = k(p.X, p.X), k(p.X, p.R), k(p.R, p.R)
    D, root = models.remainder(Kxx, Kxr, Krr), np.sqrt(s)
    values, vectors = np.linalg.eigh(D / np.outer(root, root))
    W = root[:, None] * (vectors * np.sqrt(values)) @ vectors.T
    close(W @ W.T, D, 1e-12)
    shrunk = W @ np.diag(1.0 / (1.0 + np.diag(D) / s)) @ W.T
    log_ratio = np.linalg.slogdet(D)[1] - np.linalg.slogdet(shrunk)[1]
    divergence = 0.5 * (np.trace(np.linalg.solve(D, shrunk)) - len(D) + log_ratio)
    # The optimal q(u) is that of VFE, so only the two terms in q(f|u) take the place of a.
    fit = models.log_normal(target[:, None], models.low_rank(Kxr, Krr, Kxr) + np.diag(s))
    expected = fit - 0.5 * np.sum(np.diag(shrunk) / s) - divergence
    bound = models.log_bound("TighterVFE", Kxx, Kxr, Krr, target, NOISE, sample_weight=p.weight)
    close(bound, expected, 1e-11)


def test_information_and_belief_are_inverse(p: Problem) -> None:
    Krr = p.training()[2]
    mu, Sigma = models.posterior_u("FITC", *p.training())
    Lambda, eta = recursion.information(mu, Sigma, Krr)
    for a, b in zip(recursion.belief(Lambda, eta, Krr), (mu, Sigma), strict=True):
        close(a, b)
    V = models.observation_covariance("FITC", *p.training()[:3], NOISE)
    Kxr = p.training()[1]
    A, b_vector = Kxr.T @ np.linalg.solve(V, Kxr), Kxr.T @ np.linalg.solve(V, p.y)
    statistics = recursion.information_from_statistics(A, b_vector, Krr)
    for a, b in zip(statistics, (Lambda, eta), strict=True):
        close(a, b, 1e-8)


def test_moving_to_more_inducing_inputs_keeps_the_predictions(p: Problem) -> None:
    k, Krr, (Ksr, Kss) = p.kernel, p.training()[2], p.test()
    more = np.concatenate([[[0.9, 0.4], [-0.8, 0.7]], p.R])
    mean, cov = models.predict("VFE", *p.training(), Ksr, Kss)
    information = recursion.information(*models.posterior_u("VFE", *p.training()), Krr)
    moved = recursion.move(*information, k(p.R, more), k(more, more))
    mu, Sigma = recursion.belief(*moved, k(more, more))
    H = k(p.Xs, more) @ np.linalg.inv(k(more, more))
    close(mean, H @ mu, 1e-8)
    remainder = models.remainder(Kss, k(p.Xs, more), k(more, more))
    close(cov, H @ Sigma @ H.T + remainder, 1e-8)


def test_moving_keeps_information_positive(p: Problem) -> None:
    """Other inducing inputs and another kernel: Lambda' stays positive semi-definite."""
    Krr = p.training()[2]
    Lambda, eta = recursion.information(*models.posterior_u("VFE", *p.training()), Krr)
    new = p.R[:5] + 0.3
    K_old_new = kernels.matern52(p.R, new, variance=0.5)
    moved, moved_eta = recursion.move(Lambda, eta, K_old_new, kernels.matern52(new, new))
    assert moved.shape == (5, 5)
    assert moved_eta.shape == (5, 2)
    assert np.min(np.linalg.eigvalsh(moved)) > -1e-9 * np.max(moved)


def test_forgetting(p: Problem) -> None:
    Kxx, Kxr, Krr, y, noise = p.training()
    mu, Sigma = models.posterior_u("VFE", *p.training())
    for forget in (recursion.forget_exponentially, recursion.forget_towards_prior):
        kept_mean, kept = forget(mu, Sigma, Krr, 1.0)
        close(kept_mean, mu)
        close(kept, Sigma)
        lost_mean, lost = forget(mu, Sigma, Krr, 0.0)
        close(lost_mean, np.zeros_like(mu))
        close(lost, Krr)
        between = forget(mu, Sigma, Krr, 0.6)[1]
        assert np.min(np.linalg.eigvalsh(between - Sigma)) > -1e-10
        assert np.min(np.linalg.eigvalsh(Krr - between)) > -1e-10
    # u' = u/2 + sqrt(3/4) e with e from the prior.
    kept_mean, kept = recursion.forget_towards_prior(mu, Sigma, Krr, 0.25)
    close(kept_mean, mu / 2.0)
    close(kept, Sigma / 4.0 + 0.75 * Krr)
    # Scaled information about Vbar = 0 is that of samples whose weight is scaled.
    scaled = models.posterior_u("VFE", Kxx, Kxr, Krr, y, noise, sample_weight=np.full(30, 0.6))
    for a, b in zip(recursion.forget_exponentially(mu, Sigma, Krr, 0.6), scaled, strict=True):
        close(a, b)


@pytest.mark.parametrize("model", ["VFE", "FITC"])
def test_extended_precision_agrees_with_double(p: Problem, model: str) -> None:
    setting: dict[str, Any] = {
        "variance": VARIANCE,
        "lengthscales": LENGTHSCALES,
        "noise": NOISE,
        "sample_weight": p.weight,
    }
    bound = extended.log_bound(model, p.X, p.R, p.y, **setting)
    close(models.log_bound(model, *p.training(), sample_weight=p.weight), bound, 1e-12)
    mean, marginal = extended.predict(model, p.X, p.R, p.y, p.Xs, **setting)
    double_mean, cov = models.predict(model, *p.training(), *p.test(), sample_weight=p.weight)
    close(double_mean, mean, 1e-12)
    close(np.diag(cov), marginal, 1e-12)


@pytest.mark.parametrize("model", ["VFE", "FITC"])
def test_extended_precision_where_double_fails(model: str) -> None:
    """Twelve inducing inputs within a lengthscale: Krr has a condition number above 1e16."""
    X = np.linspace(0.0, 1.0, 60)[:, None]
    R = np.linspace(0.0, 1.0, 12)[:, None]
    y = np.sin(6.0 * X[:, 0])
    setting: dict[str, Any] = {"variance": 1.0, "lengthscales": 1.0, "noise": 1e-4}
    assert np.linalg.cond(kernels.se(R, R)) > 1e16
    bound = extended.log_bound(model, X, R, y, digits=60, **setting)
    assert extended.log_bound(model, X, R, y, digits=80, **setting) == bound
    # The remainder is negligible, so the truth is close to the full GP, which is well posed.
    full = models.full_gp_log_likelihood(kernels.se(X, X), y, 1e-4)
    close(bound, full, 1e-8)
    mean, marginal = extended.predict(model, X, R, y, X[:3] + 0.01, **setting)
    Ksx, Kss = kernels.se(X[:3] + 0.01, X), kernels.se(X[:3], X[:3])
    full_mean, full_cov = models.full_gp_predict(kernels.se(X, X), y, 1e-4, Ksx, Kss)
    close(mean, full_mean, 1e-8)
    close(marginal, np.diag(full_cov), 1e-8)
    assert np.all(marginal > 0)


def test_extended_precision_jitter(p: Problem) -> None:
    setting: dict[str, Any] = {"variance": VARIANCE, "lengthscales": LENGTHSCALES, "noise": NOISE}
    Kxx, Kxr, Krr, y, noise = p.training()
    shaken = models.log_bound("VFE", Kxx, Kxr, Krr + 0.01 * np.eye(7), y, noise)
    close(shaken, extended.log_bound("VFE", p.X, p.R, y, jitter=0.01, **setting), 1e-12)


def test_gradient_of_a_known_function() -> None:
    theta = np.array([0.3, -1.2, 2.0])

    def f(t: Array) -> float:
        return float(np.sin(3.0 * t[0]) * np.exp(t[1]) + np.log(t[2]) * t[0] ** 3)

    known = np.array(
        [
            3.0 * np.cos(0.9) * np.exp(-1.2) + 3.0 * np.log(2.0) * 0.09,
            np.sin(0.9) * np.exp(-1.2),
            0.3**3 / 2.0,
        ]
    )
    value, error = gradients.gradient_and_error(f, theta)
    np.testing.assert_allclose(value, known, rtol=1e-10)
    assert np.all(error < 1e-9)
    np.testing.assert_array_equal(gradients.gradient(f, theta), value)


def test_extrapolation_removes_even_powers() -> None:
    """Three levels remove h^2 and h^4, so a polynomial of degree six is exact at a long step."""
    value = gradients.gradient(
        lambda t: float(t[0] ** 6 - 2.0 * t[0] ** 5 + t[0] ** 3),
        np.array([0.7]),
        step=0.5,
        levels=3,
    )
    known = 6.0 * 0.7**5 - 10.0 * 0.7**4 + 3.0 * 0.7**2
    np.testing.assert_allclose(value, known, rtol=0.0, atol=1e-14)


def test_gradient_of_the_full_gp(p: Problem) -> None:
    """d/d log noise of log N(y; 0, C) = s/2 (tr(a a^T) - Q tr C^-1) with a = C^-1 y."""
    K = p.kernel(p.X, p.X)

    def f(t: Array) -> float:
        return models.full_gp_log_likelihood(K, p.y, float(np.exp(t[0])))

    inverse = np.linalg.inv(K + NOISE * np.eye(30))
    a = inverse @ p.y
    known = NOISE / 2.0 * (np.sum(a**2) - 2.0 * np.trace(inverse))
    np.testing.assert_allclose(gradients.gradient(f, np.log([NOISE])), known, rtol=1e-9)


@pytest.mark.parametrize("model", ["VFE", "FITC", "PITC", "PEP", "TighterVFE"])
def test_gradient_of_the_recursion_is_that_of_the_batch(p: Problem, model: str) -> None:
    """Proposition 1: the sum of d psi_k / d theta is the gradient of the batch bound."""

    def matrices(theta: Array) -> tuple[Array, Array, Array, Array, float]:
        variance, scale, noise = (float(v) for v in np.exp(theta[:3]))
        R = theta[3:].reshape(p.R.shape)
        kernel = {"variance": variance, "lengthscales": scale}
        Kxx, Kxr, Krr = (kernels.se(a, b, **kernel) for a, b in ((p.X, p.X), (p.X, R), (R, R)))
        return Kxx, Kxr, Krr, p.y, noise

    def batch(theta: Array) -> float:
        return models.log_bound(model, *matrices(theta), block_size=7)

    def recursive(theta: Array) -> float:
        return sum(recursion.kalman_filter(model, *matrices(theta), block_size=7)[2])

    theta = np.concatenate([np.log([VARIANCE, 0.9, NOISE]), p.R.ravel()])
    one, two = gradients.gradient(batch, theta), gradients.gradient(recursive, theta)
    close(one, two, 1e-9)


def test_refusals(p: Problem) -> None:
    with pytest.raises(ValueError, match="unknown model"):
        models.log_bound("vfe", *p.training())
    with pytest.raises(ValueError, match="alpha"):
        models.log_bound("PEP", *p.training(), alpha=1.5)
    with pytest.raises(ValueError, match="positive"):
        models.log_bound("VFE", *p.training(), sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="extended precision"):
        extended.log_bound("PEP", p.X, p.R, p.y, variance=1.0, lengthscales=1.0, noise=1.0)
