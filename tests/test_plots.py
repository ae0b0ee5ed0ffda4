"""What is in the pictures: lines, band edges, points, labels, and the axes they are in."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from sklearn.exceptions import NotFittedError

import srgp
from srgp import SparseGPRegressor, metrics, plots
from srgp import kernels as k
from srgp.learners import History, Record
from srgp.plots import style

X = np.linspace(0.0, 6.0, 40)[:, None]
Y = np.sin(X[:, 0])
MODEL = srgp.Model(k.SE(), 0.04, X[::6])
POST = srgp.posterior(MODEL, srgp.summarise(MODEL, X, Y))
GRID = np.linspace(-2.0, 8.0, 50)
Z975 = 1.959963984540054


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()  # what fails only when it is drawn fails here
    plt.close("all")


def line(ax: Axes, label: str) -> Line2D:
    (found,) = [drawn for drawn in ax.lines if drawn.get_label() == label]
    return found


def edges(ax: Axes, label: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper edge of a band at each x."""
    (band,) = [drawn for drawn in ax.collections if drawn.get_label() == label]
    corners = np.asarray(band.get_paths()[0].vertices)
    at = [corners[corners[:, 0] == x_i, 1] for x_i in x]
    return np.array([a.min() for a in at]), np.array([a.max() for a in at])


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


# One input.


def test_posterior_1d_draws_the_mean_and_both_bands() -> None:
    ax = plots.posterior_1d(POST.predict, X, Y, inducing=MODEL.inducing, grid=GRID, truth=np.sin)
    mean, latent = POST.predict(GRID[:, None])
    _, noisy = POST.predict(GRID[:, None], noise=True)
    np.testing.assert_array_equal(line(ax, "mean").get_xydata(), np.c_[GRID, mean])
    for label, variance in (("95 % of f", latent), ("95 % of y", noisy)):
        low, high = edges(ax, label, GRID)
        np.testing.assert_allclose(low, mean - Z975 * np.sqrt(variance), rtol=1e-12)
        np.testing.assert_allclose(high, mean + Z975 * np.sqrt(variance), rtol=1e-12)
    np.testing.assert_array_equal(line(ax, "truth").get_ydata(), np.sin(GRID))
    np.testing.assert_array_equal(line(ax, "data").get_xydata(), np.c_[X, Y])
    np.testing.assert_array_equal(line(ax, "inducing").get_xdata(), MODEL.inducing[:, 0])
    assert legend(ax) == ["95 % of y", "95 % of f", "mean", "truth", "data", "inducing"]


def test_the_legend_lies_above_what_is_drawn() -> None:
    ax = plots.posterior_1d(POST.predict, X, Y, grid=GRID)
    ax.figure.canvas.draw()
    box = ax.get_legend().get_window_extent().transformed(ax.transData.inverted())
    assert box.y0 > edges(ax, "95 % of y", GRID)[1].max()


def test_inducing_ticks_stay_at_the_bottom_and_leave_the_limits_alone() -> None:
    limits = []
    for inducing in (None, MODEL.inducing):
        ax = plots.posterior_1d(POST.predict, grid=GRID, inducing=inducing)
        limits.append(ax.get_ylim())
    assert limits[0] == limits[1]
    ticks = line(ax, "inducing")
    heights = ax.transAxes.inverted().transform(
        ticks.get_transform().transform(ticks.get_xydata())
    )[:, 1]
    np.testing.assert_allclose(heights, 0.03, atol=1e-12)


def test_posterior_1d_covers_data_and_inducing_inputs_by_itself() -> None:
    ax = plots.posterior_1d(POST.predict, X, Y, inducing=[[-4.0], [2.0]])
    x = np.asarray(line(ax, "mean").get_xdata())
    assert (x[0], x[-1]) == pytest.approx((-4.5, 6.5))
    assert legend(plots.posterior_1d(POST.predict, grid=GRID)) == ["95 % of y", "95 % of f", "mean"]
    one = plots.posterior_1d(POST.predict, [3.0], [0.0])
    assert one.get_xlim()[0] < 2.0 < 4.0 < one.get_xlim()[1]


def test_many_rows_are_thinned_to_some_of_them() -> None:
    many = np.random.default_rng(0).uniform(0.0, 6.0, 50_000)
    ax = plots.posterior_1d(POST.predict, many, np.sin(many))
    drawn = np.asarray(line(ax, "data, 1 in 25").get_xydata())
    assert len(np.unique(drawn, axis=0)) == 2000
    assert set(drawn[:, 0]) <= set(many)
    np.testing.assert_array_equal(drawn[:, 1], np.sin(drawn[:, 0]))


