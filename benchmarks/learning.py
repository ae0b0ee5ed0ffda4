"""Bound against the clock: this library's learners beside GPflow's and GPyTorch's.

python -m benchmarks.learning [--problems synthetic-1 synthetic-2 ...] [--data FOLDER]

Every method gets the same data, start and number type. What it reaches is judged by one evaluator:
the VFE bound of all training rows at its θ, and the test errors of the exact posterior at that θ.
Seconds are training alone, without compilation, set-up and evaluation. Results are kept problem by
problem in benchmarks/results/learning.json.
"""

import argparse
import dataclasses
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import srgp
from benchmarks.common import RESULTS, machine
from benchmarks.peers.run import run as run_peer
from benchmarks.problems import Problem, real, start, synthetic, toy

FILE = RESULTS / "learning.json"
# Snapshots of each run, evaluated afterwards, up to so many rows: few for a million.
SNAPSHOTS = {20_000: 150, 200_000: 60}
FEW_SNAPSHOTS = 20

MANY = 200_000

SVGP: list[tuple[str, str, float]] = [
    (peer, method, rate)
    for peer, methods in (
        ("gpflow", ("svgp-adam", "svgp-natgrad")),
        ("gpytorch", ("svgp-adam", "svgp-ngd")),
    )
    for method in methods
    for rate in (0.01, 0.05)
]


def ours(problem: Problem, learner: Any, seed: int = 0) -> list[tuple[float, srgp.Model]]:
    """(seconds, model) at each report of a second run: the first one compiles what it meets."""
    model, data = start(problem), (problem["X"], problem["y"])
    srgp.learn(model, data, learner, seed=seed)
    trace: list[tuple[float, srgp.Model]] = [(0.0, model)]
    srgp.learn(model, data, learner, seed=seed, callback=lambda r, m: trace.append((r.seconds, m)))
    return trace


def theirs(
    problem: Problem, peer: str, settings: dict[str, Any]
) -> tuple[list[tuple[float, srgp.Model]], dict[str, Any]]:
    """The same of a peer, and what its runner says about the run."""
    trace, info = run_peer(peer, problem, settings)
    models = [
        srgp.Model(
            srgp.kernels.SE(trace["variance"][i], trace["lengthscales"][i]),
            trace["noise"][i],
            trace["R"][i],
        )
        for i in range(len(trace["seconds"]))
    ]
    own = {
        "rmse": float(np.sqrt(np.mean((trace["mean"] - problem["ytest"]) ** 2))),
        "coverage": _coverage(trace["mean"], trace["var"], problem["ytest"]),
    }
    kept = ("step_seconds", "other_cores", "failed", "versions")
    about = {name: info[name] for name in kept if name in info}
    return list(zip(trace["seconds"].tolist(), models, strict=True)), {**about, "own_q": own}


def evaluate(problem: Problem, trace: list[tuple[float, srgp.Model]]) -> dict[str, Any]:
    """The bound at (some of) the snapshots, and the test errors at the last one."""
    fits = (count for rows, count in SNAPSHOTS.items() if len(problem["X"]) <= rows)
    count = next(fits, FEW_SNAPSHOTS)
    # As many early as late ones on the logarithmic axis on which they are drawn.
    times = np.array([elapsed for elapsed, _ in trace])
    moments = np.geomspace(max(times[1], 1e-3), max(times[-1], 2e-3), count - 1)
    reached = np.minimum(np.searchsorted(times, moments), len(trace) - 1)
    wanted = np.unique([0, 1, *reached, len(trace) - 1])
    seconds, bounds = [], []
    statistics = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", srgp.JitterWarning)
        for i in wanted:
            elapsed, model = trace[i]
            statistics = srgp.summarise(model, problem["X"], problem["y"])
            seconds.append(elapsed)
            bounds.append(srgp.log_bound(model, statistics))
        mean, var = srgp.posterior(model, statistics).predict(problem["Xtest"], noise=True)
    y = problem["ytest"]
    return {
        "seconds": seconds,
        "bounds": bounds,
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "nlpd": float(np.mean(0.5 * np.log(2 * np.pi * var) + 0.5 * (y - mean) ** 2 / var)),
        "coverage": _coverage(mean, var, y),
    }


def _coverage(mean: np.ndarray, var: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.abs(y - mean) <= 1.959964 * np.sqrt(var)))


def seconds_to(run: dict[str, Any], bound: float) -> float:
    """When a run first had at least this bound; infinite if never."""
    return next(
        (s for s, b in zip(run["seconds"], run["bounds"], strict=True) if b >= bound), math.inf
    )


