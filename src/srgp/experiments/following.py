"""A time series seen in chunks, each once: kernel, noise and inducing inputs that follow.

The kind of experiment of Bui, Nguyen and Turner (2017): rows come in the order of time, so every
chunk lies where no inducing input was before, and nothing is seen again. At the end the whole past
is asked for, which a model that has wandered on may have lost. Beside: θ fixed, and fitted again
now and then on all rows so far, which have to be kept for that.
"""

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from srgp.experiments.results import Results
from srgp.experiments.sampler import draw
from srgp.learners import Exact
from srgp.metrics import scores
from srgp.onepass import OnePass
from srgp.plots.style import BLUE, GREY, ORANGE
from srgp.regressor import SparseGPRegressor
from srgp.streams import OnlineGP, Prequential

LENGTHSCALE, NOISE = 0.06, 0.1
CHUNKS = 20
SHOWN = (2, 10, 20)  # chunks after which a picture is taken
EVERY = 5  # chunks between two fits of what is fitted again
# Chosen on series 0, whose first chunk is nearly flat: θ has far to go there, in few chunks.
FAST = OnePass(steps=10, learning_rate=0.1)
COLUMNS = ("next chunk", "its NLPD", "its coverage", "whole past", "NLPD", "coverage", "seconds")


class Series(NamedTuple):
    """Times, true values, measurements."""

    X: np.ndarray
    f: np.ndarray
    y: np.ndarray


def settings(full: bool) -> dict[str, Any]:
    """Ten times the rows, and five series, in full."""
    return {"rows": 20_000 if full else 2000, "M": 50, "repetitions": 5 if full else 2}