def test_one_of_several_outputs() -> None:
    y = np.c_[Y, 2.0 + Y]
    post = srgp.posterior(MODEL, srgp.summarise(MODEL, X, y))
    ax = plots.posterior_1d(post.predict, X, y, grid=GRID, output=1)
    np.testing.assert_array_equal(
        line(ax, "mean").get_ydata(), post.predict(GRID[:, None])[0][:, 1]
    )
    np.testing.assert_array_equal(line(ax, "data").get_ydata(), y[:, 1])
    with pytest.raises(ValueError, match="2 outputs, and none of number 2"):
        plots.posterior_1d(post.predict, grid=GRID, output=2)


def test_filters_full_gps_and_functions_predict_too() -> None:
    expected = POST.predict(GRID[:, None])[0]
    f = srgp.Filter.start(MODEL).update(X, Y)
    ax = plots.posterior_1d(f.predict, grid=GRID)
    # The filter is another route to the posterior: rounding times cond(K_RR), below 1e4.
    np.testing.assert_allclose(line(ax, "mean").get_ydata(), expected, atol=1e-10)
    full = srgp.FullGP(MODEL.kernel, 0.04, X, Y)
    ax = plots.posterior_1d(full.predict, grid=GRID)
    np.testing.assert_array_equal(line(ax, "mean").get_ydata(), full.predict(GRID[:, None])[0])

    def scaled(X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = POST.predict(X, noise)
        return 10.0 + 2.0 * mean, 4.0 * variance

    ax = plots.posterior_1d(scaled, grid=GRID)
    np.testing.assert_array_equal(line(ax, "mean").get_ydata(), 10.0 + 2.0 * expected)


# Two inputs.


def test_a_regressor_is_drawn_in_the_units_of_its_data() -> None:
    inputs, targets = 100.0 * X, 500.0 + 20.0 * Y
    frame = pd.DataFrame({"a": inputs[:, 0]})
    est = SparseGPRegressor(n_inducing=8, learner=None).fit(frame, targets)
    grid = np.linspace(0.0, 100.0, 5)
    mean, deviation = est.predict(pd.DataFrame({"a": grid}), return_std=True)
    for predict in (est, est.predict):
        ax = plots.posterior_1d(predict, inputs, targets, grid=grid)
        np.testing.assert_allclose(line(ax, "mean").get_ydata(), mean, rtol=1e-12)
        low, high = edges(ax, "95 % of y", grid)
        np.testing.assert_allclose(high - low, 2 * 1.959964 * deviation, rtol=1e-6)
    drawn = line(plots.posterior_1d(POST, grid=grid), "mean").get_ydata()
    np.testing.assert_array_equal(drawn, POST.predict(grid[:, None])[0])
    with pytest.raises(NotFittedError):
        plots.posterior_1d(SparseGPRegressor(), inputs, targets)


def saddle(X: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
    return X[:, 0] - 10.0 * X[:, 1], 0.25 * X[:, 0] ** 2 + (7.0 if noise else 0.0)


def test_posterior_2d_draws_mean_and_deviation() -> None:
    data, R = np.array([[0.5, 2.5], [0.7, 2.1]]), np.array([[0.0, 2.0], [1.0, 3.0], [9.0, 2.0]])
    axes = plots.posterior_2d(saddle, data, inducing=R, bounds=[(0, 1), (2, 3)], resolution=11)
    assert axes.shape == (2,)
    first, second = np.meshgrid(np.linspace(0, 1, 11), np.linspace(2, 3, 11))
    for ax, expected in zip(axes, (first - 10.0 * second, 0.5 * first), strict=True):
        (mesh,) = ax.collections
        np.testing.assert_allclose(mesh.get_array(), expected, atol=1e-14)
        np.testing.assert_array_equal(mesh.get_coordinates(), np.stack([first, second], -1))
        assert mesh.get_cmap().name == "viridis"
        np.testing.assert_array_equal(ax.lines[0].get_xydata(), data)
        np.testing.assert_array_equal(ax.lines[1].get_xydata(), R[:2])  # not the one outside
        assert (ax.get_xlim(), ax.get_ylim()) == ((0.0, 1.0), (2.0, 3.0))
    assert [ax.get_title() for ax in axes] == ["mean", "standard deviation"]
    assert (axes[0].get_xlabel(), axes[0].get_ylabel()) == ("x₁", "x₂")


def test_posterior_2d_covers_what_it_shows() -> None:
    data, R = np.array([[0.0, 5.0], [1.0, 5.0]]), np.array([[3.0, 5.0]])
    for ax in plots.posterior_2d(saddle, data, inducing=R, resolution=5):
        np.testing.assert_allclose(ax.get_xlim(), (-0.15, 3.15))
        np.testing.assert_allclose(ax.get_ylim(), (4.0, 6.0))  # all the same: 1 on either side
        assert len(ax.lines[1].get_xydata()) == 1


# Learning.


def history(bounds: list[float | None], rate: float = 1.0) -> History:
    return History(
        Record(rate * i, float(i), b, None, 0.1 * i, None, 0) for i, b in enumerate(bounds, start=1)
    )


def test_convergence_draws_what_is_known() -> None:
    bounds = [-5.0, None, -3.0, -np.inf, -2.0]
    ax = plots.convergence(history(bounds, rate=0.5))
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0.5, -5], [1.5, -3], [2.5, -2]])
    assert (ax.get_xlabel(), legend(ax)) == ("seconds", [])
    assert ax.get_ylabel() == "bound"


