"""θ as an optimiser sees it: unconstrained, named, and only what is to be learned.

Positive parameters (variances, lengthscales, the noise) are learned through their logarithm,
inducing inputs in units of their own spread, others as they are.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp import pytree
from srgp.kernels import Kernel
from srgp.model import Model
from srgp.precision import Array, Scalar, double

# Unconstrained values of what is learned, by name.
Values: TypeAlias = dict[str, Float[Array, "..."]]
# log density of a parameter, entry by entry or summed, in its own units.
Prior: TypeAlias = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Coordinates:
    """The map between a model and the values that are learned.

    >>> import numpy as np, srgp
    >>> from srgp.parameters import Coordinates
    >>> model = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=[[0.0], [2.0]])
    >>> coordinates = Coordinates.of(model, fixed=["kernel"])
    >>> {name: np.round(v, 3).tolist() for name, v in coordinates.values(model).items()}
    {'noise': 0.0, 'inducing': [[0.0], [2.0]]}
    """

    template: Model  # where fixed parameters come from
    scale: Any  # (D,), the unit of the inducing inputs
    names: tuple[str, ...]
    positive: tuple[bool, ...]
    free: tuple[bool, ...]

    @classmethod
    def of(cls, model: Model, fixed: str | Iterable[str] = ()) -> Self:
        """All parameters but those named; "kernel" names all of the kernel's."""
        names = parameter_names(model)
        fixed = [fixed] if isinstance(fixed, str) else list(fixed)
        for name in fixed:
            check_name(name, names)
        free = tuple(not any(_within(name, f) for f in fixed) for name in names)
        if not any(free):
            raise ValueError(f"every parameter is fixed ({', '.join(fixed)}): nothing to learn.")
        positive = (*_positive(model.kernel), True, False)
        spread = np.std(model.inducing, 0)
        return cls(model, np.where(spread > 0.0, spread, 1.0), names, positive, free)

    @property
    def logarithmic(self) -> tuple[str, ...]:
        """The names of those values that are logarithms."""
        rows = zip(self.names, self.positive, self.free, strict=True)
        return tuple(name for name, positive, free in rows if positive and free)

    @double
    def values(self, model: Model) -> Values:
        """What is learned, unconstrained."""
        return {
            name: self._unit(name, np.log(leaf) if positive else np.asarray(leaf), np.divide)
            for name, positive, free, leaf in self._rows(model)
            if free
        }

    def model(self, values: Values) -> Model:
        """The model with these values; differentiable, unchecked."""
        leaves = [
            leaf if not free else self._constrain(name, positive, values[name])
            for name, positive, free, leaf in self._rows(self.template)
        ]
        return jax.tree.unflatten(jax.tree.structure(self.template), leaves)

    def gradient(self, values: Values, gradient: Model) -> Values:
        """The chain rule: a gradient in the model's parameters as one in the values."""
        _, pull = jax.vjp(self.model, values)
        return pull(gradient)[0]

    def _constrain(self, name: str, positive: bool, value: Array) -> Array:
        return jnp.exp(value) if positive else self._unit(name, value, jnp.multiply)

    def _unit(self, name: str, value: Any, change: Callable[..., Any]) -> Any:
        return change(value, self.scale) if name == "inducing" else value

    def _rows(self, model: Model) -> Iterable[tuple[str, bool, bool, Array]]:
        return zip(self.names, self.positive, self.free, jax.tree.leaves(model), strict=True)


pytree.register(Coordinates, ("template", "scale"), ("names", "positive", "free"))


def flat(values: Values) -> Float[np.ndarray, " P"]:
    """All values in a row, on the host."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(values)])


def unflat(x: Float[np.ndarray, " P"], like: Values) -> Values:
    """The values that stand in a row."""
    leaves, shape = jax.tree.flatten(like)
    cuts = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]
    pieces = zip(np.split(x, cuts), leaves, strict=True)
    return jax.tree.unflatten(shape, [piece.reshape(np.shape(leaf)) for piece, leaf in pieces])


def parameter_names(model: Model) -> tuple[str, ...]:
    """The names by which parameters are fixed and given priors.

    >>> import srgp
    >>> from srgp.parameters import parameter_names
    >>> k = srgp.kernels
    >>> parameter_names(srgp.Model(k.SE() + k.Linear(), noise=1.0, inducing=[[0.0]]))
    ('kernel.left.variance', 'kernel.left.lengthscales', 'kernel.right.variance',
     'noise', 'inducing')
    """
    paths, _ = jax.tree_util.tree_flatten_with_path(model)
    return tuple(jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths)


def check_name(name: str, names: tuple[str, ...]) -> None:
    """Refuse a name that is no parameter and no group of parameters."""
    if not any(_within(known, name) for known in names):
        raise ValueError(f"no parameter is called {name!r}; there are {', '.join(names)}.")


def check_priors(model: Model, priors: Mapping[str, Prior] | None) -> tuple[tuple[str, Prior], ...]:
    """Priors as a fixed tuple, after a look whether each gives a finite log density here."""
    names = parameter_names(model)
    chosen = tuple(sorted((priors or {}).items()))
    for name, prior in chosen:
        if name not in names:
            check_name(name, names)
            raise ValueError(f"{name!r} is a group of parameters: give each its own prior.")
        density = np.asarray(log_prior(((name, prior),), model))
        if density.shape != () or not np.isfinite(density):
            raise ValueError(
                f"the prior of {name!r} has log density {density} at the start: it must be finite."
            )
    return chosen


def log_prior(priors: tuple[tuple[str, Prior], ...], model: Model) -> Scalar:
    """Σ log p(θ), each density in the parameter's own units."""
    leaves = dict(zip(parameter_names(model), jax.tree.leaves(model), strict=True))
    total = jnp.zeros(())
    for name, prior in priors:
        total = total + jnp.sum(prior(leaves[name]))
    return total


def _within(name: str, group: str) -> bool:
    return name == group or name.startswith(group + ".")


def _positive(kernel: Kernel) -> Iterable[bool]:
    """For each leaf of a kernel, in JAX's order, whether it is positive."""
    fields = {f.name: f.metadata.get("positive", True) for f in dataclasses.fields(kernel)}
    for name in kernel._data:
        value = getattr(kernel, name)
        if isinstance(value, Kernel):
            yield from _positive(value)
        else:
            yield from (fields[name] for _ in jax.tree.leaves(value))
