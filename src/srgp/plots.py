"""Pictures of posteriors, of learning and of how good predictions are; needs Matplotlib.

Every function draws into the axes handed in, or into a new figure, and returns them; nothing is
shown or saved. Where a `predict` is asked for, it is a function like `Posterior.predict`:

    predict(X, noise=False) -> mean, variance     X (A, D); mean and variance (A,), or (A, Q)

so hand in `posterior.predict`, `filter.predict`, or a function of your own: one that scales back,
or that fixes all inputs but one or two. Colours are those of Okabe and Ito, and viridis.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from srgp import metrics
from srgp.checks import as_floats, as_inputs, as_positive, as_targets
from srgp.learners import History, Record

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
except ImportError as error:
    raise ImportError("srgp.plots needs Matplotlib: pip install 'srgp[plots]'") from error

BLUE, ORANGE, BLACK, GREY = "#0072B2", "#D55E00", "#222222", "#999999"
# Okabe and Ito, without the yellow, which is lost on white.
PALETTE = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", BLACK)
DASHES = ("-", "--", ":", "-.")
SMALL, NORMAL = 8, 9  # points
SHOWN_ROWS = 2000  # more data points than this hide each other
HEXBIN_ROWS = 5000
WIDTH = float(ndtri(0.975))  # a 95 % interval is m ± WIDTH √v

Quantity: TypeAlias = Literal["bound", "estimate", "rmse", "learning_rate", "refused"]
NAMES = {
    "bound": "bound of the log likelihood",
    "estimate": "estimate of the bound",
    "rmse": "RMSE on held-out data",
    "learning_rate": "learning rate",
    "refused": "steps refused",
    "seconds": "seconds",
    "epoch": "passes over the data",
}


class Predict(Protocol):
    """A function like `Posterior.predict`: X (A, D) to mean and variance, (A,) or (A, Q).

    >>> from srgp import plots
    >>> def line(X, noise):
    ...     return 2.0 * X[:, 0], 0.0 * X[:, 0] + (0.1 if noise else 0.01)
    >>> ax = plots.posterior_1d(line, grid=[0.0, 1.0])
    >>> ax.lines[0].get_ydata()
    array([0., 2.])
    """

    def __call__(self, X: np.ndarray, *, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Of the function f, or, with noise, of a measurement."""
        ...