def test_convergence_of_several_learners() -> None:
    named = {"A": history([-2.0, -1.0]), "B": history([-3.0] * 40)}
    ax = plots.convergence(named, "rmse", "epoch")
    assert legend(ax) == ["A", "B"]
    np.testing.assert_array_equal(line(ax, "B").get_xdata(), np.arange(1, 41))
    np.testing.assert_array_equal(line(ax, "A").get_ydata(), [0.1, 0.2])
    assert ax.get_xlabel() == "passes over the data"
    assert len({drawn.get_color() for drawn in ax.lines}) == 2


def test_convergence_by_estimates_where_there_is_no_bound() -> None:
    told = History(Record(float(i), float(i), None, -1.0 / i, None, None, 0) for i in (1, 2))
    ax = plots.convergence({"A": history([-2.0, -1.0]), "B": told})
    assert (legend(ax), ax.get_ylabel()) == (["A", "B (estimate)"], "bound")
    np.testing.assert_array_equal(line(ax, "B (estimate)").get_ydata(), [-1.0, -0.5])
    assert plots.convergence(told).get_ylabel() == "estimate of the bound"


def test_many_learners_differ_in_colour_or_dashes_and_keep_the_legend_outside() -> None:
    ax = plots.convergence({f"learner {i}": history([-2.0, -1.0 * i]) for i in range(9)})
    assert len({(drawn.get_color(), drawn.get_linestyle()) for drawn in ax.lines}) == 9
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().x0 >= ax.bbox.x1


def test_convergence_of_a_real_run() -> None:
    learned = srgp.learn(MODEL, (X, Y), srgp.Exact(iterations=3))
    ax = plots.convergence(learned.history, against="epoch")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), learned.history.column("bound"))


def test_parameters_are_panels() -> None:
    steps = np.arange(5.0)
    traces = {"noise": 10.0**-steps, "lengthscales": np.c_[steps, 2 + steps], "mean": -steps}
    many = {**traces, "inducing": np.outer(steps, np.arange(12)), "variance": 1 + steps}
    axes = plots.parameters_over_time(many, 2.0 * steps, label="epoch")
    assert [ax.get_title() for ax in axes] == list(many)
    assert len(axes[0].figure.axes) == 5  # the sixth place is empty
    np.testing.assert_array_equal(axes[0].lines[0].get_xydata(), np.c_[2 * steps, 10.0**-steps])
    assert [ax.get_yscale() for ax in axes] == ["log", "linear", "linear", "linear", "linear"]
    np.testing.assert_array_equal(axes[1].lines[1].get_ydata(), 2 + steps)
    assert [legend(ax) for ax in axes] == [[], ["1", "2"], [], [], []]
    assert len(axes[3].lines) == 12
    assert {ax.get_xlabel() for ax in axes} == {"epoch"}
    plain = plots.parameters_over_time(traces)
    np.testing.assert_array_equal(plain[0].lines[0].get_xdata(), steps)


# Quality.


def normal_data(N: int, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=N), rng.uniform(0.05, 0.2, N)
    return mean + np.sqrt(variance) * rng.normal(size=N), mean, factor * variance


def test_calibration_draws_the_metric_and_the_diagonal() -> None:
    y, mean, variance = normal_data(300, factor=0.5)
    ax = plots.calibration(y, mean, variance)
    diagonal, curve = ax.lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    expected, observed = metrics.calibration(y, mean, variance)
    np.testing.assert_array_equal(curve.get_xydata(), np.c_[expected, observed])
    covered = 100.0 * metrics.coverage(y, mean, variance)
    assert ax.texts[0].get_text() == f"95 % interval\ncovers {covered:.1f} %"
    corners = np.asarray(ax.collections[0].get_paths()[0].vertices)
    middle = corners[corners[:, 0] == 0.5, 1]  # a proportion's standard error is 0.5/√N there
    assert middle.max() - 0.5 == pytest.approx(Z975 * 0.5 / np.sqrt(300), rel=1e-12)
    assert (ax.get_xlim(), ax.get_ylim()) == ((0.0, 1.0), (0.0, 1.0))


