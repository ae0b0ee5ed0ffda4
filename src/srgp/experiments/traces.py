"""Methods of learning on one problem, each as a trace of models, judged by one evaluator.

Whatever a method maximises itself, it is judged by the VFE bound of all training rows at its θ, and
by the exact posterior at that θ on test rows. Seconds are training alone.
"""

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from srgp import kernels
from srgp.bound import log_bound
from srgp.experiments.results import Results
from srgp.learners import SRGP, learn
from srgp.linalg import JitterWarning
from srgp.metrics import scores
from srgp.model import Model
from srgp.plots.style import BLACK, BLUE, GREY, ORANGE, PALETTE
from srgp.posterior import posterior
from srgp.statistics import summarise
from srgp.storage import Checkpoint

ENOUGH = 2**17  # rows that call for everything that is compiled

# The same colour for a method in every picture.
COLOURS = {
    "SRGP": BLUE,
    "SRGP, paper's settings": PALETTE[5],
    "batch VFE": ORANGE,
    "full GP": BLACK,
    "SVGP (GPflow)": PALETTE[2],
    "SVGP (GPyTorch)": PALETTE[3],
    "auto": PALETTE[4],
    "truth": GREY,
}


# Two that do the same must both be seen.
DASHES = {"SVGP (GPyTorch)": (0, (3, 3))}


def style(method: str) -> dict[str, Any]:
    """Colour and dashes of a method's line."""
    return {"color": COLOURS[method], "ls": DASHES.get(method, "-")}


class Problem(NamedTuple):
    """Data to learn from and to be judged by, and where every method starts."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    start: Model


class Step(NamedTuple):
    """A method after some passes over the data."""

    epoch: float
    seconds: float
    model: Model
    # Mean and variance at the test rows by the method's own posterior, if it has one of its own.
    own: tuple[np.ndarray, np.ndarray] | None = None


Method = Callable[[Problem, int, Path], Sequence[Step]]


def ours(learner: Any) -> Method:
    """One of this library's learners, resumable; what compiles is compiled before."""

    def run(problem: Problem, seed: int, kept: Path) -> Sequence[Step]:
        few = {"epochs": 1} if hasattr(learner, "epochs") else {"iterations": 2}
        data, steps = (problem.X, problem.y), [Step(0.0, 0.0, problem.start)]
        # Compiled code depends on the size of batches, not on how many there are.
        rows = slice(3 * learner.batch_size if isinstance(learner, SRGP) else ENOUGH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of so few steps
            learn(problem.start, (problem.X[rows], problem.y[rows]), replace(learner, **few))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JitterWarning)
            learn(
                problem.start,
                data,
                learner,
                seed=seed,
                callback=lambda r, m: steps.append(Step(r.epoch, r.seconds, m)),
                checkpoint=Checkpoint(kept),
            )
        return steps

    return run


def theirs(run_peer: Any, peer: str, settings: Mapping[str, Any]) -> Method:
    """A peer in its own environment."""

    def run(problem: Problem, seed: int, kept: Path) -> Sequence[Step]:
        start = problem.start
        lengthscales: Any = start.kernel.lengthscales  # type: ignore[attr-defined]
        told = {
            "X": problem.X,
            "y": problem.y,
            "Xtest": problem.X_test,
            "R": start.inducing,
            "variance": np.asarray(start.kernel.variance),  # type: ignore[attr-defined]
            "lengthscales": np.broadcast_to(lengthscales, (problem.X.shape[1],)),
            "noise": start.noise,
        }
        trace, _ = run_peer(peer, told, {**settings, "seed": seed})
        steps = [
            Step(
                float(trace["epoch"][i]),
                float(trace["seconds"][i]),
                Model(
                    kernels.SE(trace["variance"][i], trace["lengthscales"][i]),
                    trace["noise"][i],
                    trace["R"][i],
                ),
            )
            for i in range(len(trace["seconds"]))
        ]
        own = (trace["mean"], trace["var"])
        # A peer whose predictions fail says so by NaN.
        return [*steps[:-1], steps[-1]._replace(own=own if np.isfinite(own).all() else None)]

    return run


def peer_runner(folder: Path | None) -> Any:
    """What trains a peer, from the folder `benchmarks` of this library's repository; or None."""
    if folder is None:
        return None
    folder = folder.absolute()
    if not (folder / "peers" / "run.py").exists():
        raise FileNotFoundError(f"{folder} is not the folder `benchmarks` of srgp's repository.")
    sys.path.insert(0, str(folder.parent))
    return importlib.import_module(f"{folder.name}.peers.run").run


