"""Every sparse model on the same data, each learned by its own bound: which one to choose."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from srgp.experiments import simulation
from srgp.experiments.results import Results
from srgp.experiments.traces import Problem
from srgp.metrics import scores
from srgp.plots.style import nth_colour
from srgp.regressor import SparseGPRegressor

MODELS = ("sor", "dtc", "fitc", "pep", "vfe", "tighter_vfe")
MARKS = "o^sDvP"
TABLES = ("powerplant", "protein_raw")


def settings(full: bool, data: Path | None) -> dict[str, Any]:
    """Real tables are read from a folder; without one, scikit-learn's own small one is used."""
    return {
        "N": 20_000 if full else 3000,
        "test": 2000,
        "M": 100 if full else 40,
        "real": ["diabetes"] if data is None else list(TABLES),
        "most_rows": 50_000 if full else 5000,
        "max_seconds": 300.0 if full else 30.0,
    }


def tables(chosen: Mapping[str, Any], data: Path | None) -> dict[str, tuple[np.ndarray, ...]]:
    """Training and test rows, by name."""
    found: dict[str, tuple[np.ndarray, ...]] = {}
    for D in (1, 2, 5):
        made: Problem = simulation.problem(D, chosen["N"], chosen["test"], seed=0)
        found[f"GP, D = {D}"] = made[:4]
    for name in chosen["real"]:
        X, y = _read(name, data)
        order = np.random.default_rng(0).permutation(len(X))
        test, train = np.split(order, [len(X) // 10])
        train = train[: chosen["most_rows"]]
        found[name] = (X[train], y[train], X[test], y[test])
    return found


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any, data: Path | None) -> str:
    """One table: bound, RMSE, NLPD and coverage of every model on every table."""
    rows = []
    for name, table in tables(chosen, data).items():
        for model in MODELS:

            def work(table: Any = table, model: str = model) -> dict[str, Any]:
                return _work(table, model, chosen)

            rows.append({"data": name, "model": model, **results.run(f"{name} {model}", work)})
    results.picture(picture(rows), "models")
    return results.table("models", rows)


def picture(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Errors and NLPD beside the best of each table, and coverage."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    panels = figure.subplots(1, 3)
    tables = list(dict.fromkeys(row["data"] for row in rows))
    for axes, name in zip(panels, ("RMSE", "NLPD", "coverage"), strict=True):
        found = np.array([[_value(rows, t, m, name) for t in tables] for m in MODELS])
        best = found.min(0)
        drawn = {"RMSE": 100.0 * (found / best - 1.0), "NLPD": found - best}.get(name, found)
        for i, (model, line) in enumerate(zip(MODELS, drawn, strict=True)):
            # Side by side, so that equal ones are all seen.
            at = np.arange(len(tables)) + 0.12 * (i - 0.5 * (len(MODELS) - 1))
            axes.plot(at, line, MARKS[i], color=nth_colour(i), ms=5, label=model)
        axes.set_xticks(np.arange(len(tables)), tables, rotation=30, ha="right", fontsize=8)
    panels[0].set_ylabel("RMSE, % above the smallest")
    panels[1].set_ylabel("NLPD, nats above the smallest")
    panels[1].set_yscale("symlog", linthresh=0.1)
    panels[1].set_ylim(-0.02, 1.5 * panels[1].dataLim.y1)
    panels[2].set_ylabel("coverage of 95 %")
    panels[2].axhline(0.95, color="black", lw=0.6)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    return figure


def _value(rows: Sequence[Mapping[str, Any]], data: str, model: str, name: str) -> float:
    return next(float(r[name]) for r in rows if (r["data"], r["model"]) == (data, model))


def _work(table: Any, model: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    X, y, X_test, y_test = table
    est = SparseGPRegressor(
        n_inducing=chosen["M"], approximation=model, max_seconds=chosen["max_seconds"]
    ).fit(X, y)
    mean, deviation = est.predict(X_test, return_std=True)
    found = scores(y_test, mean, deviation**2)
    return {
        "bound": float(est.bound_),
        "RMSE": float(found.rmse),
        "NLPD": float(found.nlpd),
        "coverage": float(found.coverage),
    }


def _read(name: str, data: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if data is None:
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
        return np.asarray(X, float), np.asarray(y, float)
    with np.load(data / name / f"{name}.npz") as file:
        return np.asarray(file["X"], float), np.asarray(file["y"], float).ravel()
