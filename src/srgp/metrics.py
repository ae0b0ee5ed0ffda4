"""How good predictions are: errors, densities, and whether intervals hold what they promise.

Everywhere y, mean and variance have one shape, (N,) or (N, Q) for Q outputs, and numbers are
averages over all of it. The variance is that of a measurement, as of `predict(X, noise=True)`,
since y has noise.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf, ndtri

from srgp.checks import as_floats, finite

WIDTH = float(ndtri(0.975))  # a 95 % interval is m ± WIDTH √v


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean square error, √(mean of (y − m)²).

    >>> from srgp import metrics
    >>> metrics.rmse([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 2.0])
    1.0
    """
    y, mean = _pair(y, mean)
    with np.errstate(over="ignore"):  # what overflows is reported below
        return float(finite(np.sqrt(np.mean((y - mean) ** 2)), "the RMSE"))


def mae(y: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error, mean of |y − m|.

    >>> from srgp import metrics
    >>> metrics.mae([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 2.0])
    0.5
    """
    y, mean = _pair(y, mean)
    with np.errstate(over="ignore"):
        return float(finite(np.mean(np.abs(y - mean)), "the mean absolute error"))


def standardised(y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> np.ndarray:
    """Standardised residuals z = (y − m)/√v, in the shape of y; N(0, 1) if all is as predicted.

    >>> from srgp import metrics
    >>> metrics.standardised([1.0, 2.0], [0.0, 2.0], [0.25, 1.0])
    array([2., 0.])
    """
    return _standardise(*_triple(y, mean, variance))


def nlpd(y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> float:
    """Mean negative log predictive density, −mean of log N(y; m, v); smaller is better.

        −log N(y; m, v) = ½ [log 2π + log v + z²],   z = (y − m)/√v

    >>> from srgp import metrics
    >>> round(metrics.nlpd([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 4)
    1.1689
    """
    y, mean, variance = _triple(y, mean, variance)
    with np.errstate(over="ignore"):
        terms = np.log(2.0 * np.pi) + np.log(variance) + _standardise(y, mean, variance) ** 2
        return float(finite(0.5 * np.mean(terms), "the NLPD"))


def crps(y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> float:
    """Mean continuous ranked probability score of a normal, in the unit of y; smaller is better.

        CRPS = √v [z (2Φ(z) − 1) + 2φ(z) − 1/√π]                      (Gneiting and Raftery 2007)

    It is ∫ (F(t) − 1[t ≥ y])² dt, and for v → 0 the absolute error: less harsh on outliers than the
    NLPD.

    >>> from srgp import metrics
    >>> round(metrics.crps([0.0], [0.0], [1.0]), 4)
    0.2337
    """
    y, mean, variance = _triple(y, mean, variance)
    with np.errstate(over="ignore"):
        z = _standardise(y, mean, variance)
        density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
        terms = z * erf(z / np.sqrt(2.0)) + 2.0 * density - 1.0 / np.sqrt(np.pi)
        return float(finite(np.mean(np.sqrt(variance) * terms), "the CRPS"))


def coverage(y: ArrayLike, mean: ArrayLike, variance: ArrayLike, level: float = 0.95) -> float:
    """Share of y within the central interval of that level, m ± Φ⁻¹((1 + level)/2) √v.

    About `level` if the predictive variance is right; less, and the intervals are too narrow.

    >>> from srgp import metrics
    >>> metrics.coverage([0.0, 1.9, 2.0, -3.0], [0.0] * 4, [1.0] * 4)
    0.5
    """
    return float(calibration(y, mean, variance, [level])[1][0])


def calibration(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, levels: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Coverage expected and observed: K levels, and the share of y within the interval of each.

    levels: 5 %, 10 %, …, 95 % where none are given.

    >>> from srgp import metrics
    >>> expected, observed = metrics.calibration([0.0, 1.0, 3.0], [0.0] * 3, [1.0] * 3, [0.5, 0.9])
    >>> expected, observed.round(2)
    (array([0.5, 0.9]), array([0.33, 0.67]))
    """
    z = np.sort(np.abs(standardised(y, mean, variance)), axis=None)
    expected = np.linspace(0.05, 0.95, 19) if levels is None else as_floats(levels, "levels")
    if expected.ndim != 1 or expected.size == 0:
        raise ValueError(f"levels must be a list of probabilities, got shape {expected.shape}.")
    outside = expected[(expected <= 0.0) | (expected >= 1.0)]
    if outside.size:
        raise ValueError(f"a level must lie between 0 and 1, got {outside[0]:g}.")
    half_width = -ndtri(0.5 * (1.0 - expected))  # the lower tail keeps the digits of levels near 1
    return expected.copy(), np.searchsorted(z, half_width, side="right") / z.size


class Scores(NamedTuple):
    """The usual numbers in one place; see `scores`.

    >>> from srgp import metrics
    >>> print(metrics.Scores(10, rmse=0.3, mae=0.2, nlpd=0.1, crps=0.15, coverage=0.9, spread=1.1))
    RMSE 0.3, MAE 0.2, NLPD 0.1, CRPS 0.15, 95 % interval covers 90.0 %, spread of z 1.1 (10 rows)
    """

    rows: int
    rmse: float
    mae: float
    nlpd: float
    crps: float
    coverage: float  # of the 95 % interval
    spread: float  # √(mean of z²): 1 if the variances are right, above if they are too small

    def __str__(self) -> str:
        return (
            f"RMSE {self.rmse:.4g}, MAE {self.mae:.4g}, NLPD {self.nlpd:.4g}, "
            f"CRPS {self.crps:.4g}, 95 % interval covers {100.0 * self.coverage:.1f} %, "
            f"spread of z {self.spread:.3g} ({self.rows} rows)"
        )


def scores(y: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Scores:
    """All of the above at once.

    >>> import numpy as np
    >>> from srgp import metrics
    >>> y = np.random.default_rng(0).normal(size=10_000)
    >>> print(metrics.scores(y, np.zeros(10_000), np.ones(10_000)))
    RMSE 0.9981, MAE 0.7996, NLPD 1.417, CRPS 0.5635, 95 % interval covers 95.0 %,
    spread of z 0.998 (10000 rows)
    """
    y, mean, variance = _triple(y, mean, variance)
    z = _standardise(y, mean, variance)
    return Scores(
        len(y),
        rmse(y, mean),
        mae(y, mean),
        nlpd(y, mean, variance),
        crps(y, mean, variance),
        coverage(y, mean, variance),
        rmse(z, np.zeros_like(z)),
    )


def _standardise(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return finite((y - mean) / np.sqrt(variance), "a standardised residual")


def _pair(y: ArrayLike, mean: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y, mean = as_floats(y, "y"), as_floats(mean, "mean")
    if y.ndim not in (1, 2):
        raise ValueError(f"y must have shape (rows,), or (rows, outputs), got {y.shape}.")
    if y.size == 0:
        raise ValueError(f"y is empty, of shape {y.shape}: at least one row is needed.")
    _same_shape(mean, "mean", y)
    return y, mean


def _triple(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y, mean = _pair(y, mean)
    variance = as_floats(variance, "variance")
    _same_shape(variance, "variance", y)
    if not (variance > 0.0).all():
        where = tuple(int(i) for i in np.argwhere(variance <= 0.0)[0])
        raise ValueError(
            f"variance must be positive, got {variance[where]:g} at index "
            f"{where if len(where) != 1 else where[0]}; use that of a measurement, noise=True."
        )
    return y, mean, variance


def _same_shape(array: np.ndarray, name: str, y: np.ndarray) -> None:
    # Broadcasting (N,) against (N, 1) would average over N² differences.
    if array.shape != y.shape:
        raise ValueError(f"{name} must have the shape of y, {y.shape}, got {array.shape}.")
