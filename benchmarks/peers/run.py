"""Train a peer on a problem, in the peer's own environment."""

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crosscheck import environments

HERE = Path(__file__).parent
# Where an environment is shared with the cross-check, so are its requirements.
REQUIREMENTS = {
    "gpflow": environments.HERE / "requirements-gpflow.txt",
    "gpytorch": HERE / "requirements-gpytorch.txt",
}
METHODS = {
    "gpflow": ("svgp-adam", "svgp-natgrad", "sgpr-lbfgs"),
    "gpytorch": ("svgp-adam", "svgp-ngd"),
}
DEFAULTS: dict[str, Any] = {
    "learning_rate": 0.01,
    "gamma": 0.1,
    "batch_size": 5000,
    "epochs": 1,
    "max_seconds": None,
    "seed": 0,
    "checkpoints": 20,
    "step_timing": False,
}


def _cpu_seconds() -> tuple[float, float]:
    """CPU time spent so far by all processes, and by this one and its children."""
    fields = [int(n) for n in Path("/proc/stat").read_text().split()[1:9]]
    # The fourth and fifth are idle and waiting.
    ticks = sum(fields) - fields[3] - fields[4]
    return ticks / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4])


def run(
    peer: str, problem: dict[str, np.ndarray], settings: dict[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The trace of the training of `peer`, and what is known about it.

    `problem` has X, y, Xtest, R and the start of variance, lengthscales and noise (a variance);
    `settings` has the method, and overrides DEFAULTS. The trace has one row a snapshot, the
    first of them the start; "epoch" counts passes over the data, "seconds" training alone; "mean"
    and "var" (with noise) are the peer's own predictions of the last snapshot at Xtest.
    The information has "other_cores", the cores that other processes kept busy meanwhile: unless
    it is near zero, the times mean little (PyTorch's threads wait for each other at each step).
    """
    if settings["method"] not in METHODS[peer]:
        raise ValueError(f"{peer} has the methods {METHODS[peer]}, not {settings['method']!r}")
    environments.build(peer, requirements=REQUIREMENTS[peer])
    with tempfile.TemporaryDirectory() as folder:
        questions, answers = Path(folder, "questions"), Path(folder, "answers")
        questions.mkdir()
        answers.mkdir()
        np.savez(questions / "problem.npz", **problem)
        (questions / "settings.json").write_text(json.dumps({**DEFAULTS, **settings}))
        runner = HERE / f"{peer}_runner.py"
        begin, (all_before, own_before) = time.perf_counter(), _cpu_seconds()
        environments.execute([environments.python(peer), runner, questions, answers], "training")
        wall, (all_after, own_after) = time.perf_counter() - begin, _cpu_seconds()
        with np.load(answers / "trace.npz") as f:
            trace = dict(f)
        info = json.loads((answers / "info.json").read_text())
    others = (all_after - all_before) - (own_after - own_before)
    return trace, {**info, "other_cores": max(0.0, others / wall)}