def svgps(run_peer: Any, settings: Mapping[str, Any]) -> dict[str, Method]:
    """SVGP with Adam in GPflow, as in the paper, and in GPyTorch; none without an environment."""
    if run_peer is None:
        return {}
    told = {"method": "svgp-adam", **settings}
    return {
        "SVGP (GPflow)": theirs(run_peer, "gpflow", told),
        "SVGP (GPyTorch)": theirs(run_peer, "gpytorch", told),
    }


def traced(
    method: Method, problem: Problem, seed: int, kept: Path, at_most: int = 60
) -> dict[str, Any]:
    """Train, and judge what came along."""
    return judged(problem, method(problem, seed, kept), at_most)


def repeated(
    results: Results,
    methods: Mapping[str, Method],
    make: Callable[[int], Problem],
    repetitions: int,
    at_most: int = 60,
    prefix: str = "",
) -> dict[str, list[dict[str, Any]]]:
    """Every method on every repetition of a problem, which is made only if one is missing."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    for seed in range(repetitions):
        made = functools.cache(functools.partial(make, seed))
        for name, method in methods.items():
            key = f"{prefix}{name} {seed}"
            kept = results.checkpoint(key)

            def work(
                made: Any = made, method: Method = method, seed: int = seed, kept: Path = kept
            ) -> Any:
                return traced(method, made(), seed, kept, at_most)

            found[name].append(results.run(key, work))
    return found


def ends(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Where each method ended, on average: rows of a table.

    All are judged by the exact posterior at their θ; "own coverage" is that of the posterior that
    a method has itself, where it has one and the run kept it.
    """
    keys = ("bound", "rmse", "nlpd", "coverage", "seconds")
    own = {
        name: [trace["own"]["coverage"] for trace in traces if "own" in trace]
        for name, traces in found.items()
    }
    return [
        {
            "method": name,
            **{key: float(np.mean([trace[key][-1] for trace in traces])) for key in keys},
            **({"own coverage": _mean_or_none(own[name])} if any(own.values()) else {}),
            "repetitions": len(traces),
        }
        for name, traces in found.items()
    ]


def _mean_or_none(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def judged(problem: Problem, steps: Sequence[Step], at_most: int = 60) -> dict[str, Any]:
    """Bound, test errors and hyper-parameters along a trace, and all scores of the last model."""
    wanted = np.unique(np.linspace(0, len(steps) - 1, at_most).round().astype(int))
    lines: dict[str, list[Any]] = {
        name: [] for name in ("epoch", "seconds", "bound", "rmse", "nlpd", "coverage")
    }
    theta: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        for step in (steps[i] for i in wanted):
            found = _scores(problem, step.model)
            found |= {"epoch": step.epoch, "seconds": step.seconds}
            for name, line in lines.items():
                line.append(found[name])
            theta.append(hyper_parameters(step.model))
    told: dict[str, Any] = {**lines, "theta": {name: [t[name] for t in theta] for name in theta[0]}}
    if steps[-1].own is not None:
        told["own"] = _test_scores(problem, *steps[-1].own)
    return told


def _scores(problem: Problem, model: Model) -> dict[str, float]:
    try:
        statistics = summarise(model, problem.X, problem.y)
        bound = log_bound(model, statistics)
        mean, variance = posterior(model, statistics).predict(problem.X_test, noise=True)
    except (ArithmeticError, np.linalg.LinAlgError):
        return dict.fromkeys(("bound", "rmse", "nlpd", "coverage"), float("nan"))
    return {"bound": bound, **_test_scores(problem, mean, variance)}


def _test_scores(problem: Problem, mean: Any, variance: Any) -> dict[str, float]:
    found = scores(problem.y_test, mean, variance)
    return {name: float(getattr(found, name)) for name in ("rmse", "nlpd", "coverage")}


def hyper_parameters(model: Model) -> dict[str, float]:
    """σ0, σn and each lengthscale, in the paper's notation."""
    kernel: Any = model.kernel
    scales = np.ravel(kernel.lengthscales)
    return {
        "σ0": float(np.sqrt(kernel.variance)),
        "σn": float(np.sqrt(model.noise)),
        **{f"l{d + 1}" if len(scales) > 1 else "l": float(s) for d, s in enumerate(scales)},
    }
