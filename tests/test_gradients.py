"""Gradients of the bound, by three routes, against automatic differentiation of dense formulas.

Tolerance: relative to the largest entry of the gradient. Everything is double precision and cond
K_RR is at most about 1e5 here, of which unwhitened sums lose all: 1e-8 leaves two digits of room.
"""

import functools
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from problems import KERNELS, MODELS, Problem, problem
from reference import gradients as differences

import srgp
from srgp import blocks, chained, collapsed, gradient, sensitivity, slopes
from srgp import kernels as k
from srgp.compiled import quick_jit
from srgp.differentiated import differentiated
from srgp.kernels.stationary import is_stationary
from srgp.moments import se_products
from srgp.sources import as_source

sites = importlib.import_module("srgp.learners.sites")

RTOL = 1e-8
# Uneven batches of 40 rows; PITC's begin where its blocks of 7 do.
CUTS = [1, 4, 20, 35]
BLOCK_CUTS = [7, 21, 35]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def assert_close(found: Any, expected: Any, rtol: float = RTOL) -> None:
    found, expected = flat(found), flat(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max())


def dense_bound(model: srgp.Model, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> jax.Array:
    """Σ_q log N(y_q; 0, Q + V) − a by N×N matrices: nothing of the library but the kernel."""
    K = model.kernel.covariance
    Kxr, R, N = K(X, model.inducing), model.inducing, len(X)
    Qxx = Kxr @ jnp.linalg.solve(K(R, R), Kxr.T)
    D = K(X, X) - Qxx
    d, s = jnp.diag(D), model.noise / weights
    name, a = type(model.approximation).__name__, 0.0
    V = jnp.diag(s)
    if name in ("FITC", "FIC"):
        V = V + jnp.diag(d)
    elif name == "PITC":
        block = np.arange(N) // model.approximation.block_size
        V = V + jnp.where(block[:, None] == block[None, :], D, 0.0)
    elif name == "PEP":
        alpha = model.approximation.alpha
        V = V + alpha * jnp.diag(d)
        a = (1 - alpha) / (2 * alpha) * jnp.sum(jnp.log1p(alpha * d / s))
    elif name == "VFE":
        a = jnp.sum(0.5 * d / s)
    elif name == "TighterVFE":
        a = 0.5 * jnp.sum(jnp.log1p(d / s))
    targets = y.reshape(N, -1)
    log_det = jnp.linalg.slogdet(Qxx + V)[1]
    squares = jnp.sum(targets * jnp.linalg.solve(Qxx + V, targets))
    outputs = targets.shape[1]
    return -0.5 * (outputs * (N * jnp.log(2 * jnp.pi) + log_det) + squares) - outputs * a


def dense_gradient(model: srgp.Model, *data: np.ndarray) -> tuple[float, srgp.Model]:
    at = jax.tree.map(jnp.asarray, model)
    # Not compiled as a whole: operation by operation, nearly all are compiled once for all models.
    value, slope = jax.value_and_grad(dense_bound)(at, *data)
    return float(value), slope


def batches(model: srgp.Model, *data: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    cuts = BLOCK_CUTS if isinstance(model.approximation, srgp.PITC) else CUTS
    return [tuple(a[r] for a in data) for r in np.split(np.arange(len(data[0])), cuts)]


CASES = [
    *((model, "SE") for model in MODELS),
    *(("VFE", kernel) for kernel in KERNELS if kernel != "SE"),
    *(("TighterVFE", kernel) for kernel in ("Matern32", "Linear")),
    ("FITC", "Periodic"),
]


@pytest.mark.parametrize(("model_name", "kernel_name"), CASES)
def test_recursive_equals_exact_equals_dense(model_name: str, kernel_name: str) -> None:
    p = problem(seed=1, Q=2)
    model = srgp.Model(KERNELS[kernel_name][0], p.noise, p.R, MODELS[model_name][0])
    data = (p.X, p.y, p.weights)
    expected, at = dense_gradient(model, *data)

    total = sum(srgp.sensitivities(model, *batch) for batch in batches(model, *data))
    assert total.n == len(p.X)
    value, found = total.value_and_grad()
    assert value == pytest.approx(expected, rel=1e-10)
    assert_close(found, at)

    value, found = srgp.value_and_grad(model, data)
    assert value == pytest.approx(expected, rel=1e-10)
    assert_close(found, at)
    assert isinstance(found, srgp.Model)
    assert found.inducing.dtype == np.float64
    assert jax.tree.structure(found) == jax.tree.structure(model)
    assert [g.shape for g in jax.tree.leaves(found)] == [m.shape for m in jax.tree.leaves(model)]


@pytest.mark.parametrize("model_name", ["VFE", "TighterVFE", "FITC", "PITC"])
def test_proposition_1(model_name: str) -> None:
    """ψ_k is what batch k adds to the bound, its gradient likewise, and both add up to the whole.

    Each ψ_k is also what the filter, which knows nothing of gradients, gains by the batch.
    """
    p = problem(seed=2)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, MODELS[model_name][0])
    at = jax.tree.map(jnp.asarray, model)
    factor = sensitivity.factor_of(at, None)
    step = quick_jit(sensitivity.step_gradient, static_argnums=4)
    data = (p.X, p.y, p.weights)
    parts = batches(model, *data)
    before = 0.0 * srgp.sensitivities(model, *parts[0])
    filtered = srgp.Filter.start(model)
    values, slopes_ = [], []
    for batch in parts:
        after = before + srgp.sensitivities(model, *batch)
        psi, slope = step(at, factor, before.state, after.state, None)
        new = filtered.update(*batch)
        assert psi == pytest.approx(new.log_bound - filtered.log_bound, rel=1e-8)
        before, filtered = after, new
        values.append(psi)
        slopes_.append(slope)

    expected, whole = dense_gradient(model, *data)
    assert sum(values) == pytest.approx(expected, rel=1e-10)
    assert_close(functools.reduce(lambda x, y: jax.tree.map(jnp.add, x, y), slopes_), whole)
    # One step alone, the last of the recursion: log p(y_k | y_1..k−1).
    seen = len(p.X) - len(parts[-1][0])
    without, at_rest = dense_gradient(model, *(a[:seen] for a in data))
    assert values[-1] == pytest.approx(expected - without, rel=1e-8)
    assert_close(slopes_[-1], jax.tree.map(jnp.subtract, whole, at_rest))


@pytest.mark.parametrize("kernel_name", ["SE", "Matern32", "product"])
def test_the_regulariser_by_whitened_rows(
    kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way taken where K_RR is ill-conditioned, where it is not: equal to the dense formulas."""
    p = problem(seed=1, Q=2)
    model = srgp.Model(KERNELS[kernel_name][0], p.noise, p.R)
    monkeypatch.setattr(sensitivity, "raw_is_enough", lambda *_: False)
    for data in ((p.X, p.y, p.weights), (p.X[:1], p.y[:1], p.weights[:1])):
        expected, at = dense_gradient(model, *data)
        value, found = srgp.sensitivities(model, *data).value_and_grad()
        assert value == pytest.approx(expected, rel=1e-10)
        assert_close(found, at)


def test_the_regulariser_of_an_ill_conditioned_kernel() -> None:
    """cond K_RR = 1e13: substitution is off by the rounding of Σ k(x, x) = 40, Φ by everything."""
    p = problem(seed=7)
    model = srgp.Model(k.SE(lengthscales=[64.0] * 2), 1e-6, p.R)
    assert model.jitter == 0.0
    at = jax.tree.map(jnp.asarray, model)
    whiten = sensitivity.whitener_for(at)
    assert whiten is not None
    block = (p.X, p.y, np.ones(len(p.X)))
    factor = sensitivity.factor_of(at, None)
    by_rows, by_sums = (
        sensitivity.as_state(at, factor, sensitivity.batch_parts(at, w, [block])).regulariser
        for w in (whiten, None)
    )
    expected = sensitivity.regulariser_of(at, p.X, block[2])
    a = srgp.summarise(model, p.X, p.y).sums.a
    assert float(by_rows.a) == pytest.approx(float(a), abs=1e-12)
    np.testing.assert_allclose(by_rows.at, expected.at, rtol=0, atol=1e-11)
    assert abs(float(by_sums.a) - float(a)) > 1e-6


def test_sensitivities_of_other_noise_add() -> None:
    """The sums of VFE are of any σ², their regulariser too."""
    p = problem(seed=3)
    loud = srgp.Model(KERNELS["SE"][0], p.noise, p.R)
    quiet = loud.replace(noise=0.1 * p.noise)
    first, rest = slice(0, 15), slice(15, 40)
    both = srgp.sensitivities(loud, p.X[first], p.y[first]) + srgp.sensitivities(
        quiet, p.X[rest], p.y[rest]
    )
    expected, at = dense_gradient(loud, p.X, p.y, np.ones(40))
    value, found = both.value_and_grad()
    assert value == pytest.approx(expected, rel=1e-10)
    assert_close(found, at)


def test_sensitivities_are_unlearned_and_scaled() -> None:
    p = problem(seed=3)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R)
    first, rest = (srgp.sensitivities(model, p.X[r], p.y[r]) for r in (slice(15), slice(15, 40)))
    value, at = ((first + rest) - rest).value_and_grad()
    expected, expected_at = first.value_and_grad()
    assert value == pytest.approx(expected, rel=1e-11)
    assert_close(at, expected_at, 1e-10)
    # Half of everything: the bound of `0.5 * statistics`, whose prior is not halved.
    half = 0.5 * srgp.summarise(model, p.X[:15], p.y[:15])
    assert (0.5 * first).value_and_grad()[0] == pytest.approx(
        srgp.log_bound(model, half), rel=1e-11
    )
    with pytest.raises(ValueError, match="factor"):
        _ = -1.0 * first
    with pytest.raises(ValueError, match="different kernel parameters"):
        _ = first + srgp.sensitivities(model.replace(inducing=p.R + 1.0), p.X, p.y)


@pytest.mark.parametrize("columns", [1, 2])
def test_sensitivities_of_different_outputs_are_refused(columns: int) -> None:
    p = problem(seed=3, D=1)  # where shapes would broadcast
    model = srgp.Model(k.SE(), p.noise, p.R)
    one = srgp.sensitivities(model, p.X, p.y)
    other = srgp.sensitivities(model, p.X, np.stack([p.y] * columns, 1))
    with pytest.raises(ValueError):
        _ = one + other


# -- the structure of the slopes ----------------------------------------------------------------

FAST = {
    "SE": k.SE(variance=1.3, lengthscales=[0.5, 0.8, 1.1]),
    "SE shared": k.SE(variance=0.7, lengthscales=0.8),
    "SE shared, of shape (1,)": k.SE(lengthscales=[0.8]),
    "SE active": k.SE(lengthscales=[0.6, 0.9], active_dims=[2, 0]),
    "SE one active": k.SE(lengthscales=0.6, active_dims=[1]),
    "Matern32": k.Matern32(variance=1.3, lengthscales=[0.5, 0.8, 1.1]),
    "Matern52 shared": k.Matern52(variance=1.3, lengthscales=0.8),
    "Matern12 active": k.Matern12(lengthscales=[0.6, 0.9], active_dims=[2, 0]),
    "RationalQuadratic": k.RationalQuadratic(lengthscales=[0.5, 0.8, 1.1], mixture=0.8),
    "RationalQuadratic shared": k.RationalQuadratic(mixture=2.0, active_dims=[1, 2]),
}


def shifted_problem(shift: float) -> Problem:
    p = problem(seed=4, N=25, M=6, D=3, Q=2)
    weights = np.where(np.arange(25) % 6 == 0, 0.0, p.weights)
    return p._replace(X=p.X + shift, R=p.R + shift, weights=weights)


@pytest.mark.parametrize("name", FAST)
def test_fast_slopes_equal_those_of_any_kernel(name: str) -> None:
    kernel = jax.tree.map(jnp.asarray, FAST[name])
    assert is_stationary(kernel)
    for shift in (0.0, 1e3):
        p = shifted_problem(shift)
        K = kernel.covariance(p.R, p.X) * np.sqrt(p.weights)
        found_K = slopes.kernel_matrix(kernel, p.R, p.X, p.weights)
        np.testing.assert_allclose(found_K, K, rtol=1e-13)
        block = (kernel, p.R, K, p.X, p.y, p.weights)
        fast = (
            se_products(kernel, p.R, [(p.X, p.y, p.weights)])[0]
            if slopes.is_se(kernel)
            else slopes.products(*block)
        )
        raw, found = slopes.slopes(kernel, p.R, fast)
        generic = slopes.products_generic(*block)
        D = p.R.shape[1]
        expected = slopes.Slopes(
            generic.matrices[:D],
            generic.vectors[:D],
            generic.matrices[D:],
            generic.vectors[D:],
            generic.kappa,
        )
        assert len(found.T) == len(expected.T) == len(ravel_pytree(kernel)[0])
        for x, y in zip(raw, generic.raw, strict=True):
            assert_close(x, y, 1e-12)
        for x, y in zip(found, expected, strict=True):
            assert_close(x, y, 1e-9)


@pytest.mark.parametrize("name", FAST)
def test_pullback_equals_reverse_differentiation(name: str) -> None:
    kernel = jax.tree.map(jnp.asarray, FAST[name])
    rng = np.random.default_rng(0)
    for shift in (0.0, 1e3):
        p = shifted_problem(shift)
        at = rng.normal(size=(6, 25))
        root = np.sqrt(p.weights)
        K, back = jax.vjp(
            lambda kernel, R, X=p.X, root=root: kernel.covariance(R, X) * root, kernel, p.R
        )
        found = slopes.pullback(kernel, p.R, p.X, K, at, p.weights)
        for x, y in zip(found, back(at), strict=True):
            assert_close(x, y, 1e-9)
            assert jax.tree.structure(x) == jax.tree.structure(y)

        symmetric = at[:, :6] + at[:, :6].T
        _, back = jax.vjp(lambda kernel, R: kernel.covariance(R, R), kernel, p.R)
        found = slopes.pullback_inducing(kernel, p.R, kernel.covariance(p.R, p.R), symmetric)
        for x, y in zip(found, back(symmetric), strict=True):
            assert_close(x, y, 1e-9)


def test_other_kernels_are_not_taken_for_stationary_ones() -> None:
    kernels = [k.Periodic(), k.SE() + k.SE(), 2.0 * k.SE(), k.Linear(), k.White()]
    assert not any(is_stationary(kernel) for kernel in kernels)


@pytest.mark.parametrize("name", ["Warped", "Steeper"])
def test_a_kernel_derived_from_se_has_its_own_gradient(name: str) -> None:
    """A subclass of SE that is none must not take the fast formulas of SE."""

    class Warped(k.SE):
        def matrix(self, X: Any, Z: Any) -> Any:
            return super().matrix(jnp.tanh(X), jnp.tanh(Z))

    class Steeper(k.SE):
        def profile(self, r2: Any) -> Any:
            return jnp.exp(-0.5 * r2) / (1.0 + r2)

    p = problem(seed=5)
    kernel = {"Warped": Warped, "Steeper": Steeper}[name](lengthscales=[0.5, 0.6])
    model = srgp.Model(kernel, p.noise, p.R)
    expected, at = dense_gradient(model, p.X, p.y, p.weights)
    value, found = srgp.value_and_grad(model, (p.X, p.y, p.weights))
    assert value == pytest.approx(expected, rel=1e-10)
    assert_close(found, at)
    assert_close(srgp.sensitivities(model, p.X, p.y, p.weights).value_and_grad()[1], at)


def test_a_stationary_kernel_of_ones_own_has_its_gradient() -> None:
    class Cauchy(k.Stationary):
        power: k.Parameter = 1.0

        def profile(self, r2: Any) -> Any:
            return (1.0 + r2) ** (-self.power)

    p = problem(seed=5)
    model = srgp.Model(Cauchy(lengthscales=[0.6, 0.9], power=1.4), p.noise, p.R)
    _, at = dense_gradient(model, p.X, p.y, p.weights)
    assert_close(srgp.value_and_grad(model, (p.X, p.y, p.weights))[1], at)
    assert_close(srgp.sensitivities(model, p.X, p.y, p.weights).value_and_grad()[1], at)


# -- the two routes of the exact gradient -------------------------------------------------------


def finite_differences(model: srgp.Model, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    theta, unravel = ravel_pytree(jax.tree.map(jnp.asarray, model))

    def bound(theta: np.ndarray) -> float:
        at = jax.tree.map(np.asarray, unravel(jnp.asarray(theta)))
        return srgp.log_bound(at, srgp.summarise(at, X, y))

    return differences.gradient(bound, np.asarray(theta), step=0.05, levels=4)


@pytest.mark.parametrize("model_name", ["SoR", "VFE"])
def test_all_routes_agree(model_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem(seed=6, Q=2)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, MODELS[model_name][0])
    data = (p.X, p.y, p.weights)
    assert collapsed.raw_is_enough(model.basis.whiten, model.noise)
    value, at = srgp.value_and_grad(model, data)
    monkeypatch.setattr(gradient, "raw_is_enough", lambda *_: False)
    whitened, whitened_at = srgp.value_and_grad(model, data)
    assert value == pytest.approx(whitened, rel=1e-11)
    assert_close(at, whitened_at, 1e-9)
    monkeypatch.setattr(gradient, "PULLS_DIRECTLY", 0.0)
    _, twice_whitened_at = srgp.value_and_grad(model, data)
    assert_close(at, twice_whitened_at, 1e-9)
    value, differentiated_at = differentiated(jax.tree.map(jnp.asarray, model), as_source(data), 64)
    assert value == pytest.approx(whitened, rel=1e-11)
    assert_close(at, differentiated_at, 1e-9)


@pytest.mark.parametrize("lengthscale", [1.0, 8.0, 16.0, 64.0])
def test_ill_conditioned_kernels_keep_their_gradient(
    lengthscale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cond K_RR from 1e3 to 1e13: whichever route is taken, six digits remain."""
    p = problem(seed=7)
    model = srgp.Model(k.SE(lengthscales=[lengthscale] * 2), p.noise, p.R)
    assert model.jitter == 0.0
    value, at = srgp.value_and_grad(model, (p.X, p.y))
    assert value == pytest.approx(srgp.log_bound(model, srgp.summarise(model, p.X, p.y)), rel=1e-6)
    # What the differences themselves are good for: the bound's rounding over their step.
    assert_close(at, finite_differences(model, p.X, p.y), 1e-5)
    monkeypatch.setattr(gradient, "raw_is_enough", lambda *_: False)
    whitened, whitened_at = srgp.value_and_grad(model, (p.X, p.y))
    assert value == pytest.approx(whitened, rel=1e-6)
    assert_close(at, whitened_at, 1e-6)


def test_the_route_is_chosen_by_conditioning() -> None:
    p = problem(seed=7)

    def enough(kernel: k.Kernel, R: np.ndarray) -> bool:
        model = srgp.Model(kernel, p.noise, R)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", srgp.JitterWarning)
            return collapsed.raw_is_enough(model.basis.whiten, model.noise)

    assert enough(k.SE(lengthscales=[1.0] * 2), p.R)
    assert not enough(k.SE(lengthscales=[64.0] * 2), p.R)
    assert not enough(k.SE(), np.concatenate([p.R, p.R[:1]]))


def test_any_source_of_data_will_do() -> None:
    p = problem(seed=8)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R)
    value, at = srgp.value_and_grad(model, (p.X, p.y, p.weights))
    parts = batches(model, p.X, p.y, p.weights)
    for source in (parts, lambda: iter(parts), lambda: (b for b in parts)):
        found, found_at = srgp.value_and_grad(model, source)
        assert found == pytest.approx(value, rel=1e-13)
        assert_close(found_at, at, 1e-12)


def test_blocks_of_a_large_problem_add_up() -> None:
    """More rows than one block, the last one padded, in both routes of both algorithms."""
    p = problem(seed=9, N=20_000, M=2)
    model = srgp.Model(k.SE(lengthscales=[0.5, 0.8]), p.noise, p.R)
    cut = 7001
    twice = sum(srgp.sensitivities(model, p.X[r], p.y[r]) for r in (slice(cut), slice(cut, None)))
    value, at = twice.value_and_grad()
    found, found_at = srgp.value_and_grad(model, (p.X, p.y))
    assert found == pytest.approx(value, rel=1e-11)
    assert_close(found_at, at, 1e-9)
    assert found == pytest.approx(srgp.log_bound(model, srgp.summarise(model, p.X, p.y)), rel=1e-11)


CALLS: dict[str, Callable[..., Any]] = {
    "arrays": lambda model, X, y: srgp.value_and_grad(model, (X, y)),
    "batches": lambda model, X, y: srgp.value_and_grad(model, [(X, y)]),
    "sensitivities": lambda model, X, y: srgp.sensitivities(model, X, y).value_and_grad(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("model_name", ["VFE", "FITC"])
def test_bad_data_are_refused(name: str, model_name: str) -> None:
    p = problem(seed=8)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R, MODELS[model_name][0])
    call = functools.partial(CALLS[name], model)
    with pytest.raises(ValueError, match="nan at index 3"):
        call(p.X, np.where(np.arange(40) == 3, np.nan, p.y))
    with pytest.raises(ValueError, match="inf at index"):
        call(np.where(np.arange(40)[:, None] == 3, np.inf, p.X), p.y)
    with pytest.raises(ValueError, match="shape"):
        call(p.X, p.y[:-1])
    with pytest.raises(ValueError, match="whose square has no room"):
        call(p.X, 1e200 * p.y)
    if model_name == "VFE":  # in units of the noise, which FITC's variance is not
        with pytest.raises(FloatingPointError, match="rescale"):
            CALLS[name](model.replace(noise=1e-200), p.X, 1e90 * p.y)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("columns", [1, 3])
def test_data_of_other_columns_are_refused(name: str, columns: int) -> None:
    p = problem(seed=8)
    for kernel in (k.SE(), k.Matern32()):  # no lengthscale of which tells the number of inputs
        model = srgp.Model(kernel, p.noise, p.R)
        with pytest.raises(ValueError, match="columns"):
            CALLS[name](model, np.repeat(p.X[:, :1], columns, 1), p.y)


# -- sites --------------------------------------------------------------------------------------


def site_problem() -> tuple[jax.Array, slopes.Raw, jax.Array]:
    p = problem(seed=10, Q=2)
    kernel = jax.tree.map(jnp.asarray, KERNELS["SE"][0])
    K = kernel.covariance(p.R, p.X) * np.sqrt(p.weights)
    raw = slopes.products_generic(kernel, p.R, K, p.X, p.y, p.weights).raw
    return kernel.covariance(p.R, p.R), raw, jnp.asarray(p.noise)


def test_site_bound_has_its_own_derivatives() -> None:
    """Along random directions, symmetric where the argument is, the sites held fixed."""
    K, raw, noise = site_problem()
    rng = np.random.default_rng(0)
    spread = jnp.asarray(rng.normal(size=(8, 12)))
    precision, shift, scale = spread @ spread.T, jnp.asarray(rng.normal(size=(8, 2))), 3.7

    def bound(K: Any, Phi: Any, b: Any, kappa: Any, noise: Any) -> Any:
        batch = raw._replace(Phi=Phi, b=b, kappa=kappa)
        return sites.site_bound(collapsed.factorise(K, None), batch, noise, precision, shift, scale)

    at = (K, raw.Phi, raw.b, raw.kappa, noise)
    _, found = bound(*at)
    value = jax.jit(lambda directions: jax.jvp(lambda *at: bound(*at)[0], at, directions)[1])
    for i in range(5):
        direction = [jnp.zeros_like(x) for x in at]
        direction[i] = jnp.asarray(rng.normal(size=at[i].shape))
        if i < 2:
            direction[i] = direction[i] + direction[i].T
        expected = value(tuple(direction))
        contracted = jnp.sum(jnp.asarray(found[i]) * direction[i])
        assert float(contracted) == pytest.approx(float(expected), rel=1e-9)


def test_sites_of_all_data_give_the_collapsed_bound() -> None:
    """At the optimal q the bounds touch: equal values and, by the envelope theorem, derivatives."""
    K, raw, noise = site_problem()
    factor = collapsed.factorise(K, None)
    value, at = sites.site_bound(factor, raw, noise, raw.Phi / noise, raw.b / noise, 1.0)
    found = float(value)
    expected, expected_at = collapsed.raw_value_and_cotangents(srgp.VFE(), factor, raw, noise)
    assert found == pytest.approx(float(expected), rel=1e-12)
    for x, y in zip(at, expected_at, strict=True):
        assert_close(x, y, 1e-8)
    p = problem(seed=10, Q=2)
    model = srgp.Model(KERNELS["SE"][0], p.noise, p.R)
    s = srgp.summarise(model, p.X, p.y, p.weights)
    assert found == pytest.approx(srgp.log_bound(model, s), rel=1e-10)
    # Any other q is worse.
    worse, _ = sites.site_bound(factor, raw, noise, 0.5 * raw.Phi / noise, raw.b / noise, 1.0)
    assert worse < found - 1.0


# -- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_name", ["VFE", "TighterVFE"])
@pytest.mark.parametrize("kernel", [k.SE(lengthscales=[1.0] * 3), k.SE() + k.Linear()])
def test_structured_state_is_m_squared_times_inputs(model_name: str, kernel: k.Kernel) -> None:
    M, D, outputs = 20, 3, 2
    p = problem(N=30, M=M, D=D, Q=outputs)
    model = srgp.Model(kernel, p.noise, p.R, MODELS[model_name][0])
    state = srgp.sensitivities(model, p.X, p.y).state
    P = sum(np.size(leaf) for leaf in jax.tree.leaves(kernel))
    count = sum(np.size(leaf) for leaf in jax.tree.leaves(state))
    regulariser = M * D + P + 1
    assert count <= (M**2 + M * outputs) * (D + P + 1) + P + regulariser + outputs + 4
    assert isinstance(state, sensitivity.Structured)
    more = srgp.sensitivities(model, np.tile(p.X, (9, 1)), np.tile(p.y, (9, 1))).state
    assert sum(np.size(leaf) for leaf in jax.tree.leaves(more)) == count


# -- short chains -------------------------------------------------------------------------------


def moved(model: srgp.Model, by: float) -> srgp.Model:
    """Every parameter a little larger, R a little aside: another θ of the same structure."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) * (1.0 + by), model)


HELD = [
    *((name, "SE") for name in ("SoR", "DTC", "VFE")),
    *(("VFE", kernel) for kernel in ("Matern32", "RationalQuadratic", "Linear", "product")),
]


@pytest.mark.parametrize("whitened", [None, "pulls directly", "pulls through the factor"])
@pytest.mark.parametrize(("model_name", "kernel_name"), HELD)
def test_sums_made_anew_give_the_gradient_that_slopes_give(
    model_name: str, kernel_name: str, whitened: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ψ_k and ∂ψ_k with all batches at the θ of the moment, which moves with every batch.

    By unwhitened sums and by whitened ones, these pulled back in both ways; in one block and in
    several.
    """
    if whitened:
        monkeypatch.setattr(gradient, "raw_is_enough", lambda *_: False)
        monkeypatch.setattr(blocks, "LARGEST", 8 * 6)
        monkeypatch.setattr(gradient, "PULLS_DIRECTLY", 0.0 if "through" in whitened else 1e16)
    p = problem(seed=2, Q=2)
    start = srgp.Model(KERNELS[kernel_name][0], p.noise, p.R, MODELS[model_name][0])
    seen: list[Any] = []
    for k_, rows in enumerate(np.split(np.arange(40), 4)):
        model = moved(start, 0.03 * k_)
        batch = (p.X[rows], p.y[rows], p.weights[rows])
        found = chained.stepped(model, seen, batch)
        factor = sensitivity.factor_of(model, None)
        seen.append(batch)
        each = [
            sensitivity.as_state(model, factor, sensitivity.batch_parts(model, None, [one]))
            for one in seen
        ]
        after = jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *each)
        before = jax.tree.map(jnp.subtract, after, each[-1])
        psi, expected = sensitivity.step_gradient(model, factor, before, after, None)
        assert found.possible
        assert float(found.psi) == pytest.approx(float(psi), rel=1e-9)
        assert_close(found.gradient, expected)
    assert len(blocks.learned(model, batch)[0]) == (2 if whitened else 1)


def test_steps_made_anew_add_up_to_the_gradient_of_the_bound() -> None:
    """At one θ the ∂ψ_k sum up (Proposition 1) to what two passes over all rows give."""
    p = problem(seed=3)
    model = moved(srgp.Model(KERNELS["SE"][0], p.noise, p.R), 0.0)
    batches = [(p.X[r], p.y[r], p.weights[r]) for r in np.split(np.arange(40), 5)]
    steps = [chained.stepped(model, batches[:i], batch) for i, batch in enumerate(batches)]
    value, gradient = srgp.value_and_grad(model, (p.X[:40], p.y[:40], p.weights[:40]))
    assert sum(float(step.psi) for step in steps) == pytest.approx(value, rel=1e-11)
    total = jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *(s.gradient for s in steps))
    assert_close(total, gradient)


def test_what_is_not_possible_is_told() -> None:
    """Sums that have lost their digits, here all of them, give no gradient to step along."""
    p = problem(seed=4)
    model = moved(srgp.Model(KERNELS["SE"][0], p.noise, p.R), 0.0)
    first, second = ((p.X[r], p.y[r], p.weights[r]) for r in np.split(np.arange(40), 2))
    spoiled = first[0], np.nan * first[1], first[2]
    assert not chained.stepped(model, [spoiled], second).possible
    assert chained.stepped(model, [first], second).possible


def test_which_chains_are_made_anew() -> None:
    """Few batches, V̄ = 0, a regulariser that the sums tell, and as memory allows it."""

    def short(length: int, rows: int = 2000, approximation: Any = None) -> bool:
        p = problem(D=8, M=9)
        model = srgp.Model(k.SE(lengthscales=np.ones(8)), 0.1, p.R, approximation or srgp.VFE())
        return chained.is_short(model, length, rows)

    assert [short(length) for length in (1, 20, 21)] == [True, True, False]
    assert not any(short(5, approximation=each) for each in (srgp.FITC(), srgp.TighterVFE()))
    assert not short(5, rows=2_000_000)
