"""Malformed rows are set aside with their place; what a file of them holds is never lost."""

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streaming import files, follower, invoked, learn, rejected, start_model

from srgp import storage
from srgp.cli.rejects import Rejects


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "m.srgp").write_bytes(start_model())
    return tmp_path / "m.srgp"


def stream(folder: Path, content: bytes, name: str = "s.csv") -> Path:
    (folder / name).write_bytes(b"a,b,y\n1,2,3\n" + content + b"4,5,6\n")
    return folder / name


# -- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"1,\r2,3\n", "not a row of CSV (new-line character"),
        (b"1,2," + b"3" * 200_000 + b"\n", "not a row of CSV (field larger"),
        (b"1_0,2,3\n", "a is not a number"),
        ("1,２,3\n".encode(), "b is not a number"),
        (b'1,2,"3\n', "not a row of CSV (unexpected end"),
        (b"1,,3\n", "b is missing"),
        (b"1,2,1e999\n", "y is not finite"),
        (b"1,2,-1e300\n", "y is too large to be squared"),
        (b"\xff\xfe,2,3\n", "a is not a number"),
        (b"1\x00,2,3\n", "a is not a number"),
        (b"\n", "0 fields instead of 3"),
    ],
)
def test_the_stream_goes_on(model: Path, tmp_path: Path, row: bytes, reason: str) -> None:
    assert learn(model, stream(tmp_path, row)) == (2, 1)
    told = (tmp_path / "rejects").read_bytes()
    assert told.startswith(f"{tmp_path}/s.csv:3: {reason}".encode())


