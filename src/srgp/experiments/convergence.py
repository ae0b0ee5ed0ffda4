"""Convergence on a one-dimensional toy: N = 1000, M = 15, B = 100 (paper: Fig. 5)."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from srgp import kernels
from srgp.experiments.results import Results
from srgp.experiments.sampler import draw
from srgp.experiments.traces import Method, Problem, ours, style, svgps, traced
from srgp.learners import SRGP, Exact
from srgp.model import Model

N, M, B = 1000, 15, 100
UNITS = {"bound": "nats", "l": "in units of x"}  # of others, those of y


def settings(full: bool) -> dict[str, Any]:
    """The paper's size is small enough to be the only one; more epochs in full."""
    return {"N": N, "M": M, "B": B, "epochs": 200 if full else 50, "test": 1000, "seed": 0}


def problem(seed: int = 0) -> Problem:
    """A smooth function of one input with noise of deviation 0.1; everything starts at 1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (2 * N, 1))
    y = draw(X, 0.25, rng).f + 0.1 * rng.normal(size=2 * N)
    start = Model(kernels.SE(lengthscales=np.ones(1)), 1.0, np.linspace(-1.0, 1.0, M)[:, None])
    return Problem(X[:N], y[:N], X[N:], y[N:], start)


def methods(epochs: int, run_peer: Any) -> dict[str, Method]:
    """All that are compared."""
    told = {"batch_size": B, "epochs": epochs, "learning_rate": 0.01, "checkpoints": epochs}
    return {
        "SRGP": ours(SRGP(batch_size=B, epochs=epochs)),
        "SRGP, paper's settings": ours(SRGP.paper(0.01, batch_size=B, epochs=epochs)),
        "batch VFE": ours(Exact(iterations=300)),
        **svgps(run_peer, told),
    }


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any) -> str:
    """Every method once; the picture, and the table of where each ended."""
    data = problem(chosen["seed"])
    traces = {}
    for name, method in methods(chosen["epochs"], run_peer).items():
        traces[name] = results.run(
            name, functools.partial(traced, method, data, 0, results.checkpoint(name), 200)
        )
    results.picture(picture(traces, chosen["epochs"]), "convergence")
    best = max(traces["batch VFE"]["bound"])
    rows = []
    for name, trace in traces.items():
        ends = {key: line[-1] for key, line in trace["theta"].items()}
        close = [e for e, b in zip(trace["epoch"], trace["bound"], strict=True) if b > 0.999 * best]
        rows.append(
            {
                "method": name,
                "bound": trace["bound"][-1],
                "off the optimum": f"{(best - trace['bound'][-1]) / abs(best):.2%}",
                "epochs to 0.1 %": close[0] if close else None,
                "RMSE": trace["rmse"][-1],
                **ends,
                "seconds": trace["seconds"][-1],
            }
        )
    return results.table("convergence", rows)


def picture(traces: Mapping[str, Any], epochs: int) -> Any:
    """RMSE, bound and each hyper-parameter over epochs; batch VFE's optimum as a line."""
    from matplotlib.figure import Figure

    names = ["bound", "RMSE", *next(iter(traces.values()))["theta"]]
    figure = Figure(figsize=(2.5 * len(names), 2.8), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names)), names, strict=True):
        for method, trace in traces.items():
            line = trace["theta"].get(name) or trace[name.lower()]
            if method == "batch VFE":
                axes.axhline(line[-1], **style(method), lw=1.2, label=method)
            else:
                axes.plot(trace["epoch"], line, **style(method), lw=1.4, label=method)
        unit = UNITS.get(name, "in units of y")
        axes.set(title=name, xlabel="epoch", ylabel=unit, xlim=(0, epochs))
        if name == "bound":
            best = traces["batch VFE"]["bound"][-1]
            axes.set_ylim(best - 1.2 * abs(best), best + 0.1 * abs(best))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure
