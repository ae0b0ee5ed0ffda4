"""`srgp learn` keeps a place in every stream: no row counts twice, whatever it is called."""

import dataclasses
import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streaming import BAD, COMMAND, ROWS, files, follower, invoked, learn, rejected, start_model

import srgp
from srgp import storage
from srgp.cli.places import Place, Waiting
from srgp.cli.tail import tail

GOOD = ROWS - len(BAD)


def table(rows: int, seed: int = 0) -> str:
    values = np.random.default_rng(seed).uniform(0, 6, (rows, 3))
    return "".join(",".join(repr(float(v)) for v in row) + "\n" for row in values)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m.srgp").write_bytes(start_model())
    return tmp_path / "m.srgp"


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    (tmp_path / "s1.csv").write_text("a,b,y\n" + table(30))
    return tmp_path / "s1.csv"


def seen(model: Path) -> int:
    return srgp.SparseGPRegressor.load(model).n_samples_seen_


# -- files ----------------------------------------------------------------------------------------


def test_a_file_is_the_same_however_it_is_called(
    model: Path, stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.csv").symlink_to(stream)
    assert learn(model, "s1.csv") == (30, 0)
    for name in ("./s1.csv", stream, f"../{tmp_path.name}/s1.csv", "link.csv"):
        assert learn(model, name) == (0, 0)


def test_every_stream_keeps_its_place(model: Path, stream: Path, tmp_path: Path) -> None:
    other = tmp_path / "s2.csv"
    other.write_text("a,b,y\n" + table(20, seed=1))
    assert [learn(model, s)[0] for s in (stream, other, stream, other)] == [30, 20, 0, 0]
    with stream.open("a") as file:
        file.write(table(7, seed=2))
    assert [learn(model, s)[0] for s in (stream, other)] == [7, 0]
    told = invoked("info", model).stdout
    assert "s1.csv" in told
    assert "s2.csv" in told


def test_saving_and_updating_keep_the_places(model: Path, stream: Path, tmp_path: Path) -> None:
    learn(model, stream)
    (tmp_path / "new.csv").write_text("a,b,y\n" + table(5, seed=3))
    done = invoked("update", model, tmp_path / "new.csv", "-o", model)
    assert done.exit_code == 0, done.stderr
    assert learn(model, stream) == (0, 0)
    srgp.SparseGPRegressor.load(model).save(model)
    assert learn(model, stream) == (0, 0)


def test_places_go_with_the_rows(model: Path, stream: Path, tmp_path: Path) -> None:
    """Merged rows bring theirs along; of rows that are forgotten none is left."""
    other, more = tmp_path / "other.srgp", tmp_path / "s2.csv"
    srgp.SparseGPRegressor.load(model).restart().save(other)
    more.write_text("a,b,y\n" + table(20, seed=1))
    learn(model, stream)
    learn(other, more)
    merged = srgp.SparseGPRegressor.load(model).merge(srgp.SparseGPRegressor.load(other))
    merged.save(model)
    assert [learn(model, s)[0] for s in (stream, more)] == [0, 0]
    srgp.SparseGPRegressor.load(model).restart().save(model)
    assert [learn(model, s)[0] for s in (stream, more)] == [30, 20]


def test_files_of_before_are_read(model: Path, stream: Path, monkeypatch: Any) -> None:
    """They held one stream, by the name it was called by."""
    content = stream.read_bytes()
    offset = content.index(b"\n", 400) + 1
    rows = content[:offset].count(b"\n") - 1
    saved = storage.read(model)
    old = {"source": "s1.csv", "file": "s1.csv", "offset": offset, "row": rows, "rejects": 0}
    settings = {**saved.settings, "stream": old}
    storage.write(model, dataclasses.replace(saved, settings=settings))
    monkeypatch.chdir(stream.parent)
    assert learn(model, "./s1.csv") == (30 - rows, 0)
    assert learn(model, stream) == (0, 0)
    assert list(srgp.SparseGPRegressor.load(model).streams_) == [str(stream)]


@pytest.mark.parametrize("header", ["a,b,y\n", "b,a,y\n"])
def test_a_file_that_was_replaced_is_refused(model: Path, stream: Path, header: str) -> None:
    learn(model, stream)
    before, seed = model.read_bytes(), 0 if header == "b,a,y\n" else 9
    stream.write_text(header + table(90, seed))
    with pytest.raises(ValueError, match=r"s1\.csv is not what was read of it before"):
        learn(model, stream)
    assert model.read_bytes() == before


def test_a_parquet_file_that_was_replaced_is_refused(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    folder.mkdir()
    columns = {name: np.arange(40.0) for name in "aby"}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    assert learn(model, folder) == (40, 0)
    columns["y"] = columns["y"] + 1.0
    pq.write_table(pa.table(columns), folder / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet is not what was read of it before"):
        learn(model, folder)


def test_a_last_line_without_its_end(model: Path, stream: Path) -> None:
    stream.write_text("a,b,y\n1,2,3\n4,5,6")
    assert learn(model, stream) == (2, 0)
    stream.write_text("a,b,y\n1,2,3\n4,5,6\n7,8,9\n")
    assert learn(model, stream) == (1, 0)
    stream.write_text("a,b,y\n1,2,3\n4,5,6\n7,8,9\n1,2,0.")
    assert learn(model, stream) == (1, 0)
    stream.write_text("a,b,y\n1,2,3\n4,5,6\n7,8,9\n1,2,0.5\n")
    with pytest.raises(ValueError, match=r"s1\.csv:5 was read when the file ended in it"):
        learn(model, stream)


def test_a_file_and_its_folder_do_not_count_twice(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    folder.mkdir()
    other = tmp_path / "other.srgp"
    other.write_bytes(start_model())
    (folder / "a.csv").write_text("a,b,y\n" + table(30))
    assert learn(model, folder) == (30, 0)
    with pytest.raises(ValueError, match="count twice"):
        learn(model, folder / "a.csv")
    assert learn(other, folder / "a.csv") == (30, 0)
    with pytest.raises(ValueError, match="count twice"):
        learn(other, folder)


def test_a_model_that_another_process_wrote_is_not_overwritten(model: Path, stream: Path) -> None:
    one = follower(model, stream)
    srgp.SparseGPRegressor.load(model).save(model)
    before = model.read_bytes()
    with pytest.raises(ValueError, match="changed by another process"):
        one.run(follow=False, idle=None)
    assert model.read_bytes() == before


def test_compressed_files_are_refused(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    folder.mkdir()
    for path in (folder / "a.csv.gz", tmp_path / "packed.csv"):
        path.write_bytes(gzip.compress(b"a,b,y\n1,2,3\n"))
    for source in (folder, folder / "a.csv.gz", tmp_path / "packed.csv"):
        done = invoked("learn", model, source)
        assert done.exit_code == 2
        assert "is compressed" in done.stderr
        assert done.stderr.count("\n") == 1
    assert model.read_bytes() == start_model()


def test_a_file_that_did_not_change_is_not_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"a": np.arange(5.0)}), tmp_path / "a.parquet")
    opened, original = 0, pq.ParquetFile

    def counted(*args: Any) -> Any:
        nonlocal opened
        opened += 1
        return original(*args)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    stream = tail(str(tmp_path), ["a"], Place(), follow=True, poll=0.001)
    found = [next(stream) for _ in range(25)]
    assert sum(isinstance(item, Waiting) for item in found) == 20
    assert opened == 1


# -- standard input -------------------------------------------------------------------------------


def send(monkeypatch: pytest.MonkeyPatch, model: Path, content: bytes) -> tuple[int, int]:
    """Learn from a pipe."""
    read, write = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(write, content), os.close(write)))
    thread.start()
    with os.fdopen(read) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        try:
            return learn(model, "-")
        finally:
            thread.join()


