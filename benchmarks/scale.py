"""Data that do not fit into memory: a folder of Parquet files, read while learning goes on.

python -m benchmarks.scale [--rows 10000000] [--folder FOLDER] [--only JOB]

D = 8, M = 200. Every job is a process of its own, on 10⁶ rows and on all of them: rows per second,
peak resident memory, and the share of the time that learning waited for data.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import srgp
from benchmarks.common import RESULTS, write
from srgp.sources import Batch
from srgp.statistics import summarise_source
from srgp.tables import Table, write_table

M, D = 200, 8
FEW = 1_000_000
PER_FILE = 500_000
JOBS: dict[str, Any] = {
    "summarise": None,
    "SRGP, an epoch": srgp.SRGP(batch_size=10_000, epochs=1),
    "Sites, an epoch": srgp.Sites(epochs=1),
    "Exact, an iteration": srgp.Exact(iterations=1),
    "SparseGPRegressor, no learning": srgp.SparseGPRegressor(n_inducing=M, learner=None),
    "SparseGPRegressor": srgp.SparseGPRegressor(n_inducing=M),
}


def make(folder: Path, rows: int) -> None:
    """Files of half a million rows each; those that are there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(-(-rows // PER_FILE)):
        path = folder / f"{i:05d}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng(i)
        X = rng.uniform(-1.0, 1.0, (PER_FILE, D))
        y = np.sin(3.0 * X.sum(1)) + 0.1 * rng.normal(size=PER_FILE)
        write_table(str(path), [{**{f"x{d}": X[:, d] for d in range(D)}, "y": y}])


class Watched:
    """A source that takes the time its batches are waited for."""

    def __init__(self, source: Table) -> None:
        self.source, self.waited = source, 0.0
        self.feature_names, self.target_names = source.feature_names, source.target_names
        self.count, self.present = source.count, source.present

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        batches = iter(self.source.batches(size, seed))
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - start
            if batch is None:
                return
            yield batch


def child(folder: Path, rows: int, job: str) -> None:
    files = sorted(str(path) for path in folder.glob("*.parquet"))[: rows // PER_FILE]
    source = Watched(Table(files, "y"))
    rng = np.random.default_rng(0)
    model = srgp.Model(srgp.kernels.SE(1.0, np.ones(D)), 0.1, rng.uniform(-1, 1, (M, D)))
    learner = JOBS[job]
    start = time.perf_counter()
    if learner is None:
        summarise_source(model, source)
    elif isinstance(learner, srgp.SparseGPRegressor):
        learner.fit_source(source)
    else:
        srgp.learn(model, source, learner)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"seconds": seconds, "waiting": source.waited / seconds, "peak_MB": peak}))


def _others(job: str) -> list[dict[str, Any]]:
    known = json.loads((RESULTS / "scale.json").read_text())["jobs"]
    return [one for one in known if one["job"] != job]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where the files are made, and kept")
    parser.add_argument("--only", choices=list(JOBS), help="this one; the others' results stay")
    parser.add_argument("--child", nargs=2, metavar=("ROWS", "JOB"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rows % PER_FILE or chosen.rows < FEW:
        parser.error(f"--rows takes multiples of {PER_FILE:,}, from {FEW:,} on")
    if chosen.child:
        child(chosen.folder, int(chosen.child[0]), chosen.child[1])
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        make(folder, chosen.rows)
        found = [] if chosen.only is None else _others(chosen.only)
        for job in JOBS if chosen.only is None else [chosen.only]:
            for rows in (FEW, chosen.rows):
                command = [sys.executable, "-m", "benchmarks.scale", "--folder", str(folder),
                           "--child", str(rows), job]  # fmt: skip
                out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                one = {"job": job, "rows": rows, **json.loads(out.splitlines()[-1])}
                one["rows_per_second"] = rows / one["seconds"]
                found.append(one)
                print(one, flush=True)
                write("scale", {"M": M, "D": D, "jobs": found})


if __name__ == "__main__":
    main()
