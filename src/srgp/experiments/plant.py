"""The stirred tank learned from longer and longer pasts (paper: section 5.3), and run freely.

One step ahead the model is given measured outputs; running freely it is given its own predictions,
which is what a controller that plans ahead relies on.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srgp import inducing
from srgp.experiments import tank
from srgp.experiments.results import Results
from srgp.experiments.traces import Method, Problem, ours, style, svgps
from srgp.fullgp import FullGP
from srgp.learners import SRGP, Exact
from srgp.plots.style import BLACK, BLUE, ORANGE
from srgp.posterior import posterior
from srgp.statistics import summarise

M, B = 100, 1000
BATCH = 50_000  # rows up to which batch VFE is run, as in the paper
FREE_RUNS, FREE_STEPS = 200, 250
FULL_GP = 20  # of so many test rows it predicts one, since each takes N² operations
SHOWN = 300  # samples in the picture: a minute


class Identified(NamedTuple):
    """Samples of the plant as rows, standardised, and what the outputs really were."""

    problem: Problem
    truth: np.ndarray  # at the test rows, in the units of y
    centre: np.ndarray
    spread: np.ndarray
    y_centre: float
    y_spread: float


def settings(full: bool) -> dict[str, Any]:
    """Three days and up to a million rows in full."""
    return {
        "samples": 1_200_000 if full else 60_000,
        "test": 200_000 if full else 10_000,
        "horizons": [1000, 10_000, BATCH, 100_000, 1_000_000] if full else [1000, 10_000, 40_000],
        "full_gp": 10_000 if full else 1000,
        "M": M,
        "B": B,
        "noise": tank.NOISE,
        "repetitions": 10 if full else 1,
    }


def identify(plant: tank.Plant, test: int, horizon: int, seed: int) -> Identified:
    """The last `horizon` rows before the `test` rows, which come last."""
    X, y = tank.features(plant)
    cut = len(X) - test
    train = slice(max(0, cut - horizon), cut)
    centre, spread = X[train].mean(0), X[train].std(0)
    y_centre, y_spread = float(y[train].mean()), float(y[train].std())
    X, y = (X - centre) / spread, (y - y_centre) / y_spread
    few = np.random.default_rng(seed).permutation(cut - train.start)[:5000] + train.start
    start = inducing.initial_model(X[few], y[few], M, seed=seed)
    problem = Problem(X[train], y[train], X[cut:], y[cut:], start)
    truth = plant.f[tank.LAGS :][cut:]
    return Identified(problem, truth, centre, spread, y_centre, y_spread)


def methods(horizon: int, run_peer: Any) -> dict[str, Method]:
    """As many passes over the rows as their number allows."""
    epochs = max(5, min(50, 200_000 // horizon))
    told = {"batch_size": B, "epochs": epochs, "learning_rate": 0.01, "checkpoints": 2}
    found = {"SRGP": ours(SRGP(batch_size=B, epochs=epochs))}
    if horizon <= BATCH:
        found["batch VFE"] = ours(Exact(iterations=100))
    return {**found, **svgps(run_peer, told)}


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any) -> str:
    """Every method at every horizon it can take; the pictures, and the table."""
    runs: dict[tuple[str, int], list[Any]] = {}
    for seed in range(chosen["repetitions"]):
        # Simulated, and cut into rows, only if a run is missing, and once for all of them.
        plant = functools.cache(functools.partial(tank.simulate, chosen["samples"], seed))
        for horizon in chosen["horizons"]:
            made = functools.cache(
                lambda plant=plant, horizon=horizon, seed=seed: identify(
                    plant(), chosen["test"], horizon, seed
                )
            )
            for name, method in _tried(horizon, chosen, run_peer).items():
                key = f"{name} {horizon} {seed}"
                work = functools.partial(_work, made, seed, method, results.checkpoint(key))
                runs.setdefault((name, horizon), []).append(results.run(key, work))
    rows = [
        {"method": name, "horizon": horizon, **_means(found), "repetitions": len(found)}
        for (name, horizon), found in runs.items()
    ]
    results.picture(picture(rows), "plant")
    longest = runs["SRGP", chosen["horizons"][-1]]
    results.picture(prediction(longest[0]["shown"]), "plant-prediction")
    return results.table("plant", rows)


def _tried(horizon: int, chosen: Mapping[str, Any], run_peer: Any) -> dict[str, Method | None]:
    """The methods that can take so many rows; None stands for the full GP."""
    found: dict[str, Method | None] = dict(methods(horizon, run_peer))
    return {**found, "full GP": None} if horizon <= chosen["full_gp"] else found


def _means(runs: list[Any]) -> dict[str, float]:
    """Over repetitions, of all that is a number."""
    keys = [key for key in runs[0] if key != "shown"]
    return {key: float(np.mean([run[key] for run in runs])) for key in keys}


def _work(
    made: Callable[[], Identified], seed: int, method: Method | None, kept: Path
) -> dict[str, Any]:
    at = made()
    data, every = at.problem, 1
    # The full GP is at the hyper-parameters that the batch model finds: learning them with N³ at
    # every step would change little and take hours.
    last = (method or ours(Exact(iterations=100)))(data, seed, kept)[-1]
    model = last.model
    if method is None:
        predict, every = FullGP(model.kernel, model.noise, data.X, data.y).predict, FULL_GP
    else:
        predict = posterior(model, summarise(model, data.X, data.y)).predict
    mean, variance = predict(data.X_test[::every])
    deviation = at.y_spread * np.sqrt(variance + float(model.noise))
    mean = at.y_centre + at.y_spread * mean
    measured = at.y_centre + at.y_spread * data.y_test[::every]
    error = mean - at.truth[::every]
    found = {
        "RMSE": float(np.sqrt(np.mean(error**2))),
        "median error": float(np.median(np.abs(error))),
        "coverage": float(np.mean(np.abs(measured - mean) < 1.96 * deviation)),
        "free-run RMSE": free_run_error(at, predict, FREE_RUNS // every),
        "seconds": last.seconds,
    }
    if every > 1:
        return found
    shown = {
        "truth": at.truth[:SHOWN],
        "mean": mean[:SHOWN],
        "deviation": deviation[:SHOWN],
        "free": free_run(at, predict, np.zeros(1, int), SHOWN)[:, 0],
    }
    return {**found, "shown": shown}


def free_run_error(at: Identified, predict: Any, runs: int = FREE_RUNS) -> float:
    """RMSE of predictions that are fed back, over many starts in the test rows."""
    starts = np.linspace(0, len(at.truth) - FREE_STEPS - 1, runs).astype(int)
    truth = at.truth[starts + np.arange(FREE_STEPS)[:, None]]
    return float(np.sqrt(np.mean((free_run(at, predict, starts, FREE_STEPS) - truth) ** 2)))


def free_run(at: Identified, predict: Any, starts: np.ndarray, steps: int) -> np.ndarray:
    """Predictions (steps, starts) that are fed back, from these test rows on."""
    X = at.problem.X_test * at.spread + at.centre
    past = X[starts, : tank.LAGS]  # y_{t−1}, y_{t−2}
    found = []
    for k in range(steps):
        rows = np.column_stack([past, X[starts + k, tank.LAGS :]])
        mean, _ = predict((rows - at.centre) / at.spread)
        found.append(at.y_centre + at.y_spread * mean)
        past = np.column_stack([found[-1], past[:, :-1]])
    return np.array(found)


def prediction(shown: Mapping[str, Any]) -> Any:
    """Predictions of measurements with their bands, and a free run, against the truth."""
    from matplotlib.figure import Figure

    truth, mean, deviation, free = (
        np.asarray(shown[name]) for name in ("truth", "mean", "deviation", "free")
    )
    t = tank.PERIOD * np.arange(len(truth))
    figure = Figure(figsize=(8.4, 4.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    band = 1.96 * deviation
    label = "95 % of measurements, one step ahead"
    for axes, centre in ((top, 0.0), (bottom, truth)):
        low, high = mean - band - centre, mean + band - centre
        axes.fill_between(t, low, high, color=BLUE, alpha=0.25, lw=0, label=label)
        axes.plot(t, truth - centre, color=BLACK, lw=0.8, label="truth")
        axes.plot(t, mean - centre, color=BLUE, lw=1.2, label="one step ahead")
        axes.plot(t, free - centre, color=ORANGE, lw=1.2, ls="--", label="free run")
    top.set_ylabel("concentration, in units of C_b1")
    bottom.set(xlabel="seconds", ylabel="minus truth")
    figure.legend(*top.get_legend_handles_labels(), loc="outside lower center", ncols=4,
                  frameon=False, fontsize=8)  # fmt: skip
    return figure


def picture(rows: list[dict[str, Any]]) -> Any:
    """Errors over the horizon, by method."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, NullLocator

    names = ("RMSE", "median error", "free-run RMSE")
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(names))
    for axes, name in zip(panels, names, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            line = [(row["horizon"], row[name]) for row in rows if row["method"] == method]
            points = zip(*line, strict=True)
            axes.loglog(*points, **style(method), marker="o", ms=4, label=method)
        axes.set(title=name, xlabel="rows learned from")
        # A decade at most: round numbers, which powers of ten are too few for.
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:.3g}")
    panels[0].set_ylabel("off the truth, in units of C_b1")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure
