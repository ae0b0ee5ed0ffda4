"""Peak resident memory of learning from a file, for ten times more rows.

python -m benchmarks.memory

M = 500, D = 8; the rows are in a Parquet file, read a piece at a time, and each measurement is a
process of its own. (Of a memory-mapped array the system counts the pages it has read, too.) As many
batches are learned of either number of rows, ten passes or one: the C library takes some dozens of
them to have all the memory that it will keep.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import srgp
from benchmarks.common import write
from srgp.tables import Table, write_table

M, D = 500, 8
FEW, MANY = 100_000, 1_000_000
LEARNERS: dict[str, Callable[[int], Any]] = {  # by the number of passes
    "SRGP": lambda passes: srgp.SRGP(batch_size=10_000, epochs=passes),
    "Sites": lambda passes: srgp.Sites(epochs=passes),
    "Exact": lambda passes: srgp.Exact(iterations=passes),
}


def make(file: Path, N: int) -> None:
    """Rows of random inputs, a piece at a time."""
    rng = np.random.default_rng(0)

    def pieces() -> Iterator[dict[str, np.ndarray]]:
        for _ in range(0, N, 10_000):
            X = rng.uniform(-1.0, 1.0, (10_000, D))
            y = np.sin(3.0 * X.sum(1)) + 0.1 * rng.normal(size=10_000)
            yield {**{f"x{d}": X[:, d] for d in range(D)}, "y": y}

    write_table(str(file), pieces())


def child(file: Path, learner: str, passes: int) -> None:
    R = np.random.default_rng(1).uniform(-1.0, 1.0, (M, D))
    model = srgp.Model(srgp.kernels.SE(1.0, np.ones(D)), 0.1, R)
    srgp.learn(model, Table(str(file), "y"), LEARNERS[learner](passes))
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3))


def main() -> None:
    rows: list[dict[str, Any]] = []
    for learner in LEARNERS:
        row: dict[str, Any] = {"learner": learner}
        for N in (FEW, MANY):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "rows.parquet")
                make(file, N)
                command = [sys.executable, "-m", "benchmarks.memory", str(file), learner,
                           str(MANY // N)]  # fmt: skip
                out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            row[f"MB at N = {N:,}"] = float(out.splitlines()[-1])
        rows.append(row)
        print(row, flush=True)
    write("memory", {"M": M, "D": D, "peak": rows})


if __name__ == "__main__":
    if len(sys.argv) == 4:
        child(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    else:
        main()
