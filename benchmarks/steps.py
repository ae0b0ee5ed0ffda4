"""One step of each learner, against its own matrix products and against the peers' steps.

python -m benchmarks.steps

Also the exact value and gradient at N = 10⁵ against GPflow's SGPR, and how time and memory grow.
"""

import argparse
import json
import os
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

import srgp
from benchmarks.common import RESULTS, machine, seconds, write
from benchmarks.peers.run import run as run_peer
from benchmarks.problems import Problem, start, synthetic
from srgp import blocks, gradient
from srgp.blas import mirrored
from srgp.learners import sites as sites_learner
from srgp.learners import srgp as srgp_learner
from srgp.learners.base import make_task
from srgp.learners.judge import Judge
from srgp.learners.stepping import as_optimizer
from srgp.linalg import quiet_blas
from srgp.parameters import Coordinates
from srgp.passes import KEPT
from srgp.propagation import sensitivities
from srgp.slopes import kernel_matrix
from srgp.sources import Arrays
from srgp.stacked import Factor, Stack

SIZES = [(20, 1, 5000), (50, 2, 5000), (100, 5, 5000), (200, 8, 10_000), (500, 8, 10_000)]
STEPS = 8  # in an epoch
ROUNDS = 5


def problem_of(M: int, D: int, N: int) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N, D))
    y = np.sin(3.0 * X.sum(1)) + 0.1 * rng.normal(size=N)
    return {
        "X": X,
        "y": y,
        "Xtest": X[:10],
        "ytest": y[:10],
        "R": X[:M],
        "variance": np.ones(()),
        "lengthscales": np.full(D, 0.5),
        "noise": np.full((), 0.1),
    }


def products(M: int, B: int, count: int) -> float:
    """Seconds of `count` float64 products (M, B) × (B, M)."""
    with jax.enable_x64(True):
        K = jnp.asarray(np.random.default_rng(0).normal(size=(M, B)))
        product = jax.jit(lambda K: K @ K.T)
        return seconds(lambda: jax.block_until_ready([product(K) for _ in range(count)]), 3)


def learner_step(problem: Problem, learner: Any) -> float:
    """Seconds of a step: the median of the epochs after the first, over their steps.

    Without the look at the bound at the end of an epoch: see `judging`.
    """
    at: list[float] = []
    data = problem["X"], problem["y"]
    blind = lambda task: lambda values: 0.0  # noqa: E731
    with patch.object(srgp_learner, "Judge", blind), patch.object(sites_learner, "Judge", blind):
        srgp.learn(start(problem), data, learner, callback=lambda r, m: at.append(r.seconds))
    return float(np.median(np.diff(at))) / STEPS


def judging(problem: Problem) -> float:
    """Seconds of the look at the bound at the end of an epoch."""
    with jax.enable_x64(True), quiet_blas():
        source = Arrays(problem["X"], problem["y"])
        task = make_task(start(problem), source, (), None, 0, None)
        judge = Judge(task)
        return seconds(lambda: judge(task.start), 7)