def test_relevance_is_sorted_from_the_top() -> None:
    ax = plots.relevance([2.0, 0.5, 10.0], ["age", "height", "weight"])
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == [2.0, 0.5, 0.1]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["height", "age", "weight"]
    heights = [ax.transData.transform((0, bar.get_y()))[1] for bar in ax.patches]
    assert heights == sorted(heights, reverse=True)
    assert [t.get_text() for t in plots.relevance([1.0, 0.1]).get_yticklabels()] == ["x2", "x1"]
    assert len(plots.relevance(3.0).patches) == 1


def test_prediction_vs_truth_with_intervals() -> None:
    y, mean, variance = normal_data(200)
    ax = plots.prediction_vs_truth(y, mean, variance)
    points, diagonal = ax.lines
    np.testing.assert_array_equal(points.get_xydata(), np.c_[y, mean])
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    (bars,) = ax.collections
    assert isinstance(bars, LineCollection)
    low, high = np.array(bars.get_segments())[:, :, 1].T
    np.testing.assert_allclose(high - mean, Z975 * np.sqrt(variance), rtol=1e-12)
    np.testing.assert_allclose(mean - low, Z975 * np.sqrt(variance), rtol=1e-12)
    assert ax.get_ylim()[0] < low.min() < high.max() < ax.get_ylim()[1]
    covered = 100.0 * metrics.coverage(y, mean, variance)
    expected = f"RMSE {metrics.rmse(y, mean):.3g}, 95 % covers {covered:.1f} %"
    assert ax.get_title(loc="left") == expected
    assert not plots.prediction_vs_truth(y, mean).collections


@pytest.mark.parametrize(("N", "hexagons"), [(5000, False), (5001, True)])
def test_many_predictions_are_counted(N: int, hexagons: bool) -> None:
    y, mean, _ = normal_data(N)
    ax = plots.prediction_vs_truth(y, mean)
    assert bool(ax.collections) == hexagons
    assert len(ax.lines) == (1 if hexagons else 2)
    if hexagons:
        assert ax.collections[0].get_array().sum() == N
        assert ax.collections[0].get_cmap().name == "viridis"


def test_equal_predictions_and_outputs_have_limits_too() -> None:
    assert plots.prediction_vs_truth([1.0], [1.0]).get_xlim() == (0.0, 2.0)
    plots.prediction_vs_truth(np.ones(6000), np.ones(6000))
    two = plots.prediction_vs_truth(np.ones((3, 2)), np.zeros((3, 2)))
    assert len(two.lines[0].get_xdata()) == 6


# The contract of all.

SINGLE: dict[str, Any] = {
    "posterior_1d": lambda ax: plots.posterior_1d(POST.predict, X, Y, ax=ax),
    "convergence": lambda ax: plots.convergence({"a": history([-1.0, -0.5])}, ax=ax),
    "calibration": lambda ax: plots.calibration(*normal_data(50), ax=ax),
    "relevance": lambda ax: plots.relevance([1.0, 2.0], ax=ax),
    "prediction_vs_truth": lambda ax: plots.prediction_vs_truth(*normal_data(50), ax=ax),
}
SEVERAL: dict[str, Any] = {
    "posterior_2d": lambda axes: plots.posterior_2d(saddle, bounds=[(0, 1), (0, 1)], axes=axes),
    "parameters": lambda axes: plots.parameters_over_time({"a": [1.0], "b": [2.0]}, axes=axes),
}


@pytest.mark.parametrize("name", SINGLE)
def test_it_draws_into_the_axes_handed_in(name: str) -> None:
    _, (left, right) = plt.subplots(1, 2)
    assert SINGLE[name](right) is right
    assert not left.has_data()
    assert len(plt.get_fignums()) == 1
    assert SINGLE[name](None) is not right
    assert len(plt.get_fignums()) == 2


@pytest.mark.parametrize("name", SEVERAL)
def test_it_draws_into_the_panels_handed_in(name: str) -> None:
    figure, axes = plt.subplots(2, 2)
    panels = SEVERAL[name](axes)
    assert [a is b for a, b in zip(panels, axes.flat, strict=False)] == [True, True]
    assert not axes[1, 0].has_data()
    with pytest.raises(ValueError, match="2 axes are needed, got 1"):
        SEVERAL[name](figure.axes[0])
    assert len(SEVERAL[name](None)) == 2


