"""Whether a learning rate can be too large: SRGP and Sites at several, beside their start.

python -m benchmarks.rates [--problems synthetic-1 ...] [--data FOLDER]

The bound of all training rows at the θ that is given back, per row and less that of the start.
"""

import argparse
import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import srgp
from benchmarks.common import RESULTS, machine
from benchmarks.learning import MANY
from benchmarks.problems import Problem, real, start, synthetic, toy

FILE = RESULTS / "rates.json"
RATES = (0.003, 0.01, 0.03, 0.05, 0.1)
LEARNERS = {"SRGP": srgp.SRGP(), "Sites": srgp.Sites()}
FEW_EPOCHS = 2  # of SRGP on the largest table


def gained(problem: Problem, learner: Any, seed: int = 0) -> float:
    """Nats a row above the start."""
    model, data = start(problem), (problem["X"], problem["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = srgp.log_bound(model, srgp.summarise(model, *data))
        found = srgp.learn(model, data, learner, seed=seed)
    return (found.bound - before) / len(problem["X"])


def run(problem: Problem) -> list[dict[str, Any]]:
    """All learners at all rates."""
    rows = len(problem["X"])
    found = []
    for name, learner in LEARNERS.items():
        if rows <= 1000:
            learner = dataclasses.replace(learner, batch_size=100)
        if name == "SRGP" and rows > MANY:
            learner = dataclasses.replace(learner, epochs=FEW_EPOCHS)
        gains = {
            str(rate): gained(problem, dataclasses.replace(learner, learning_rate=rate))
            for rate in RATES
        }
        found.append({"learner": name, "settings": repr(learner), "gained": gains})
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["toy", "synthetic-1", "synthetic-2", "synthetic-5"]
    shown = "those, powerplant, protein_raw or airline"
    parser.add_argument("--problems", nargs="+", default=names, help=shown)
    parser.add_argument("--data", type=Path, help="folder of powerplant, protein_raw, airline")
    chosen = parser.parse_args()
    for name in chosen.problems:
        print(f"-- {name}", flush=True)
        if name == "toy":
            problem = toy()
        elif name.startswith("synthetic"):
            problem = synthetic(int(name.split("-")[1]))
        else:
            problem = real(name, chosen.data, 200)
        results = json.loads(FILE.read_text()) if FILE.exists() else {}
        size = {"N": len(problem["X"]), "M": len(problem["R"])}
        results[name] = {"machine": machine(), **size, "runs": run(problem)}
        RESULTS.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
