"""Peak resident memory of learning from a file, for ten times more rows.

python -m benchmarks.memory

M = 500, D = 8; the rows are in memory-mapped files, and each measurement is a process of its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import srgp
from benchmarks.common import write

M, D = 500, 8
LEARNERS = {
    "SRGP": srgp.SRGP(batch_size=10_000, epochs=1),
    "Sites": srgp.Sites(epochs=1),
    "Exact": srgp.Exact(iterations=1),
}


def make(folder: Path, N: int) -> None:
    """Write X.npy and y.npy, a block of rows at a time."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", float, (N, D))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", float, (N,))
    for i in range(0, N, 10_000):
        rows = rng.uniform(-1.0, 1.0, (10_000, D))
        X[i : i + 10_000] = rows
        y[i : i + 10_000] = np.sin(3.0 * rows.sum(1)) + 0.1 * rng.normal(size=10_000)


def child(folder: Path, learner: str) -> None:
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "Xy")
    model = srgp.Model(srgp.kernels.SE(1.0, np.ones(D)), 0.1, np.array(X[:M]))
    srgp.learn(model, (X, y), LEARNERS[learner])
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3))


def main() -> None:
    rows: list[dict[str, Any]] = []
    for learner in LEARNERS:
        row: dict[str, Any] = {"learner": learner}
        for N in (100_000, 1_000_000):
            with tempfile.TemporaryDirectory() as folder:
                make(Path(folder), N)
                command = [sys.executable, "-m", "benchmarks.memory", folder, learner]
                out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            row[f"MB at N = {N:,}"] = float(out.splitlines()[-1])
        rows.append(row)
        print(row, flush=True)
    write("memory", {"M": M, "D": D, "peak": rows})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(Path(sys.argv[1]), sys.argv[2])
    else:
        main()
