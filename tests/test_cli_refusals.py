"""What the installed command refuses, on both kinds of files: a line, exit code 2, no trace."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from srgp import SparseGPRegressor
from srgp.storage import files
from srgp.tables import Table

LONGEST = 500  # characters of a message that is short


def srgp(here: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    program = str(Path(sys.executable).parent / "srgp")
    return subprocess.run(
        [program, *words], cwd=here, capture_output=True, text=True, check=False, timeout=120
    )


def table(N: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 6, N), rng.normal(size=N)
    return pd.DataFrame({"a": a, "b": b, "y": np.sin(a) + b + 0.1 * rng.normal(size=N)})


def write(data: pd.DataFrame, path: Path) -> None:
    if path.suffix == ".csv":
        data.to_csv(path, index=False)
    else:
        data.to_parquet(path, index=False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A model file of today, and one of a later format."""
    path = tmp_path_factory.mktemp("models") / "m.srgp"
    est = SparseGPRegressor(n_inducing=5, learner=None).fit_source(Table(table(), "y"))
    est.save(path)
    today = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FORMAT", files.FORMAT + 1)
        est.save(path)
    return {"m.srgp": today, "newer.srgp": path.read_bytes()}


def as_it_is(path: Path) -> None:
    pass


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(1).bytes(5000))


FIT = "fit {data} --target y -m 5 -o out.srgp"
UPDATE = "update {model} {data} -o out.srgp"
PREDICT = "predict {model} {data} -o out.{kind}"
EVALUATE = "evaluate {model} {data} --plot out.png"
# What becomes of the data; the command on CSV and on Parquet; words of the message.
CASES: dict[str, tuple[Callable[[Path], None], tuple[str, str], tuple[str, ...]]] = {
    "another column": (
        lambda path: write(table().rename(columns={"b": "c"}), path),
        (EVALUATE, UPDATE),
        ("{data} has no column 'b'",),
    ),
    "no byte": (empty, (UPDATE, FIT), ("{data} cannot be",)),
    "no row": (lambda path: write(table()[:0], path), (FIT, PREDICT), ("{data} holds no rows",)),
    "a gap": (
        lambda path: write(table().assign(a=lambda d: d.a.where(d.index != 41)), path),
        (PREDICT, EVALUATE),
        ("{data} holds a missing value in row 42", "column 'a'"),
    ),
    "garbage": (garbage, (EVALUATE, PREDICT), ("{data} cannot be read as {kind}",)),
    "a foreign model": (
        as_it_is,
        (UPDATE.replace("{model}", "{data}"), EVALUATE.replace("{model}", "{data}")),
        ("{data} is not a file that srgp wrote",),
    ),
    "a newer model": (
        as_it_is,
        (PREDICT.replace("{model}", "newer.srgp"), UPDATE.replace("{model}", "newer.srgp")),
        ("newer.srgp was written by srgp", "format 2", "upgrade srgp"),
    ),
    "no place to write": (
        as_it_is,
        (FIT.replace("out", "/proc/out"), PREDICT.replace("out", "nowhere/out")),
        ("the folder ", "{place}"),
    ),
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("case", CASES)
def test_refused_in_a_line_and_nothing_is_written(
    case: str, kind: str, models: dict[str, bytes], tmp_path: Path
) -> None:
    spoil, commands, messages = CASES[case]
    names = {"data": f"data.{kind}", "kind": kind, "model": "m.srgp"}
    names["place"] = "/proc" if kind == "csv" else "nowhere"  # not even root writes there
    for name, content in models.items():
        (tmp_path / name).write_bytes(content)
    write(table(), tmp_path / names["data"])
    spoil(tmp_path / names["data"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = srgp(tmp_path, *commands[kind == "parquet"].format(**names).split())
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("srgp: ")
    assert len(done.stderr.splitlines()) == 1
    assert len(done.stderr) < LONGEST
    assert "Traceback" not in done.stderr
    for message in messages:
        assert message.format(**names) in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_learned_and_predicted_from_parquet(tmp_path: Path) -> None:
    write(table(), tmp_path / "data.parquet")
    for words in (
        "fit data.parquet --target y -m 8 -o m.srgp",
        "predict m.srgp data.parquet -o p.pq",
    ):
        done = srgp(tmp_path, *words.split())
        assert (done.returncode, done.stderr) == (0, "")
    found = pd.read_parquet(tmp_path / "p.pq")
    assert found.columns.tolist() == ["mean", "deviation"]
    # Noise of 0.1, and a function that eight points leave little of unexplained.
    assert np.sqrt(np.mean((found["mean"] - table().y) ** 2)) < 0.2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.parquet", "m.srgp", "p.pq"]
