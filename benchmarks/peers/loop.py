"""The training loop, clock and trace that the runners share; runs inside a peer's environment."""

import contextlib
import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

THETA = ("variance", "lengthscales", "noise", "R")
TIMED_STEPS = 15
CHUNK = 20_000


class Learner(Protocol):
    """A model of a peer with its optimisers."""

    def step(self, rows: Rows) -> float:
        """Train on these rows of the data; the estimate of the bound on all data before it."""

    def state(self) -> Any:
        """A copy of all that training changes."""

    def restore(self, state: Any) -> None:
        """Go back to a state."""

    def finite(self) -> bool:
        """Whether every parameter of the model is finite."""

    def theta(self) -> dict[str, Array]:
        """The values of THETA, with the noise as a variance."""

    def predict(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of y, noise included."""


def read(folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    with np.load(folder / "problem.npz") as f:
        problem = {name: np.asarray(f[name], np.float64) for name in f.files}
    return problem, json.loads((folder / "settings.json").read_text())


def scheduled(total: int, unit: int, checkpoints: int) -> set[int]:
    """Even steps of the run, preceded by 1, 2, 4, ... units (an epoch or an iteration)."""
    even = {round(total * k / checkpoints) for k in range(1, checkpoints + 1)}
    doubled = (unit * 2**k for k in range(total.bit_length()))
    return even | {n for n in doubled if n <= total and (n <= 2 * unit or n < min(even))}


class Recorder:
    """Snapshots of a learner: by steps, and by time where the time is limited."""

    def __init__(self, learner: Learner, total: int, unit: int, settings: dict[str, Any]) -> None:
        checkpoints = max(1, settings["checkpoints"])
        self.learner = learner
        self.limit = settings["max_seconds"] or np.inf
        self.pause = self.limit / checkpoints
        self.steps = scheduled(total, unit, checkpoints)
        self.rows: list[dict[str, Any]] = []
        self.last = -1

    def due(self, step: int, seconds: float) -> bool:
        return step in self.steps or seconds >= self.next_time

    def record(self, step: int, seconds: float, epoch: float, bound: float) -> None:
        if step == self.last:
            return
        if not self.learner.finite():
            raise FloatingPointError(f"a parameter is not finite after step {step}")
        row = {"seconds": seconds, "epoch": epoch, "own_bound": bound, **self.learner.theta()}
        self.rows.append(row)
        self.last, self.state = step, self.learner.state()
        # Infinite where the time is not limited.
        self.next_time = self.pause * (seconds // self.pause + 1) if self.pause < np.inf else np.inf

    def arrays(self, X: Array) -> dict[str, Array]:
        """The trace, and the predictions at X by the last state recorded, NaN where they fail."""
        self.learner.restore(self.state)
        trace = {name: np.array([row[name] for row in self.rows]) for name in self.rows[0]}
        parts = np.array_split(X, max(1, -(-len(X) // CHUNK)))
        try:
            mean, var = map(np.concatenate, zip(*map(self.learner.predict, parts), strict=True))
        # Each library has its own errors for a matrix that cannot be factorised.
        except Exception:
            mean = var = np.full(len(X), np.nan)
        return {**trace, "mean": mean, "var": var}


def batches(N: int, size: int, seed: int) -> Iterator[Rows]:
    """Without end: all rows in a new order each epoch; the last batch of an epoch may be short."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(N)
        for start in range(0, N, size):
            yield order[start : start + size]


def timing(durations: list[float]) -> dict[str, Any]:
    median = float(np.median(durations)) if durations else None
    return {"step_seconds": median, "timed_steps": len(durations)}


def _prepare(learner: Learner, N: int, size: int, timed: int) -> list[float]:
    """Compile for every size of batch, and time some steps; the learner is left as it was."""
    start, durations = learner.state(), []
    # The first step compiles, the second warms up.
    for rows in (N % size or size, size, *[size] * timed):
        # What fails here fails again in training, and is reported there.
        with contextlib.suppress(Exception):
            begin = time.perf_counter()
            learner.step(np.arange(rows))
            durations.append(time.perf_counter() - begin)
        learner.restore(start)
    return durations[2:]


def train(
    learner: Learner, problem: dict[str, Array], settings: dict[str, Any]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Train by mini-batches; whatever fails, the trace up to there is kept."""
    N = len(problem["X"])
    size = min(settings["batch_size"], N)
    unit = -(-N // size)
    total = settings["epochs"] * unit
    recorder = Recorder(learner, total, unit, settings)
    recorder.record(0, 0.0, 0.0, np.nan)
    step, seconds, failed = 0, 0.0, None
    recent: deque[float] = deque(maxlen=unit)
    durations: list[float] = []
    try:
        durations += _prepare(learner, N, size, TIMED_STEPS if settings["step_timing"] else 0)
        source = batches(N, size, settings["seed"])
        while step < total and seconds < recorder.limit:
            begin = time.perf_counter()
            rows = next(source)
            bound = learner.step(rows)
            spent = time.perf_counter() - begin
            step, seconds = step + 1, seconds + spent
            if not np.isfinite(bound):
                raise FloatingPointError(f"the bound is not finite at step {step}")
            recent.append(bound)
            if len(rows) == size:
                durations.append(spent)
            if recorder.due(step, seconds) or seconds >= recorder.limit:
                recorder.record(step, seconds, step / unit, float(np.mean(recent)))
    except Exception as error:
        failed = message(error)
    info = {"steps": step, "seconds": seconds, **timing(durations), "failed": failed}
    return recorder.arrays(problem["Xtest"]), info


def message(error: Exception) -> str:
    """The error in a line, without the calls that TensorFlow's messages list."""
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if line and not line.startswith("File ")]
    return f"{type(error).__name__}: {' '.join(kept)}"[:400]


def write(folder: Path, trace: dict[str, Array], info: dict[str, Any]) -> None:
    np.savez(folder / "trace.npz", **trace)
    (folder / "info.json").write_text(json.dumps(info, indent=1))
