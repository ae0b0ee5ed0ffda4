"""Streams whose function changes: forgetting, beside none and beside a window fitted again.

Three streams: a function that is another one from one row to the next, a function that turns into
another one slowly, and, with data, three years of electricity demand explained by hour, free days
and temperature alone, so that the seasons are drift. Every row is predicted before it is learned;
nothing is seen twice, but by the window, which keeps its rows.
"""

import functools
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srgp.experiments.results import Results
from srgp.experiments.sampler import draw
from srgp.inducing import initial_model
from srgp.learners import Exact, learn
from srgp.linalg import quiet
from srgp.onepass import OnePass
from srgp.plots.style import nth_colour
from srgp.posterior import Posterior, posterior
from srgp.scaling import Scaler
from srgp.sources import Arrays
from srgp.streams import OnlineGP, Prequential

NOISE = 0.1
SHOWN = 200  # points of a line in the picture
DEMAND = "vic_elec/vic_elec.parquet"


class Stream(NamedTuple):
    """Rows in their order, and when the change happens."""

    X: np.ndarray
    y: np.ndarray
    changes: tuple[int, ...]
    unit: str


def settings(full: bool, data: Path | None) -> dict[str, Any]:
    """Five times the rows, and all of the demand, in full."""
    return {
        "rows": 20_000 if full else 4000,
        "M": 50,
        "warm_up": 672,  # two weeks of demand
        "window": 672,
        "demand": 0 if data is None else (52_608 if full else 12_000),
    }


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any, data: Path | None) -> str:
    """Every way to forget on every stream."""
    streams: dict[str, Callable[[], Stream]] = {
        "abrupt": functools.partial(synthetic, chosen["rows"], abrupt=True),
        "gradual": functools.partial(synthetic, chosen["rows"], abrupt=False),
    }
    if data is not None:
        streams["demand"] = functools.partial(demand, data, chosen["demand"])
    rows, traces = [], {}
    for name, make in streams.items():
        for method, start in methods(chosen).items():
            work = functools.partial(_followed, make, start, chosen)
            found = results.run(f"{name} {method}", work)
            traces[name, method] = found
            wanted = ("rmse", "nlpd", "coverage", "microseconds")
            rows.append({"stream": name, "method": method, **{k: found[k] for k in wanted}})
    results.picture(_picture(traces), "drift")
    return results.table("drift", rows)


