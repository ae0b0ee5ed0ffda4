"""How far a command is: told at a terminal, and nowhere else."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from srgp import SparseGPRegressor
from srgp.cli import shows  # noqa: F401 - adds its commands
from srgp.cli.commands import app
from srgp.cli.progress import Line, Pace, Rows, counting, progress_line, telling, watching
from srgp.experiments import tank
from srgp.learners import Record
from srgp.metrics import scores
from srgp.tables import Table

RUNNER = CliRunner()
TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}


def table(N: int = 300) -> pd.DataFrame:
    a = np.random.default_rng(0).uniform(0, 6, N)
    return pd.DataFrame({"a": a, "y": np.sin(a)})


def plain(shown: str) -> str:
    """Without what moves the cursor and colours the text."""
    return re.sub(r"\x1b\[[\d;?]*\w", "", shown)


def last_text(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of every line when it ends, whether it is shown or not."""
    shown: list[str] = []
    monkeypatch.setattr(
        "rich.progress.Progress.stop",
        lambda bar: shown.append(str(bar.columns[1](bar.tasks[0]))),  # type: ignore[attr-defined]
    )
    return shown


def test_names_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = last_text(monkeypatch)
    with telling("reproducing") as tell:
        tell("[/s] of x[red]")
    assert shown == ["reproducing: [/s] of x[red]"]


def test_the_progress_of_a_fit_fits_into_80_columns() -> None:
    pace, shown = Pace("≤ {}"), ""
    for i in range(1, 31):  # ten times slower after the first third
        seconds = 5.0 * i if i <= 10 else 50.0 + 50.0 * (i - 10)
        record = Record(seconds, 12.5 * i, -123_456_789.0, None, None, 0.1, 0, i / 30)
        left = pace.left(record.seconds, record.done)
        shown = f"{progress_line(record, 10_000_000)} 0:00:00 {left}"
        assert 10 + 1 + len(shown) <= 80  # the bar, and a space
    assert shown.endswith("≤ 0:00")


def test_reading_before_learning_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table().to_csv(tmp_path / "d.csv", index=False)
    shown = last_text(monkeypatch)
    data = Table(tmp_path / "d.csv", "y")
    with watching(data, data, quiet=True):
        pass
    assert re.fullmatch(r"starting: 300 rows, [\d,]+ rows/s", shown[0])


def test_rows_have_a_pace_and_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now, done = 0.0, 7
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("srgp.cli.progress.time", clock)
    rows = Rows("predicting", lambda: done, total=1000)
    bar = Line(quiet=True)
    bar.add_task("", total=1.0, stand=rows, left="")
    assert (str(rows), rows.shown()) == ("predicting", {"completed": 0.0, "left": ""})
    now, done = 10.0, 107  # it was compiled first
    list(bar.get_renderables())
    now, done = 12.0, 207
    list(bar.get_renderables())
    now = 13.0
    list(bar.get_renderables())
    assert str(rows) == "predicting: 200 rows, 17 rows/s"
    assert (bar.tasks[0].completed, bar.tasks[0].fields["left"]) == (0.2, "0:16 left")
    now, done = 28.0, 1007  # all of them read, but not yet done
    assert rows.shown() == {"completed": 0.99, "left": "0:00 left"}
    assert Rows("adding", lambda: done).shown() == {}
    many = Rows("predicting", lambda: done, total=10**10)
    now, done = 1028.0, 1_234_567_890
    assert 10 + 1 + len(f"{many} 0:00:00 ") + len("1000:00 left") <= 80


def test_rows_that_a_table_reads_are_counted_from_now_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in TERMINAL.items():
        monkeypatch.setenv(name, value)
    table().to_parquet(tmp_path / "d.parquet")
    data = Table(tmp_path / "d.parquet", "y")
    for _ in range(2):
        with counting("adding", 300, quiet=False, table=data):
            list(data.batches(100))
        assert re.search(
            r"adding: 300 rows, [\d,]+ rows/s 0:00:00 done", plain(capsys.readouterr().err)
        )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_commands_tell_at_a_terminal_how_far_they_are(kind: str, tmp_path: Path) -> None:
    data, model = tmp_path / f"d.{kind}", tmp_path / "m.srgp"
    table().to_csv(data, index=False) if kind == "csv" else table().to_parquet(data)
    SparseGPRegressor(n_inducing=5, learner=None).fit_source(Table(data, "y")).save(model)
    fit = ("fit", data, "--target", "y", "-m", 5, "--max-seconds", 0, "-o", tmp_path / "f.srgp")
    commands: list[tuple[tuple[Any, ...], str]] = [
        (("update", model, data, "-o", tmp_path / "u.srgp"), "adding"),
        (("predict", model, data, "-o", tmp_path / "p.csv"), "predicting"),
        (("evaluate", model, data), "judging"),
        (fit, "judging"),
    ]
    for words, what in commands:
        given = [str(word) for word in words]
        shown = RUNNER.invoke(app, given, env=TERMINAL)
        assert shown.exit_code == 0, shown.output
        assert re.search(rf"{what}: 300 rows, [\d,]+ rows/s 0:00:\d\d done", plain(shown.stderr))
        assert RUNNER.invoke(app, [*given, "--json"], env=TERMINAL).stderr == ""
    assert RUNNER.invoke(app, [str(word) for word in commands[1][0]]).stderr == ""


def test_the_demonstration_tells_its_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing, one = np.zeros(3), np.ones(3)
    outcome = tank.Outcome(10, 1.0, nothing, one, scores(nothing, nothing, one), 0.1)
    monkeypatch.setattr(tank, "_outcome", lambda *_: outcome)
    monkeypatch.setattr(tank, "draw", lambda *_: None)
    words = ["demo", "-o", str(tmp_path / "d.png"), "--samples", "4000"]
    told = RUNNER.invoke(app, words).stderr.splitlines()
    assert [line.split(": ")[0] for line in told] == ["a stirred tank"] * len(told)
    stages = [line.split(": ")[1].split()[0] for line in told]
    assert stages == ["simulating", "SRGP", "batch", "drawing"]
    assert told[-1].endswith(f"drawing {tmp_path / 'd.png'}")
    assert RUNNER.invoke(app, [*words, "--json"]).stderr == ""
