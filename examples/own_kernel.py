"""A kernel of your own, as a plain function, learned like any other."""

import jax.numpy as jnp
import numpy as np

import srgp
from srgp import kernels as k


def wave(x, z, variance, period, damping):
    """A wave of one period that slowly loses its phase."""
    distance = x[0] - z[0]
    fading = jnp.exp(-0.5 * (distance / damping) ** 2)
    return variance * jnp.cos(2 * jnp.pi * distance / period) * fading


rng = np.random.default_rng(0)
X = rng.uniform(0, 20, (800, 1))
y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=800)
kernel = k.Function(wave, {"variance": 1.0, "period": 2.0, "damping": 5.0})
start = srgp.Model(kernel, noise=0.1, inducing=np.linspace(0, 20, 20)[:, None])
learned = srgp.learn(start, (X, y), srgp.Exact(iterations=100))
period = float(learned.model.kernel.parameters["period"])
print(f"period {period:.2f} (true: {2 * np.pi / 3:.2f}), noise {learned.model.noise**0.5:.2f}")