def methods(chosen: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """What is compared: name, and how it starts."""
    same = {"n_inducing": chosen["M"], "warm_up": chosen["warm_up"], "window": chosen["window"]}
    return {
        "no forgetting": lambda: OnlineGP(**same),
        "less data, 0.998": lambda: OnlineGP(**same, forgetting=0.998),
        "towards the prior, 0.998": lambda: OnlineGP(**same, forgetting=0.998, towards="prior"),
        "adapting": lambda: OnlineGP(**same, forgetting=(1.0, 0.999, 0.99, 0.95)),
        "following": lambda: OnlineGP(**same, forgetting=0.998, follow=OnePass(), renew=True),
        "window, fitted again": lambda: Refit(chosen["M"], chosen["warm_up"], chosen["window"]),
    }


def synthetic(rows: int, abrupt: bool, seed: int = 0) -> Stream:
    """Two draws of a GP over two inputs: the second takes over at once, or little by little."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (rows, 2))
    first, second = (draw(X, 0.5, rng).f for _ in range(2))
    t = np.arange(rows) / rows
    share = (t >= 0.5).astype(float) if abrupt else np.clip((t - 0.3) / 0.5, 0.0, 1.0)
    # Weights whose squares add up to one: the variance of the function stays the same.
    f = np.cos(0.5 * np.pi * share) * first + np.sin(0.5 * np.pi * share) * second
    changes = (rows // 2,) if abrupt else (int(0.3 * rows), int(0.8 * rows))
    return Stream(X, f + NOISE * rng.normal(size=rows), changes, "row")


def demand(data: Path, rows: int) -> Stream:
    """Half-hourly demand (GW) from the hour (on a circle), weekend or holiday, and temperature."""
    import pyarrow.parquet as pq

    table = pq.read_table(data / DEMAND).slice(0, rows)
    times = np.asarray(table["Time"].cast("timestamp[s]")).astype("datetime64[s]")
    day = times.astype("datetime64[D]")
    hour = (times - day).astype(float) / 3600.0
    weekday = (day.astype(int) + 3) % 7
    free = (weekday >= 5) | np.asarray(table["Holiday"]).astype(bool)
    circle = [f(2.0 * np.pi * hour / 24.0) for f in (np.sin, np.cos)]
    X = np.column_stack([*circle, free, np.asarray(table["Temperature"], dtype=float)])
    return Stream(X, np.asarray(table["Demand"], dtype=float) / 1000.0, (), "half hour")


class Refit:
    """A sparse GP of the last rows, all of it learned again whenever half of them are new."""

    def __init__(self, inducing: int, warm_up: int, window: int) -> None:
        self.inducing, self.warm_up, self.window = inducing, warm_up, window
        self.held: deque[tuple[np.ndarray, float]] = deque(maxlen=window)
        self.scores = Prequential(window)
        self.new = 0
        self.answer: Posterior | None = None
        self.scaler: Scaler | None = None

    def learn_one(self, x: np.ndarray, y: float) -> None:
        """Predict, score, keep; fit again now and then."""
        if self.answer is not None and self.scaler is not None:
            mean, variance = self.answer.predict(self.scaler.inputs(x[None]), noise=True)
            spread = float(self.scaler.y_spread)
            self.scores.add_one(y, mean.item() * spread + float(self.scaler.y_centre),
                                spread**2 * variance.item())  # fmt: skip
        self.held.append((x, y))
        self.new += 1
        if self.new >= (self.warm_up if self.answer is None else self.window // 2):
            self._fit()

    def _fit(self) -> None:
        X, y = np.array([x for x, _ in self.held]), np.array([y for _, y in self.held])
        self.scaler, self.new = Scaler.of(Arrays(X, y))[0], 0
        X, y = self.scaler.inputs(X), self.scaler.targets(y)
        start = initial_model(X, y, min(self.inducing, len(np.unique(X, axis=0))))
        with quiet():
            found = learn(start, (X, y), Exact(iterations=60))
            self.answer = posterior(found.model, found.statistics)


def _followed(
    make: Callable[[], Stream], start: Callable[[], Any], chosen: Mapping[str, Any]
) -> dict[str, Any]:
    stream, gp = make(), start()
    every = max(len(stream.y) // SHOWN, 1)
    at, errors = [], []
    begun = 0.0
    for i, (x, y) in enumerate(zip(stream.X, stream.y, strict=True), 1):
        if i == 2 * chosen["warm_up"]:  # all is compiled, and the start is made
            begun = time.perf_counter()
        gp.learn_one(x, float(y))
        if i % every == 0 and i > chosen["warm_up"] + 50:
            at.append(i)
            errors.append(gp.scores.recent.rmse)
    seconds = time.perf_counter() - begun
    overall = gp.scores.overall
    return {
        "at": at,
        "recent": errors,
        "rmse": overall.rmse,
        "nlpd": overall.nlpd,
        "coverage": overall.coverage,
        "microseconds": 1e6 * seconds / (len(stream.y) - 2 * chosen["warm_up"]),
        "changes": stream.changes,
        "unit": stream.unit,
    }


def _picture(traces: Mapping[tuple[str, str], Mapping[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for name, _ in traces))
    figure = Figure(figsize=(3.6 * len(names) + 0.4, 3.4), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(names)))
    for axes, name in zip(panels, names, strict=True):
        for i, method in enumerate(dict.fromkeys(m for _, m in traces)):
            found = traces[name, method]
            axes.plot(found["at"], found["recent"], color=nth_colour(i), lw=1.3, label=method)
        for change in found["changes"]:
            axes.axvline(change, color="black", lw=0.7, ls=":")
        unit = "GW" if name == "demand" else "units of y"
        axes.set(title=name, xlabel=found["unit"], ylabel=f"RMSE of the last rows ({unit})")
        axes.set_ylim(bottom=0.0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=3, loc="outside lower center")
    return figure
