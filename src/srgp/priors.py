"""Prior densities of hyper-parameters: functions of a value that return its log density.

Any function of the same kind will do, written with `jax.numpy`.
"""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Normal:
    """A normal prior, for parameters of any sign.

    >>> import srgp
    >>> round(float(srgp.priors.Normal(mean=0.0, deviation=1.0)(0.0)), 4)
    -0.9189
    """

    mean: float
    deviation: float

    def __call__(self, value: Any) -> Any:
        """log p(value), entry by entry."""
        z = (value - self.mean) / self.deviation
        return -0.5 * jnp.square(z) - math.log(self.deviation) - 0.5 * math.log(2.0 * math.pi)


@dataclasses.dataclass(frozen=True)
class LogNormal:
    """log θ ~ N(log median, spread²), for positive parameters; spread 0.7 is a factor of about 2.

    >>> import srgp
    >>> round(float(srgp.priors.LogNormal(median=2.0, spread=0.5)(2.0)), 4)
    -0.9189
    """

    median: float
    spread: float

    def __call__(self, value: Any) -> Any:
        """log p(value), entry by entry."""
        normal = Normal(math.log(self.median), self.spread)
        return normal(jnp.log(value)) - jnp.log(value)


@dataclasses.dataclass(frozen=True)
class Gamma:
    """p(θ) ∝ θ^(shape − 1) exp(−rate θ), for positive parameters.

    >>> import srgp
    >>> round(float(srgp.priors.Gamma(shape=2.0, rate=1.0)(1.0)), 4)
    -1.0
    """

    shape: float
    rate: float

    def __call__(self, value: Any) -> Any:
        """log p(value), entry by entry."""
        constant = self.shape * math.log(self.rate) - math.lgamma(self.shape)
        return constant + (self.shape - 1.0) * jnp.log(value) - self.rate * value