def posterior_1d(
    predict: Predict,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    inducing: ArrayLike | None = None,
    grid: ArrayLike | None = None,
    truth: Callable[[np.ndarray], ArrayLike] | None = None,
    output: int = 0,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Mean and 95 % bands, of the function f and of measurements y, over one input.

    X (N, 1) and y are the data, of which 2000 rows are drawn if there are more; inducing inputs
    (M, 1) are ticks at the bottom. The grid (A, 1) covers X and the inducing inputs if none is
    given. truth is a function of x (A,). Of several outputs, one is drawn. legend=False is for all
    panels but one.

    >>> import numpy as np, srgp
    >>> from srgp import plots
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.01, inducing=X[::7])
    >>> post = srgp.posterior(model, srgp.summarise(model, X, np.sin(X[:, 0])))
    >>> ax = plots.posterior_1d(post.predict, X, np.sin(X[:, 0]), inducing=model.inducing)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['95 % of y', '95 % of f', 'mean', 'data', 'inducing']
    """
    if (X is None) != (y is None):
        raise ValueError("X and y go together: hand in both, or none.")
    data = None if X is None else _column(X, "X")
    R = None if inducing is None else _column(inducing, "inducing")
    x = _grid(data, R) if grid is None else np.sort(_column(grid, "grid"))
    targets = None if data is None or y is None else _output(as_targets(y, len(data)), output)
    mean, latent = _predicted(predict, x[:, None], False, output)
    _, measured = _predicted(predict, x[:, None], True, output)
    ax = _new_axes((4.5, 3.0)) if ax is None else ax
    for deviation, alpha, label in ((measured, 0.15, "95 % of y"), (latent, 0.35, "95 % of f")):
        low, high = mean - WIDTH * deviation, mean + WIDTH * deviation
        ax.fill_between(x, low, high, color=BLUE, alpha=alpha, lw=0, label=label)
    ax.plot(x, mean, color=BLUE, lw=1.2, label="mean")
    if truth is not None:
        ax.plot(x, np.ravel(truth(x)), "--", color=BLACK, lw=0.9, label="truth")
    if data is not None and targets is not None:
        rows, label = _thin(len(data))
        ax.plot(data[rows], targets[rows], "o", color=ORANGE, **_dots(rows), label=label)
    if R is not None:
        bottom = ax.get_xaxis_transform()  # y in parts of the height
        ax.plot(
            R, 0 * R + 0.03, "|", color=BLACK, ms=6, mew=0.9, transform=bottom, label="inducing"
        )
    if grid is not None:
        ax.set_xlim(x[0], x[-1])  # inducing inputs may lie anywhere
    _dress(ax, "x", "y")
    if legend:
        _legend_above(ax)
    return ax


def posterior_2d(
    predict: Predict,
    bounds: ArrayLike,
    *,
    X: ArrayLike | None = None,
    inducing: ArrayLike | None = None,
    resolution: int = 80,
    output: int = 0,
    axes: Any = None,
) -> np.ndarray:
    """Mean and standard deviation of f over two inputs, side by side: an array of two axes.

    bounds ((low, high), (low, high)) of the two inputs; X (N, 2) are drawn as dots, 2000 at most,
    and inducing inputs (M, 2) as circles; resolution² points are predicted.

    >>> import srgp
    >>> from srgp import plots
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0, 0.0], [1.0, 1.0]])
    >>> post = srgp.posterior(model, srgp.summarise(model, [[0.5, 0.2]], [1.0]))
    >>> axes = plots.posterior_2d(post.predict, [(0, 1), (0, 1)], inducing=model.inducing)
    >>> [ax.get_title() for ax in axes]
    ['mean', 'standard deviation']
    """
    limits = as_floats(bounds, "bounds")
    if limits.shape != (2, 2) or not (limits[:, 0] < limits[:, 1]).all():
        raise ValueError(
            f"bounds must be ((low, high), (low, high)), one pair an input, got {limits.tolist()}."
        )
    X = None if X is None else as_inputs(X, columns=2)
    R = None if inducing is None else as_inputs(inducing, "inducing", columns=2)
    if R is not None:  # those outside would lie on the neighbouring panel
        R = R[((limits[:, 0] <= R) & (limits[:, 1] >= R)).all(1)]
    first, second = (np.linspace(low, high, resolution) for low, high in limits)
    points = np.stack(np.meshgrid(first, second), -1).reshape(-1, 2)
    found = _predicted(predict, points, False, output)
    panels = _panels(axes, 2, (3.3, 2.7))
    for ax, values, title in zip(panels, found, ("mean", "standard deviation"), strict=True):
        surface = values.reshape(resolution, resolution)
        mesh = ax.pcolormesh(first, second, surface, shading="gouraud", rasterized=True)
        if X is not None:
            rows, _ = _thin(len(X))
            ax.plot(*X[rows].T, "o", mfc="white", mec=BLACK, ms=1.6, mew=0.3)
        if R is not None:
            ax.plot(*R.T, "o", mfc=BLACK, mec="white", ms=4.5, mew=0.8, clip_on=False)
        ax.set(xlim=limits[0], ylim=limits[1])
        ax.set_title(title, fontsize=NORMAL)
        ax.locator_params(nbins=5)
        _dress(ax, "x₁", "x₂" if title == "mean" else "")
        _colourbar(ax, mesh)
    return panels


def convergence(
    histories: History | Mapping[str, History],
    quantity: Quantity = "bound",
    against: Literal["seconds", "epoch"] = "seconds",
    *,
    ax: Axes | None = None,
) -> Axes:
    """How learning went: a column of one history, or of several by name, over time or epochs.

    Records without that number, and numbers that are not finite, are left out.

    >>> from srgp import plots
    >>> from srgp.learners import History, Record
    >>> history = History([Record(t, t, -1.0 / t, None, None, 0.01, 0) for t in (1.0, 2.0)])
    >>> ax = plots.convergence({"SRGP": history}, against="epoch")
    >>> ax.lines[0].get_label(), ax.lines[0].get_ydata()
    ('SRGP', array([-1. , -0.5]))
    """
    if quantity not in Record._fields or against not in ("seconds", "epoch"):
        raise ValueError(
            f"quantity must be one of {', '.join(Record._fields)}, and against seconds or epoch; "
            f"got {quantity!r} and {against!r}."
        )
    named = {"": histories} if isinstance(histories, History) else histories
    if not named:
        raise ValueError("there are no histories to draw.")
    curves = {name: _curve(name, history, against, quantity) for name, history in named.items()}
    ax = _new_axes((4.5, 3.0)) if ax is None else ax
    marker = "o" if max(len(x) for x, _ in curves.values()) <= 30 else ""
    for i, (name, (x, values)) in enumerate(curves.items()):
        ax.plot(x, values, _dash(i), color=_colour(i), lw=1.2, marker=marker, ms=2.5, label=name)
    _dress(ax, NAMES[against], NAMES[quantity])
    if len(named) > 5:
        _legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif any(named):
        _legend(ax, loc="best")
    return ax


def parameters_over_time(
    traces: Mapping[str, ArrayLike],
    times: ArrayLike | None = None,
    *,
    label: str = "report",
    axes: Any = None,
) -> np.ndarray:
    """Traces of hyper-parameters, one panel each: an array of axes.

    Each trace has shape (T,), or (T, k) for k numbers such as lengthscales; times (T,) are 0, 1, …
    if not given, and label says what they are. Positive numbers that span more than a factor of 20
    get a logarithmic axis. The callback of `srgp.learn` can collect the traces:

    >>> import numpy as np, srgp
    >>> from srgp import plots
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=X[::25])
    >>> noise = []
    >>> keep = lambda record, model: noise.append(float(model.noise))
    >>> learned = srgp.learn(model, (X, np.sin(X[:, 0])), srgp.SRGP(epochs=3), callback=keep)
    >>> axes = plots.parameters_over_time({"noise": noise}, label="epoch")
    >>> axes[0].get_title(), len(axes[0].lines[0].get_ydata()) == len(noise)
    ('noise', True)
    """
    arrays = {name: as_floats(trace, name) for name, trace in traces.items()}
    if not arrays:
        raise ValueError("there are no traces to draw.")
    rows = np.atleast_1d(next(iter(arrays.values())))
    x = np.arange(len(rows)) if times is None else as_floats(times, "times")
    for name, trace in {"times": x, **arrays}.items():
        if trace.shape[:1] != x.shape or trace.ndim > 2 or trace.size == 0:
            raise ValueError(
                f"{name} must have shape ({x.size},), or ({x.size}, k), a row for every report as "
                f"the others; got {trace.shape}."
            )
    panels = _panels(axes, len(arrays), (2.2, 1.7))
    for ax, (name, trace) in zip(panels, arrays.items(), strict=True):
        lines = trace.reshape(len(x), -1).T
        few = len(lines) <= len(PALETTE)
        for i, line in enumerate(lines):
            colour, width = (_colour(i), 1.0) if few else (BLUE, 0.5)
            ax.plot(x, line, color=colour, lw=width, label=str(i + 1))
        if trace.min() > 0.0 and trace.max() > 20.0 * trace.min():
            ax.set_yscale("log")
        ax.set_title(name, fontsize=NORMAL)
        _dress(ax, label, "")
        if few and len(lines) > 1:
            _legend(ax, loc="best", ncols=2)
    return panels


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
    ax = _new_axes((3.3, 3.1)) if ax is None else ax
    diagonal = np.linspace(0.0, 1.0, 101)
    chance = WIDTH * np.sqrt(diagonal * (1.0 - diagonal) / np.size(y))
    ax.fill_between(diagonal, diagonal - chance, diagonal + chance, color=GREY, alpha=0.3, lw=0)
    ax.plot(diagonal, diagonal, color=GREY, lw=0.8)
    ax.plot(expected, observed, "o-", color=BLUE, lw=1.2, ms=2.5, clip_on=False)
    text = f"95 % interval\ncovers {100.0 * covered:.1f} %"
    ax.text(0.97, 0.04, text, transform=ax.transAxes, ha="right", fontsize=SMALL)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    _dress(ax, "expected coverage", "observed coverage")
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
    ax = _new_axes((4.0, 0.7 + 0.19 * max(len(scales), 4))) if ax is None else ax
    ax.barh(np.arange(len(scales)), 1.0 / scales[order], height=0.7, color=BLUE)
    ax.set_yticks(np.arange(len(scales)), [names[i] for i in order])
    ax.set_ylim(len(scales) - 0.4, -0.6)
    _dress(ax, "relevance 1/ℓ", "")
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
    >>> ax.texts[0].get_text()
    'RMSE 0.141'
    """
    text = f"RMSE {metrics.rmse(y, mean):.3g}"
    if variance is not None:
        text += f"\n95 % covers {100.0 * metrics.coverage(y, mean, variance):.1f} %"
    y, mean = np.ravel(y), np.ravel(mean)
    crowded = len(y) > HEXBIN_ROWS
    band = np.zeros(len(y))
    if variance is not None and not crowded:
        band = WIDTH * np.sqrt(np.ravel(variance))
    low = float(min(y.min(), (mean - band).min()))
    high = float(max(y.max(), (mean + band).max()))
    margin = 0.04 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    ax = _new_axes((4.1 if crowded else 3.3, 3.1)) if ax is None else ax
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    if crowded:
        counts = ax.hexbin(y, mean, gridsize=40, extent=limits * 2, mincnt=1, bins="log", lw=0.1)
        _colourbar(ax, counts, "rows", format="%g")
    else:
        if band.any():
            ax.vlines(y, mean - band, mean + band, color=BLUE, lw=0.5, alpha=0.3)
        ax.plot(y, mean, "o", color=BLUE, alpha=0.7, rasterized=len(y) > SHOWN_ROWS, **_dots(y))
    ax.plot(limits, limits, color=ORANGE, lw=0.8)
    ax.text(0.04, 0.96, text, transform=ax.transAxes, va="top", fontsize=SMALL)
    _dress(ax, "measured", "predicted")
    return ax


def _predicted(
    predict: Predict, X: np.ndarray, noise: bool, output: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of one output at X."""
    if not callable(predict):
        raise ValueError(
            f"predict must be a function, predict(X, noise=...) -> mean, variance, not a "
            f"{type(predict).__name__}: hand in its method, as in posterior.predict."
        )
    mean, variance = (_output(np.asarray(part), output) for part in predict(X, noise=noise))
    if not mean.shape == variance.shape == (len(X),):
        raise ValueError(
            f"predict gave a mean and a variance of shapes {mean.shape} and {variance.shape} for "
            f"{len(X)} points: one number a point, or one a point and output, is needed."
        )
    # Rounding may leave −1e-17 where there is nothing left to learn.
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _output(values: np.ndarray, output: int) -> np.ndarray:
    if values.ndim != 2:
        return values
    if not 0 <= output < values.shape[1]:
        raise ValueError(f"there are {values.shape[1]} outputs, and none of number {output}.")
    return values[:, output]


def _column(values: ArrayLike, name: str) -> np.ndarray:
    """One input, (N,) or (N, 1), as (N,)."""
    array = as_floats(values, name)
    if array.size == 0 or array.shape not in ((array.size,), (array.size, 1)):
        raise ValueError(f"{name} must have shape (rows, 1), got {array.shape}.")
    return array.ravel()


def _grid(*places: np.ndarray | None) -> np.ndarray:
    """400 points over all that is shown, and 5 % more on either side."""
    shown = [p for p in places if p is not None]
    if not shown:
        raise ValueError("without data and inducing inputs a grid is needed, such as 0 to 1.")
    low, high = min(p.min() for p in shown), max(p.max() for p in shown)
    margin = 0.05 * (high - low) or 1.0
    return np.linspace(low - margin, high + margin, 400)


def _thin(count: int) -> tuple[np.ndarray, str]:
    """The rows to draw, and what to call them; at random, since a stride may hide a period."""
    if count <= SHOWN_ROWS:
        return np.arange(count), "data"
    rows = np.random.default_rng(0).choice(count, SHOWN_ROWS, replace=False)
    return rows, f"data, 1 in {count / SHOWN_ROWS:.2g}"


def _dots(rows: np.ndarray) -> dict[str, Any]:
    """Markers that are seen when few and do not merge when many; below the lines."""
    return {"ms": 2.5 if len(rows) <= 300 else 1.5, "mew": 0, "zorder": 1.9}


def _curve(name: str, history: History, against: str, quantity: str) -> np.ndarray:
    """Two rows, x and values, where the quantity is known."""
    pairs = zip(history.column(against), history.column(quantity), strict=True)
    known = [pair for pair in pairs if pair[1] is not None and math.isfinite(pair[1])]
    if not known:
        raise ValueError(
            f"the history{' of ' + name if name else ''} has no {quantity}: srgp.learn records the "
            "rmse with validation=(X, y), and the bound with that, patience, or an Exact learner."
        )
    return np.array(known).T


def _new_axes(size: tuple[float, float]) -> Axes:
    return plt.subplots(figsize=size, layout="constrained")[1]


def _panels(axes: Any, count: int, size: tuple[float, float]) -> np.ndarray:
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


def _dress(ax: Axes, x: str, y: str) -> None:
    ax.set_xlabel(x, fontsize=NORMAL)
    ax.set_ylabel(y, fontsize=NORMAL)
    ax.tick_params(which="both", labelsize=SMALL)
    ax.tick_params(width=0.6, length=3)
    ax.yaxis.get_offset_text().set_fontsize(SMALL)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_linewidth(0.6)


def _legend(ax: Axes, **options: Any) -> None:
    ax.legend(
        fontsize=SMALL, frameon=False, handlelength=1.4, columnspacing=1.0, borderpad=0.2, **options
    )


def _legend_above(ax: Axes) -> None:
    """A legend in the upper part of the axes, and room for it there."""
    low, high = ax.dataLim.intervaly
    ax.update_datalim([(ax.dataLim.x0, high + 0.25 * (high - low))])
    ax.autoscale_view()
    _legend(ax, loc="upper center", ncols=3, labelspacing=0.2)


def _colourbar(ax: Axes, drawn: Any, label: str = "", **options: Any) -> None:
    bar = ax.figure.colorbar(drawn, ax=ax, **options)
    bar.set_label(label, fontsize=SMALL)
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=SMALL, width=0.6, length=3)
    bar.outline.set_visible(False)


def _colour(i: int) -> str:
    return PALETTE[i % len(PALETTE)]


def _dash(i: int) -> str:
    """Lines of one colour differ in their dashes."""
    return DASHES[i // len(PALETTE) % len(DASHES)]
