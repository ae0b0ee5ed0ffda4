"""Colours, axes and legends that all pictures share."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_floats
from srgp.metrics import WIDTH as WIDTH  # for all modules here

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import (
        Axes as Axes,
    )  # for all modules here: one place tells what is missing
except ImportError as error:
    raise ImportError("srgp.plots needs Matplotlib: pip install 'srgp[plots]'") from error

BLUE, ORANGE, BLACK, GREY = "#0072B2", "#D55E00", "#222222", "#999999"
# Okabe and Ito, without the yellow, which is lost on white.
PALETTE = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", BLACK)
DASHES = ("-", "--", ":", "-.")
SMALL, NORMAL = 8, 9  # points
SHOWN_ROWS = 2000  # more data points than this hide each other
HEXBIN_ROWS = 5000


def column(values: ArrayLike, name: str) -> np.ndarray:
    """One input, (N,) or (N, 1), as (N,)."""
    array = as_floats(values, name)
    if array.size == 0 or array.shape not in ((array.size,), (array.size, 1)):
        raise ValueError(f"{name} must have shape (rows, 1), got {array.shape}.")
    return array.ravel()


def thin(count: int) -> tuple[np.ndarray, str]:
    """The rows to draw, and what to call them; at random, since a stride may hide a period."""
    if count <= SHOWN_ROWS:
        return np.arange(count), "data"
    rows = np.random.default_rng(0).choice(count, SHOWN_ROWS, replace=False)
    return rows, f"data, 1 in {count / SHOWN_ROWS:.2g}"


def dots(rows: np.ndarray) -> dict[str, Any]:
    """Markers that are seen when few and do not merge when many; below the lines."""
    return {"ms": 2.5 if len(rows) <= 300 else 1.5, "mew": 0, "zorder": 1.9}


def new_axes(size: tuple[float, float]) -> Axes:
    """Axes in a figure of their own."""
    return plt.subplots(figsize=size, layout="constrained")[1]


def make_panels(axes: Any, count: int, size: tuple[float, float]) -> np.ndarray:
    """As many axes as are needed: the first of those handed in, or new ones of that size each."""
    if axes is None:
        columns = 2 if count == 4 else min(3, count)
        rows = math.ceil(count / columns)
        whole = (columns * size[0], rows * size[1])
        _, axes = plt.subplots(rows, columns, figsize=whole, layout="constrained", squeeze=False)
        for spare in axes.ravel()[count:]:
            spare.remove()
    panels = np.asarray(axes, dtype=object).ravel()
    if len(panels) < count:
        raise ValueError(f"{count} axes are needed, got {len(panels)}.")
    return panels[:count]


def dress(ax: Axes, x: str, y: str) -> None:
    """Labels, ticks and frame as all pictures have them."""
    ax.set_xlabel(x, fontsize=NORMAL)
    ax.set_ylabel(y, fontsize=NORMAL)
    ax.tick_params(which="both", labelsize=SMALL)
    ax.tick_params(width=0.6, length=3)
    ax.yaxis.get_offset_text().set_fontsize(SMALL)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_linewidth(0.6)


def legend(ax: Axes, **options: Any) -> None:
    """A small legend without a frame."""
    ax.legend(
        fontsize=SMALL, frameon=False, handlelength=1.4, columnspacing=1.0, borderpad=0.2, **options
    )


def legend_above(ax: Axes) -> None:
    """A legend in the upper part of the axes, and room for it there."""
    low, high = ax.dataLim.intervaly
    height = ax.get_window_extent().height / ax.figure.dpi
    # Two lines of text take half an inch, whatever the size of the picture.
    room = max(0.25, 0.55 / height)
    ax.update_datalim([(ax.dataLim.x0, high + room * (high - low))])
    ax.autoscale_view()
    legend(ax, loc="upper center", ncols=3, labelspacing=0.2)


def colourbar(ax: Axes, drawn: Any, label: str = "", **options: Any) -> None:
    """The scale of a surface, labelled."""
    bar = ax.figure.colorbar(drawn, ax=ax, **options)
    bar.set_label(label, fontsize=SMALL)
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=SMALL, width=0.6, length=3)
    bar.outline.set_visible(False)


def nth_colour(i: int) -> str:
    """The colours in turn."""
    return PALETTE[i % len(PALETTE)]


def nth_dash(i: int) -> str:
    """Lines of one colour differ in their dashes."""
    return DASHES[i // len(PALETTE) % len(DASHES)]


def one_output(values: np.ndarray, output: int) -> np.ndarray:
    """One column of many outputs, or the only one."""
    if values.ndim != 2:
        return values
    if not 0 <= output < values.shape[1]:
        raise ValueError(f"there are {values.shape[1]} outputs, and none of number {output}.")
    return values[:, output]