@pytest.mark.parametrize("name", SINGLE)
def test_text_is_small_and_inside_the_figure(name: str) -> None:
    ax = SINGLE[name](None)
    figure = ax.figure
    figure.set_size_inches(3.0, 2.0)
    figure.canvas.draw()
    labels = [ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels(), *ax.texts]
    assert {text.get_fontsize() for text in labels} <= {8.0, 9.0}
    box = ax.get_tightbbox()
    assert box.x0 >= 0.0
    assert box.y0 >= 0.0
    assert box.x1 <= figure.bbox.x1
    assert box.y1 <= figure.bbox.y1


def test_settings_of_the_user_stay_as_they_are() -> None:
    before = dict(matplotlib.rcParams)
    for draw in (*SINGLE.values(), *SEVERAL.values()):
        draw(None)
    assert dict(matplotlib.rcParams) == before


def test_colours_are_safe() -> None:
    """Those of Okabe and Ito, and greys."""
    okabe_ito = "#E69F00 #56B4E9 #009E73 #F0E442 #0072B2 #D55E00 #CC79A7".lower().split()
    for colour in {*style.PALETTE, style.GREY}:
        red, green, blue = (colour[i : i + 2] for i in (1, 3, 5))
        assert to_hex(colour) in okabe_ito or red == green == blue


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.posterior_1d("a", X, Y), "must be a regressor.*not a str"),
        (lambda: plots.posterior_1d(POST.predict, X), "X and y go together"),
        (lambda: plots.posterior_1d(POST.predict), "a grid is needed"),
        (lambda: plots.posterior_1d(POST.predict, X, Y[:-1]), r"y must have shape \(40,\)"),
        (lambda: plots.posterior_1d(POST.predict, np.c_[X, X], Y), r"X must have shape \(rows, 1"),
        (lambda: plots.posterior_1d(POST.predict, grid=[]), "grid must have shape"),
        (lambda: plots.posterior_1d(POST.predict, grid=[0.0, np.nan]), "grid holds nan"),
        (lambda: plots.posterior_1d(lambda X, noise: (X[1:], X), grid=GRID), "predict gave"),
        (lambda: plots.posterior_2d(saddle, bounds=[(0, 1)]), "array of shape \\(1, 2\\)"),
        (lambda: plots.posterior_2d(saddle, bounds=[(0, 1), (1, 1)]), "low first"),
        (lambda: plots.posterior_2d(saddle), "bounds are needed"),
        (lambda: plots.posterior_2d(saddle, X), "X has 1 columns"),
        (lambda: plots.convergence({}), "no histories"),
        (lambda: plots.convergence(history([None])), "the history has no bound"),
        (lambda: plots.convergence({"A": History()}), "the history of A has no bound"),
        (lambda: plots.convergence(history([1.0]), "loss"), "got 'loss' and 'seconds'"),  # type: ignore[arg-type]
        (lambda: plots.convergence(history([1.0]), against="rmse"), "got 'bound' and 'rmse'"),  # type: ignore[arg-type]
        (lambda: plots.parameters_over_time({}), "no traces"),
        (
            lambda: plots.parameters_over_time({"a": [1.0], "b": [1.0, 2.0]}),
            r"b must have shape \(1,\)",
        ),
        (lambda: plots.parameters_over_time({"a": 1.0}), r"a must have shape \(1,\)"),
        (lambda: plots.parameters_over_time({"a": np.ones((2, 2, 2))}), r"got \(2, 2, 2\)"),
        (lambda: plots.parameters_over_time({"a": [1.0, 2.0]}, [1.0]), "a must have"),
        (lambda: plots.parameters_over_time({"a": [np.nan]}), "a holds nan"),
        (lambda: plots.calibration([1.0], [1.0], [0.0]), "variance must be positive"),
        (lambda: plots.relevance([1.0, -1.0]), "must be positive"),
        (lambda: plots.relevance([1.0, 2.0], ["a"]), "1 names do not fit"),
        (lambda: plots.prediction_vs_truth([1.0], [[1.0]]), "mean must have the shape"),
    ],
)
def test_bad_input_is_refused_before_a_figure_is_made(draw: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
    assert not plt.get_fignums()


def test_matplotlib_is_asked_for_only_by_plots() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None  # as if it were not installed
import srgp, srgp.metrics
try:
    import srgp.plots
except ImportError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'srgp[plots]'" in out.stdout
