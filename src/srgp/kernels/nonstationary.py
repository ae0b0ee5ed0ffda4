"""Kernels that depend on where the points are: linear, polynomial, white."""

import jax
import jax.numpy as jnp
from jaxtyping import Float, Key

from srgp.checks import as_count
from srgp.kernels.base import Kernel, Parameter, per_input, scalar, static
from srgp.precision import Array


class Linear(Kernel):
    """k(x, z) = Σ_d v_d x_d z_d, with one variance or one per input.

    >>> from srgp import kernels as k
    >>> k.Linear(variance=[1.0, 0.5])([[1.0, 2.0]], [[3.0, 4.0]])
    array([[7.]])
    """

    variance: Parameter = per_input(default=1.0)

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """X Diag(v) Zᵀ."""
        return (X * _per_input(self, X)) @ Z.T

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """Σ_d v_d x_d²."""
        return jnp.sum(_per_input(self, X) * X**2, -1)

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """Σ_d ± √v_d x_d."""
        signs = jax.random.rademacher(key, (count, X.shape[1]), dtype=float)
        return (signs * jnp.sqrt(_per_input(self, X))) @ X.T


class Polynomial(Kernel):
    """k(x, z) = (Σ_d v_d x_d z_d + c)^degree, with c = `offset`.

    >>> from srgp import kernels as k
    >>> k.Polynomial(offset=1.0, degree=2)([[1.0]], [[2.0]])
    array([[9.]])
    """

    variance: Parameter = per_input(default=1.0)
    offset: Parameter = scalar(default=1.0)
    degree: int = static(default=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count(self.degree, "Polynomial's degree")

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """(X Diag(v) Zᵀ + c)^degree, elementwise."""
        return ((X * _per_input(self, X)) @ Z.T + self.offset) ** self.degree

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """(Σ_d v_d x_d² + c)^degree."""
        return (jnp.sum(_per_input(self, X) * X**2, -1) + self.offset) ** self.degree

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """A product of `degree` independent random affine functions."""
        signs = jax.random.rademacher(key, (self.degree, count, X.shape[1] + 1), dtype=float)
        slopes = signs[..., :-1] * jnp.sqrt(_per_input(self, X))
        return jnp.prod(slopes @ X.T + signs[..., -1:] * jnp.sqrt(self.offset), 0)


class White(Kernel):
    """k(x, z) = v where x = z exactly, else 0: a part of the function that no neighbour predicts.

    Measurement noise is the model's `noise`, which is independent even for repeated inputs.

    >>> from srgp import kernels as k
    >>> k.White(variance=0.1)([[0.0]], [[0.0], [1.0]])
    array([[0.1, 0. ]])
    """

    variance: Parameter = scalar(default=1.0)

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """v [x_i = z_j]."""
        return jnp.where(jnp.all(X[:, None, :] == Z[None, :, :], -1), self.variance, 0.0)

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """v everywhere."""
        return jnp.full(len(X), self.variance)

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """√v times noise that belongs to the place x."""
        return jnp.sqrt(self.variance) * noise_at(key, count, X)


def noise_at(key: Key[Array, ""], count: int, X: Float[Array, "N D"]) -> Float[Array, "F N"]:
    """Standard normal noise as a function of place: the same x always gets the same value.

    The bits of x are folded into the random key, so nothing has to be remembered.
    """
    # Adding zero turns −0.0 into 0.0, which is the same place.
    words = jax.lax.bitcast_convert_type(jnp.asarray(X) + 0.0, jnp.uint32)
    words = words.reshape(len(X), -1)

    def at(place: jax.Array) -> jax.Array:
        local, _ = jax.lax.scan(lambda k, word: (jax.random.fold_in(k, word), None), key, place)
        return jax.random.normal(local, (count,))

    return jax.vmap(at)(words).T


def _per_input(kernel: Linear | Polynomial, X: Float[Array, "N D"]) -> Array:
    variance = jnp.asarray(kernel.variance)
    if variance.shape not in ((), (1,), (X.shape[1],)):
        raise ValueError(
            f"{type(kernel).__name__} has variances of shape {variance.shape}, but works on "
            f"{X.shape[1]} inputs: give one variance, or {X.shape[1]}."
        )
    return jnp.broadcast_to(variance, (X.shape[1],))