def compare(
    problem: Problem,
    epochs: int,
    budget: float | None,
    sgpr: bool,
    size: int = 5000,
    seed: int = 0,
    known: dict[str, Any] | None = None,
    peers: list[tuple[str, str, float]] = SVGP,
) -> dict[str, Any]:
    """All methods on one problem; `size` rows a batch for the peers, and for SRGP at most that.

    `known` are runs of the peers that are not made again.
    """
    runs: dict[str, Any] = {}
    size = min(size, len(problem["X"]))
    recursive = srgp.SRGP(epochs=min(20, epochs))
    learners = {
        "srgp auto": srgp.Auto(),
        "srgp SRGP": dataclasses.replace(recursive, batch_size=min(size, recursive.batch_size)),
        "srgp Sites": srgp.Sites(),
    }
    if sgpr:
        learners["srgp Exact"] = srgp.Exact(iterations=125)
    for name, learner in learners.items():
        runs[name] = {**evaluate(problem, ours(problem, learner, seed)), "settings": repr(learner)}
        _show(name, runs[name])
    common = {"batch_size": size, "epochs": epochs, "max_seconds": budget, "seed": seed}
    jobs = [(peer, {**common, "method": m, "learning_rate": lr}) for peer, m, lr in peers]
    if sgpr:
        jobs.append(("gpflow", {"method": "sgpr-lbfgs", "iterations": 125, "epochs": 125}))
    for peer, settings in jobs:
        rate = f" {settings['learning_rate']:g}" if "learning_rate" in settings else ""
        name = f"{peer} {settings['method']}{rate}"
        if known is not None:
            runs[name] = known[name]
            continue
        trace, about = theirs(problem, peer, {**settings, "checkpoints": 10})
        runs[name] = {**evaluate(problem, trace), **about, "settings": settings}
        _show(name, runs[name])
    return {"N": len(problem["X"]), "M": len(problem["R"]), "runs": runs, "ratios": ratios(runs)}


def ratios(runs: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    """For each peer at its best learning rate: its seconds over ours to the bound it ends with."""
    best: dict[str, dict[str, Any]] = {}
    for name, run in runs.items():
        method = " ".join(name.split()[:2])
        reached = [b for b in run["bounds"] if math.isfinite(b)]
        if not name.startswith("srgp") and reached:
            top = max(reached)
            if method not in best or top > best[method]["bound"]:
                best[method] = {"bound": top, "seconds": seconds_to(run, top)}
    found: dict[str, dict[str, float | None]] = {}
    for method, peer in best.items():
        found[method] = {"bound": peer["bound"], "seconds": peer["seconds"]}
        for name, run in runs.items():
            if name.startswith("srgp"):
                needed = seconds_to(run, peer["bound"])
                # No ratio where it was never reached, or the start was as good already.
                known = 0.0 < needed < math.inf
                found[method][name] = peer["seconds"] / needed if known else None
    return found


def best_rates(runs: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Each SVGP at the learning rate that ended best."""
    methods = {(peer, method) for peer, method, _ in SVGP}
    tried = [
        (max(run["bounds"]), peer, method, float(name.split()[2]))
        for name, run in runs.items()
        for peer, method in methods
        if name.startswith(f"{peer} {method} ")
    ]
    best = {(peer, method): rate for _, peer, method, rate in sorted(tried)}
    return [(peer, method, rate) for (peer, method), rate in sorted(best.items())]


def _show(name: str, run: dict[str, Any]) -> None:
    print(
        f"{name:28s} bound {max(run['bounds']):12.1f} in {run['seconds'][-1]:7.1f} s   "
        f"RMSE {run['rmse']:.4f}  NLPD {run['nlpd']:.4f}  coverage {run['coverage']:.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["synthetic-1", "synthetic-2", "synthetic-5", "toy"]
    shown = "those, powerplant, protein_raw, airline, or powerplant@1 for another split and seed"
    parser.add_argument("--problems", nargs="+", default=names, help=shown)
    parser.add_argument("--data", type=Path, help="folder of powerplant, protein_raw, airline")
    parser.add_argument("--inducing", type=int, default=200, help="M, for real data")
    again = "measure our learners only, beside what the results file has of the peers"
    parser.add_argument("--ours", action="store_true", help=again)
    chosen = parser.parse_args()
    for name in chosen.problems:
        print(f"-- {name}", flush=True)
        results = json.loads(FILE.read_text()) if FILE.exists() else {}
        known = results[name]["runs"] if chosen.ours else None
        if name.startswith("synthetic"):
            problem = synthetic(int(name.split("-")[1]))
            found = compare(problem, 50, 120.0, True, known=known)
        elif name == "toy":
            found = compare(toy(), 50, 60.0, True, size=100, known=known)
        else:
            table, _, seed = name.partition("@")
            problem = real(table, chosen.data, chosen.inducing, int(seed or 0))
            many = len(problem["X"]) > MANY
            epochs = 4 if many else 30
            # Another seed gets the learning rates that were best for the first; a million rows
            # those that were best for the largest table before them.
            first = results.get("protein_raw" if many else table) if seed or many else None
            peers = best_rates(first["runs"]) if first else SVGP
            found = compare(
                problem, epochs, 120.0, not many, seed=int(seed or 0), known=known, peers=peers
            )
        results[name] = {"machine": machine(), "peers_before": chosen.ours, **found}
        RESULTS.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(results, indent=1) + "\n")
        for method, ratio in found["ratios"].items():
            print(method, {k: v and round(v, 2) for k, v in ratio.items()})


if __name__ == "__main__":
    main()
