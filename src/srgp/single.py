"""One sample at a time, on the host.

XLA hands each call over to a thread of its own and back: more time than a sample's O(M²) needs, and
much more when the machine is busy. NumPy and BLAS do the same work where they stand.
"""

import dataclasses
import math
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jaxtyping import Float
from scipy.linalg.blas import dger, dtrsv

from srgp.approximations import DTC, FIC, FITC, PEP, VFE, Approximation, SoR, TighterVFE
from srgp.kernels import (
    SE,
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    Stationary,
)

# These, and no subclass, are known to work on NumPy arrays.
MODELS = (SoR, DTC, FITC, FIC, VFE, PEP, TighterVFE)
ON_HOST = (SE, Matern12, Matern32, Matern52, RationalQuadratic)


class Step(NamedTuple):
    """The posterior after a sample, the sample's ψ, and how f was predicted before it."""

    mean: Float[np.ndarray, " M"]
    root: Float[np.ndarray, "M M"]
    psi: float
    expected: float
    variance: float


@dataclasses.dataclass(frozen=True, eq=False)
class Single:
    """What one sample needs of a model; the same equations as in compiled code, tested equal."""

    kernel: Any
    approximation: Approximation
    inducing: Float[np.ndarray, "d M"]  # active columns, as rows: long loops are the fast ones
    scales: Float[np.ndarray, "d 1"]  # 1/ℓ
    lower: Float[np.ndarray, "M M"]
    noise: float

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        approximation: Approximation,
        inducing: Any,
        lower: np.ndarray,
        noise: float,
    ) -> Self | None:
        """None where only compiled code knows the kernel or the model."""
        if type(kernel) not in ON_HOST or type(approximation) not in MODELS:
            return None
        kernel = jax.tree.map(np.asarray, kernel)  # JAX's own would compute in single precision
        assert isinstance(kernel, Stationary)
        R = np.ascontiguousarray(kernel._select(inducing).T)
        scales = np.broadcast_to(1.0 / np.asarray(kernel.lengthscales), (len(R),))[:, None]
        return cls(kernel, approximation, R, scales, np.asfortranarray(lower), float(noise))

    def predict(
        self, mean: Float[np.ndarray, " M"], root: Float[np.ndarray, "M M"], x: np.ndarray
    ) -> tuple[float, float]:
        """Mean and variance of f at x (D,)."""
        h, d = self._column(x)
        phi = h @ root
        return float(h @ mean), float(phi @ phi) + self._residual(d)

    def update(
        self,
        mean: Float[np.ndarray, " M"],
        root: Float[np.ndarray, "M M"],
        x: np.ndarray,
        y: float,
        weight: float,
    ) -> Step:
        """Learn one sample: see `recursion._step`."""
        h, d = self._column(x)
        noise = self.noise / weight
        v = self.approximation.share * d + noise
        unit = math.sqrt(v)
        h /= unit
        phi = h @ root
        s = 1.0 + float(phi @ phi)
        expected = float(h @ mean)
        r = y / unit - expected
        gain = (root @ phi) / s
        # By columns, as BLAS wants it, the transposed root loses φ gainᵀ.
        root = dger(-1.0 / (1.0 + 1.0 / math.sqrt(s)), phi, gain, a=root.T).T
        psi = -0.5 * (math.log(2.0 * math.pi) + math.log(v) + math.log(s) + r * r / s)
        a = float(self.approximation.regulariser(d, noise))  # type: ignore[arg-type]
        variance = v * (s - 1.0) + self._residual(d)
        return Step(mean + gain * r, root, psi - a, unit * expected, variance)

    def observe(
        self, x: np.ndarray, y: Float[np.ndarray, "*Q"], weight: float, noise: float
    ) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, "*Q"], float, float]:
        """One sample in units of its noise: w, y, log v and a; see `Approximation.observe`."""
        h, d = self._column(x)
        s = noise / weight
        v = self.approximation.share * d + s
        unit = math.sqrt(v)
        a = float(self.approximation.regulariser(d, s))  # type: ignore[arg-type]
        return h / unit, y / unit, math.log(v), a

    def _residual(self, d: float) -> float:
        """V_*, what a prediction keeps of the unexplained variance."""
        return 0.0 if self.approximation.residual == "none" else d

    def _column(self, x: np.ndarray) -> tuple[Float[np.ndarray, " M"], float]:
        """h = L⁻¹ k(R, x), and the variance d = k(x, x) − hᵀh that it leaves unexplained."""
        if self.kernel.active_dims is not None:
            x = x[list(self.kernel.active_dims)]
        squares = self.inducing - x[:, None]
        squares *= self.scales
        squares *= squares
        profile = self.kernel.profile(np.add.reduce(squares))
        h = dtrsv(self.lower, self.kernel.variance * profile, lower=1, overwrite_x=1)
        return h, max(float(self.kernel.variance) - float(h @ h), 0.0)
