"""Derivatives of a scalar function by central differences with Richardson extrapolation."""

from collections.abc import Callable

import numpy as np

from .models import Array

# Shrinking the step by this factor at each level; the tableau below divides by its powers.
_SHRINK = 2.0


def _derivative(g: Callable[[float], float], step: float, levels: int) -> tuple[float, float]:
    """g'(0) and its estimated error by Ridders' choice from Richardson's tableau.

    T[i, 0] = (g(h_i) - g(-h_i)) / (2 h_i) with h_i = step / 2^i has an error in h^2, h^4, ...;
    T[i, j] = T[i, j-1] + (T[i, j-1] - T[i-1, j-1]) / (4^j - 1) removes the power h^(2j).
    """
    table = np.zeros((levels, levels))
    best, error = np.nan, np.inf
    for i in range(levels):
        h = step / _SHRINK**i
        table[i, 0] = (g(h) - g(-h)) / (2.0 * h)
        for j in range(1, i + 1):
            gain = (table[i, j - 1] - table[i - 1, j - 1]) / (_SHRINK ** (2 * j) - 1.0)
            table[i, j] = table[i, j - 1] + gain
            # An entry is as good as the two it came from agree with it.
            spread = max(abs(gain), abs(table[i, j] - table[i - 1, j - 1]))
            if spread < error:
                best, error = table[i, j], spread
    return float(best), float(error)


def gradient_and_error(
    f: Callable[[Array], float],
    theta: Array,
    *,
    step: float | Array = 0.05,
    levels: int = 6,
) -> tuple[Array, Array]:
    """The gradient of f at theta and an estimate of its error, (P,) -> (P,), (P,).

    step, a scalar or (P,), is the largest move of a coordinate and absolute: f must be smooth
    on theta +- step, so pass logarithms of positive parameters, or steps well below them.
    f is called 2 * levels times for each coordinate.
    """
    point = np.asarray(theta, dtype=np.float64)
    steps = np.broadcast_to(np.asarray(step, dtype=np.float64), point.shape)
    results = np.zeros((2, len(point)))
    for p, direction in enumerate(np.eye(len(point))):

        def along(t: float, direction: Array = direction) -> float:
            return float(f(point + t * direction))

        results[:, p] = _derivative(along, float(steps[p]), levels)
    return results[0], results[1]


def gradient(
    f: Callable[[Array], float],
    theta: Array,
    *,
    step: float | Array = 0.05,
    levels: int = 6,
) -> Array:
    """The gradient of f at theta, (P,) -> (P,), good to about 1e-9 of f's scale."""
    return gradient_and_error(f, theta, step=step, levels=levels)[0]
