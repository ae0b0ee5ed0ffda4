"""`srgp learn` killed fifty times on a stream of 10⁵ rows: every row counts once, bit for bit.

python -m benchmarks.kills

The command runs once undisturbed, and once with kill -9 up to 20 ms after a random one of the
next batches was kept, started again each time; a whole file, without --follow.
Model, sums and the file of malformed rows must be the same.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.common import write
from srgp import SparseGPRegressor

ROWS, KILLS, BATCH = 100_000, 50, 200


def make(folder: Path) -> Path:
    """A CSV file with a malformed row now and then."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 6, ROWS), rng.normal(size=ROWS)
    y = np.sin(a) + b + 0.1 * rng.normal(size=ROWS)
    path = folder / "stream.csv"
    with path.open("w") as file:
        file.write("a,b,y\n")
        for i in range(ROWS):
            file.write(
                "1.0,oops,2.0\n" if i % 9973 == 0 else f"{a[i]:.17g},{b[i]:.17g},{y[i]:.17g}\n"
            )
    return path


def command(model: Path, stream: Path) -> list[str]:
    words = ["learn", str(model), str(stream), "--batch-rows", str(BATCH), "--json"]
    return [str(Path(sys.executable).with_name("srgp")), *words]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stream = make(folder)
        rng = np.random.default_rng(1)
        X = rng.uniform(0, 6, (500, 2))
        start = SparseGPRegressor(n_inducing=30, learner=None).fit(
            pd.DataFrame(X, columns=["a", "b"]), pd.Series(np.sin(X[:, 0]) + X[:, 1], name="y")
        )
        start.target_names_ = ("y",)
        for model in ("whole", "killed"):
            start.save(folder / f"{model}.srgp")
        subprocess.run(command(folder / "whole.srgp", stream), check=True, capture_output=True)
        killed = folder / "killed.srgp"
        random.seed(0)
        kills, moments = 0, []
        while kills < KILLS:
            process = subprocess.Popen(
                command(killed, stream), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            wanted, seen, last = random.randint(1, 9), 0, killed.stat().st_mtime_ns
            while seen < wanted and process.poll() is None:
                now = killed.stat().st_mtime_ns
                seen, last = seen + (now != last), now
                time.sleep(0.0005)
            time.sleep(random.uniform(0.0, 0.02))
            if process.poll() is not None:
                break
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            moments.append(SparseGPRegressor.load(killed).n_samples_seen_)
        subprocess.run(command(killed, stream), check=True, capture_output=True)
        whole, other = (SparseGPRegressor.load(folder / f"{m}.srgp") for m in ("whole", "killed"))
        same = all(
            np.array_equal(a, b)
            for a, b in zip(whole.statistics_.sums, other.statistics_.sums, strict=True)
        )
        rejects = [(folder / f"{m}.srgp.rejects").read_bytes() for m in ("whole", "killed")]
        found = {
            "rows": whole.n_samples_seen_,
            "kills": kills,
            "rows after kills": moments,
            "same sums, bit for bit": same,
            "same rejects": rejects[0] == rejects[1],
        }
        print(found)
        write("kills", found)
        if not (same and rejects[0] == rejects[1] and kills == KILLS):
            raise SystemExit("not the same, or not killed often enough")


if __name__ == "__main__":
    main()