def test_a_byte_order_mark_is_no_part_of_a_name(model: Path, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_bytes(b"\xef\xbb\xbfa,b,y\r\n1,2,3\r\n")
    assert learn(model, tmp_path / "s.csv") == (1, 0)
    (tmp_path / "s.csv").write_bytes(b"\xef\xbb\xbfa,b,y\r\n1,2,3\r\n4,5,6\r\n")
    assert learn(model, tmp_path / "s.csv") == (1, 0)


@pytest.mark.parametrize("header", [b"a,b,y\r1,2,3\r", b'"' + b"x" * 200_000 + b'"\n', b""])
def test_a_header_that_cannot_be_read(model: Path, tmp_path: Path, header: bytes) -> None:
    (tmp_path / "s.csv").write_bytes(header)
    with pytest.raises(ValueError, match=r"s\.csv (has a|does not start)"):
        learn(model, tmp_path / "s.csv")
    assert model.read_bytes() == start_model()


@pytest.mark.parametrize("name", ["größe", "café"])  # which end in UTF-8, and do not
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1"])
def test_a_stream_in_another_encoding(
    model: Path, tmp_path: Path, encoding: str, name: str
) -> None:
    (tmp_path / "s.csv").write_bytes(f"a,b,y,{name}\n1,2,3,4\n".encode(encoding))
    with pytest.raises(ValueError, match=r"s\.csv .* is not UTF-8 .* Save it as UTF-8"):
        learn(model, tmp_path / "s.csv")
    assert model.read_bytes() == start_model()


def test_text_in_a_parquet_file(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    folder.mkdir()
    columns = {"a": ["1.5", "oops", None, "1_0"], "b": [1.0, 2.0, 3.0, 4.0], "y": [1, 2, 3, None]}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    dates = pa.array([0, 1], pa.timestamp("s"))
    pq.write_table(pa.table({"a": dates, "b": [1, 2], "y": [1, 2]}), folder / "b.parquet")
    whole = {"a": [2**60, 1], "b": [True, None], "y": pa.array([1.0, 2.0], pa.float32())}
    pq.write_table(pa.table(whole), folder / "c.parquet")
    assert learn(model, folder) == (2, 6)
    assert [line.split(": ")[:2] for line in rejected(model)] == [
        ["stream/a.parquet:2", "a is not a number"],
        ["stream/a.parquet:3", "a is missing"],
        ["stream/a.parquet:4", "a is not a number"],
        ["stream/b.parquet:1", "a is not a number"],
        ["stream/b.parquet:2", "a is not a number"],
        ["stream/c.parquet:2", "b is missing"],
    ]
    assert "oops" in rejected(model)[0]


def test_a_damaged_parquet_file_is_named(model: Path, tmp_path: Path) -> None:
    table = pa.table({name: [float(i) for i in range(1000)] for name in "aby"})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[10:60] = b"\xff" * 50
    (tmp_path / "a.parquet").write_bytes(bytes(content))
    done = invoked("learn", model, tmp_path / "a.parquet")
    assert done.exit_code == 2
    assert "a.parquet cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


# -- the file -------------------------------------------------------------------------------------


def test_several_streams_share_a_file(model: Path, tmp_path: Path) -> None:
    one = stream(tmp_path, b"1,oops,3\n", "one.csv")
    two = stream(tmp_path, b"x,2,3\n", "two.csv")
    assert learn(model, one) == (2, 1)
    assert learn(model, two) == (2, 1)
    before = rejected(model)
    assert [line.split(": ")[0] for line in before] == ["one.csv:3", "two.csv:3"]
    with one.open("a") as file:
        file.write("1,2,z\n")
    assert learn(model, one) == (0, 1)
    assert rejected(model)[:2] == before
    assert rejected(model)[2].startswith("one.csv:5: y is not a number")


def test_what_a_killed_run_wrote_stays_and_comes_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another stream writes in between."""
    one = stream(tmp_path, b"1,oops,3\n1,2,3\n1,2,z\n", "one.csv")
    two = stream(tmp_path, b"x,2,3\n", "two.csv")

    def die(*args: Any) -> Any:
        raise SystemExit

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr("srgp.SparseGPRegressor.partial_fit_source", die)
            with pytest.raises(SystemExit):
                learn(model, one)
    assert learn(model, two) == (2, 1)
    assert learn(model, one) == (3, 2)
    assert [line.split(": ")[0] for line in rejected(model)] == [
        "one.csv:3",
        "one.csv:5",
        "two.csv:3",
    ]


@pytest.mark.parametrize("kept", [0, 1, 5, 30])
def test_a_record_that_was_cut_off_is_completed(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "rejects"
    records = [b"s.csv:2: a is missing: ,1,1\n", b"s.csv:3: a is missing: ,2,2\n"]
    whole = b"".join(records)
    path.write_bytes(whole[:kept])
    rejects = Rejects(path, known=True)
    rejects.start(0)
    for record in records:
        rejects.add(record)
    assert path.read_bytes() == whole
    assert rejects.end == len(whole)


def test_somebody_elses_unfinished_line_stays(tmp_path: Path) -> None:
    path = tmp_path / "rejects"
    path.write_bytes(b"t.csv:2: a is missing: ,1")
    rejects = Rejects(path, known=True)
    rejects.start(rejects.size())
    rejects.add(b"s.csv:2: b is missing: 1,\n")
    assert path.read_bytes() == b"t.csv:2: a is missing: ,1\ns.csv:2: b is missing: 1,\n"


def test_a_foreign_file_is_not_written_into(model: Path, tmp_path: Path) -> None:
    source = stream(tmp_path, b"1,oops,3\n")
    notes = tmp_path / "notes.txt"
    notes.write_text("remember the milk\n")
    for aside, told in ((notes, "something else"), (source, "the model"), (model, "the model")):
        before = aside.read_bytes()
        done = invoked("learn", model, source, "--rejects", aside)
        assert done.exit_code == 2
        assert told in done.stderr
        assert aside.read_bytes() == before
    assert model.read_bytes() == start_model()


def test_another_file_for_the_rest(model: Path, tmp_path: Path) -> None:
    source = stream(tmp_path, b"1,oops,3\n")
    learn(model, source)
    before = rejected(model)
    with source.open("a") as file:
        file.write("1,2,z\n")
    done = invoked("learn", model, source, "--rejects", tmp_path / "more")
    assert done.exit_code == 0, done.stderr
    assert rejected(model) == before
    assert (tmp_path / "more").read_text().startswith(f"{source}:5: y is not a number")


# -- disks ----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_last_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, source = files(tmp_path)
    one, replace, count = follower(model, source), os.replace, 0

    def full(*args: Any) -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*args)

    monkeypatch.setattr(os, "replace", full)
    told = r"m\.srgp could not be written \(No space left on device\): make room"
    with pytest.raises(OSError, match=told):
        one.run(follow=False, idle=None)
    place = storage.read(model).settings["streams"][str(source)]
    assert place["row"] == 201  # two batches, and a row rejected, before which the place was kept
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.srgp", "rejects", "s.csv"]


def test_a_folder_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = files(tmp_path)

    def refused(*args: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError, match=r"m\.srgp could not be written .*you may write"):
        learn(model, source)
    assert model.read_bytes() == start_model()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_for_rejected_rows(model: Path, tmp_path: Path) -> None:
    done = invoked("learn", model, stream(tmp_path, b"1,x,3\n"), "--rejects", "/dev/full")
    assert done.exit_code == 2
    assert "/dev/full could not be written (No space left on device): make room" in done.stderr


def test_a_stream_that_may_not_be_read(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, opened = stream(tmp_path, b""), Path.open

    def refused(path: Path, *args: Any, **more: Any) -> Any:
        if path == source:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *args, **more)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(PermissionError, match=r"s\.csv cannot be read .*you may read it"):
        learn(model, source)
