"""The library's additive, whitened form against the dense N×N formulas, for all models × kernels.

Tolerance: both routes are double precision; they differ by rounding times the condition number of
K_RR, at most about 1e4 here, so 1e-10 relative leaves two digits of room.
"""

from typing import Any

import numpy as np
import pytest
from problems import KERNELS, MODELS, dense, problem
from reference import models as reference

import srgp

RTOL = 1e-10


@pytest.mark.parametrize("kernel_name", KERNELS)
@pytest.mark.parametrize("model_name", MODELS)
def test_bound_and_prediction_equal_the_dense_formulas(model_name: str, kernel_name: str) -> None:
    approximation, name, options = MODELS[model_name]
    kernel, reference_kernel = KERNELS[kernel_name]
    p = problem()
    model = srgp.Model(kernel, p.noise, p.R, approximation)
    s = srgp.summarise(model, p.X, p.y)
    Kxx, Kxr, Krr, Ksr, Kss = dense(reference_kernel, p)

    expected = reference.log_bound(name, Kxx, Kxr, Krr, p.y, p.noise, **options)
    assert srgp.log_bound(model, s) == pytest.approx(expected, rel=RTOL)

    mean, cov = reference.predict(name, Kxx, Kxr, Krr, p.y, p.noise, Ksr, Kss, **options)
    post = srgp.posterior(model, s)
    found_mean, found_var = post.predict(p.Xs)
    np.testing.assert_allclose(found_mean, mean[:, 0], rtol=0, atol=RTOL * np.abs(mean).max())
    np.testing.assert_allclose(found_var, np.diag(cov), rtol=0, atol=RTOL * np.diag(cov).max())
    np.testing.assert_allclose(post.covariance(p.Xs), cov, rtol=0, atol=RTOL * np.diag(cov).max())


@pytest.mark.parametrize("model_name", MODELS)
def test_weights_and_several_outputs(model_name: str) -> None:
    approximation, name, options = MODELS[model_name]
    kernel, reference_kernel = KERNELS["SE"]
    p = problem(seed=1, Q=3)
    model = srgp.Model(kernel, p.noise, p.R, approximation)
    s = srgp.summarise(model, p.X, p.y, sample_weight=p.weights)
    Kxx, Kxr, Krr, Ksr, Kss = dense(reference_kernel, p)
    options = {**options, "sample_weight": p.weights}

    expected = reference.log_bound(name, Kxx, Kxr, Krr, p.y, p.noise, **options)
    assert srgp.log_bound(model, s) == pytest.approx(expected, rel=RTOL)
    mean, cov = reference.predict(name, Kxx, Kxr, Krr, p.y, p.noise, Ksr, Kss, **options)
    found_mean, found_var = srgp.posterior(model, s).predict(p.Xs, noise=True)
    assert found_mean.shape == found_var.shape == (11, 3)
    np.testing.assert_allclose(found_mean, mean, rtol=0, atol=RTOL * np.abs(mean).max())
    expected_var = np.repeat(np.diag(cov)[:, None] + p.noise, 3, 1)
    np.testing.assert_allclose(found_var, expected_var, rtol=RTOL)


