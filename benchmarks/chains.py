"""What each change to the paper's SRGP brings: restarts, Adam's memory, the schedule.

python -m benchmarks.chains

The synthetic problems, several seeds of data and order; the bound of all rows at the θ reached.
"""

import warnings
from typing import Any

import srgp
from benchmarks.common import write
from benchmarks.problems import start, synthetic

SEEDS = range(2)
LEARNERS = {
    "default": srgp.SRGP(),
    "restart with each epoch only": srgp.SRGP(restart=None),
    "Adam's usual memory": srgp.SRGP(optimizer="adam"),
    "both": srgp.SRGP(restart=None, optimizer="adam"),
    "the paper's, rate 0.02": srgp.SRGP.paper(0.02, epochs=20),
}


def run(D: int, name: str) -> dict[str, Any]:
    """One way on one kind of problem."""
    bounds, seconds = [], []
    for seed in SEEDS:
        problem = synthetic(D, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = (problem["X"], problem["y"])
            found = srgp.learn(start(problem), data, LEARNERS[name], seed=seed)
        bounds.append(round(found.bound))
        seconds.append(round(found.history[-1].seconds, 1))
    return {"D": D, "settings": name, "bounds": bounds, "seconds": seconds}


def main() -> None:
    rows = []
    for D in (1, 2, 5):
        for name in LEARNERS:
            rows.append(run(D, name))
            print(rows[-1], flush=True)
    write("chains", {"epochs": 20, "rows": rows})


if __name__ == "__main__":
    main()
