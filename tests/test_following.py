"""`srgp learn`: every row counts once, whenever the process dies."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streaming import (
    BAD,
    COMMAND,
    ROWS,
    assert_same,
    command,
    files,
    follower,
    lines,
    rejected,
    start_model,
    sums,
)

import srgp
from srgp import storage
from srgp.cli.following import Follower
from srgp.cli.places import Place, Waiting
from srgp.cli.tail import tail
from srgp.sources import Arrays


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, stream = files(tmp_path_factory.mktemp("undisturbed"))
    found = follower(model, stream).run(follow=False, idle=None)
    assert found == (ROWS - len(BAD), len(BAD), 11)
    return model


def test_every_row_counts_once(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "m.srgp").write_bytes(start_model())
    est = srgp.SparseGPRegressor.load(tmp_path / "m.srgp")
    before = est.n_samples_seen_
    good = [line for i, line in enumerate(lines()) if i not in BAD]
    table = np.array([[float(v) for v in line.split(",")] for line in good])
    for i in range(0, len(table), 100):
        est.partial_fit_source(Arrays(table[i : i + 100, :2], table[i : i + 100, 2]))
    found = srgp.SparseGPRegressor.load(undisturbed)
    assert found.n_samples_seen_ == est.n_samples_seen_ == before + len(good)
    for a, b in zip(est.statistics_.sums, sums(undisturbed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_malformed_rows_are_set_aside_with_their_place(undisturbed: Path) -> None:
    told = rejected(undisturbed)
    # As editors count: the header is line 1.
    assert [line.split(": ")[0] for line in told] == [f"s.csv:{i + 2}" for i in sorted(BAD)]
    assert "2 fields instead of 3" in told[1]
    assert told[0].endswith(BAD[3])


def test_going_on_when_there_is_nothing_new_changes_nothing(undisturbed: Path) -> None:
    before = undisturbed.read_bytes()
    again = follower(undisturbed, undisturbed.with_name("s.csv")).run(follow=False, idle=None)
    assert again == (0, 0, 0)
    assert undisturbed.read_bytes() == before


def test_killed_fifty_times(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a batch is learned, between learning and writing, after writing, while rejecting."""
    model, stream = files(tmp_path)
    chance = random.Random(0)
    write, fit, reject = storage.write, srgp.SparseGPRegressor.partial_fit_source, Follower._reject

    def maybe_die() -> None:
        if deaths < 50 and chance.random() < 0.7:
            raise SystemExit

    def dying_write(path: Any, saved: Any) -> None:
        maybe_die()
        write(path, saved)
        maybe_die()

    def dying_fit(self: Any, *args: Any) -> Any:
        maybe_die()
        return fit(self, *args)

    def dying_reject(self: Any, *args: Any, **more: Any) -> None:
        maybe_die()
        reject(self, *args, **more)
        maybe_die()

    monkeypatch.setattr(storage, "write", dying_write)
    monkeypatch.setattr(srgp.SparseGPRegressor, "partial_fit_source", dying_fit)
    monkeypatch.setattr(Follower, "_reject", dying_reject)
    deaths = 0
    while True:
        try:
            follower(model, stream).run(follow=False, idle=None)
            break
        except SystemExit:
            deaths += 1
    assert deaths == 50
    assert_same(model, undisturbed)
    assert rejected(model) == rejected(undisturbed)


def test_a_file_that_grows(undisturbed: Path, tmp_path: Path) -> None:
    """Written in pieces that end anywhere, in the middle of a number too."""
    model, stream = files(tmp_path)
    text = stream.read_bytes()
    stream.write_bytes(b"")

    def write() -> None:
        with stream.open("ab", buffering=0) as file:
            for i in range(0, len(text), 3001):
                file.write(text[i : i + 3001])
                time.sleep(0.01)

    thread = threading.Thread(target=write)
    thread.start()
    found = follower(model, stream).run(follow=True, idle=1.0)
    thread.join()
    assert found.learned == ROWS - len(BAD)
    assert_same(model, undisturbed)


def test_a_folder_of_csv_and_parquet(undisturbed: Path, tmp_path: Path) -> None:
    model, stream = files(tmp_path)
    stream.unlink()
    folder = tmp_path / "stream"
    folder.mkdir()
    rows = lines()
    (folder / "a.csv").write_text("y,b,a\n" + "".join(_reversed(line) for line in rows[:500]))
    good = [line for i, line in enumerate(rows) if i >= 500 and i not in BAD]
    table = np.array([[float(v) for v in line.split(",")] for line in good])
    columns = dict(zip(("a", "b", "y"), table.T, strict=True))
    pq.write_table(pa.table(columns), folder / "b.parquet", row_group_size=77)
    one = follower(model, folder)
    assert one.run(follow=False, idle=None).learned == ROWS - len(BAD)
    assert one.place.file == "b.parquet"
    assert_same(model, undisturbed)


def _reversed(line: str) -> str:
    return ",".join(line.split(",")[::-1]) + "\n"


def test_a_place_in_the_middle_of_a_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": np.arange(10.0)}), tmp_path / "a.parquet", row_group_size=4)
    found = list(tail(str(tmp_path), ["a"], Place("a.parquet", 5, 5), follow=False))
    values = [float(line.values[0]) for line in found if not isinstance(line, Waiting)]  # type: ignore[index]
    assert values == [5.0, 6.0, 7.0, 8.0, 9.0]


