"""What each change to the paper's SRGP brings: sums made anew, restarts, Adam's memory.

python -m benchmarks.chains [--toy]

The synthetic problems, several seeds of data and order; the bound of all rows at the θ reached. And
the toy of 1000 rows, where the optimum is known: how far from it each way ends, one of them with a
preconditioner of all parameters together in place of Adam's, which has one for each.
"""

import argparse
import functools
import json
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import srgp
from benchmarks.common import RESULTS, write
from benchmarks.problems import start, synthetic, toy

SEEDS = range(2)
LEARNERS = {
    "default": srgp.SRGP(),
    "sums of their time": srgp.SRGP(fresh=False),
    "those, restart with each epoch only": srgp.SRGP(restart=None, fresh=False),
    "those, Adam's usual memory": srgp.SRGP(optimizer="adam", fresh=False),
    "all three": srgp.SRGP(restart=None, optimizer="adam", fresh=False),
    "the paper's, rate 0.02": srgp.SRGP.paper(0.02, epochs=20),
}


def full_matrix(b1: float = 0.9, b2: float = 0.95, damping: float = 1e-3) -> Any:
    """(E ggᵀ)^-½ E g in place of Adam's E g / √E g²: O(P³) a step for P parameters."""

    def init(values: Any) -> Any:
        size = ravel_pytree(values)[0].size
        return jnp.zeros(size), jnp.zeros((size, size)), jnp.zeros(())

    def update(gradient: Any, state: Any, values: Any = None) -> Any:
        g, back = ravel_pytree(gradient)
        mean, square, steps = state
        steps = steps + 1
        mean, square = b1 * mean + (1 - b1) * g, b2 * square + (1 - b2) * jnp.outer(g, g)
        scale = jnp.sqrt(jnp.diagonal(square) / (1 - b2**steps)) + 1e-12
        correlation = square / (1 - b2**steps) / jnp.outer(scale, scale)
        eigenvalues, U = jnp.linalg.eigh(correlation)
        root = (U * (jnp.maximum(eigenvalues, 0.0) + damping) ** -0.5) @ U.T
        return back(-root @ (mean / (1 - b1**steps) / scale)), (mean, square, steps)

    return optax.GradientTransformation(init, update)


@functools.cache
def on_toy(epochs: int) -> dict[str, Any]:
    """Ways to learn the toy, by name; B = 100."""
    sized = functools.partial(srgp.SRGP, batch_size=100, epochs=epochs)
    return {
        "default": sized(),
        "rate 0.3": sized(learning_rate=0.3),
        "Adam's usual memory": sized(optimizer="adam"),
        "all parameters together": sized(optimizer=full_matrix()),
        "sums of their time": sized(fresh=False),
        "those, all parameters together": sized(optimizer=full_matrix(), fresh=False),
        "the paper's, rate 0.02": srgp.SRGP.paper(0.02, batch_size=100, epochs=epochs),
    }


def run(D: int, name: str) -> dict[str, Any]:
    """One way on one kind of problem."""
    bounds, seconds = [], []
    for seed in SEEDS:
        problem = synthetic(D, seed=seed)
        found = learned(problem, LEARNERS[name], seed)
        bounds.append(round(found.bound))
        seconds.append(round(found.history[-1].seconds, 1))
    return {"D": D, "settings": name, "bounds": bounds, "seconds": seconds}


def learned(problem: Any, learner: Any, seed: int) -> srgp.Learned:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return srgp.learn(start(problem), (problem["X"], problem["y"]), learner, seed=seed)


def hyper_parameters(model: srgp.Model) -> np.ndarray:
    kernel: Any = model.kernel
    deviations = np.sqrt([float(kernel.variance), float(model.noise)])
    return np.append(deviations, np.ravel(kernel.lengthscales))


def run_toy(seed: int) -> list[dict[str, Any]]:
    """Off the optimum that L-BFGS finds: the bound, and the worst of σ0, σn and the lengthscale."""
    problem = toy(seed)
    best = learned(problem, srgp.Exact(iterations=500, tolerance=0.0), 0)
    ways = {
        f"{name}, {epochs} epochs": w
        for epochs in (10, 20, 50)
        for name, w in on_toy(epochs).items()
    }
    rows = []
    for name, learner in {**ways, "auto": "auto"}.items():
        found = learned(problem, learner, seed)
        ratios = hyper_parameters(found.model) / hyper_parameters(best.model)
        off = {"bound": 1.0 - found.bound / best.bound, "parameter": np.abs(ratios - 1.0).max()}
        rows.append({"seed": seed, "settings": name, **off})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    again = "the toy only, beside what the results file has"
    parser.add_argument("--toy", action="store_true", help=again)
    rows = []
    if parser.parse_args().toy:
        rows = json.loads((RESULTS / "chains.json").read_text())["rows"]
    else:
        for D in (1, 2, 5):
            for name in LEARNERS:
                rows.append(run(D, name))
                print(rows[-1], flush=True)
    found = [row for seed in range(3) for row in run_toy(seed)]
    write("chains", {"epochs": 20, "rows": rows, "toy": found})


if __name__ == "__main__":
    main()
