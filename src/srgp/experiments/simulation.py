"""Data drawn from a GP in 1, 2 and 5 dimensions: bound, RMSE and coverage (paper: section 5.1).

σ0 = 1, σn = 0.1, l = 0.1, 0.2, 0.5 and M = 20, 50, 100; all starts at 1, R at random rows of data.
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from srgp import kernels
from srgp.experiments.results import Results
from srgp.experiments.sampler import draw
from srgp.experiments.traces import Method, Problem, ends, ours, repeated, style, svgps
from srgp.learners import SRGP, Auto
from srgp.model import Model

# Lengthscale, inducing inputs, learning rates of SRGP and SVGP, by the number of inputs.
PAPER = {1: (0.1, 20, 0.0001, 0.001), 2: (0.2, 50, 0.001, 0.005), 5: (0.5, 100, 0.005, 0.005)}
NOISE = 0.1
LABELS = {
    "bound": "bound, in nats",
    "rmse": "RMSE, in units of y",
    "coverage": "coverage of 95 %",
}


def settings(full: bool) -> dict[str, Any]:
    """Ten repetitions of 100 000 rows over 50 epochs in full."""
    return {
        "N": 100_000 if full else 20_000,
        "test": 10_000,
        "B": 5000 if full else 1000,
        "epochs": 50 if full else 10,
        "repetitions": 10 if full else 2,
        "dimensions": [1, 2, 5],
    }


def problem(D: int, N: int, test: int, seed: int) -> Problem:
    """Rows uniform on [−1, 1]^D."""
    rng = np.random.default_rng(seed)
    lengthscale, M, *_ = PAPER[D]
    X = rng.uniform(-1.0, 1.0, (N + test, D))
    y = draw(X, lengthscale, rng, tolerance=1e-4).f + NOISE * rng.normal(size=len(X))
    R = X[rng.choice(N, M, replace=False)]
    start = Model(kernels.SE(lengthscales=np.ones(D)), 1.0, R)
    return Problem(X[:N], y[:N], X[N:], y[N:], start)


def methods(D: int, chosen: Mapping[str, Any], run_peer: Any) -> dict[str, Method]:
    """The paper's algorithm as published and with our defaults; auto; SVGP."""
    B, epochs, (_, _, rate, svgp_rate) = chosen["B"], chosen["epochs"], PAPER[D]
    told = {"batch_size": B, "epochs": epochs, "learning_rate": svgp_rate, "checkpoints": epochs}
    return {
        "SRGP": ours(SRGP(epochs=min(20, epochs))),
        "SRGP, paper's settings": ours(SRGP.paper(rate, batch_size=B, epochs=epochs)),
        "auto": ours(Auto()),
        **svgps(run_peer, told),
    }


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any) -> str:
    """Every method on every repetition; one picture over epochs and one over seconds."""
    found, rows = {}, []
    for D in chosen["dimensions"]:
        make = functools.partial(problem, D, chosen["N"], chosen["test"])
        tried = methods(D, chosen, run_peer)
        found[D] = repeated(results, tried, make, chosen["repetitions"], 26, f"D={D} ")
        rows += [{"D": D, **row} for row in ends(found[D])]
    for axis in ("epoch", "seconds"):
        results.picture(picture(found, axis), f"simulation-{axis}")
    return results.table("simulation", rows)


def picture(found: Mapping[int, Mapping[str, list[Any]]], axis: str) -> Any:
    """Bound, RMSE and coverage by dimension: every repetition thin, their mean thick."""
    from matplotlib.figure import Figure

    names = ("bound", "rmse", "coverage")
    figure = Figure(figsize=(3.4 * len(found), 7.2), layout="constrained")
    panels = figure.subplots(len(names), len(found), squeeze=False, sharex="col")
    for column, (D, by_method) in zip(panels.T, found.items(), strict=True):
        for axes, name in zip(column, names, strict=True):
            for method, traces in by_method.items():
                for trace in traces:
                    axes.plot(trace[axis], trace[name], **style(method), lw=0.6, alpha=0.35)
                lines = [trace[name] for trace in traces]
                if len({len(line) for line in lines}) == 1:
                    at = np.mean([trace[axis] for trace in traces], 0)
                    axes.plot(at, np.mean(lines, 0), **style(method), lw=1.8, label=method)
                else:
                    axes.plot([], [], **style(method), lw=1.8, label=method)
            axes.set_ylabel(LABELS[name])
            if name == "coverage":
                axes.axhline(0.95, color="black", lw=0.6)
                axes.set_ylim(0.8, 1.0)
            if axis == "seconds":
                axes.set_xscale("symlog", linthresh=1.0)
        column[0].set_title(f"D = {D}")
        column[-1].set_xlabel(axis)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure
