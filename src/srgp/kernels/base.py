"""What a kernel is, the algebra of kernels, and how users bring their own."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypeAlias, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Key

from srgp import pytree
from srgp.checks import as_floats, as_positive, kept
from srgp.compiled import quick_jit
from srgp.precision import Array, Scalar, double, to_host

# A number or array when the kernel is made; a float64 array, or a traced one, ever after.
Parameter: TypeAlias = Any


def static(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """A field that is part of the kernel's form (an exponent, say), not a parameter.

    >>> from srgp import kernels as k
    >>> class Power(k.Kernel):
    ...     exponent: int = k.static(default=2)
    ...
    ...     def pair(self, x, z):
    ...         return (x @ z) ** self.exponent
    >>> Power(exponent=3)([[2.0]])
    array([[64.]])
    """
    return dataclasses.field(default=default, metadata={"static": True}, **options)


def real(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """A parameter that may be zero or negative; parameters are positive otherwise.

    >>> from srgp import kernels as k
    >>> class Shifted(k.Kernel):
    ...     shift: k.Parameter = k.real(default=0.0)
    ...
    ...     def pair(self, x, z):
    ...         return (x - self.shift) @ (z - self.shift)
    >>> Shifted(shift=-1.0)([[2.0]])
    array([[9.]])
    """
    return dataclasses.field(default=default, metadata={"positive": False}, **options)


def scalar(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """A positive parameter that is one number."""
    return dataclasses.field(default=default, metadata={"most_axes": 0}, **options)


def per_input(default: Any = dataclasses.MISSING, **options: Any) -> Any:
    """A positive parameter that is one number, or one for each input."""
    return dataclasses.field(default=default, metadata={"most_axes": 1}, **options)


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(static, real, scalar, per_input)
)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """A covariance function k(x, z). Subclass it, name the parameters, write one pair of points.

    Every subclass is a frozen dataclass and a JAX pytree whose leaves are its parameters, so
    derivatives, sums, products, active dimensions and every sparse model work at once:

    >>> import jax.numpy as jnp
    >>> from srgp import kernels as k
    >>> class Cosine(k.Kernel):
    ...     variance: k.Parameter = 1.0
    ...     period: k.Parameter = 1.0
    ...
    ...     def pair(self, x, z):
    ...         return self.variance * jnp.prod(jnp.cos(2 * jnp.pi * (x - z) / self.period))
    >>> kernel = Cosine(period=2.0) + 0.5 * k.SE()
    >>> kernel([[0.0], [1.0]]).round(3)
    array([[ 1.5  , -0.697],
           [-0.697,  1.5  ]])

    Parameters are positive unless declared with `real()`; `static()` marks what is not a parameter.
    A subclass may also override `matrix` and `variances` where a faster formula is known, and
    `features`, which `Posterior.sample_functions` needs.
    """

    active_dims: Sequence[int] | None = dataclasses.field(
        default=None, kw_only=True, metadata={"static": True}
    )
    _data: ClassVar[tuple[str, ...]] = ()
    _meta: ClassVar[tuple[str, ...]] = ("active_dims",)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        fields = dataclasses.fields(cls)
        cls._meta = tuple(f.name for f in fields if f.metadata.get("static"))
        cls._data = tuple(f.name for f in fields if not f.metadata.get("static"))
        pytree.register(cls, cls._data, cls._meta)

    def __post_init__(self) -> None:
        if self.active_dims is not None:
            object.__setattr__(self, "active_dims", _as_columns(self.active_dims))
        for field in dataclasses.fields(self):
            if field.name in self._data:
                check = as_positive if field.metadata.get("positive", True) else as_floats
                where = f"{type(self).__name__}'s {field.name}"
                value = _as_parameters(getattr(self, field.name), where, check)
                _check_axes(value, where, field.metadata.get("most_axes", np.inf))
                object.__setattr__(self, field.name, value)

    # -- what a kernel computes ---------------------------------------------------------------

    @double
    def __call__(self, X: Any, Z: Any = None) -> np.ndarray:
        """The matrix k(X, Z) of shape (N, M); Z = X if left out."""
        X = _as_points(X, "X")
        Z = X if Z is None else _as_points(Z, "Z")
        if X.shape[1] != Z.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} columns and Z has {Z.shape[1]}: a kernel compares points of "
                "the same inputs."
            )
        return to_host(compiled_covariance(self, X, Z))

    @double
    def diagonal(self, X: Any) -> np.ndarray:
        """The variances k(x_i, x_i), without the rest of the matrix."""
        return to_host(_variance_at(self, _as_points(X, "X")))

    def covariance(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """k(X, Z) on all columns, for use inside compiled code."""
        return self.matrix(self._select(X), self._select(Z))

    def variance_at(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """k(x_i, x_i) on all columns, for use inside compiled code."""
        return self.variances(self._select(X))

    def pair(self, x: Float[Array, " D"], z: Float[Array, " D"]) -> Scalar:
        """k(x, z) for one pair of points, active columns only: all a new kernel must define."""
        raise TypeError(
            f"{type(self).__name__} must define `pair(x, z)`, or both `matrix` and `variances`."
        )

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """k(X, Z) on the active columns."""
        return jax.vmap(lambda x: jax.vmap(lambda z: self.pair(x, z))(Z))(X)

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """k(x_i, x_i) on the active columns."""
        return jax.vmap(lambda x: self.pair(x, x))(X)

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """`count` independent random functions φ at X, with E[φ(x) φ(z)] = k(x, z).

        They build prior samples: Σ_f a_f φ_f / √F with a ~ N(0, I). The same key gives the same
        functions at every X.
        """
        raise TypeError(
            f"{type(self).__name__} has no random features, which sampling functions needs. Define "
            "`features(key, count, X)` on the kernel, or sample at given points with "
            "`Posterior.sample`."
        )

    # -- algebra ------------------------------------------------------------------------------

    def __add__(self, other: "Kernel | float") -> "Kernel":
        return Sum(self, _as_kernel(other))

    def __radd__(self, other: float) -> "Kernel":
        if isinstance(other, int) and other == 0:  # where Python's sum() starts
            return self
        return Sum(_as_kernel(other), self)

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        return Product(self, _as_kernel(other))

    def __rmul__(self, other: float) -> "Kernel":
        return Product(_as_kernel(other), self)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed.

        >>> from srgp import kernels as k
        >>> k.SE(variance=2.0).replace(lengthscales=0.5)
        SE(variance=2.0, lengthscales=0.5)
        """
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        shown = [f"{name}={_show(getattr(self, name))}" for name in self._data]
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        shown += [
            f"{name}={getattr(self, name)!r}"
            for name in self._meta
            if getattr(self, name) != defaults[name]
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _select(self, X: Float[Array, "N D"]) -> Float[Array, "N d"]:
        if self.active_dims is None:
            return X
        if max(self.active_dims) >= X.shape[1]:
            raise ValueError(
                f"{type(self).__name__} uses column {max(self.active_dims)}, but the inputs have "
                f"only {X.shape[1]} columns (counted from 0)."
            )
        return X[:, list(self.active_dims)]


def _as_parameters(value: Any, name: str, check: Callable[[Any, str], np.ndarray]) -> Any:
    if isinstance(value, Kernel | jax.core.Tracer):
        return value
    if isinstance(value, dict):
        return {key: _as_parameters(v, f"{name} {key!r}", check) for key, v in value.items()}
    return kept(check(value, name))


def _check_axes(value: Any, name: str, most: float) -> None:
    if np.ndim(value) > most:
        wanted = "one number" if most == 0 else "one number, or one for each input"
        raise ValueError(f"{name} must be {wanted}, got shape {np.shape(value)}.")


def _as_kernel(value: "Kernel | float") -> Kernel:
    return value if isinstance(value, Kernel) else Constant(variance=value)


def check_kernel(kernel: Any) -> None:
    """Refuse what is no kernel."""
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel must be one such as srgp.kernels.SE(), got {kernel!r}; wrap a function of "
            "your own in srgp.kernels.Function."
        )