def test_posterior_of_the_inducing_outputs() -> None:
    """At R itself the prediction is the posterior of u, by the paper's batch formula."""
    approximation, name, options = MODELS["FITC"]
    kernel, reference_kernel = KERNELS["Matern32"]
    p = problem(seed=2)
    model = srgp.Model(kernel, p.noise, p.R, approximation)
    post = srgp.posterior(model, srgp.summarise(model, p.X, p.y))
    Kxx, Kxr, Krr, _, _ = dense(reference_kernel, p)
    mean, cov = reference.posterior_u(name, Kxx, Kxr, Krr, p.y, p.noise, **options)
    np.testing.assert_allclose(post.predict(p.R)[0], mean[:, 0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(post.covariance(p.R), cov, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("kernel_name", KERNELS)
@pytest.mark.parametrize(("alpha", "other"), [(0.0, srgp.VFE()), (1.0, srgp.FITC())])
def test_the_ends_of_pep(alpha: float, other: srgp.VFE | srgp.FITC, kernel_name: str) -> None:
    p = problem(seed=3)
    model = srgp.Model(KERNELS[kernel_name][0], p.noise, p.R, srgp.PEP(alpha=alpha))
    twin = model.replace(approximation=other)
    s, t = srgp.summarise(model, p.X, p.y), srgp.summarise(twin, p.X, p.y)
    assert srgp.log_bound(model, s) == pytest.approx(srgp.log_bound(twin, t), rel=1e-14)
    for found, expected in zip(
        srgp.posterior(model, s).predict(p.Xs), srgp.posterior(twin, t).predict(p.Xs), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_pep_is_continuous_at_zero() -> None:
    p = problem(seed=3)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, srgp.PEP(alpha=1e-7))
    vfe = model.replace(approximation=srgp.VFE())
    bounds = [srgp.log_bound(m, srgp.summarise(m, p.X, p.y)) for m in (model, vfe)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-5)


def test_bounds_are_ordered() -> None:
    """full GP ≥ tighter VFE ≥ VFE; the others are approximations, not bounds."""
    p = problem(seed=4, M=5)
    kernel = KERNELS["SE"][0]
    full = srgp.FullGP(kernel, p.noise, p.X, p.y).log_likelihood
    tighter, vfe = (
        srgp.log_bound(m, srgp.summarise(m, p.X, p.y))
        for m in (srgp.Model(kernel, p.noise, p.R, a) for a in (srgp.TighterVFE(), srgp.VFE()))
    )
    assert full > tighter > vfe


def test_bound_terms_name_their_parts() -> None:
    p = problem(seed=5)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R)
    s = srgp.summarise(model, p.X, p.y)
    parts = srgp.bound_terms(model, s)
    assert parts.total == srgp.log_bound(model, s) == sum(parts)
    assert parts.constant == pytest.approx(-0.5 * len(p.X) * np.log(2 * np.pi))
    assert parts.noise == pytest.approx(-0.5 * len(p.X) * np.log(p.noise))
    K = KERNELS["SE"][1]
    d = 1.3 - np.einsum("nm,mn->n", K(p.X, p.R), np.linalg.solve(K(p.R, p.R), K(p.R, p.X)))
    assert parts.regulariser == pytest.approx(-d.sum() / (2 * p.noise), rel=1e-9)


@pytest.mark.parametrize("model_name", ["SoR", "DTC", "VFE"])
def test_noise_changes_at_no_cost_where_the_sums_are_noise_free(model_name: str) -> None:
    approximation, name, options = MODELS[model_name]
    kernel, reference_kernel = KERNELS["SE"]
    p = problem(seed=6)
    model = srgp.Model(kernel, p.noise, p.R, approximation)
    s = srgp.summarise(model, p.X, p.y)
    louder = model.replace(noise=3.0)
    Kxx, Kxr, Krr, _, _ = dense(reference_kernel, p)
    expected = reference.log_bound(name, Kxx, Kxr, Krr, p.y, 3.0, **options)
    assert srgp.log_bound(louder, s) == pytest.approx(expected, rel=RTOL)


@pytest.mark.parametrize("model_name", ["FITC", "PITC", "PEP(0.5)", "TighterVFE"])
def test_noise_is_part_of_the_sums_elsewhere(model_name: str) -> None:
    p = problem(seed=6)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, MODELS[model_name][0])
    s = srgp.summarise(model, p.X, p.y)
    with pytest.raises(ValueError, match="noise"):
        srgp.log_bound(model.replace(noise=3.0), s)


def test_a_regulariser_of_ones_own_is_the_one_that_counts() -> None:
    """A subclass that says nothing of a slope is summed up row by row."""

    class Half(srgp.VFE):
        def regulariser(self, d: Any, s: Any) -> Any:
            return 0.25 * d / s

    p = problem()
    terms = []
    for approximation in (srgp.VFE(), Half()):
        model = srgp.Model(srgp.kernels.SE(), p.noise, p.R, approximation)
        terms.append(float(srgp.summarise(model, p.X, p.y).sums.a))
    assert terms[1] == pytest.approx(0.5 * terms[0], rel=1e-9)
