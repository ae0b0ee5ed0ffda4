"""Plants identified online: one that changes, and, with data, two of the literature.

The stirred tank of the paper is fed more weakly from the middle of the run on (C₁ = 20 in place of
24.9). With data: DaISy's stirred tank (simulated; coolant flow to concentration) and the cascaded
tanks (measured), one step ahead, 25 steps ahead (`far`) and running freely, beside a linear model
of the same past. Both are identified in batch, and online: one pass over the rows in their order,
each predicted before it is learned (`online`: that error), then left as they are for the test.
"""

import functools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srgp.experiments import tank
from srgp.experiments.results import Results
from srgp.metrics import WIDTH
from srgp.onepass import OnePass
from srgp.plots.style import BLUE, nth_colour
from srgp.regressor import SparseGPRegressor
from srgp.streams import OnlineGP
from srgp.sysid import NARX, Predictor, Recursive, linear

PLANTS = {"stirred tank": "cstr/cstr.parquet", "cascaded tanks": "cascaded_tanks"}
FAR = 25  # steps ahead
TRAJECTORIES = 50
MODELS = ("GP", "linear", "GP online", "linear online")
SHOWN = 200


def settings(full: bool, data: Path | None) -> dict[str, Any]:
    """A day of the changing plant in full, a third of an hour otherwise."""
    return {
        "samples": tank.DAY if full else 6000,
        "M": 50,
        "warm_up": 1000,
        "plants": [] if data is None else list(PLANTS),
    }


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any, data: Path | None) -> str:
    """The changing plant, then those of the literature."""
    traces: dict[str, Any] = {}
    following = {"forgetting": 0.999, "follow": OnePass(), "renew": True}
    for name, more in (("no forgetting", {}), ("following", following)):
        work = functools.partial(_online, chosen, more)
        traces[name] = results.run(f"changing {name}", work)
    traces["linear"] = results.run("changing linear", functools.partial(_linear, chosen))
    rows: list[dict[str, Any]] = [
        {"plant": "changing", "model": name, **{k: f.get(k) for k in COLUMNS}}
        for name, f in traces.items()
    ]
    results.picture(_changing(traces), "changing")
    for plant in chosen["plants"]:
        assert data is not None
        found = results.run(plant, functools.partial(_identified, plant, data, chosen["M"]))
        rows += [
            {"plant": plant, "model": name, **{k: found[name].get(k) for k in COLUMNS}}
            for name in MODELS
        ]
        results.picture(_free(plant, found), plant.replace(" ", "-"))
    return results.table("identification", rows)


COLUMNS = ("online", "one step", "far", "free run", "coverage", "median µs", "99 % µs")


