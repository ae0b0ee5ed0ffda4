"""Kernels that depend on x − z only: k(x, z) = v ρ(r²), r² = Σ_d (x_d − z_d)² / ℓ_d²."""

from collections.abc import Callable
from typing import TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from srgp.kernels.base import Kernel, Parameter, per_input, scalar
from srgp.precision import Array, namespace

# Up to here the sum over input dimensions is unrolled, which the compiler vectorises best.
UNROLLED = 16


class Stationary(Kernel):
    """Shared by the kernels below: variance, lengthscales (one, or one per input), profile ρ.

    One of your own needs its profile only:

    >>> from srgp import kernels as k
    >>> class Cauchy(k.Stationary):
    ...     def profile(self, r2):
    ...         return 1.0 / (1.0 + r2)
    >>> Cauchy(variance=2.0)([[0.0]], [[1.0]])
    array([[1.]])
    """

    variance: Parameter = scalar(default=1.0)
    lengthscales: Parameter = per_input(default=1.0)

    def profile(self, r2: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """ρ(r²), with ρ(0) = 1."""
        raise TypeError(f"{type(self).__name__} defines no profile.")

    def frequencies(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "F D"]:
        """Draws from the spectral density at unit lengthscales: E[cos ω·τ] = ρ(|τ|²)."""
        raise TypeError(
            f"{type(self).__name__} defines no `frequencies`, which sampling functions needs; "
            "sample at given points with `Posterior.sample`."
        )

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """v ρ(r²)."""
        return self.at_distance(self.squared_distance(X, Z))

    def at_distance(self, r2: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """v ρ(r²)."""
        return self.variance * self.profile(r2)

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """v, since ρ(0) = 1."""
        return jnp.full(len(X), self.variance)

    def squared_distance(
        self, X: Float[Array, "N D"], Z: Float[Array, "M D"]
    ) -> Float[Array, "N M"]:
        """r² from differences, never from |x|² + |z|² − 2x·z, which cancels for close points."""
        D = X.shape[1]
        scales = jnp.broadcast_to(1.0 / self._lengthscales_for(D), (D,))
        if D <= UNROLLED:
            # A product with the identity is a transpose that the compiler cannot fold away: columns
            # of Z side by side in memory take half the time, and 0·z + 1·z rounds nothing.
            Zt = jnp.eye(D) @ Z.T
            terms = [((X[:, d, None] - Zt[d]) * scales[d]) ** 2 for d in range(D)]
            return sum(terms[1:], terms[0])
        return jnp.sum(((X[:, None, :] - Z[None, :, :]) * scales) ** 2, -1)

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """√(2v) cos(ω·x/ℓ + phase)."""
        key, phase_key = jax.random.split(key)
        D = X.shape[1]
        frequencies = self.frequencies(key, (count, D)) / self._lengthscales_for(D)
        phases = jax.random.uniform(phase_key, (count, 1), maxval=2.0 * jnp.pi)
        return jnp.sqrt(2.0 * self.variance) * jnp.cos(frequencies @ X.T + phases)

    def _lengthscales_for(self, D: int) -> Array:
        scales = jnp.asarray(self.lengthscales)
        if scales.shape not in ((), (1,), (D,)):
            raise ValueError(
                f"{type(self).__name__} has lengthscales of shape {scales.shape}, but works on "
                f"{D} inputs: give one lengthscale, or {D}."
            )
        return scales


def is_stationary(kernel: Kernel) -> TypeGuard[Stationary]:
    """Whether the kernel is v ρ(r²) with r² from lengthscales, and nothing else."""
    if not isinstance(kernel, Stationary):
        return False
    kind, plain = type(kernel), Stationary
    names = ("matrix", "at_distance", "squared_distance")
    return all(getattr(kind, name) is getattr(plain, name) for name in names)


@jax.jit
def distances(
    kernel: Stationary, X: Float[Array, "N D"], Z: Float[Array, "M D"]
) -> Float[Array, "N M"]:
    """r² in a call of its own: compiled together with the profile, both take twice as long."""
    return kernel.squared_distance(kernel._select(X), kernel._select(Z))


class SE(Stationary):
    """Squared exponential: k(x, z) = v exp(−r²/2).

    >>> from srgp import kernels as k
    >>> k.SE(variance=2.0, lengthscales=[1.0, 2.0])([[0.0, 0.0]], [[1.0, 2.0]]).round(4)
    array([[0.7358]])
    """

    def profile(self, r2: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """exp(−r²/2)."""
        return namespace(r2).exp(-0.5 * r2)

    def frequencies(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "F D"]:
        """ω ~ N(0, I)."""
        return jax.random.normal(key, shape)


class Matern12(Stationary):
    """Exponential: k(x, z) = v exp(−r), the roughest of the family.

    >>> from srgp import kernels as k
    >>> k.Matern12()([[0.0]], [[0.0], [1.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    def profile(self, r2: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """exp(−r)."""
        return _matern12(r2)

    def frequencies(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "F D"]:
        """ω ~ Student t, 1 degree of freedom."""
        return _student(key, shape, 0.5)


class Matern32(Stationary):
    """Matérn 3/2: k(x, z) = v (1 + √3 r) exp(−√3 r).

    >>> from srgp import kernels as k
    >>> k.Matern32()([[0.0]], [[0.0], [1.0]]).round(4)
    array([[1.    , 0.4834]])
    """

    def profile(self, r2: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """(1 + √3 r) exp(−√3 r)."""
        return _matern32(r2)

    def frequencies(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "F D"]:
        """ω ~ Student t, 3 degrees of freedom."""
        return _student(key, shape, 1.5)


class Matern52(Stationary):
    """Matérn 5/2: k(x, z) = v (1 + √5 r + 5r²/3) exp(−√5 r).

    >>> from srgp import kernels as k
    >>> k.Matern52()([[0.0]], [[0.0], [1.0]]).round(4)
    array([[1.   , 0.524]])
    """

    def profile(self, r2: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """(1 + √5 r + 5r²/3) exp(−√5 r)."""
        return _matern52(r2)

    def frequencies(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "F D"]:
        """ω ~ Student t, 5 degrees of freedom."""
        return _student(key, shape, 2.5)


class RationalQuadratic(Stationary):
    """k(x, z) = v (1 + r²/2a)^(−a): a mixture of SE kernels of many lengthscales, a = `mixture`.

    >>> from srgp import kernels as k
    >>> k.RationalQuadratic(mixture=1.0)([[0.0]], [[0.0], [1.0]]).round(4)
    array([[1.    , 0.6667]])
    """

    mixture: Parameter = scalar(default=1.0)

    def profile(self, r2: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """(1 + r²/2a)^(−a)."""
        xp = namespace(r2)
        return xp.exp(-self.mixture * xp.log1p(0.5 * r2 / self.mixture))

    def frequencies(self, key: Key[Array, ""], shape: tuple[int, int]) -> Float[Array, "F D"]:
        """√τ N(0, I) with a precision τ ~ Gamma(a, rate a)."""
        key, scale_key = jax.random.split(key)
        precision = jax.random.gamma(scale_key, self.mixture, (shape[0], 1)) / self.mixture
        return jnp.sqrt(precision) * jax.random.normal(key, shape)


class Periodic(Stationary):
    """k(x, z) = v exp(−2 Σ_d sin²(π (x_d − z_d)/p_d) / ℓ_d²), p = `period`, one or one per input.

    >>> from srgp import kernels as k
    >>> k.Periodic(period=2.0)([[0.0]], [[1.0], [2.0]]).round(4)
    array([[0.1353, 1.    ]])
    """

    period: Parameter = per_input(default=1.0)

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """v exp(−2 Σ_d sin²(π (x_d − z_d)/p_d) / ℓ_d²)."""
        D = X.shape[1]
        angle = jnp.pi * (X[:, None, :] - Z[None, :, :]) / self._periods_for(D)
        waves = (jnp.sin(angle) / self._lengthscales_for(D)) ** 2
        return self.variance * jnp.exp(-2.0 * jnp.sum(waves, -1))

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """√(2v) cos(2π n·x/p + phase).

        The Fourier coefficients exp(−1/ℓ²) I_n(1/ℓ²) are a Skellam law: n is a difference of two
        Poisson draws of mean 1/2ℓ².
        """
        D = X.shape[1]
        up, down, phase_key = jax.random.split(key, 3)
        mean = jnp.broadcast_to(0.5 / self._lengthscales_for(D) ** 2, (count, D))
        n = jax.random.poisson(up, mean) - jax.random.poisson(down, mean)
        frequencies = 2.0 * jnp.pi * n / self._periods_for(D)
        phases = jax.random.uniform(phase_key, (count, 1), maxval=2.0 * jnp.pi)
        return jnp.sqrt(2.0 * self.variance) * jnp.cos(frequencies @ X.T + phases)

    def _periods_for(self, D: int) -> Array:
        period = jnp.asarray(self.period)
        if period.shape not in ((), (1,), (D,)):
            raise ValueError(f"Periodic has {period.size} periods, but works on {D} inputs.")
        return period


def _student(key: Key[Array, ""], shape: tuple[int, int], nu: float) -> Float[Array, "F D"]:
    # Multivariate t with 2ν degrees of freedom: the spectral density of the Matérn family.
    key, scale_key = jax.random.split(key)
    precision = jax.random.gamma(scale_key, nu, (shape[0], 1)) / nu
    return jax.random.normal(key, shape) / jnp.sqrt(precision)


def _smooth(
    profile: Callable[[jax.Array], jax.Array], slope: Callable[[jax.Array], jax.Array]
) -> Callable[[jax.Array], jax.Array]:
    """Give a function of r² its derivative; that of √r² is NaN at coincident points."""
    smooth = jax.custom_jvp(profile)
    smooth.defjvps(lambda tangent, _, r2: slope(r2) * tangent)
    return lambda r2: profile(r2) if isinstance(r2, np.ndarray) else smooth(r2)


def _slope12(r2: jax.Array) -> jax.Array:
    # −exp(−r)/2r has a pole at r = 0; the kink's symmetric derivative is 0.
    r = jnp.sqrt(jnp.where(r2 > 0.0, r2, 1.0))
    return jnp.where(r2 > 0.0, -0.5 * jnp.exp(-r) / r, 0.0)


def _profile12(r2: jax.Array) -> jax.Array:
    xp = namespace(r2)
    return xp.exp(-xp.sqrt(r2))


def _profile32(r2: jax.Array) -> jax.Array:
    xp = namespace(r2)
    r = xp.sqrt(3.0 * r2)
    return (1.0 + r) * xp.exp(-r)


def _profile52(r2: jax.Array) -> jax.Array:
    xp = namespace(r2)
    r = xp.sqrt(5.0 * r2)
    return (1.0 + r + r**2 / 3.0) * xp.exp(-r)


# The derivative in r² of each member of the family is the next rougher one.
_matern12 = _smooth(_profile12, _slope12)
_matern32 = _smooth(_profile32, lambda r2: -1.5 * _matern12(3.0 * r2))
_matern52 = _smooth(_profile52, lambda r2: -5.0 / 6.0 * _matern32(5.0 / 3.0 * r2))
