"""How good predictions are, and which inputs they need."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from srgp import metrics
from srgp.checks import as_positive
from srgp.plots.style import (
    BLUE,
    GREY,
    HEXBIN_ROWS,
    ORANGE,
    SHOWN_ROWS,
    SMALL,
    WIDTH,
    Axes,
    colourbar,
    dots,
    dress,
    new_axes,
)


def calibration(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Coverage of central intervals, observed against expected; on the diagonal all is well.

    Below it the intervals are too narrow, above too wide. The grey band holds 95 % of what chance
    does to independent rows. The variance is that of a measurement, noise=True.

    >>> import numpy as np
    >>> from srgp import plots
    >>> y = np.random.default_rng(0).normal(size=500)
    >>> ax = plots.calibration(y, np.zeros(500), np.ones(500))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('expected coverage', 'observed coverage')
    """
    expected, observed = metrics.calibration(y, mean, variance)
    covered = metrics.coverage(y, mean, variance)
    ax = new_axes((3.3, 3.1)) if ax is None else ax
    diagonal = np.linspace(0.0, 1.0, 101)
    chance = WIDTH * np.sqrt(diagonal * (1.0 - diagonal) / np.size(y))
    ax.fill_between(diagonal, diagonal - chance, diagonal + chance, color=GREY, alpha=0.3, lw=0)
    ax.plot(diagonal, diagonal, color=GREY, lw=0.8)
    ax.plot(expected, observed, "o-", color=BLUE, lw=1.2, ms=2.5, clip_on=False)
    text = f"95 % interval\ncovers {100.0 * covered:.1f} %"
    ax.text(0.97, 0.04, text, transform=ax.transAxes, ha="right", fontsize=SMALL)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    dress(ax, "expected coverage", "observed coverage")
    return ax


def relevance(
    lengthscales: ArrayLike, names: Sequence[str] | None = None, *, ax: Axes | None = None
) -> Axes:
    """Relevance 1/ℓ of each input as bars, the most relevant on top.

    The lengthscale ℓ is in the unit of its input: compare inputs that were scaled alike.

    >>> from srgp import plots
    >>> ax = plots.relevance([2.0, 0.5, 10.0], ["age", "height", "weight"])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['height', 'age', 'weight']
    """
    scales = np.atleast_1d(as_positive(lengthscales, "lengthscales"))
    names = [f"x{i + 1}" for i in range(len(scales))] if names is None else list(names)
    if scales.shape != (len(names),):
        raise ValueError(f"{len(names)} names do not fit lengthscales of shape {scales.shape}.")
    order = np.argsort(scales, kind="stable")
    ax = new_axes((4.0, 0.7 + 0.19 * max(len(scales), 4))) if ax is None else ax
    ax.barh(np.arange(len(scales)), 1.0 / scales[order], height=0.7, color=BLUE)
    ax.set_yticks(np.arange(len(scales)), [names[i] for i in order])
    ax.set_ylim(len(scales) - 0.4, -0.6)
    dress(ax, "relevance 1/ℓ", "")
    ax.tick_params(axis="y", length=0)
    return ax


def prediction_vs_truth(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """Predicted against measured values, with the diagonal and the RMSE.

    With a variance, of measurements, the coverage of the 95 % intervals is added, and up to 5000
    rows the intervals as thin lines; more rows are counted in hexagons.

    >>> from srgp import plots
    >>> ax = plots.prediction_vs_truth([1.0, 2.0, 3.0], [1.1, 1.9, 3.2])
    >>> ax.get_title(loc="left")
    'RMSE 0.141'
    """
    text = f"RMSE {metrics.rmse(y, mean):.3g}"
    if variance is not None:
        text += f", 95 % covers {100.0 * metrics.coverage(y, mean, variance):.1f} %"
    y, mean = np.ravel(y), np.ravel(mean)
    crowded = len(y) > HEXBIN_ROWS
    band = np.zeros(len(y))
    if variance is not None and not crowded:
        band = WIDTH * np.sqrt(np.ravel(variance))
    low = float(min(y.min(), (mean - band).min()))
    high = float(max(y.max(), (mean + band).max()))
    margin = 0.04 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    ax = new_axes((4.1 if crowded else 3.3, 3.1)) if ax is None else ax
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    if crowded:
        counts = ax.hexbin(y, mean, gridsize=40, extent=limits * 2, mincnt=1, bins="log", lw=0.1)
        colourbar(ax, counts, "rows", format="%g")
    else:
        if band.any():
            ax.vlines(y, mean - band, mean + band, color=BLUE, lw=0.5, alpha=0.3)
        ax.plot(y, mean, "o", color=BLUE, alpha=0.7, rasterized=len(y) > SHOWN_ROWS, **dots(y))
    ax.plot(limits, limits, color=ORANGE, lw=0.8)
    ax.set_title(text, fontsize=SMALL, loc="left")
    dress(ax, "measured", "predicted")
    return ax
