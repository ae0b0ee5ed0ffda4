"""Posteriors of functions of one and two inputs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from srgp.checks import as_floats, as_inputs, as_targets
from srgp.plots.style import (
    BLACK,
    BLUE,
    NORMAL,
    ORANGE,
    WIDTH,
    Axes,
    colourbar,
    column,
    dots,
    dress,
    legend_above,
    make_panels,
    new_axes,
    one_output,
    thin,
)
from srgp.posterior import Posterior

if TYPE_CHECKING:
    from srgp.regressor.answers import Answers


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
    predict: "Predict | Answers | Posterior",
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

    predict is a fitted `SparseGPRegressor`, a `Posterior`, or a function like its `predict`.
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
    data = None if X is None else column(X, "X")
    R = None if inducing is None else column(inducing, "inducing")
    x = _grid(data, R) if grid is None else np.sort(column(grid, "grid"))
    targets = None if data is None or y is None else one_output(as_targets(y, len(data)), output)
    mean, latent = _predicted(predict, x[:, None], False, output)
    _, measured = _predicted(predict, x[:, None], True, output)
    ax = new_axes((4.5, 3.0)) if ax is None else ax
    for deviation, alpha, label in ((measured, 0.15, "95 % of y"), (latent, 0.35, "95 % of f")):
        low, high = mean - WIDTH * deviation, mean + WIDTH * deviation
        ax.fill_between(x, low, high, color=BLUE, alpha=alpha, lw=0, label=label)
    ax.plot(x, mean, color=BLUE, lw=1.2, label="mean")
    if truth is not None:
        ax.plot(x, np.ravel(truth(x)), "--", color=BLACK, lw=0.9, label="truth")
    if data is not None and targets is not None:
        rows, label = thin(len(data))
        ax.plot(data[rows], targets[rows], "o", color=ORANGE, **dots(rows), label=label)
    if R is not None:
        bottom = ax.get_xaxis_transform()  # y in parts of the height
        ax.plot(
            R, 0 * R + 0.03, "|", color=BLACK, ms=6, mew=0.9, transform=bottom, label="inducing"
        )
    if grid is not None:
        ax.set_xlim(x[0], x[-1])  # inducing inputs may lie anywhere
    dress(ax, "x", "y")
    if legend:
        legend_above(ax)
    return ax


def posterior_2d(
    predict: "Predict | Answers | Posterior",
    X: ArrayLike | None = None,
    *,
    inducing: ArrayLike | None = None,
    bounds: ArrayLike | None = None,
    resolution: int = 80,
    output: int = 0,
    axes: Any = None,
) -> np.ndarray:
    """Mean and standard deviation of f over two inputs, side by side: an array of two axes.

    predict as for `posterior_1d`; X (N, 2) are drawn as dots, 2000 at most, and inducing inputs
    (M, 2) as circles; bounds ((low, high), (low, high)) of the two inputs cover both if none are
    given; resolution² points are predicted.

    >>> import srgp
    >>> from srgp import plots
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0, 0.0], [1.0, 1.0]])
    >>> post = srgp.posterior(model, srgp.summarise(model, [[0.5, 0.2]], [1.0]))
    >>> axes = plots.posterior_2d(post, inducing=model.inducing)
    >>> [ax.get_title() for ax in axes]
    ['mean', 'standard deviation']
    """
    X = None if X is None else as_inputs(X, columns=2)
    R = None if inducing is None else as_inputs(inducing, "inducing", columns=2)
    limits = _around("bounds are", X, R).T if bounds is None else as_floats(bounds, "bounds")
    if limits.shape != (2, 2):
        raise ValueError(
            "bounds must be ((low, high), (low, high)), one pair an input, got an array of shape "
            f"{limits.shape}."
        )
    if not (limits[:, 0] < limits[:, 1]).all():
        raise ValueError(f"bounds must be (low, high) each, low first, got {limits.tolist()}.")
    if R is not None:  # those outside would lie on the neighbouring panel
        R = R[((limits[:, 0] <= R) & (limits[:, 1] >= R)).all(1)]
    first, second = (np.linspace(low, high, resolution) for low, high in limits)
    points = np.stack(np.meshgrid(first, second), -1).reshape(-1, 2)
    found = _predicted(predict, points, False, output)
    panels = make_panels(axes, 2, (3.3, 2.7))
    for ax, values, title in zip(panels, found, ("mean", "standard deviation"), strict=True):
        surface = values.reshape(resolution, resolution)
        mesh = ax.pcolormesh(first, second, surface, shading="gouraud", rasterized=True)
        if X is not None:
            rows, _ = thin(len(X))
            ax.plot(*X[rows].T, "o", mfc="white", mec=BLACK, ms=1.6, mew=0.3)
        if R is not None:
            ax.plot(*R.T, "o", mfc=BLACK, mec="white", ms=4.5, mew=0.8, clip_on=False)
        ax.set(xlim=limits[0], ylim=limits[1])
        ax.set_title(title, fontsize=NORMAL)
        ax.locator_params(nbins=5)
        dress(ax, "x₁", "x₂" if title == "mean" else "")
        colourbar(ax, mesh)
    return panels


def _as_predict(predict: Any) -> Predict:
    """Of a regressor, in its own units, of a posterior, or a function as it is."""
    from sklearn.utils.validation import check_is_fitted  # takes a second

    from srgp.regressor.answers import Answers

    owner = getattr(predict, "__self__", predict)
    if isinstance(owner, Answers):
        check_is_fitted(owner)

        def answer(X: np.ndarray, *, noise: bool) -> tuple[np.ndarray, np.ndarray]:
            mean, deviation = owner._answer(owner.scaler_.inputs(X), noise)
            return mean, deviation**2

        return answer
    if isinstance(predict, Posterior):
        return predict.predict
    if not callable(predict):
        raise ValueError(
            f"predict must be a regressor, a posterior, or a function predict(X, noise=...) -> "
            f"mean, variance, not a {type(predict).__name__}."
        )
    return predict


def _predicted(
    predict: Any, X: np.ndarray, noise: bool, output: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of one output at X."""
    predict = _as_predict(predict)
    mean, variance = (one_output(np.asarray(part), output) for part in predict(X, noise=noise))
    if not mean.shape == variance.shape == (len(X),):
        raise ValueError(
            f"predict gave a mean and a variance of shapes {mean.shape} and {variance.shape} for "
            f"{len(X)} points: one number a point, or one a point and output, is needed."
        )
    # Rounding may leave −1e-17 where there is nothing left to learn.
    return mean, np.sqrt(np.maximum(variance, 0.0))


def _grid(*places: np.ndarray | None) -> np.ndarray:
    """400 points over all that is shown."""
    low, high = _around("a grid is", *places)
    return np.linspace(low, high, 400)


def _around(needed: str, *places: np.ndarray | None) -> np.ndarray:
    """The lowest and the highest of all that is shown, and 5 % more on either side."""
    shown = [p for p in places if p is not None]
    if not shown:
        raise ValueError(f"without data and inducing inputs {needed} needed, such as 0 to 1.")
    low = np.min([p.min(0) for p in shown], axis=0)
    high = np.max([p.max(0) for p in shown], axis=0)
    margin = np.where(high > low, 0.05 * (high - low), 1.0)
    return np.stack([low - margin, high + margin])
