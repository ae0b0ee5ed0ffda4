"""Streams for `srgp learn`, and models to learn from them."""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import srgp
from srgp import storage
from srgp.cli import shows  # noqa: F401 - adds its commands
from srgp.cli.commands import app
from srgp.cli.following import Follower
from srgp.tables import Table

COMMAND = [sys.executable, "-c", "from srgp.cli import main; main()"]
ROWS = 1050
BAD = {3: "1.0,oops,2.0", 400: "1.0,2.0", 401: "nan,1.0,1.0", 1049: ",1.0,1.0"}


def lines() -> list[str]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, (ROWS, 2))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=ROWS)
    good = [f"{float(a)!r},{float(b)!r},{float(c)!r}" for (a, b), c in zip(x, y, strict=True)]
    return [BAD.get(i, line) for i, line in enumerate(good)]


@functools.cache
def start_model() -> bytes:
    """A model file, as `srgp fit` writes it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.csv").write_text("a,b,y\n" + "\n".join(lines()[10:300]) + "\n")
        est = srgp.SparseGPRegressor(n_inducing=8, learner=None)
        est.fit_source(Table(str(folder / "train.csv"), target="y")).save(folder / "m.srgp")
        return (folder / "m.srgp").read_bytes()


def files(tmp_path: Path) -> tuple[Path, Path]:
    """A model and a stream of its own."""
    model, stream = tmp_path / "m.srgp", tmp_path / "s.csv"
    model.write_bytes(start_model())
    stream.write_text("a,b,y\n" + "\n".join(lines()) + "\n")
    return model, stream


def follower(model: Path, source: Any, **more: Any) -> Follower:
    return Follower(model, str(source), 100, model.with_name("rejects"), **more)


def learn(model: Path, source: Any) -> tuple[int, int]:
    """How many rows were learned, how many rejected."""
    return follower(model, source).run(follow=False, idle=None)[:2]


def rejected(model: Path) -> list[str]:
    """The rejected rows, with the name of the file for its path."""
    return model.with_name("rejects").read_text().replace(f"{model.parent}/", "").splitlines()


def sums(model: Path) -> list[np.ndarray]:
    statistics = storage.read(model).statistics
    assert statistics is not None
    return [np.asarray(part) for part in statistics.sums]


def assert_same(one: Path, two: Path) -> None:
    for a, b in zip(sums(one), sums(two), strict=True):
        np.testing.assert_array_equal(a, b)


def command(*args: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    words = [*COMMAND, *map(str, args)]
    return subprocess.run(words, capture_output=True, text=True, check=False, **more)


def invoked(*args: Any) -> Any:
    """The command within this process, where none has to be killed or fed."""
    return CliRunner().invoke(app, [str(arg) for arg in args])