def test_files_that_are_still_being_written(tmp_path: Path) -> None:
    """The end of the last file is waited for; once another follows, the file is done."""
    pq.write_table(pa.table({"a": np.arange(5.0)}), tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    (tmp_path / "a.csv").write_text("a\n10\n11")
    stream = tail(str(tmp_path), ["a"], Place(), follow=True, poll=0.01)
    found: list[float] = []

    def read() -> None:
        while not isinstance(line := next(stream), Waiting):
            assert line.values is not None
            found.append(float(line.values[0]))

    read()
    assert found == [10.0]
    (tmp_path / "b.parquet").write_bytes(whole[:-9])
    read()
    assert found == [10.0, 11.0]
    (tmp_path / "b.parquet").write_bytes(whole)
    read()
    assert found == [10.0, 11.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    (tmp_path / "c.parquet").write_bytes(whole[:-9])
    read()
    (tmp_path / "d.csv").write_text("a\n12\n")
    with pytest.raises(ValueError, match=r"c\.parquet cannot be read"):
        read()


def test_theta_that_follows_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """With `adapt`, the optimiser's memory is in the model file as well."""
    found = []
    for parts in ([600], [200, 300, 100]):
        folder = tmp_path / str(len(parts))
        folder.mkdir()
        model, stream = files(folder)
        est = srgp.SparseGPRegressor.load(model)
        est.set_params(adapt=True).save(model)
        good, done = [row for i, row in enumerate(lines()) if i not in BAD], 0
        for rows in parts:
            done += rows
            stream.write_text("\n".join(["a,b,y", *good[:done], ""]))
            assert follower(model, stream).run(follow=False, idle=None).learned == rows
        found.append(srgp.SparseGPRegressor.load(model).model_)
    assert found[0].noise != srgp.SparseGPRegressor.load(files(tmp_path)[0]).model_.noise
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_file_that_comes_late_is_refused(tmp_path: Path) -> None:
    """Its rows would be neither read nor missed; those of files that went away are no trouble."""
    folder = tmp_path / "rows"
    folder.mkdir()
    good = [row for i, row in enumerate(lines()) if i not in BAD]

    def add(name: str, first: int) -> None:
        (folder / name).write_text("\n".join(["a,b,y", *good[first : first + 10], ""]))

    add("a.csv", 0)
    add("c.csv", 10)
    model = tmp_path / "m.srgp"
    model.write_bytes(start_model())
    assert follower(model, folder).run(follow=False, idle=None).learned == 20
    (folder / "a.csv").unlink()
    add("d.csv", 20)
    assert follower(model, folder).run(follow=False, idle=None).learned == 10
    before = model.read_bytes()
    add("b.csv", 30)
    for follow in (False, True):
        with pytest.raises(ValueError, match=r"b\.csv came late: d\.csv"):
            follower(model, folder).run(follow=follow, idle=0.1)
    assert model.read_bytes() == before
    (folder / "b.csv").rename(folder / "e.csv")
    assert follower(model, folder).run(follow=False, idle=None).learned == 10


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    model, stream = files(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        follower(model, tmp_path / "nowhere").run(follow=False, idle=None)
    stream.write_text("a,c,y\n1,2,3\n")
    with pytest.raises(ValueError, match="no column 'b'"):
        follower(model, stream).run(follow=False, idle=None)
    assert model.read_bytes() == start_model()
    stream.write_text("a,b,y\n" + "1,2,3\n" * 200)
    follower(model, stream).run(follow=False, idle=None)
    stream.write_text("a,b,y\n1,2,3\n")
    with pytest.raises(ValueError, match="shorter"):
        follower(model, stream).run(follow=False, idle=None)
    nameless = srgp.SparseGPRegressor(n_inducing=2, learner=None).fit(np.eye(3), np.arange(3.0))
    nameless.save(model)
    with pytest.raises(ValueError, match="names of its columns"):
        follower(model, stream)


def test_the_command_killed_by_the_system(undisturbed: Path, tmp_path: Path) -> None:
    model, stream = files(tmp_path)
    text = stream.read_text()
    stream.write_text(text[:20_000])
    words = [*COMMAND, "learn", model, stream, "--follow"]
    options = ["--batch-rows", "100", "--rejects", str(tmp_path / "rejects")]
    process = subprocess.Popen([*map(str, words), *options], stderr=subprocess.PIPE)
    end = time.time() + 60
    while storage.read(model).statistics.n < 300:  # type: ignore[union-attr]
        assert time.time() < end
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    stream.write_text(text)
    done = command("learn", model, stream, *options, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows learned"] < ROWS - len(BAD)
    assert_same(model, undisturbed)


def test_the_command_from_standard_input(undisturbed: Path, tmp_path: Path) -> None:
    model, stream = files(tmp_path)
    text = stream.read_text()
    options = ["--batch-rows", "100", "--json"]
    first = command("learn", model, "-", *options, input=text)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["rows learned"] == ROWS - len(BAD)
    assert_same(model, undisturbed)
    again = command("learn", model, "-", *options, input=text)
    assert json.loads(again.stdout)["rows learned"] == 0