def test_the_same_stream_is_sent_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("a,b,y\n" + table(50)).encode()
    half = text.index(b"\n", 1000) + 1
    rows = text[:half].count(b"\n") - 1
    assert send(monkeypatch, model, text[:half]) == (rows, 0)
    assert send(monkeypatch, model, text) == (50 - rows, 0)
    assert send(monkeypatch, model, text) == (0, 0)
    before = model.read_bytes()
    with pytest.raises(ValueError, match=f"not the stream .* it ended after {rows} rows"):
        send(monkeypatch, model, text[:half])
    other = ("a,b,y\n" + table(80, seed=1)).encode()
    with pytest.raises(ValueError, match=r"not the stream .* its first 50 rows are others"):
        send(monkeypatch, model, other)
    with pytest.raises(ValueError, match="does not start with a line of column names"):
        send(monkeypatch, model, b"")
    assert model.read_bytes() == before


def test_a_line_that_was_cut_off_is_not_learned(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(monkeypatch, model, b"a,b,y\n1,2,3\n4,5,0.") == (1, 1)
    assert rejected(model)[0].startswith("standard input:3: cut off")
    assert send(monkeypatch, model, b"a,b,y\n1,2,3\n4,5,0.") == (0, 1)
    assert len(rejected(model)) == 1  # it is known
    before = seen(model)
    assert send(monkeypatch, model, b"a,b,y\n1,2,3\n4,5,0.5\n") == (1, 0)
    assert seen(model) == before + 1


def test_idle_ends_standard_input_too(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(read) as pipe, os.fdopen(write, "wb", buffering=0) as sender:
        monkeypatch.setattr(sys, "stdin", pipe)
        sender.write(b"a,b,y\n1,2,3\n4,5,6\n7,8")
        begin = time.monotonic()
        found = follower(model, "-").run(follow=True, idle=0.5)
        assert time.monotonic() - begin < 20.0
    assert found == (2, 0, 1)
    read, write = os.pipe()
    with os.fdopen(read) as pipe, os.fdopen(write, "wb", buffering=0) as sender:
        monkeypatch.setattr(sys, "stdin", pipe)
        sender.write(b"a,b,y\n1,2,3\n")
        with pytest.raises(ValueError, match="nothing came any more before its row 2"):
            follower(model, "-").run(follow=True, idle=0.3)


# -- waiting and stopping -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_rows_that_make_no_batch_are_told(model: Path, stream: Path, name: str, code: int) -> None:
    words = [*COMMAND, "learn", str(model), str(stream), "--follow"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "srgp: waiting for rows: 30 of the 1000 of the next batch are there.\n"
        )
        process.send_signal(getattr(signal, name))
        rest = process.stderr.read()
        assert process.wait(60) == code
    assert "interrupted; the same command goes on" in rest
    assert "30 rows that make no batch yet are not learned" in rest
    assert rest.count("\n") == 1
    assert model.read_bytes() == start_model()
    assert learn(model, stream) == (30, 0)


def test_waiting_is_told_once(model: Path, stream: Path) -> None:
    told: list[str] = []
    found = follower(model, stream, tell=told.append).run(follow=True, idle=0.8)
    assert found.learned == 30
    assert told == ["waiting for rows: 30 of the 100 of the next batch are there."]


def test_idle_without_waiting_is_refused(model: Path, stream: Path) -> None:
    done = invoked("learn", model, stream, "--idle", 3)
    assert done.exit_code == 2
    assert done.stderr == "srgp: --idle is for streams that are waited for: add --follow.\n"


def test_the_whole_stream_of_before(model: Path, tmp_path: Path) -> None:
    """The rest of a batch that --idle learned shifts the batches, and changes rounding only."""
    _, whole = files(tmp_path)
    text = whole.read_text()
    part = tmp_path / "part.csv"
    part.write_text(text[: text.index("\n", 20_000) + 1])
    other = tmp_path / "other.srgp"
    other.write_bytes(start_model())
    assert learn(model, whole) == (GOOD, len(BAD))
    follower(other, part).run(follow=True, idle=0.0)
    part.write_text(text)
    learn(other, part)
    one, two = (srgp.SparseGPRegressor.load(path) for path in (model, other))
    assert one.n_samples_seen_ == two.n_samples_seen_
    for a, b in zip(one.statistics_.sums, two.statistics_.sums, strict=True):
        # Sums of a thousand terms, by another order of batches.
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(a).max())
