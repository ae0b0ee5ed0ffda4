"""What L-BFGS learned of the curvature, so that the next run of it need not learn that anew."""

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float

# Smallest cosine of a step and the change of the gradient along it that tells a curvature.
CURVED = 1e-8
# Smallest root kept: in no direction may rounding errors make z powerless.
STIFFEST = 1e-3


class Metric(NamedTuple):
    """Coordinates z in which an objective of x = Sz is curved alike in all directions.

    SSᵀ is the inverse Hessian as L-BFGS estimates it, γI but for the span of the steps and of the
    changes of the gradient. With an orthonormal basis Q of that span,

        S = √γ (I + Q F Qᵀ),    I + F = (QᵀSSᵀQ/γ)^½
    """

    unit: float  # √γ
    Q: Float[np.ndarray, "P K"]
    F: Float[np.ndarray, "K K"]

    @classmethod
    def plain(cls, size: int) -> Self:
        """S = I."""
        return cls(1.0, np.zeros((size, 0)), np.zeros((0, 0)))

    @classmethod
    def of(cls, points: Iterable[Float[np.ndarray, "2 P"]]) -> Self | None:
        """From places x and the gradients there; None if they tell of no curvature."""
        from scipy.optimize import LbfgsInvHessProduct

        passed = np.array(list(points))
        if len(passed) < 2:
            return None
        s, y = np.diff(passed, axis=0).swapaxes(0, 1)
        along = np.sum(s * y, 1)
        curved = along > CURVED * np.linalg.norm(s, axis=1) * np.linalg.norm(y, axis=1)
        if not curved.any():
            return None
        s, y = s[curved], y[curved]
        unit = float(np.sqrt(along[curved][-1]) / np.linalg.norm(y[-1]))
        # In units of √γ: SciPy's recursion begins with I.
        inverse = LbfgsInvHessProduct(s / unit, y * unit)
        Q, _ = np.linalg.qr(np.concatenate([s, y]).T)
        squares, vectors = np.linalg.eigh(Q.T @ inverse.matmat(Q))
        roots = np.sqrt(np.maximum(squares, STIFFEST**2))
        return cls(unit, Q, (vectors * (roots - 1.0)) @ vectors.T)

    def __call__(self, z: Float[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
        """Sz; and Sᵀz, since S is symmetric: the gradient in z of one in x."""
        return self.unit * (z + self.Q @ (self.F @ (self.Q.T @ z)))

    def scaled(self, factor: float) -> Self:
        """The same with z in other units."""
        return self._replace(unit=self.unit * factor)
