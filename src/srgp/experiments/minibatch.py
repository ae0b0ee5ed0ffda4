"""What the size of the mini-batch does: 1-D, N = 10 000, B = 100 to 5000 and all (paper: Fig. 6).

Every size makes the same number of gradient updates, at the same learning rate; what these take is
told beside, since an update of a large batch costs more.
"""

import dataclasses
import functools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from srgp import kernels
from srgp.bound import log_bound
from srgp.experiments.results import Results
from srgp.experiments.sampler import draw
from srgp.experiments.traces import Problem
from srgp.learners import SRGP, Exact, Record, learn
from srgp.linalg import JitterWarning
from srgp.model import Model
from srgp.plots.style import nth_colour
from srgp.statistics import summarise

N, M, LENGTHSCALE, NOISE = 10_000, 20, 0.1, 0.1
LAST = 10  # points of the curve over which the deviation at the end is taken
EVERY = 100  # updates from one point of the curve to the next


def settings(full: bool) -> dict[str, Any]:
    """Twenty repetitions in full."""
    return {
        "N": N,
        "M": M,
        "B": [100, 500, 1000, 5000, N] if full else [100, 1000, N],
        "updates": 5000 if full else 3000,
        "repetitions": 20 if full else 3,
        "learning_rate": 0.001,
    }


def problem(seed: int) -> Problem:
    """A GP as in the simulation, whose l and σn are a third of where they start."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 1.0, (N + 1000, 1))
    y = draw(X, LENGTHSCALE, rng).f + NOISE * rng.normal(size=len(X))
    start = Model(
        kernels.SE(1.0, [3 * LENGTHSCALE]), (3 * NOISE) ** 2, np.linspace(0.0, 1.0, M)[:, None]
    )
    return Problem(X[:N], y[:N], X[N:], y[N:], start)


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any) -> str:
    """The paper's algorithm at every size; errors are relative to the optimum of the batch."""
    errors: dict[int, list[Any]] = {B: [] for B in chosen["B"]}
    seconds: dict[int, list[float]] = {B: [] for B in chosen["B"]}
    for seed in range(chosen["repetitions"]):
        data = problem(seed)
        best = results.run(f"batch {seed}", functools.partial(_optimum, data))["bound"]
        for B in chosen["B"]:
            found = results.run(f"B={B} {seed}", functools.partial(_trace, data, B, chosen, seed))
            errors[B].append([(best - b) / abs(best) for b in found["bound"]])
            seconds[B].append(found["seconds"] / chosen["updates"])
    each = {B: float(np.median(seconds[B])) for B in chosen["B"]}
    results.picture(_picture(errors, each), "minibatch")
    rows = [
        {
            "B": B,
            "error at the end": float(np.mean([e[-LAST:] for e in errors[B]])),
            "its deviation": float(np.std([e[-LAST:] for e in errors[B]], axis=0).mean()),
            "ms an update": 1e3 * each[B],
        }
        for B in chosen["B"]
    ]
    return results.table("minibatch", rows)


def _optimum(data: Problem) -> dict[str, Any]:
    return {"bound": learn(data.start, (data.X, data.y), Exact(iterations=500)).bound}


def _trace(data: Problem, B: int, chosen: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The bound at every hundredth update, and what all of them took."""
    an_epoch = -(-N // B)
    learner = SRGP.paper(chosen["learning_rate"], B, epochs=chosen["updates"] // an_epoch)
    rows, models, ends = (data.X, data.y), [data.start], [0.0]

    def keep(record: Record, model: Model) -> None:
        ends.append(record.seconds)
        if int(record.epoch) * an_epoch % EVERY == 0:
            models.append(model)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        learn(data.start, rows, dataclasses.replace(learner, epochs=1))  # compiled before the clock
        learn(data.start, rows, learner, seed=seed, callback=keep)
        bounds = [log_bound(model, summarise(model, *rows)) for model in models]
    return {"bound": bounds, "seconds": ends[-1]}


def _picture(errors: Mapping[int, list[Any]], seconds: Mapping[int, float]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    by_updates, by_time = figure.subplots(1, 2, sharey=True)
    for i, (B, lines) in enumerate(errors.items()):
        low, middle, high = np.quantile(lines, [0.1, 0.5, 0.9], axis=0)
        updates = EVERY * np.arange(len(middle))
        told = {"color": nth_colour(i), "lw": 1.4, "label": "all rows" if B == N else f"B = {B}"}
        by_updates.semilogy(updates, middle, **told)
        by_updates.fill_between(updates, low, high, color=nth_colour(i), alpha=0.15, lw=0)
        by_time.loglog(seconds[B] * updates[1:], middle[1:], **told)
    by_updates.set(xlabel="gradient updates", ylabel="relative error of the bound")
    by_time.set(xlabel="seconds")
    by_updates.legend(frameon=False, fontsize=8)
    return figure