def steps(with_peers: bool) -> list[dict[str, Any]]:
    rows = []
    for M, D, B in SIZES:
        problem = problem_of(M, D, STEPS * B)
        recursive, carried, sites = [], [], []
        # Alternating, since the machine's speed drifts.
        own, two = [], []
        for _ in range(3):
            own.append(products(M, B, 2 * D + 1))
            recursive.append(learner_step(problem, srgp.SRGP(batch_size=B, epochs=4)))
            carried.append(learner_step(problem, srgp.SRGP(batch_size=B, epochs=4, fresh=False)))
            two.append(products(M, B, 2))
            sites.append(learner_step(problem, srgp.Sites(batch_size=B, epochs=4)))
        row: dict[str, Any] = {
            "M": M,
            "D": D,
            "B": B,
            "srgp_ms": 1e3 * float(np.median(recursive)),
            "carried_ms": 1e3 * float(np.median(carried)),
            "srgp_products_ms": 1e3 * float(np.median(own)),
            "sites_ms": 1e3 * float(np.median(sites)),
            "sites_products_ms": 1e3 * float(np.median(two)),
            "judging_ms": 1e3 * judging(problem),
        }
        row["srgp_ratio"] = row["srgp_ms"] / row["srgp_products_ms"]
        row["carried_ratio"] = row["carried_ms"] / row["srgp_products_ms"]
        row["sites_ratio"] = row["sites_ms"] / row["sites_products_ms"]
        if with_peers:
            for peer, method in (
                ("gpflow", "svgp-adam"),
                ("gpflow", "svgp-natgrad"),
                ("gpytorch", "svgp-adam"),
                ("gpytorch", "svgp-ngd"),
            ):
                settings = {"method": method, "batch_size": B, "epochs": 0, "step_timing": True}
                info = run_peer(peer, problem, settings)[1]
                row[f"{peer} {method}_ms"] = 1e3 * info["step_seconds"]
        print({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        rows.append(row)
    return rows


def parts() -> list[dict[str, Any]]:
    return [
        {
            "M": M,
            "D": D,
            "B": B,
            "SRGP": parts_of_srgp(M, D, B),
            "Sites": parts_of_sites(M, D, B),
        }
        for M, D, B in SIZES
    ]


def parts_of_srgp(M: int, D: int, B: int) -> dict[str, float]:
    """Milliseconds of what a step of `SRGP` does, each by itself, and of a whole step.

    Of a chain of STEPS batches without a restart: on average (STEPS + 1)/2 are made anew.
    """
    problem = problem_of(M, D, STEPS * B)
    whole = learner_step(problem, srgp.SRGP(batch_size=B, epochs=4, restart=None, warm_up=0))
    with jax.enable_x64(True), threadpool_limits(1):
        model = jax.tree.map(jnp.asarray, start(problem))
        whiten = gradient.whitener_where_needed(model)
        made, raw, both = one_batch(problem, B, whiten)
        coordinates = jax.tree.map(jnp.asarray, Coordinates.of(start(problem), ()))
        values, optimizer = coordinates.values(model), as_optimizer("quick-adam")

        def cotangents() -> Any:
            return jax.block_until_ready([gradient.cotangents(model, whiten, raw) for _ in "01"])

        _, at, through_K = cotangents()[0]
        at, whiten_back = gradient.simplest(at, whiten)
        gradients = [jax.tree.map(jnp.copy, through_K) for _ in range(20)]
        pulled = pull_back(model, at, gradients, made, whiten_back)
        found = jax.tree.map(np.asarray, pulled())
        memories = iter([optimizer.init(values) for _ in range(20)])

        def step() -> None:
            told = (optimizer, ()), coordinates, values, next(memories), found, True, 1.0, 0.1
            jax.block_until_ready(srgp_learner._follow(*told))

        count = (STEPS + 1) / 2
        parts = {
            "factor of K_RR": seconds(lambda: gradient.whitener_where_needed(model), 15),
            **{f"{count:g} times {name}": count * took for name, took in both.items()},
            "bounds and cotangents": seconds(cotangents, 15),
            f"{count:g} times pull-back: a product": count * seconds(pulled, 15),
            "step": seconds(step, 15),
            "whole step": whole,
        }
    return {name: 1e3 * took for name, took in parts.items()}


def one_batch(problem: Problem, B: int, whiten: Any = None) -> tuple[Any, Any, dict[str, float]]:
    """One batch at the start as blocks, its sums, and the seconds of both."""
    model = jax.tree.map(jnp.asarray, start(problem))
    batch = problem["X"][:B], problem["y"][:B], np.ones(B)
    made, raw = blocks.learned(model, batch, whiten)

    def kernel() -> Any:
        R = model.inducing
        return jax.block_until_ready([kernel_matrix(model.kernel, R, b.X, b.w) for b in made])

    def sums() -> Any:
        return jax.block_until_ready([blocks._sums(model, whiten, block) for block in made])

    return made, raw, {"kernel": seconds(kernel, 15), "sums: a product": seconds(sums, 15)}


def pull_back(
    model: srgp.Model, at: Any, gradients: list[Any], made: Any, whiten: Any = None
) -> Callable[[], Any]:
    """Each call gives away the gradient that it adds to: as many are made as are timed."""
    fresh = iter(gradients)
    return lambda: jax.block_until_ready(blocks.pulled(model, at, next(fresh), made, whiten))


def parts_of_sites(M: int, D: int, B: int) -> dict[str, float]:
    """As `parts_of_srgp`, of a step of `Sites`."""
    problem = problem_of(M, D, STEPS * B)
    whole = learner_step(problem, srgp.Sites(batch_size=B, epochs=4))
    with jax.enable_x64(True), threadpool_limits(1):
        model = jax.tree.map(jnp.asarray, start(problem))
        made, raw, both = one_batch(problem, B)
        optimizer = as_optimizer("adam")
        coordinates = jax.tree.map(jnp.asarray, Coordinates.of(start(problem), ()))
        state = sites_learner._first(optimizer, coordinates.values(model), raw)

        def cotangents() -> Any:
            told = model, state, raw, float(STEPS * B), 0.1
            return jax.block_until_ready(sites_learner._sites_cotangent(*told))

        at, through_K, _, _ = cotangents()
        pulled = pull_back(model, at, [jax.tree.map(jnp.copy, through_K) for _ in range(20)], made)
        gradient = pulled()

        def step() -> None:
            told = (optimizer, ()), coordinates, state, gradient, 0.05
            jax.block_until_ready(sites_learner._step(*told))

        found = {
            **both,
            "bound and cotangents": seconds(cotangents, 15),
            "pull-back: a product": seconds(pulled, 15),
            "step": seconds(step, 15),
            "whole step": whole,
        }
    return {name: 1e3 * took for name, took in found.items()}


def exact(with_peers: bool) -> list[dict[str, Any]]:
    rows = []
    for D in (1, 2, 5):
        problem = synthetic(D)
        # Away from the ill-conditioned start, at lengthscales as learning finds them.
        problem["lengthscales"] = np.full(D, {1: 0.1, 2: 0.2, 5: 0.5}[D])
        kernel = srgp.kernels.SE(problem["variance"], problem["lengthscales"])
        model = srgp.Model(kernel, 0.01, problem["R"])
        data = (problem["X"], problem["y"])

        def run(model: srgp.Model = model, data: Any = data) -> None:
            srgp.value_and_grad(model, data)

        row: dict[str, Any] = {"D": D, "M": len(problem["R"]), "ms": 1e3 * seconds(run, 15)}
        row["parts_ms"] = parts_of_exact(model, *data)
        if with_peers:
            problem["noise"] = np.full((), 0.01)
            settings = {"method": "sgpr-lbfgs", "iterations": 3, "step_timing": True}
            row["gpflow_ms"] = 1e3 * run_peer("gpflow", problem, settings)[1]["step_seconds"]
            row["ratio"] = row["gpflow_ms"] / row["ms"]
        print(row, flush=True)
        rows.append(row)
    return rows


def parts_of_exact(model: srgp.Model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Milliseconds of an exact gradient's parts: on one core, a block, times blocks over cores.

    What they leave of the whole is Python between the blocks, and cores that wait for each other.
    """
    cores = len(os.sched_getaffinity(0))
    with jax.enable_x64(True), threadpool_limits(1):
        at = jax.tree.map(jnp.asarray, model)
        whiten: Any = gradient.whitener_where_needed(at)
        stack, factor = Stack(at.kernel, at.inducing, len(X), KEPT), Factor.of(whiten)
        block = next(Arrays(X, y).batches(stack.rows))
        memory = stack.begin(0, block)
        raw = stack.sums(factor, 0, memory, block)
        raw = raw._replace(Phi=mirrored(raw.Phi))
        cotangent, whiten_back = gradient.simplest(gradient.cotangents(at, whiten, raw)[1], whiten)
        told = jax.tree.map(np.asarray, cotangent), Factor.of(whiten_back)

        kept = stack.begin_again(0, block)

        def kernel() -> list[Any]:
            return list(stack._filled(memory, block, stack.exponent.centred(block[0])))

        filled = seconds(kernel, 15)
        parts = {
            "kernel": filled,
            "first pass": seconds(lambda: stack.sums(factor, 0, memory, block), 15) - filled,
            "second pass": seconds(lambda: stack.pulled(*told, 0, kept, block), 15),
        }
    return {name: 1e3 * t * stack.jobs / cores for name, t in parts.items()}


def growth() -> list[dict[str, Any]]:
    """Time of a batch and size of its state as M and D grow, at B = 2000."""
    rows = []
    for D in (2, 8):
        for M in (50, 100, 200, 400, 800):
            problem = problem_of(M, D, 2000)
            kernel = srgp.kernels.SE(1.0, problem["lengthscales"])
            model = srgp.Model(kernel, 0.1, problem["R"])
            data = problem["X"], problem["y"]
            took = seconds(lambda model=model, data=data: sensitivities(model, *data))
            state = sensitivities(model, *data).state
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
            rows.append(
                {
                    "M": M,
                    "D": D,
                    "ms": 1e3 * took,
                    "state_MB": size / 1e6,
                    # One matrix for each of the M·D + D + 2 parameters.
                    "paper_MB": 8e-6 * M * M * (M * D + D + 2),
                }
            )
            print(rows[-1], flush=True)
    return rows


PARTS: dict[str, Callable[[bool], list[dict[str, Any]]]] = {
    "steps": steps,
    "parts": lambda with_peers: parts(),
    "exact": exact,
    "growth": lambda with_peers: growth(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-peers", action="store_true", help="this library alone")
    again = "measure this only, beside what the results file has"
    parser.add_argument("--only", choices=PARTS, help=again)
    chosen = parser.parse_args()
    wanted = [chosen.only] if chosen.only else list(PARTS)
    known = json.loads((RESULTS / "steps.json").read_text()) if chosen.only else {}
    dates = known.pop("dates", {})
    known.pop("machine", None)
    # What OpenBLAS is told to take the processor for, which NumPy's products depend on.
    core = os.environ.get("OPENBLAS_CORETYPE")
    for name in wanted:
        kept = f"{name} as {core}" if core else name
        known[kept] = PARTS[name](not chosen.no_peers)
        dates[kept] = machine()["date"]
    write("steps", {**known, "dates": dates})


if __name__ == "__main__":
    main()
