"""One virtual environment a peer, since their NumPy versions disagree; and running a peer in it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .problems import Problem, Solution

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".venvs"


class PeerError(RuntimeError):
    """A peer could not be installed or did not finish."""


def execute(command: Sequence[str | Path], what: str) -> None:
    """Run a command in silence; `what` names it where it fails."""
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"{what} failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")


def python(peer: str) -> Path:
    """The interpreter of the environment of `peer`."""
    folder = ENVIRONMENTS / peer
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def build(peer: str, *, rebuild: bool = False, requirements: Path | None = None) -> None:
    """Make the environment of `peer`, unless it stands already with the same requirements."""
    requirements = requirements or HERE / f"requirements-{peer}.txt"
    folder = ENVIRONMENTS / peer
    # Written last, so that an interrupted installation is begun again.
    stamp = folder / "installed.txt"
    if not rebuild and stamp.exists() and stamp.read_text() == requirements.read_text():
        return
    print(f"{peer}: building its environment", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    execute([sys.executable, "-m", "venv", folder], "making the environment")
    options = ("--quiet", "--disable-pip-version-check", "-r", requirements)
    execute([python(peer), "-m", "pip", "install", *options], "installing")
    stamp.write_text(requirements.read_text())


def solve(
    peer: str, problems: Sequence[Problem], folder: Path
) -> tuple[dict[str, Solution], dict[str, str]]:
    """The peer's solutions by name of the problem, and its versions; `folder` takes the files."""
    questions, answers = folder / "problems", folder / "results"
    for path in (questions, answers):
        path.mkdir(parents=True)
    for problem in problems:
        problem.save(questions)
    # -P keeps this folder off the peer's path: no module here can shadow one of its own.
    execute([python(peer), "-P", HERE / f"{peer}_runner.py", questions, answers], "running")
    solutions, versions = {}, {}
    for problem in problems:
        with np.load(answers / f"{problem.name}.npz") as f:
            bound, jitter = float(f["bound"]), float(f["jitter"])
            solutions[problem.name] = Solution(bound, f["mean"], f["var"], jitter)
            versions = json.loads(str(f["versions"]))
    return solutions, versions
