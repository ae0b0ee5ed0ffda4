"""`srgp learn --follow` killed fifty times on a stream of 10⁵ rows: every row counts once.

python -m benchmarks.kills

The file grows all the while, in pieces that end anywhere. Every other kill -9 comes at a random
moment after the start, which may be before the first row is read; the rest come up to 20 ms after
a batch was kept, when the next one is being learned or written. The same command starts again each
time. Sums and the file of malformed rows must be those of a run undisturbed on the whole file, bit
for bit.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.common import write
from srgp import SparseGPRegressor

ROWS, KILLS, BATCH = 100_000, 50, 200
LONGEST = 8.0  # seconds from a start to a kill: about twice what the start takes
GROWING = 240.0  # seconds until the last row is there: about what fifty kills take


def lines() -> bytes:
    """A table with a malformed row now and then."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 6, ROWS), rng.normal(size=ROWS)
    y = np.sin(a) + b + 0.1 * rng.normal(size=ROWS)
    good = (f"{p:.17g},{q:.17g},{r:.17g}" for p, q, r in zip(a, b, y, strict=True))
    rows = ("1.0,oops,2.0" if i % 9973 == 0 else row for i, row in enumerate(good))
    return ("a,b,y\n" + "\n".join(rows) + "\n").encode()


def grow(path: Path, content: bytes) -> None:
    """Write a piece every 50 ms."""
    pieces = int(GROWING / 0.05)
    with path.open("ab", buffering=0) as file:
        for i in range(pieces):
            file.write(content[i * len(content) // pieces : (i + 1) * len(content) // pieces])
            time.sleep(0.05)


def model(path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 6, (500, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    y = pd.Series(np.sin(X[:, 0]) + X[:, 1], name="y")
    start = SparseGPRegressor(n_inducing=30, learner=None).fit(frame, y)
    start.target_names_ = ("y",)
    start.save(path)


def command(file: Path, stream: Path, *more: str) -> list[str]:
    words = ["learn", str(file), str(stream), "--batch-rows", str(BATCH), "--json", *more]
    return [str(Path(sys.executable).with_name("srgp")), *words]


def kill(process: subprocess.Popen[bytes], file: Path, by_batch: bool) -> None:
    """Wait for the moment, and kill."""
    if by_batch:
        wanted, seen, last = random.randint(1, 9), 0, file.stat().st_mtime_ns
        while seen < wanted and process.poll() is None:
            now = file.stat().st_mtime_ns
            seen, last = seen + (now != last), now
            time.sleep(0.0005)
        time.sleep(random.uniform(0.0, 0.02))
    else:
        time.sleep(random.uniform(0.0, LONGEST))
    if process.poll() is not None:
        raise SystemExit(f"it ended by itself: exit code {process.returncode}")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    random.seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, killed = folder / "whole.srgp", folder / "killed.srgp"
        model(whole)
        killed.write_bytes(whole.read_bytes())
        content, stream = lines(), folder / "stream.csv"
        growth = threading.Thread(target=grow, args=(stream, content))
        stream.touch()
        growth.start()
        rows = []
        for i in range(KILLS):
            process = subprocess.Popen(
                command(killed, stream, "--follow"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            kill(process, killed, by_batch=bool(i % 2) and growth.is_alive())
            rows.append(SparseGPRegressor.load(killed).n_samples_seen_)
            print(f"kill {i + 1}: {rows[-1]} rows learned", flush=True)
        growth.join()
        last = command(killed, stream, "--follow", "--idle", "3")
        subprocess.run(last, check=True, capture_output=True)
        subprocess.run(command(whole, stream), check=True, capture_output=True)
        one, other = SparseGPRegressor.load(whole), SparseGPRegressor.load(killed)
        sums = zip(one.statistics_.sums, other.statistics_.sums, strict=True)
        rejects = [file.with_name(file.name + ".rejects").read_bytes() for file in (whole, killed)]
        found = {
            "rows": one.n_samples_seen_,
            "kills": KILLS,
            "rows after kills": rows,
            "same sums, bit for bit": all(np.array_equal(a, b) for a, b in sums),
            "same rejects": rejects[0] == rejects[1],
        }
        print(found)
        write("kills", found)
        if not (found["same sums, bit for bit"] and found["same rejects"]):
            raise SystemExit("not the same")


if __name__ == "__main__":
    main()