def changing(samples: int) -> tank.Plant:
    """The tank, its feed weaker from the middle on."""
    return tank.simulate(samples, weaker_from=samples // 2)


def _online(chosen: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    plant = changing(chosen["samples"])
    X, y = tank.features(plant)
    warm = chosen["warm_up"]
    gp = OnlineGP(n_inducing=chosen["M"], warm_up=warm, window=SHOWN, **more)
    taken, far = [], []

    def predict(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, deviation = gp.predict_many(rows)
        return mean, deviation**2

    for i, (x, target) in enumerate(zip(X, y, strict=True), 1):
        begun = time.perf_counter_ns()
        gp.predict_one(x)
        gp.learn_one(x, float(target))
        taken.append(1e-3 * (time.perf_counter_ns() - begun))
        if i >= warm + SHOWN and i % SHOWN == 0:
            far.append((i, _far(plant, i, predict)))
    settled = np.array(taken[warm + SHOWN :])
    return {
        "online": gp.scores.overall.rmse,
        "coverage": gp.scores.overall.coverage,
        "median µs": float(np.median(settled)),
        "99 % µs": float(np.quantile(settled, 0.99)),
        **_traced(far, len(y)),
    }


def _linear(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A linear model of the last rows, made anew every 50: it forgets, too."""
    plant = changing(chosen["samples"])
    X, y = tank.features(plant)
    warm, errors, far = chosen["warm_up"], [], []
    for i in range(warm, len(y), 50):
        predict = linear(X[i - warm : i], y[i - warm : i])
        errors.append(y[i : i + 50] - predict(X[i : i + 50])[0])
        if i >= warm + SHOWN and i % SHOWN == 0:
            far.append((i, _far(plant, i, predict)))
    one = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    return {"online": one, **_traced(far, len(y))}


def _far(plant: tank.Plant, seen: int, predict: Any) -> float:
    """RMSE of what is predicted `FAR` steps ahead, over the next stretch, by the model as it is."""
    part = slice(seen, seen + SHOWN + FAR + tank.LAGS)
    y, w = plant.y[part], plant.w[part]
    if len(y) <= FAR + tank.LAGS:
        return float("nan")
    mean = NARX(tank.LAGS, tank.LAGS).ahead(predict, y, w, FAR).mean
    return float(np.sqrt(np.mean((mean - plant.f[part][-len(mean) :]) ** 2)))


def _traced(far: list[tuple[int, float]], count: int) -> dict[str, Any]:
    kept = [(i, error) for i, error in far if np.isfinite(error)]
    errors = np.array([error for _, error in kept])
    whole = float(np.sqrt(np.mean(errors**2)))
    return {"far": whole, "at": [i for i, _ in kept], "recent": errors, "change": count // 2}


def _series(plant: str, data: Path) -> tuple[NARX, list[np.ndarray]]:
    """What is seen of the past; inputs and outputs for identification and for the test."""
    import pyarrow.parquet as pq

    file = data / PLANTS[plant]
    table = pq.read_table(file if file.suffix else file / f"{file.name}.parquet")
    if plant == "stirred tank":
        u, y = (np.asarray(table[name], dtype=float) for name in ("q", "Ca"))
        return NARX(3, 3), [u[:5000], y[:5000], u[5000:], y[5000:]]
    names = ("uEst", "yEst", "uVal", "yVal")
    return NARX(4, 4), [np.asarray(table[name], dtype=float) for name in names]


def _identified(plant: str, data: Path, M: int) -> dict[str, Any]:
    narx, (u, y, u_test, y_test) = _series(plant, data)
    X, target = narx.rows(y, u)
    est = SparseGPRegressor(n_inducing=M).fit(X, target)
    gp = OnlineGP(n_inducing=M, warm_up=len(X) // 5, follow=OnePass(), renew=True)
    line = Recursive()
    online = _one_pass(gp, line, X, target)
    predictors: dict[str, Predictor] = {
        "GP": lambda rows: _squared(*est.predict(rows, return_std=True)),
        "linear": linear(X, target),
        "GP online": lambda rows: _squared(*gp.predict_many(rows)),
        "linear online": line,
    }
    found: dict[str, Any] = {"truth": y_test[narx.first :][: 2 * SHOWN]}
    for name, predict in predictors.items():
        judged = _judged(narx, predict, u_test, y_test, TRAJECTORIES if "GP" in name else 0)
        found[name] = {**judged, "online": online.get(name)}
    return found


def _one_pass(
    gp: OnlineGP, line: Recursive, X: np.ndarray, y: np.ndarray
) -> dict[str, float | None]:
    """Row by row; RMSE of what both said before they learned, of the rows after the warm-up."""
    errors = []
    for x, target in zip(X, y, strict=True):
        scored = gp.scores.rows
        gp.learn_one(x, float(target))
        if gp.scores.rows > scored:
            errors.append(target - line(x[None])[0].item())
        line.learn_one(x, float(target))
    return {
        "GP online": gp.scores.overall.rmse,
        "linear online": float(np.sqrt(np.mean(np.square(errors)))),
    }


def _judged(
    narx: NARX, predict: Predictor, u: np.ndarray, y: np.ndarray, trajectories: int
) -> dict[str, Any]:
    """Errors on the test, by a model that learns no more."""
    run = narx.simulate(predict, y, u, trajectories)
    inside = np.abs(y[narx.first :] - run.mean) <= WIDTH * run.deviation
    return {
        "one step": _rmse(narx.ahead(predict, y, u, 1).mean, y),
        "far": _rmse(narx.ahead(predict, y, u, FAR).mean, y),
        "free run": _rmse(run.mean, y),
        "coverage": float(np.mean(inside)) if trajectories else None,
        "mean": run.mean[: 2 * SHOWN],
        "deviation": run.deviation[: 2 * SHOWN],
    }


def _squared(mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return mean, deviation**2


def _rmse(predicted: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - y[-len(predicted) :]) ** 2)))


def _changing(traces: Mapping[str, Mapping[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.2), layout="constrained")
    axes = figure.subplots()
    for i, (name, found) in enumerate(traces.items()):
        minutes = np.array(found["at"]) * tank.PERIOD / 60.0
        axes.semilogy(minutes, found["recent"], color=nth_colour(i), lw=1.4, label=name)
        axes.axvline(found["change"] * tank.PERIOD / 60.0, color="black", lw=0.7, ls=":")
    axes.set(
        xlabel="minutes (dotted: the feed becomes weaker)",
        ylabel="RMSE (units of concentration)",
        title=f"predictions {FAR} steps ahead, {FAR * tank.PERIOD:g} s, by the model as it is",
    )
    axes.title.set_fontsize(9)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _free(plant: str, found: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    truth, unit = np.array(found["truth"]), "mol/l" if plant == "stirred tank" else "V"
    gp, line, t = found["GP"], found["linear"], np.arange(len(truth))
    mean, band = np.array(gp["mean"]), WIDTH * np.array(gp["deviation"])
    top.fill_between(t, mean - band, mean + band, color=BLUE, alpha=0.2, lw=0)
    top.plot(t, mean, color=BLUE, lw=1.2, label="GP, running freely, 95 %")
    top.plot(t, line["mean"], color=nth_colour(1), lw=1.0, label="linear")
    top.plot(t, truth, "--", color="black", lw=1.0, label="data")
    top.set(ylabel="concentration (mol/l)" if plant == "stirred tank" else "level (V)")
    top.set_title(f"{plant}: predictions fed back", fontsize=9)
    top.legend(frameon=False, fontsize=8, ncols=3)
    bottom.fill_between(t, -band, band, color=BLUE, alpha=0.2, lw=0)
    bottom.plot(t, mean - truth, color=BLUE, lw=1.2)
    bottom.plot(t, np.array(line["mean"]) - truth, color=nth_colour(1), lw=1.0)
    # As far as the GP's errors go: those of the line may leave the picture.
    reach = 1.3 * max(band.max(), np.abs(mean - truth).max())
    bottom.set(xlabel="sample", ylabel=f"error ({unit})", ylim=(-reach, reach))
    bottom.axhline(0.0, color="black", lw=0.6)
    return figure
