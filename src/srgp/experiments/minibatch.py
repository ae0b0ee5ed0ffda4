"""What the size of the mini-batch does: 1-D, N = 10 000, B = 100 to 5000 and all (paper: Fig. 6).

The paper counts normalised gradient updates; here these are epochs, N/B updates each.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srgp import kernels
from srgp.experiments.results import Results
from srgp.experiments.sampler import draw
from srgp.experiments.traces import Problem, judged, ours
from srgp.learners import SRGP, Exact, learn
from srgp.model import Model
from srgp.plots.style import nth_colour

N, M, LENGTHSCALE, NOISE = 10_000, 20, 0.1, 0.1
LAST = 10  # epochs over which the error at the end is taken


def settings(full: bool) -> dict[str, Any]:
    """Twenty repetitions in full."""
    return {
        "N": N,
        "M": M,
        "B": [100, 500, 1000, 5000, N] if full else [100, 1000, N],
        "epochs": 200 if full else 60,
        "repetitions": 20 if full else 3,
        "learning_rate": 0.01,
    }


def problem(seed: int) -> Problem:
    """A GP as in the simulation, started near its hyper-parameters."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N + 1000, 1))
    y = draw(X, LENGTHSCALE, rng).f + NOISE * rng.normal(size=len(X))
    start = Model(kernels.SE(lengthscales=[0.3]), 0.1, np.linspace(-1.0, 1.0, M)[:, None])
    return Problem(X[:N], y[:N], X[N:], y[N:], start)


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any) -> str:
    """The paper's algorithm at every size; errors are relative to the optimum of the batch."""
    errors: dict[int, list[Any]] = {B: [] for B in chosen["B"]}
    seconds: dict[int, list[float]] = {B: [] for B in chosen["B"]}
    for seed in range(chosen["repetitions"]):
        data = problem(seed)
        best = results.run(f"batch {seed}", functools.partial(_optimum, data))["bound"]
        for B in chosen["B"]:
            name = f"B={B} {seed}"
            work = functools.partial(_trace, data, B, chosen, seed, results.checkpoint(name))
            found = results.run(name, work)
            errors[B].append([(best - b) / abs(best) for b in found["bound"]])
            seconds[B].append(found["seconds_per_update"])
    results.picture(_picture(errors), "minibatch")
    rows = [
        {
            "B": B,
            "error at the end": float(np.mean([e[-1] for e in errors[B]])),
            "its deviation": float(np.std([e[-LAST:] for e in errors[B]], axis=0).mean()),
            "ms an update": 1e3 * float(np.median(seconds[B])),
        }
        for B in chosen["B"]
    ]
    return results.table("minibatch", rows)


def _optimum(data: Problem) -> dict[str, Any]:
    return {"bound": learn(data.start, (data.X, data.y), Exact(iterations=500)).bound}


def _trace(
    data: Problem, B: int, chosen: Mapping[str, Any], seed: int, kept: Path
) -> dict[str, Any]:
    learner = SRGP.paper(chosen["learning_rate"], batch_size=B, epochs=chosen["epochs"])
    steps = ours(learner)(data, seed, kept)
    updates = chosen["epochs"] * -(-N // B)
    return {**judged(data, steps, 10_000), "seconds_per_update": steps[-1].seconds / updates}


def _picture(errors: Mapping[int, list[Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 3.4), layout="constrained")
    axes = figure.subplots()
    for i, (B, lines) in enumerate(errors.items()):
        mean = np.mean(lines, 0)
        name = "all" if B == N else f"B = {B}"
        axes.semilogy(np.arange(len(mean)), mean, color=nth_colour(i), lw=1.4, label=name)
    axes.set(xlabel="epoch", ylabel="relative error of the bound")
    axes.legend(frameon=False, fontsize=8)
    return figure
