"""How learning went."""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_floats
from srgp.learners import History, Record
from srgp.plots.style import (
    BLUE,
    NORMAL,
    PALETTE,
    Axes,
    dress,
    legend,
    make_panels,
    new_axes,
    nth_colour,
    nth_dash,
)

Quantity: TypeAlias = Literal["bound", "estimate", "rmse", "learning_rate", "refused"]
NAMES = {
    "bound": "bound",
    "estimate": "estimate of the bound",
    "rmse": "RMSE on held-out data",
    "learning_rate": "learning rate",
    "refused": "steps refused",
    "seconds": "seconds",
    "epoch": "passes over the data",
}


def convergence(
    histories: History | Mapping[str, History],
    quantity: Quantity = "bound",
    against: Literal["seconds", "epoch"] = "seconds",
    *,
    ax: Axes | None = None,
) -> Axes:
    """How learning went: a column of one history, or of several by name, over time or epochs.

    Records without that number, and numbers that are not finite, are left out. For a history that
    has no bound, as those of `SRGP` and `Sites` by themselves, its estimate is drawn and named so.

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
    kinds = {name: _known_kind(history, quantity) for name, history in named.items()}
    curves = {name: _curve(name, named[name], against, kind) for name, kind in kinds.items()}
    ax = new_axes((4.5, 3.0)) if ax is None else ax
    marker = "o" if max(len(x) for x, _ in curves.values()) <= 30 else ""
    for i, (name, (x, values)) in enumerate(curves.items()):
        label = name if not name or kinds[name] == quantity else f"{name} ({kinds[name]})"
        ax.plot(
            x, values, nth_dash(i), color=nth_colour(i), lw=1.2, marker=marker, ms=2.5, label=label
        )
    dress(ax, NAMES[against], NAMES[kinds.get("", quantity)])
    if len(named) > 5:
        legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif any(named):
        legend(ax, loc="best")
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
    panels = make_panels(axes, len(arrays), (2.2, 1.7))
    for ax, (name, trace) in zip(panels, arrays.items(), strict=True):
        lines = trace.reshape(len(x), -1).T
        few = len(lines) <= len(PALETTE)
        for i, line in enumerate(lines):
            colour, width = (nth_colour(i), 1.0) if few else (BLUE, 0.5)
            ax.plot(x, line, color=colour, lw=width, label=str(i + 1))
        if trace.min() > 0.0 and trace.max() > 20.0 * trace.min():
            ax.set_yscale("log")
        ax.set_title(name, fontsize=NORMAL)
        dress(ax, label, "")
        if few and len(lines) > 1:
            # Beside the curves: in a small panel there is no room among them.
            legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return panels


def _known_kind(history: History, quantity: str) -> str:
    """The quantity, or the estimate in place of a bound that nobody asked for."""
    known = {
        kind: any(v is not None for v in history.column(kind)) for kind in ("bound", "estimate")
    }
    return (
        "estimate" if quantity == "bound" and known["estimate"] and not known["bound"] else quantity
    )


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