def series(rows: int, seed: int) -> Series:
    """A draw of a GP whose lengthscale is a thirtieth of the time."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-1.0, 1.0, (rows, 1)), axis=0)
    f = draw(X, LENGTHSCALE, rng).f
    return Series(X, f, f + NOISE * rng.normal(size=rows))


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any) -> str:
    """Those that follow, those that do not, and the batch that sees everything at once."""
    rows = []
    for name, work in methods(chosen["M"]).items():
        found = [
            results.run(f"{name} {seed}", functools.partial(work, series(chosen["rows"], seed)))
            for seed in range(chosen["repetitions"])
        ]
        means = {k: float(np.mean([f[k] for f in found])) for k in COLUMNS if k in found[0]}
        rows.append({"method": name, **{key: means.get(key) for key in COLUMNS}})
    example = results.run(
        "pictures", functools.partial(_snapshots, series(chosen["rows"], 0), chosen["M"])
    )
    results.picture(_picture(series(chosen["rows"], 0), example), "following")
    return results.table("following", rows)


def methods(M: int) -> dict[str, Callable[[Series], dict[str, Any]]]:
    """What is compared: the next chunk before it is seen, and the whole past at last."""
    start = functools.partial(_online, M)
    return {
        "follow θ, renew R": functools.partial(_followed, lambda c: start(c, FAST, True)),
        "follow θ by default, renew R": functools.partial(
            _followed, lambda c: start(c, OnePass(), True)
        ),
        "θ of the first chunk, renew R": functools.partial(
            _followed, lambda c: start(c, None, True)
        ),
        "θ and R of the first chunk": functools.partial(_followed, lambda c: start(c, None, False)),
        f"θ fitted again every {EVERY} chunks, all rows kept": functools.partial(
            _refitted, M, True
        ),
        "fit anew on each chunk": functools.partial(_refitted, M, False),
        "batch, all rows at once": functools.partial(_batch, M),
    }


def _online(M: int, chunk: int, follow: OnePass | None, renew: bool) -> OnlineGP:
    return OnlineGP(
        n_inducing=M, warm_up=chunk, follow=follow, renew=renew, chunk=chunk, window=chunk
    )


def _followed(start: Callable[[int], OnlineGP], series: Series) -> dict[str, Any]:
    begun, size = time.perf_counter(), len(series.y) // CHUNKS
    gp = start(size)
    for i in range(0, len(series.y), size):
        gp.learn_many(series.X[i : i + size], series.y[i : i + size])
    seconds = time.perf_counter() - begun
    return {**_judged(series, *gp.predict_many(series.X)), "seconds": seconds,
            **_next(gp.scores)}  # fmt: skip


def _next(scores: Prequential) -> dict[str, Any]:
    found = scores.overall
    return {"next chunk": found.rmse, "its NLPD": found.nlpd, "its coverage": found.coverage}


def _refitted(M: int, keep: bool, series: Series) -> dict[str, Any]:
    """θ, R and posterior of the last chunk alone; or of all rows so far, every few chunks."""
    begun, size, ahead = time.perf_counter(), len(series.y) // CHUNKS, Prequential()
    est = SparseGPRegressor(n_inducing=M, learner=Exact(60))
    for k in range(CHUNKS):
        first = 0 if keep else k * size
        chunk, known = slice(k * size, (k + 1) * size), slice(first, (k + 1) * size)
        if k:
            mean, deviation = est.predict(series.X[chunk], return_std=True)
            ahead.add(series.y[chunk], mean, deviation**2)
        if not keep or k % EVERY == 0:
            est.fit(series.X[known], series.y[known])
        else:
            est.partial_fit(series.X[chunk], series.y[chunk])
    seconds = time.perf_counter() - begun
    found = _judged(series, *est.predict(series.X, return_std=True))
    return {**found, "seconds": seconds, **_next(ahead)}


def _batch(M: int, series: Series) -> dict[str, Any]:
    begun = time.perf_counter()
    est = SparseGPRegressor(n_inducing=M).fit(series.X, series.y)
    seconds = time.perf_counter() - begun
    return {**_judged(series, *est.predict(series.X, return_std=True)), "seconds": seconds}


def _judged(series: Series, mean: np.ndarray, deviation: np.ndarray) -> dict[str, Any]:
    error = float(np.sqrt(np.mean((mean - series.f) ** 2)))
    found = scores(series.y, mean, deviation**2)
    return {"whole past": error, "NLPD": found.nlpd, "coverage": found.coverage}


def _snapshots(series: Series, M: int) -> dict[str, Any]:
    size = len(series.y) // CHUNKS
    gp = _online(M, size, FAST, True)
    found = []
    for k in range(CHUNKS):
        rows = slice(k * size, (k + 1) * size)
        gp.learn_many(series.X[rows], series.y[rows])
        if k + 1 in SHOWN:
            grid = np.linspace(-1.0, 1.0, 400)[:, None]
            mean, deviation = gp.predict_many(grid)
            R = gp.inducing_inputs
            found.append(
                {"seen": (k + 1) * size, "grid": grid[:, 0], "mean": mean, "deviation": deviation,
                 "R": R[:, 0], "loss": gp.loss}
            )  # fmt: skip
    return {"snapshots": found}


def _picture(series: Series, example: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure

    taken = example["snapshots"]
    figure = Figure(figsize=(7.5, 1.9 * len(taken)), layout="constrained")
    panels = figure.subplots(len(taken), 1, sharex=True, sharey=True)
    for axes, shot in zip(panels, taken, strict=True):
        mean, deviation = np.array(shot["mean"]), np.array(shot["deviation"])
        seen = slice(0, shot["seen"], max(shot["seen"] // 1000, 1))
        axes.plot(series.X[seen, 0], series.y[seen], ".", color=GREY, ms=1.5, zorder=1)
        axes.fill_between(shot["grid"], mean - 1.96 * deviation, mean + 1.96 * deviation,
                          color=BLUE, alpha=0.2, lw=0)  # fmt: skip
        axes.plot(shot["grid"], mean, color=BLUE, lw=1.2)
        axes.plot(shot["R"], np.full(len(shot["R"]), -3.6), "|", color=ORANGE, ms=8)
        axes.set(ylabel="y", title=f"after {shot['seen']:,} rows, each seen once", ylim=(-4, 4))
        axes.title.set_fontsize(9)
    panels[-1].set(xlabel="time (orange: inducing inputs)")
    return figure
