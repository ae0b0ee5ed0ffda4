"""From statistics to predictions: mean, variance, joint covariance, samples."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key
from numpy.typing import ArrayLike

from srgp.approximations import Approximation, Residual, unexplained
from srgp.bound import compiled_terms, report_weights
from srgp.checks import as_added, as_count, as_inputs, finite, padded_blocks, shared_variance
from srgp.compiled import quick_jit
from srgp.kernels.nonstationary import noise_at
from srgp.linalg import sample_normal
from srgp.model import Basis, Model
from srgp.precision import Array, OnDevice, Scalar, Seed, as_key, double
from srgp.statistics import Statistics, check_belongs
from srgp.sums import Sums

# Points are predicted in blocks of one of these sizes, so that each is compiled once.
PREDICTION_ROWS = (1, 32, 1024)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Posterior(OnDevice):
    """f | data, in whitened weights v = L⁻¹u ~ N(mean, root rootᵀ), LLᵀ = K_RR.

        f_* ~ N( W_*ᵀ mean,  W_*ᵀ root rootᵀ W_* + V_* ),   W_* = L⁻¹ k(R, X_*)      (paper: eq. 17)

    >>> import numpy as np, srgp
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = srgp.Model(srgp.kernels.SE(lengthscales=0.3), noise=0.01, inducing=X[::7])
    >>> post = srgp.posterior(model, srgp.summarise(model, X, np.sin(6 * X[:, 0])))
    >>> mean, variance = post.predict([[0.25], [2.0]])
    >>> mean.round(2), variance.round(2)
    (array([0.99, 0.01]), array([0., 1.]))
    """

    model: Model
    # On the device, for compiled code; what users get are NumPy arrays.
    _mean: Float[Array, "M *Q"]
    _root: Float[Array, "M M"]

    @double
    def predict(self, X: ArrayLike, noise: bool | float = False) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance at X (A, D), each of shape (A,), or (A, Q) for Q outputs.

        noise=False: of the latent f; noise=True: of a new measurement y, with the model's σ²; a
        number: of one with this noise variance.

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
        >>> post = srgp.posterior(model, srgp.summarise(model, [[0.0]], [1.0]))
        >>> post.predict([[0.0]], noise=True), post.predict([[0.0]], noise=3.0)[1]
        ((array([0.5]), array([1.5])), array([3.5]))
        """
        added = as_added(noise, self.model.noise)
        X = self._inputs(X)
        single = self.model.single if len(X) == 1 and np.ndim(self._mean) == 1 else None
        if single is not None:
            weights = np.asarray(self._mean), np.asarray(self._root)
            mean, variance = map(np.atleast_1d, single.predict(*weights, X[0]))
        else:
            mean, variance = self._in_blocks(X)
        variance = shared_variance(variance + added, mean)
        return finite(mean, "the predicted mean"), finite(variance, "the predicted variance")

    def _in_blocks(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = _rows_for(len(X))
        mean = np.empty((len(X), *self._mean.shape[1:]))
        variance = np.empty(len(X))
        for i, (block,) in enumerate(padded_blocks((X,), rows)):
            here = slice(i * rows, min((i + 1) * rows, len(X)))
            found = predict_latent(
                self.model.approximation.residual, self.model.basis, self._mean, self._root, block
            )
            size = here.stop - here.start
            mean[here], variance[here] = (np.asarray(part)[:size] for part in found)
        return mean, variance

    @double
    def covariance(self, X: ArrayLike, noise: bool | float = False) -> np.ndarray:
        """Joint covariance (A, A) of the function, or of new measurements, at X (A, D).

        noise: as for `predict`.

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
        >>> post = srgp.posterior(model, srgp.summarise(model, [[0.0]], [1.0]))
        >>> post.covariance([[0.0], [9.0]]).round(3) + 0.0
        array([[0.5, 0. ],
               [0. , 1. ]])
        """
        return finite(np.array(self._joint(self._inputs(X), noise)[1]), "the covariance")

    @double
    def sample(
        self, key: Seed, X: ArrayLike, n: int = 1, noise: bool | float = False
    ) -> np.ndarray:
        """n joint draws at X: shape (n, A), or (n, A, Q). `key` is an integer seed or a JAX key.

        noise: as for `predict`.

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
        >>> post = srgp.posterior(model, srgp.summarise(model, [[0.0]], [1.0]))
        >>> post.sample(0, [[0.0], [2.0]], n=3).shape
        (3, 2)
        """
        n = as_count(n, "n")
        mean, covariance = self._joint(self._inputs(X), noise)
        finite(np.asarray(covariance), "the covariance")
        return finite(np.array(sample_normal(as_key(key), mean, covariance, n)), "the sample")

    @double
    def sample_functions(self, key: Seed, n: int = 1, features: int = 2048) -> "SampledFunctions":
        """n draws of the whole function, to be evaluated anywhere and as often as you like.

        Pathwise conditioning: u is drawn exactly from the posterior; what u leaves open, V_*, comes
        from a prior sample of random features, corrected to agree with u at R (Wilson et al. 2020).
        The mean is exact; the V_* part is accurate to O(1/√features).

        >>> import srgp
        >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
        >>> post = srgp.posterior(model, srgp.summarise(model, [[0.5]], [1.0]))
        >>> f = post.sample_functions(0, n=3)
        >>> f([[0.2], [0.4]]).shape
        (3, 2)
        """
        n, features = as_count(n, "n"), as_count(features, "features")
        kernel = self.model.basis.kernel
        if self.model.approximation.residual == "full":
            # Fails here, and not at the first evaluation, for a kernel without features.
            jax.eval_shape(
                lambda X: kernel.features(jax.random.key(0), 1, kernel._select(X)),
                self.model.inducing,
            )
        weight_key, path_key = jax.random.split(as_key(key))
        standard = jax.random.normal(weight_key, (n, *self._mean.shape))
        weights = self._mean + jnp.einsum("ab,nb...->na...", self._root, standard)
        return SampledFunctions(self.model, weights, path_key, features)

    def _inputs(self, X: ArrayLike) -> np.ndarray:
        return as_inputs(X, columns=self.model.inducing.shape[1])

    def _joint(self, X: np.ndarray, noise: bool | float) -> tuple[jax.Array, jax.Array]:
        added = as_added(noise, self.model.noise)
        residual = self.model.approximation.residual
        return _joint(residual, self.model.basis, self._mean, self._root, X, added)

    def __repr__(self) -> str:
        return f"Posterior({self.model!r})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SampledFunctions:
    """n functions drawn from a posterior; call it with X (A, D) to get (n, A), or (n, A, Q).

        f(x) = W(x)ᵀv + g(x) − W(x)ᵀL⁻¹g(R),   v ~ posterior,   g ~ prior, by random features

    >>> import srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> f = srgp.posterior(model, srgp.summarise(model, [[0.5]], [1.0])).sample_functions(0, n=2)
    >>> first, again = f([[0.1], [0.7]]), f([[0.7]])
    >>> bool(abs(first[:, 1] - again[:, 0]).max() < 1e-9)  # the same place, the same value
    True
    """

    model: Model
    _weights: Float[Array, "n M *Q"]
    _key: Key[jax.Array, ""]
    features: int

    @double
    def __call__(self, X: ArrayLike) -> np.ndarray:
        """The functions' values at X (A, D)."""
        X = as_inputs(X, columns=self.model.inducing.shape[1])
        rows = _rows_for(len(X))
        residual, basis = self.model.approximation.residual, self.model.basis
        paths = [
            _paths(residual, self.features, basis, self._weights, self._key, block)
            for (block,) in padded_blocks((X,), rows)
        ]
        values = np.concatenate([np.asarray(p) for p in paths], 1)[:, : len(X)]
        return finite(values, "the sampled function")

    def __repr__(self) -> str:
        return f"SampledFunctions(n={len(self._weights)}, {self.model!r})"


@double
def posterior(model: Model, statistics: Statistics) -> Posterior:
    """The posterior of the model given statistics of the data; O(M³), independent of N.

        v | y ~ N( (I + A)⁻¹b, (I + A)⁻¹ ),   v = L⁻¹u the whitened weights       (paper: eq. 15)

    >>> import srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0]])
    >>> post = srgp.posterior(model, srgp.summarise(model, [[0.0]], [1.0]))
    >>> post.predict([[0.0]])
    (array([0.5]), array([0.5]))
    """
    check_belongs(model, statistics)
    mean, root = _weights(model.approximation, statistics.sums, model.noise)
    return Posterior(model, mean, root)


def _rows_for(points: int) -> int:
    """The smallest block that holds all points, or the largest there is."""
    return next((r for r in PREDICTION_ROWS if r >= points), PREDICTION_ROWS[-1])


def _weights(
    approximation: Approximation, sums: Sums, noise: Scalar
) -> tuple[jax.Array, jax.Array]:
    _, weights = compiled_terms(approximation, sums, noise)
    report_weights(weights)
    return weights.mean, weights.root


@functools.partial(quick_jit, static_argnums=0)
def predict_latent(
    residual: Residual,
    basis: Basis,
    mean: Float[Array, "M *Q"],
    root: Float[Array, "M M"],
    X: Float[Array, "A D"],
) -> tuple[Float[Array, "A *Q"], Float[Array, " A"]]:
    """Mean and variance of f at X, in compiled code."""
    W = basis.project(X)
    variance = jnp.sum((root.T @ W) ** 2, 0)
    if residual != "none":
        variance = variance + unexplained(basis.kernel, W, X)
    return W.T @ mean, variance


@functools.partial(quick_jit, static_argnums=0)
def _joint(
    residual: Residual,
    basis: Basis,
    mean: Float[Array, "M *Q"],
    root: Float[Array, "M M"],
    X: Float[Array, "A D"],
    added: Scalar,
) -> tuple[Float[Array, "A *Q"], Float[Array, "A A"]]:
    W = basis.project(X)
    half = root.T @ W
    covariance = half.T @ half + added * jnp.eye(len(X))
    if residual == "full":
        covariance = covariance + basis.kernel.covariance(X, X) - W.T @ W
    elif residual == "diagonal":
        covariance = covariance + jnp.diag(unexplained(basis.kernel, W, X))
    return W.T @ mean, 0.5 * (covariance + covariance.T)


@functools.partial(quick_jit, static_argnums=(0, 1))
def _paths(
    residual: Residual,
    features: int,
    basis: Basis,
    weights: Float[Array, "n M *Q"],
    key: Key[Array, ""],
    X: Float[Array, "A D"],
) -> Float[Array, "n A *Q"]:
    W = basis.project(X)
    functions = jnp.einsum("ma,nm...->na...", W, weights)
    n, outputs = len(weights), weights.shape[2:]
    draw: Callable[[Array], Array]
    if residual == "full":
        feature_key, mixture_key = jax.random.split(key)
        mixture = jax.random.normal(mixture_key, (n, *outputs, features)) / jnp.sqrt(features)

        def draw(X: Array) -> Array:
            kernel = basis.kernel
            phi = kernel.features(feature_key, features, kernel._select(X))
            return jnp.einsum("n...f,fa->na...", mixture, phi)

        # What the prior sample says beyond its own values at R.
        at_R = jnp.moveaxis(draw(basis.inducing), 1, 0).reshape(len(basis.inducing), -1)
        explained = (W.T @ basis.whiten(at_R)).reshape(len(X), n, *outputs)
        functions = functions + draw(X) - jnp.moveaxis(explained, 0, 1)
    elif residual == "diagonal":
        count = n * int(np.prod(outputs, dtype=int))
        noise = noise_at(key, count, X).T.reshape(len(X), n, *outputs)
        spread = jnp.sqrt(unexplained(basis.kernel, W, X))
        functions = functions + jnp.moveaxis((noise.T * spread).T, 0, 1)
    return functions
