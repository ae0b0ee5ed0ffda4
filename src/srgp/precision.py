"""Double precision, scoped: the user's own JAX code keeps the precision it had.

JAX computes in single precision unless a global switch is turned. A sparse GP needs double: K_RR is
ill-conditioned by nature. So every public function enters double precision for its own duration
only, takes anything NumPy understands and gives NumPy arrays back, which no later single-precision
JAX operation can silently truncate.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Key

Array: TypeAlias = jax.Array  # NumPy arrays are as good, and become these in compiled code
HostArray: TypeAlias = jax.Array | np.ndarray  # on its way into compiled code
Scalar: TypeAlias = Float[Array, ""]
Seed: TypeAlias = int | Int[Array, ""] | Key[jax.Array, ""]

P = ParamSpec("P")
T = TypeVar("T")

EPS = float(np.finfo(np.float64).eps)


def double(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` in double precision, whatever the caller's JAX setting."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapper


def is_traced(tree: object) -> bool:
    """Whether any leaf is being traced by a JAX transformation, and so has no value to look at."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def namespace(x: Any) -> Any:
    """Where the functions of `x` are: NumPy for what is on the host, else JAX."""
    return np if isinstance(x, np.ndarray | float) else jnp


def to_host(x: Any) -> Any:
    """`x` as a NumPy array; under a JAX transformation, where it has no value yet, as it is."""
    return x if isinstance(x, jax.core.Tracer) else np.asarray(x)


def as_key(seed: Seed) -> Key[jax.Array, ""]:
    """A JAX random key from an integer seed; a key is passed on as it is."""
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        return seed
    try:
        if np.shape(seed) == (2,):  # the older kind of key, jax.random.PRNGKey
            return jax.random.wrap_key_data(jnp.asarray(seed, dtype=jnp.uint32))
        return jax.random.key(seed if isinstance(seed, jax.Array) else operator.index(seed))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a seed is a whole number or a JAX key, got {seed!r}.") from error


class OnDevice:
    """Dataclasses that hold JAX arrays: pickled as NumPy arrays, which keep their precision.

    JAX would read its own back in the precision of the moment, which is single by default.
    """

    def __getstate__(self) -> dict[str, Any]:
        def plain(x: Any) -> Any:
            return np.asarray(x) if isinstance(x, jax.Array) else x

        # Fields alone: what was derived from them is made again where it is needed.
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {f.name: jax.tree.map(plain, getattr(self, f.name)) for f in fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
