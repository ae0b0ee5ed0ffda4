"""Learning that is interrupted, wherever, goes on to the same model, to the last bit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import pandas as pd
import pytest

import srgp
from srgp import kernels as k
from srgp import storage
from srgp.learners import auto

T = TypeVar("T")
rng = np.random.default_rng(0)
X = rng.uniform(0, 6, (600, 1))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
START = srgp.Model(k.SE(), 0.3, np.linspace(0.3, 5.7, 8)[:, None])
LEARNERS: dict[str, Any] = {
    "SRGP": srgp.SRGP(batch_size=100, epochs=5, average=0.5),
    "Sites": srgp.Sites(batch_size=100, epochs=5),
    "Exact": srgp.Exact(iterations=6),
    "Auto": srgp.Auto(iterations=4),
}


class Interrupted(srgp.Checkpoint):
    """Dies when asked for more than a number of new steps."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__(folder)
        self.left = after

    def step(self, compute: Callable[[], T], like: T) -> T:
        def dying() -> T:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            return compute()

        return super().step(dying, like)


def learn(learner: Any, checkpoint: Any = None, **options: Any) -> srgp.Learned:
    return srgp.learn(START, (X, y), learner, seed=3, checkpoint=checkpoint, **options)


def same(one: srgp.Learned, two: srgp.Learned) -> bool:
    leaves = zip(
        jax.tree.leaves((one.model, one.statistics.sums)),
        jax.tree.leaves((two.model, two.statistics.sums)),
        strict=True,
    )
    return one.bound == two.bound and all(np.array_equal(a, b) for a, b in leaves)


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `Auto` goes through all its stages on few rows."""
    monkeypatch.setattr(auto, "SAMPLE", 100)
    monkeypatch.setattr(auto, "AHEAD", 2)
    monkeypatch.setattr(auto, "WORTH", 0)
    monkeypatch.setattr(auto, "STEPS", 4)


@pytest.mark.parametrize("name", LEARNERS)
def test_interrupted_after_every_step(name: str, tmp_path: Path, small_samples: None) -> None:
    whole = learn(LEARNERS[name])
    one_go = learn(LEARNERS[name], srgp.Checkpoint(tmp_path / "one"))
    assert same(one_go, whole)
    deaths = 0
    while True:
        try:
            result = learn(LEARNERS[name], Interrupted(tmp_path / "many", after=1))
        except KeyboardInterrupt:
            deaths += 1
        else:
            break
    assert deaths >= 4
    assert same(result, whole)
    kept = [len(list((tmp_path / folder).iterdir())) for folder in ("one", "many")]
    assert kept[0] == kept[1] == deaths + 2  # the last step, and what the job is
    for column in ("epoch", "bound", "estimate", "learning_rate", "refused", "done"):
        assert result.history.column(column) == whole.history.column(column)
    seconds = result.history.column("seconds")
    assert seconds == sorted(seconds)


def test_rules_that_stop_hold_after_an_interruption(tmp_path: Path) -> None:
    learner = srgp.SRGP(batch_size=100, epochs=30)
    whole = learn(learner, patience=2, validation=(X[:50], y[:50]))
    with pytest.raises(KeyboardInterrupt):
        learn(learner, Interrupted(tmp_path, 2), patience=2, validation=(X[:50], y[:50]))
    result = learn(learner, srgp.Checkpoint(tmp_path), patience=2, validation=(X[:50], y[:50]))
    assert same(result, whole)
    assert result.history.column("rmse") == whole.history.column("rmse")


def test_another_job_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    learner = LEARNERS["SRGP"]
    learn(learner, srgp.Checkpoint(tmp_path))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    start = START.replace(noise=0.4)
    for model, data, how, message in [
        (start, (X, y), {}, "start differ"),
        (START, (X[:-1], y[:-1]), {}, "data differ"),
        (START, (X, y), {"seed": 4}, "seed differ"),
        (START, (X, y), {"fixed": "noise"}, "fixed differ"),
        (START, (X, y), {"priors": {"noise": srgp.priors.LogNormal(0.1, 1.0)}}, "priors differ"),
    ]:
        with pytest.raises(ValueError, match=message):
            srgp.learn(
                model, data, learner, **{"seed": 3, **how}, checkpoint=srgp.Checkpoint(tmp_path)
            )
    with pytest.raises(ValueError, match=r"remembers another job: learner differ"):
        learn(srgp.SRGP(batch_size=100, epochs=6), srgp.Checkpoint(tmp_path))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file"):
        srgp.Checkpoint(tmp_path / "file")
    with pytest.raises(ValueError, match=r"holds other files \(file\)"):
        srgp.Checkpoint(tmp_path)
    checkpoint = srgp.Checkpoint(tmp_path / "new" / "deep")
    learn(LEARNERS["Exact"], checkpoint)
    # What a killed process leaves behind is removed, and what is damaged is named.
    left = checkpoint.folder / ".000004.step.abcd.tmp"
    left.write_bytes(b"half")
    srgp.Checkpoint(checkpoint.folder)
    assert not left.exists()
    step = checkpoint.folder / "000002.step"
    step.write_bytes(step.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"000002\.step is cut off"):
        learn(LEARNERS["Exact"], srgp.Checkpoint(checkpoint.folder))
    checkpoint.clear()
    assert not checkpoint.folder.exists()


def test_the_regressor_goes_on_and_knows_its_data(tmp_path: Path) -> None:
    def fitted(checkpoint: Any, targets: np.ndarray = y) -> srgp.SparseGPRegressor:
        est = srgp.SparseGPRegressor(n_inducing=8, learner=srgp.SRGP(batch_size=100, epochs=4))
        return est.fit_source((X, targets), checkpoint=checkpoint)

    whole = fitted(None)
    with pytest.raises(KeyboardInterrupt):
        fitted(Interrupted(tmp_path, 3))
    resumed = fitted(srgp.Checkpoint(tmp_path))
    assert resumed.bound_ == whole.bound_
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    other = y.copy()
    other[-1] += 1e-9
    with pytest.raises(ValueError, match="another job: data differ"):
        fitted(srgp.Checkpoint(tmp_path), other)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_regressor_with_other_settings_is_refused(steps: int, tmp_path: Path) -> None:
    """Whatever was kept: the job alone, or steps of a learner as well."""

    def fitted(checkpoint: Any, data: Any = (X, y), **given: Any) -> srgp.SparseGPRegressor:
        learner = srgp.SRGP(batch_size=100, epochs=4)
        settings = {"n_inducing": 8, "learner": learner, **given}
        return srgp.SparseGPRegressor(**settings).fit_source(data, checkpoint=checkpoint)

    with pytest.raises(KeyboardInterrupt):
        fitted(Interrupted(tmp_path, steps - 1))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert len(before) >= steps
    swapped = y.copy()
    swapped[[5, 9]] = swapped[[9, 5]]  # means, deviations and the first row stay
    others: list[tuple[dict[str, Any], str]] = [
        ({"n_inducing": 5}, "n_inducing"),
        ({"kernel": "matern52"}, "kernel"),
        ({"kernel": k.SE(lengthscales=2.0)}, "kernel"),
        ({"random_state": 1}, "seed"),
        ({"approximation": "fitc"}, "approximation"),
        ({"inducing": "random"}, "inducing"),
        ({"inducing": X[:8]}, "inducing"),
        ({"standardize": False}, "standardize"),
        ({"learner": "exact"}, "learner"),
        ({"learner": "srgp", "epochs": 5}, "learner"),
        ({"data": (X, swapped)}, "data"),
        ({"data": (X, y, np.where(np.arange(600) < 9, 2.0, 1.0))}, "data"),
    ]
    for given, name in others:
        with pytest.raises(ValueError, match=f"another job: {name} differ"):
            fitted(srgp.Checkpoint(tmp_path), **given)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    # When it ends is not what it learns.
    assert fitted(srgp.Checkpoint(tmp_path), max_seconds=1e6).bound_ == fitted(None).bound_


def test_a_step_of_another_shape_is_refused(tmp_path: Path) -> None:
    learn(LEARNERS["Exact"], srgp.Checkpoint(tmp_path))
    step = tmp_path / "000002.step"
    arrays, about = storage.read_arrays(step, "checkpoint")
    for wrong in (
        {**arrays, "2": arrays["2"][:-1]},
        {"0": arrays["0"]},
        {**arrays, "other": arrays["0"]},
    ):
        storage.write_arrays(step, "checkpoint", wrong, about)
        with pytest.raises(ValueError, match=r"000002\.step holds no step of this job"):
            learn(LEARNERS["Exact"], srgp.Checkpoint(tmp_path))
    storage.write_arrays(step, "checkpoint", {}, {"job": {}})
    with pytest.raises(ValueError, match="holds no step of this job"):
        learn(LEARNERS["Exact"], srgp.Checkpoint(tmp_path))


# -- the command, killed ----------------------------------------------------------------------


# Rows, options, and after how many kept steps it is stopped, the last time by Ctrl-C.
FITS = {
    "srgp": (600, ("--learner", "srgp", "--batch-size", "100", "--epochs", "100"), (1, 24, 30)),
    "auto": (100_000, (), (0, 3, 6)),  # so many rows that a sample comes first
}


def steps(folder: Path) -> int:
    return len(list(folder.glob("*.step"))) if folder.exists() else -1


def start_fit(here: Path, output: str, *words: str) -> "subprocess.Popen[str]":
    program = str(Path(sys.executable).parent / "srgp")
    command = [program, "fit", "train.csv", "--target", "y", "-m", "8", "-o", output, *words]
    return subprocess.Popen(
        command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def stop_after(process: "subprocess.Popen[str]", folder: Path, count: int, how: int) -> str:
    """Signal the process once the folder has so many steps; what it said."""
    end = time.monotonic() + 120.0
    while steps(folder) < count and process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    os.kill(process.pid, how)
    return process.communicate(timeout=120)[1]


def finish(process: "subprocess.Popen[str]") -> None:
    _, told = process.communicate(timeout=180)
    assert process.returncode == 0, told


@pytest.mark.parametrize("learner", FITS)
def test_the_command_killed_at_several_moments(learner: str, tmp_path: Path) -> None:
    rows, chosen, (*killed, interrupted) = FITS[learner]
    draw = np.random.default_rng(0)
    x = draw.uniform(0, 6, rows)
    data = pd.DataFrame({"x": x, "y": np.sin(x) + 0.1 * draw.normal(size=rows)})
    data.to_csv(tmp_path / "train.csv", index=False)
    finish(start_fit(tmp_path, "whole.srgp", *chosen))
    folder = tmp_path / "kept"
    resume = (*chosen, "--checkpoint", "kept")
    for count in killed:
        process = start_fit(tmp_path, "m.srgp", *resume)
        stop_after(process, folder, count, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert steps(folder) >= count
        assert count > 0 or steps(folder) <= 1  # what the job is
        assert not (tmp_path / "m.srgp").exists()
    process = start_fit(tmp_path, "m.srgp", *resume)
    told = stop_after(process, folder, interrupted, signal.SIGINT)
    assert process.returncode == 130
    assert "the same command goes on from kept" in told
    finish(start_fit(tmp_path, "m.srgp", *resume))
    assert not folder.exists()  # there is nothing left to go on from
    one, two = (storage.read(tmp_path / name) for name in ("whole.srgp", "m.srgp"))
    for a, b in zip(
        jax.tree.leaves((one.model, one.statistics.sums)),
        jax.tree.leaves((two.model, two.statistics.sums)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