def _as_columns(dims: Any) -> tuple[int, ...]:
    """Column numbers, or one of them."""
    array = np.atleast_1d(dims)
    if array.dtype.kind not in "iu" or array.ndim > 1 or (array < 0).any():
        raise ValueError(f"active_dims must be column numbers, counted from 0, got {dims!r}.")
    columns = tuple(array.tolist())
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(f"active_dims must be distinct column numbers, got {columns}.")
    return columns


@quick_jit  # traced once for a kind of kernel and a number of points
def compiled_covariance(
    kernel: Kernel, X: Float[Array, "N D"], Z: Float[Array, "M D"]
) -> Float[Array, "N M"]:
    """k(X, Z) on all columns, in one call."""
    return kernel.covariance(X, Z)


@quick_jit
def _variance_at(kernel: Kernel, X: Float[Array, "N D"]) -> Float[Array, " N"]:
    return kernel.variance_at(X)


def _as_points(X: Any, name: str) -> Array:
    points: Any = X if isinstance(X, jax.core.Tracer) else as_floats(X, name)
    if points.ndim != 2:
        raise ValueError(
            f"a kernel takes points of shape (rows, inputs), but {name} has {points.shape}."
        )
    return points


def _show(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


class Sum(Kernel):
    """k(x, z) = k₁(x, z) + k₂(x, z), written `k1 + k2`.

    >>> from srgp import kernels as k
    >>> k.SE() + k.Linear(variance=0.1)
    SE(variance=1.0, lengthscales=1.0) + Linear(variance=0.1)
    """

    left: Parameter
    right: Parameter

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """k₁(X, Z) + k₂(X, Z)."""
        return self.left.covariance(X, Z) + self.right.covariance(X, Z)

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """k₁(x_i, x_i) + k₂(x_i, x_i)."""
        return self.left.variance_at(X) + self.right.variance_at(X)

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """s φ₁ + s′ φ₂ with independent random signs, so that the cross terms vanish."""
        k1, k2, k3 = jax.random.split(key, 3)
        signs = jax.random.rademacher(k3, (2, count, 1), dtype=float)
        left = self.left.features(k1, count, self.left._select(X))
        return signs[0] * left + signs[1] * self.right.features(k2, count, self.right._select(X))

    def __repr__(self) -> str:
        return f"{self.left!r} + {self.right!r}"


class Product(Kernel):
    """k(x, z) = k₁(x, z) k₂(x, z), written `k1 * k2`; `2.0 * k1` scales the variance.

    >>> from srgp import kernels as k
    >>> 2.0 * k.Matern52(active_dims=[0])
    Constant(variance=2.0) * Matern52(variance=1.0, lengthscales=1.0, active_dims=(0,))
    """

    left: Parameter
    right: Parameter

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """k₁(X, Z) k₂(X, Z), elementwise."""
        return self.left.covariance(X, Z) * self.right.covariance(X, Z)

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """k₁(x_i, x_i) k₂(x_i, x_i)."""
        return self.left.variance_at(X) * self.right.variance_at(X)

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """φ₁ φ₂: second moments of independent factors multiply."""
        k1, k2 = jax.random.split(key)
        left = self.left.features(k1, count, self.left._select(X))
        return left * self.right.features(k2, count, self.right._select(X))

    def __repr__(self) -> str:
        sides = (self.left, self.right)
        return " * ".join(f"({s!r})" if isinstance(s, Sum) else repr(s) for s in sides)


class Constant(Kernel):
    """k(x, z) = v: an unknown constant offset, or a factor.

    >>> from srgp import kernels as k
    >>> k.Constant(variance=2.0)([[0.0]], [[1.0], [5.0]])
    array([[2., 2.]])
    """

    variance: Parameter = scalar(default=1.0)

    def matrix(self, X: Float[Array, "N D"], Z: Float[Array, "M D"]) -> Float[Array, "N M"]:
        """v everywhere."""
        return jnp.full((len(X), len(Z)), self.variance)

    def variances(self, X: Float[Array, "N D"]) -> Float[Array, " N"]:
        """v everywhere."""
        return jnp.full(len(X), self.variance)

    def features(
        self, key: Key[Array, ""], count: int, X: Float[Array, "N D"]
    ) -> Float[Array, "F N"]:
        """± √v."""
        signs = jax.random.rademacher(key, (count, 1), dtype=float)
        return jnp.broadcast_to(signs * jnp.sqrt(self.variance), (count, len(X)))


class Function(Kernel):
    """A kernel from a plain function `pair(x, z, **parameters)` of two points of shape (D,).

    >>> import jax.numpy as jnp
    >>> from srgp import kernels as k
    >>> def brownian(x, z, rate):
    ...     return rate * jnp.minimum(x[0], z[0])
    >>> k.Function(brownian, {"rate": 2.0})([[1.0], [3.0]])
    array([[2., 2.],
           [2., 6.]])
    """

    function: Callable[..., Scalar] = static()
    parameters: Parameter = dataclasses.field(default_factory=dict)

    def pair(self, x: Float[Array, " D"], z: Float[Array, " D"]) -> Scalar:
        """The function itself."""
        try:
            value = self.function(x, z, **self.parameters)
        except jax.errors.JAXTypeError as error:
            raise ValueError(
                f"the kernel function {self.function!r} cannot be compiled: write it with "
                "jax.numpy instead of numpy or math, and without `if` on values."
            ) from error
        if np.shape(value) != ():
            raise ValueError(
                f"a kernel function returns one number for a pair of points, {self.function!r} "
                f"returned shape {np.shape(value)}."
            )
        return value

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", repr(self.function))
        return f"Function({name}, { ({n: _show(v) for n, v in self.parameters.items()}) })"
