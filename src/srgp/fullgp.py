"""The full GP, O(N³): the reference that every sparse model approximates."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from srgp.checks import (
    as_added,
    as_count,
    as_inputs,
    as_positive,
    as_targets,
    as_weights,
    finite,
    kept,
    padded_blocks,
    shared_variance,
)
from srgp.compiled import quick_jit
from srgp.kernels import Kernel
from srgp.kernels.base import check_kernel
from srgp.linalg import cholesky, log_determinant, report_jitter, sample_normal
from srgp.precision import Array, Scalar, Seed, as_key, double

ENTRIES = 2**24  # of K_X* at a time: new points may be many


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FullGP:
    """Exact GP regression on small data: O(N³) time, O(N²) memory.

        log p(y) = log N(y; 0, K_XX + S),  S = σ² Diag(1/w)                        (paper: eq. 2)
        f_* ~ N( K_*X (K_XX + S)⁻¹ y,  K_** − K_*X (K_XX + S)⁻¹ K_X* )             (paper: eq. 1)

    >>> import srgp
    >>> gp = srgp.FullGP(srgp.kernels.SE(), 1.0, [[0.0]], [1.0])
    >>> round(gp.log_likelihood, 4), gp.predict([[0.0]])
    (-1.5155, (array([0.5]), array([0.5])))
    """

    kernel: Kernel
    noise: Any
    X: Any
    y: Any
    sample_weight: Any = None

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        X = as_inputs(self.X)
        y, weights = as_targets(self.y, len(X)), as_weights(self.sample_weight, len(X))
        seen = weights > 0.0  # a row of weight 0 is left out
        if not seen.any():
            raise ValueError("all sample weights are zero: at least one row must count.")
        noise = as_positive(self.noise, "noise (the variance σ²)")
        if noise.ndim:
            raise ValueError(f"noise must be one number, the variance σ², got shape {noise.shape}.")
        checked = {"noise": noise, "X": X[seen], "y": y[seen], "sample_weight": weights[seen]}
        for name, value in checked.items():
            object.__setattr__(self, name, kept(value))

    @functools.cached_property
    @double
    def _factor(self) -> tuple[jax.Array, jax.Array]:
        L, projected, jitter = _condition(
            self.kernel, self.noise / self.sample_weight, self.X, self.y
        )
        report_jitter(
            np.asarray(L),
            float(jitter),
            "the kernel matrix of the data plus noise",
            "Rows are repeated and the noise variance is tiny: larger noise avoids it.",
        )
        return L, projected

    @property
    @double
    def log_likelihood(self) -> float:
        """log p(y) = log N(y; 0, K_XX + S), summed over outputs.

        >>> import srgp
        >>> gp = srgp.FullGP(srgp.kernels.SE(), 1.0, [[0.0]], [1.0])
        >>> round(gp.log_likelihood, 4)  # log N(1; 0, 2)
        -1.5155
        """
        L, projected = self._factor
        outputs = projected.size // len(self.X)
        constant = len(self.X) * np.log(2.0 * np.pi)
        value = -0.5 * (outputs * (constant + log_determinant(L)) + jnp.sum(projected**2))
        return float(finite(np.asarray(value), "the log likelihood"))

    @double
    def predict(self, X: ArrayLike, noise: bool | float = False) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance at X (A, D), each of shape (A,), or (A, Q) for Q outputs.

        noise=False: of the latent f; noise=True: of a new measurement y, with σ²; a number: of one
        with this noise variance.

        >>> import srgp
        >>> srgp.FullGP(srgp.kernels.SE(), 1.0, [[0.0]], [1.0]).predict([[0.0]], noise=True)
        (array([0.5]), array([1.5]))
        """
        added = as_added(noise, self.noise)
        X = as_inputs(X, columns=self.X.shape[1])
        rows = min(max(ENTRIES // len(self.X), 1), len(X))
        blocks = [
            tuple(map(np.asarray, _explain(self.kernel, self.X, *self._factor, block)))
            for (block,) in padded_blocks((X,), rows)
        ]
        mean, explained = (np.concatenate(part)[: len(X)] for part in zip(*blocks, strict=True))
        variance = np.maximum(self.kernel.diagonal(X) - explained, 0.0)
        variance = shared_variance(variance + added, mean)
        return finite(mean, "the predicted mean"), finite(variance, "the predicted variance")

    @double
    def covariance(self, X: ArrayLike, noise: bool | float = False) -> np.ndarray:
        """Joint covariance (A, A) at X (A, D). noise: as for `predict`.

        >>> import srgp
        >>> gp = srgp.FullGP(srgp.kernels.SE(), 1.0, [[0.0]], [1.0])
        >>> gp.covariance([[0.0], [9.0]]).round(3) + 0.0
        array([[0.5, 0. ],
               [0. , 1. ]])
        """
        added = as_added(noise, self.noise)
        X = as_inputs(X, columns=self.X.shape[1])
        half = np.asarray(_predict(self.kernel, self.X, *self._factor, X)[1])
        return finite(self.kernel(X) - half.T @ half + added * np.eye(len(X)), "the covariance")

    @double
    def sample(
        self, key: Seed, X: ArrayLike, n: int = 1, noise: bool | float = False
    ) -> np.ndarray:
        """n joint draws at X: shape (n, A), or (n, A, Q). noise: as for `predict`.

        >>> import srgp
        >>> srgp.FullGP(srgp.kernels.SE(), 1.0, [[0.0]], [1.0]).sample(0, [[0.0], [2.0]], 3).shape
        (3, 2)
        """
        n = as_count(n, "n")
        X = as_inputs(X, columns=self.X.shape[1])
        mean = _predict(self.kernel, self.X, *self._factor, X)[0]
        draws = sample_normal(as_key(key), mean, jnp.asarray(self.covariance(X, noise)), n)
        return finite(np.array(draws), "the sample")

    def __repr__(self) -> str:
        return f"FullGP({self.kernel!r}, noise={self.noise.item()}, rows={len(self.X)})"


@quick_jit
def _condition(
    kernel: Kernel, noise: Float[Array, " N"], X: Float[Array, "N D"], y: Float[Array, "N *Q"]
) -> tuple[Float[Array, "N N"], Float[Array, "N *Q"], Scalar]:
    K = kernel.covariance(X, X) + jnp.diag(noise)
    L, jitter = cholesky(K, jnp.diagonal(K))
    return L, jax.scipy.linalg.solve_triangular(L, y, lower=True), jitter


@quick_jit
def _explain(
    kernel: Kernel,
    X: Float[Array, "N D"],
    L: Float[Array, "N N"],
    projected: Float[Array, "N *Q"],
    new: Float[Array, "A D"],
) -> tuple[Float[Array, "A *Q"], Float[Array, " A"]]:
    """The mean, and what the data explain of the prior variance."""
    mean, half = _predict(kernel, X, L, projected, new)
    return mean, jnp.sum(half**2, 0)


@quick_jit
def _predict(
    kernel: Kernel,
    X: Float[Array, "N D"],
    L: Float[Array, "N N"],
    projected: Float[Array, "N *Q"],
    new: Float[Array, "A D"],
) -> tuple[Float[Array, "A *Q"], Float[Array, "N A"]]:
    half = jax.scipy.linalg.solve_triangular(L, kernel.covariance(X, new), lower=True)
    return half.T @ projected, half
