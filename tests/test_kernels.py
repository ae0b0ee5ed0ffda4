"""Kernels: values, algebra, derivatives, random features, users' own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import KERNELS
from reference import gradients

from srgp import kernels as k

kernels = pytest.mark.parametrize("name", KERNELS)


def points(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, (n, 2))


@kernels
def test_values_equal_the_reference(name: str) -> None:
    kernel, reference = KERNELS[name]
    X, Z = points(0, 7), points(1, 5)
    np.testing.assert_allclose(kernel(X, Z), reference(X, Z), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(kernel(X), reference(X, X), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(kernel.diagonal(X), np.diag(reference(X, X)), rtol=1e-13)


@kernels
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_matrices_are_symmetric_and_positive(name: str, seed: int) -> None:
    kernel, _ = KERNELS[name]
    X = points(seed, 9)
    K = kernel(X)
    np.testing.assert_allclose(K, K.T, rtol=1e-14, atol=1e-14 * np.trace(K))
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.trace(K)


def test_many_inputs_take_the_same_route() -> None:
    """Above 16 inputs the distance is summed another way."""
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(4, 20)), rng.normal(size=(3, 20))
    scales = rng.uniform(1, 5, 20)
    r2 = np.sum(((X[:, None] - Z[None]) / scales) ** 2, -1)
    np.testing.assert_allclose(k.SE(lengthscales=scales)(X, Z), np.exp(-r2 / 2), rtol=1e-13)


@kernels
def test_no_nan_gradient_at_coincident_points(name: str) -> None:
    kernel, _ = KERNELS[name]
    X = np.repeat(points(0, 3), 2, 0)
    with jax.enable_x64(True):

        def total(kernel: k.Kernel, X: jax.Array) -> jax.Array:
            return jnp.sum(jnp.sin(kernel.covariance(X, X)))

        by_kernel, by_X = jax.grad(total, argnums=(0, 1))(kernel, jnp.asarray(X))
        forward = jax.jvp(lambda X: total(kernel, X), (jnp.asarray(X),), (jnp.ones_like(X),))[1]
    for leaf in [*jax.tree.leaves(by_kernel), by_X, forward]:
        assert np.isfinite(leaf).all()


@kernels
def test_derivatives_by_differences(name: str) -> None:
    kernel, _ = KERNELS[name]
    X, Z = points(0, 4), points(1, 3)
    leaves, tree = jax.tree.flatten(kernel)
    sizes = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def rebuilt(log_theta: np.ndarray) -> k.Kernel:
        parts = np.split(np.exp(log_theta), sizes)
        return jax.tree.unflatten(
            tree, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)]
        )

    theta = np.log(np.concatenate([leaf.ravel() for leaf in leaves]))
    expected = gradients.gradient(lambda t: float(np.sum(np.sin(rebuilt(t)(X, Z)))), theta)
    with jax.enable_x64(True):
        found = jax.grad(lambda kern: jnp.sum(jnp.sin(kern.covariance(X, Z))))(kernel)
    found = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)]) * np.exp(theta)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("smooth", [k.Matern32(), k.Matern52(), k.SE(), k.RationalQuadratic()])
def test_curvature_at_zero_distance(smooth: k.Kernel) -> None:
    """k″(0) by JAX equals that of the series, where a naive √r² gives NaN."""
    expected = {"Matern32": -3.0, "Matern52": -5.0 / 3.0, "SE": -1.0, "RationalQuadratic": -1.0}
    with jax.enable_x64(True):
        zero = jnp.zeros((1, 1))

        def along(x: jax.Array) -> jax.Array:
            return smooth.covariance(x[None, None], zero)[0, 0]

        found = jax.jacfwd(jax.grad(along))(jnp.zeros(()))
    assert float(found) == pytest.approx(expected[type(smooth).__name__])


@kernels
def test_random_features_have_the_kernel_as_second_moment(name: str) -> None:
    """Mean of 40 000 products: the standard error bounds the difference, at six sigma."""
    kernel, reference = KERNELS[name]
    X = np.concatenate([points(0, 4), points(0, 1)])
    with jax.enable_x64(True):
        phi = np.asarray(kernel.features(jax.random.key(0), 40_000, jnp.asarray(X)))
        again = np.asarray(kernel.features(jax.random.key(0), 40_000, jnp.asarray(X[2:3])))
    np.testing.assert_allclose(again[:, 0], phi[:, 2], rtol=1e-9, atol=1e-9)
    products = phi[:, None, :] * phi[:, :, None]
    error = products.std(0) / np.sqrt(len(phi))
    assert (np.abs(products.mean(0) - reference(X, X)) <= 6 * error + 1e-12).all()


def test_algebra_and_repr() -> None:
    X = points(0, 4)
    kernel = 2.0 * k.SE() + 0.5 + k.Linear() * k.Constant(variance=3.0)
    expected = 2 * k.SE()(X) + 0.5 + 3 * k.Linear()(X)
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-14)
    np.testing.assert_allclose((1.0 + k.SE())(X), 1 + k.SE()(X), rtol=1e-14)
    np.testing.assert_allclose(sum([k.SE(), k.Linear()])(X), k.SE()(X) + k.Linear()(X))
    assert repr((k.SE() + k.White()) * 2.0) == (
        "(SE(variance=1.0, lengthscales=1.0) + White(variance=1.0)) * Constant(variance=2.0)"
    )


def test_a_kernel_of_ones_own_as_class_and_as_function() -> None:
    class Wiener(k.Kernel):
        rate: k.Parameter = 1.0
        shift: k.Parameter = k.real(default=0.0)
        power: int = k.static(default=1)

        def pair(self, x: jax.Array, z: jax.Array) -> jax.Array:
            return self.rate * jnp.minimum(x[0] - self.shift, z[0] - self.shift) ** self.power

    def wiener(x: jax.Array, z: jax.Array, rate: jax.Array) -> jax.Array:
        return rate * (jnp.minimum(x[0], z[0]) + 1.0)

    X = np.linspace(0, 3, 5)[:, None]
    expected = 2.0 * (np.minimum(X, X.T) + 1.0)
    own, plain = Wiener(rate=2.0, shift=-1.0), k.Function(wiener, {"rate": 2.0})
    for kernel in (own, plain, k.SE() * own, plain + k.SE()):
        assert np.isfinite(kernel(X)).all()
    np.testing.assert_allclose(own(X), expected)
    np.testing.assert_allclose(plain(X), expected)
    assert repr(own) == "Wiener(rate=2.0, shift=-1.0)"
    with pytest.raises(ValueError, match="rate"):
        Wiener(rate=-1.0)
    with pytest.raises(TypeError, match="features"):
        own.features(jax.random.key(0), 1, jnp.asarray(X))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: k.SE(variance=-1.0), "SE's variance must be positive"),
        (lambda: k.SE(lengthscales=[1.0, 0.0]), "lengthscales must be positive"),
        (lambda: k.SE(lengthscales=np.nan), "nan"),
        (lambda: k.SE(lengthscales="long"), "numeric"),
        (lambda: k.SE(active_dims=[0, 0]), "distinct"),
        (lambda: k.SE(active_dims=[]), "active_dims"),
        (lambda: k.SE(active_dims=[-1]), "counted from 0"),
        (lambda: k.SE(active_dims=[True, False]), "column numbers"),
        (lambda: k.SE(active_dims=[0.5]), "column numbers"),
        (lambda: k.SE(active_dims=["a"]), "column numbers"),
        (lambda: k.SE(active_dims=slice(0, 1)), "column numbers"),
        (lambda: k.SE(active_dims=[[0, 1]]), "column numbers"),
        (lambda: k.SE(variance=[1.3]), r"SE's variance must be one number, got shape \(1,\)"),
        (lambda: k.SE(variance=np.ones(5)), "one number"),
        (lambda: k.RationalQuadratic(mixture=[1.0, 2.0]), "mixture must be one number"),
        (lambda: k.Polynomial(offset=[1.0]), "offset must be one number"),
        (lambda: k.Constant([1.0, 2.0]), "Constant's variance must be one number"),
        (lambda: k.White([1.0, 2.0]), "White's variance must be one number"),
        (lambda: k.SE() * [1.0, 2.0], "one number"),  # type: ignore[operator]
        (lambda: k.SE(lengthscales=[[1.0, 1.0]]), "one for each input"),
        (lambda: k.Linear(variance=[[1.0, 1.0]]), "one for each input"),
        (lambda: k.Periodic(period=[[1.0, 1.0]]), "one for each input"),
        (lambda: k.SE(active_dims=[2])(np.ones((3, 2))), "column 2"),
        (lambda: k.SE(lengthscales=[1.0] * 3)(np.ones((3, 2))), "give one lengthscale, or 2"),
        (lambda: k.Linear(variance=[1.0] * 3)(np.ones((3, 2))), "give one variance, or 2"),
        (lambda: k.Periodic(period=[1.0] * 3)(np.ones((3, 2))), "3 periods"),
        (lambda: k.Polynomial(degree=0), "degree"),
        (lambda: k.SE()(np.ones(3)), "shape"),
        (lambda: k.SE()([[np.nan]]), "X holds nan"),
        (lambda: k.SE()([[0.0]], [[np.inf]]), "Z holds inf"),
        (lambda: k.SE()([[1j]]), "not of real numbers"),
        (lambda: k.SE().diagonal([[np.nan]]), "X holds nan"),
        (lambda: -2.0 * k.SE(), "positive"),
    ],
)
def test_what_is_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", [k.SE, k.Periodic, k.White, k.Linear])
def test_points_of_different_inputs_are_refused(kind: type[k.Kernel]) -> None:
    with pytest.raises(ValueError, match="X has 1 columns and Z has 2"):
        kind()([[0.0]], [[0.0, 1.0]])


def test_active_dims_are_column_numbers_or_one() -> None:
    assert k.SE(active_dims=1).active_dims == k.SE(active_dims=np.array([1])).active_dims == (1,)
    assert k.SE(active_dims=(2, 0)).active_dims == (2, 0)


def test_own_parameters_have_any_shape() -> None:
    class Quadratic(k.Kernel):
        weights: k.Parameter = 1.0

        def pair(self, x: jax.Array, z: jax.Array) -> jax.Array:
            return x @ self.weights @ z

    assert Quadratic(np.eye(2) + 1.0)([[1.0, 2.0]]).item() == 14.0
