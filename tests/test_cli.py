"""The command line, run as its users run it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import srgp
from srgp import SparseGPRegressor
from srgp.atomic import replacing
from srgp.cli import (
    commands,
    shows,  # noqa: F401 - adds its commands
)
from srgp.cli.commands import app
from srgp.cli.screen import comparison
from srgp.cli.words import said
from srgp.regressor import choices
from srgp.tables import Table, write_table

RUNNER = CliRunner()


def run(*words: Any, code: int = 0) -> Any:
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def command(*words: Any, **options: Any) -> "subprocess.CompletedProcess[str]":
    program = str(Path(sys.executable).parent / "srgp")
    return subprocess.run(
        [program, *map(str, words)], capture_output=True, text=True, check=False, **options
    )


def table(N: int = 300, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0, 6, N), rng.normal(size=N)
    return pd.DataFrame({"a": a, "b": b, "y": 10 + np.sin(a) + b + 0.1 * rng.normal(size=N)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data in two formats, and a model of the first."""
    here = tmp_path_factory.mktemp("cli")
    table().to_csv(here / "train.csv", index=False)
    table(100, seed=1).to_parquet(here / "more.parquet")
    fit = ("fit", here / "train.csv", "--target", "y", "-o", here / "m.srgp", "-m", 12)
    run(*fit, "--learner", "exact")
    return here


def test_fit_writes_a_model_that_python_reads(folder: Path) -> None:
    est = SparseGPRegressor.load(folder / "m.srgp")
    assert est.feature_names_in_.tolist() == ["a", "b"]
    assert est.target_names_ == ("y",)
    assert est.n_samples_seen_ == 300
    assert est.score(table()[["a", "b"]], table().y) > 0.98


def test_fit_and_update_on_a_cluster(folder: Path, tmp_path: Path) -> None:
    """The rows of a folder on two processes of this machine: the same posterior."""
    pytest.importorskip("distributed")
    (tmp_path / "data").mkdir()
    for i in range(2):
        table().iloc[i::2].to_csv(tmp_path / "data" / f"{i}.csv", index=False)
    words = ("fit", tmp_path / "data", "--target", "y", "-m", 12, "-o", tmp_path / "m.srgp")
    run(*words, "--learner", "exact", "--scheduler", "local")
    est = SparseGPRegressor.load(tmp_path / "m.srgp")
    assert est.n_samples_seen_ == 300
    assert est.score(table()[["a", "b"]], table().y) > 0.98
    for name, more in (("here", ()), ("there", ("--scheduler", "local"))):
        run("update", tmp_path / "m.srgp", folder / "more.parquet", "-o", tmp_path / name, *more)
    here, there = (SparseGPRegressor.load(tmp_path / name) for name in ("here", "there"))
    assert here.n_samples_seen_ == there.n_samples_seen_ == 400
    assert here.bound_ == pytest.approx(there.bound_, rel=1e-10)
    run(*words, "--scheduler", "tcp://127.0.0.1:9", code=2)


def test_merge_of_other_parameters(folder: Path, tmp_path: Path) -> None:
    words = ("--target", "y", "-m", 10, "--learner", "exact", "--kernel", "matern52")
    run("fit", folder / "train.csv", *words, "-o", tmp_path / "other.srgp")
    both = ("merge", folder / "m.srgp", tmp_path / "other.srgp", "-o", tmp_path / "both.srgp")
    assert "kernel parameters" in run(*both, code=2).output.replace("\n", " ")
    assert not (tmp_path / "both.srgp").exists()
    done = command(*both, "--move", "--json")  # here warnings are errors
    assert "warning: the kernels differ" in done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == 600
    assert told["lost, nats"] > 0.0


def test_merge_refuses_a_file_that_is_named_twice(folder: Path, tmp_path: Path) -> None:
    again = folder / ".." / folder.name / "m.srgp"
    told = run("merge", folder / "m.srgp", again, "-o", tmp_path / "m.srgp", code=2).stderr
    assert "m.srgp is named twice: its rows would count twice." in told
    assert not (tmp_path / "m.srgp").exists()


def test_numbers_too_large_leave_the_model_as_it_was(folder: Path, tmp_path: Path) -> None:
    data = table(20)
    data.loc[7, "y"] = 1e300
    data.to_csv(tmp_path / "huge.csv", index=False)
    before = (folder / "m.srgp").read_bytes()
    for words in (
        ("update", folder / "m.srgp", tmp_path / "huge.csv", "-o", folder / "m.srgp"),
        ("fit", tmp_path / "huge.csv", "--target", "y", "-o", tmp_path / "m.srgp"),
    ):
        told = run(*words, code=2).stderr
        assert (
            "huge.csv holds 1e+300 in row 8 (line 9), column 'y', too large to be squared" in told
        )
    assert (folder / "m.srgp").read_bytes() == before
    told = run(*words, "--missing", "drop", "-m", 5, "--learner", "exact", "--json").stdout
    assert json.loads(told)["dropped"] == 1


def test_fewer_inducing_points_than_asked_for_are_told(tmp_path: Path) -> None:
    table(30).to_csv(tmp_path / "d.csv", index=False)
    fit = ("fit", tmp_path / "d.csv", "--target", "y", "-o", tmp_path / "m.srgp")
    told = run(*fit, "-m", 2001, "--learner", "exact").stderr
    assert "-m 2001 takes long: time grows with its square" in told
    assert "30 inducing points, not 2001: there are no more distinct rows." in told


def test_fit_tells_how_good_it_is(folder: Path, tmp_path: Path) -> None:
    words = ("fit", folder / "train.csv", "--target", "y", "-m", 12, "--learner", "exact")
    words = (*words, "-o", tmp_path / "m.srgp", "--test", folder / "more.parquet")
    told = json.loads(run(*words, "--json").stdout)
    assert told["rows"] == 300
    assert told["judged by"] == "test rows"
    assert told["rows judged"] == 100
    assert told["RMSE"] == pytest.approx(0.1, rel=0.3)
    assert 0.85 <= told["coverage of 95 %"] <= 1.0
    # The same seed: the same model as that of the fixture.
    one, two = (SparseGPRegressor.load(f / "m.srgp") for f in (folder, tmp_path))
    assert one.bound_ == two.bound_
    shown = run(*words).stdout
    assert "RMSE" in shown
    assert "rows per second" in shown


def test_predict_update_merge_and_evaluate(folder: Path, tmp_path: Path) -> None:
    more, model = folder / "more.parquet", folder / "m.srgp"
    run("predict", model, more, "-o", tmp_path / "out.csv", "--keep", "a,y")
    out = pd.read_csv(tmp_path / "out.csv")
    assert out.columns.tolist() == ["a", "y", "mean", "deviation"]
    est = SparseGPRegressor.load(model)
    X = table(100, seed=1)[["a", "b"]]
    np.testing.assert_allclose(out["mean"], est.predict(X), rtol=1e-12)

    told = json.loads(run("update", model, more, "-o", tmp_path / "u.srgp", "--json").stdout)
    assert (told["rows added"], told["rows"]) == (100, 400)
    updated = SparseGPRegressor.load(tmp_path / "u.srgp")
    expected = est.partial_fit(X, table(100, seed=1).y)
    np.testing.assert_allclose(updated.predict(X), expected.predict(X), rtol=1e-10)

    apart = SparseGPRegressor.load(model).restart().partial_fit(X, table(100, seed=1).y)
    apart.save(tmp_path / "apart.srgp")
    run("merge", model, tmp_path / "apart.srgp", "-o", tmp_path / "both.srgp")
    both = SparseGPRegressor.load(tmp_path / "both.srgp")
    assert both.bound_ == pytest.approx(updated.bound_, rel=1e-10)

    picture = tmp_path / "p.png"
    told = json.loads(run("evaluate", model, more, "--plot", picture, "--json").stdout)
    assert told["rows judged"] == 100
    assert told["RMSE"] == pytest.approx(0.1, rel=0.3)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_models_of_common_rows_are_told_apart(folder: Path, tmp_path: Path) -> None:
    """Merged, they count twice; `--afresh` makes one that has none of them."""
    model, more = folder / "m.srgp", folder / "more.parquet"
    both = ("merge", model, tmp_path / "u.srgp", "-o", tmp_path / "both.srgp", "--json")
    run("update", model, more, "-o", tmp_path / "u.srgp")
    done = command(*both)  # here warnings are errors
    assert "warning: both began with the same rows" in done.stderr
    assert "`srgp update --afresh`" in done.stderr
    assert json.loads(done.stdout)["rows"] == 700

    told = run("update", model, more, "--afresh", "-o", tmp_path / "u.srgp", "--json").stdout
    assert json.loads(told)["rows"] == 100
    done = run(*both)
    assert done.stderr == ""
    assert json.loads(done.stdout)["rows"] == 400
    run("update", model, more, "-o", tmp_path / "whole.srgp")
    one, two = (SparseGPRegressor.load(tmp_path / f"{n}.srgp") for n in ("both", "whole"))
    assert one.bound_ == pytest.approx(two.bound_, rel=1e-10)
    # What has been merged remembers both.
    again = ("merge", tmp_path / "both.srgp", tmp_path / "u.srgp", "-o", tmp_path / "x.srgp")
    assert "same rows" in command(*again).stderr


def test_predict_and_evaluate_tell_what_they_drop(folder: Path, tmp_path: Path) -> None:
    gaps = table(20, seed=2)
    gaps.loc[[3, 7], "a"] = np.nan
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    words = (folder / "m.srgp", tmp_path / "gaps.csv", "--missing", "drop", "--json")
    told = json.loads(run("predict", *words, "-o", tmp_path / "p.csv").stdout)
    assert (told["rows"], told["dropped"]) == (18, 2)
    assert json.loads(run("evaluate", *words).stdout)["dropped"] == 2


def test_errors_speak_the_language_of_the_shell(folder: Path, tmp_path: Path) -> None:
    out = ("--target", "y", "-o", tmp_path / "m.srgp")
    data = table(20)
    data.assign(b="word").to_csv(tmp_path / "text.csv", index=False)
    data.to_csv(tmp_path / "semicolons.csv", index=False, sep=";")
    data.assign(a=np.nan).to_csv(tmp_path / "gaps.csv", index=False)
    data.assign(a=["x" if i == 5 else str(i) for i in range(20)]).to_csv(
        tmp_path / "cell.csv", index=False
    )
    shifted = ("fit", tmp_path / "other.csv", *out, "-m", 12, "--learner", "exact")
    table(seed=4).to_csv(tmp_path / "other.csv", index=False)
    run(*shifted)
    for words, message in [
        (("fit", tmp_path / "text.csv", *out), "text.csv has columns that are not numeric"),
        (("fit", tmp_path / "text.csv", *out), "--features a."),
        (("fit", tmp_path / "semicolons.csv", *out), "--delimiter ';'"),
        (("fit", tmp_path / "gaps.csv", *out), "by --missing drop"),
        (("fit", tmp_path / "cell.csv", *out), "row 6 (line 7): 'x' in column 'a' is not a number"),
        (("fit", folder / "train.csv", *out, "-m", 0), "srgp: -m must be"),
        (
            ("fit", folder / "train.csv", *out, "--learner", "srgp", "--batch-size", 0),
            "Invalid value for '--batch-size'",
        ),
        (("fit", folder / "train.csv", *out, "--delimiter", ";;"), "--delimiter ';;' cannot"),
        (("fit", folder / "train.csv", *out, "--kernel", "sine"), "quadratic, got 'sine'"),
        (("fit", folder / "train.csv", *out, "--learner", "sine"), "sites, got 'sine'"),
        (
            ("merge", folder / "m.srgp", tmp_path / "m.srgp", "-o", tmp_path / "both.srgp"),
            "`srgp update --afresh`",
        ),
    ]:
        told = run(*words, code=2).stderr
        assert message in told
        assert not re.search(r"\w+=|\['|_fit|n_inducing", told)


def test_a_checkpoint_of_other_options_is_refused_in_options(folder: Path, tmp_path: Path) -> None:
    fit = ("fit", folder / "train.csv", "--target", "y", "-o", tmp_path / "m.srgp")
    words = (*fit, "--learner", "exact", "--checkpoint", tmp_path / "kept")
    srgp.Checkpoint(tmp_path / "kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srgp.regressor.estimator.learn", lambda *_, **__: 1 / 0)
        run(*words, "-m", 12, code=2)
    assert "another job: -m differ" in run(*words, "-m", 11, code=2).stderr
    run(*words, "-m", 12)


def test_options_of_other_learners_are_told_to_be_left_aside(folder: Path, tmp_path: Path) -> None:
    fit = ("fit", folder / "train.csv", "--target", "y", "-m", 5, "-o", tmp_path / "m.srgp")
    given = ("--batch-size", 50, "--epochs", 1)
    told = run(*fit, *given, "--max-seconds", 0).stderr
    assert told == (
        "srgp: --batch-size and --epochs left aside: for --learner sites and srgp, not auto.\n"
    )
    assert run(*fit, *given, "--learner", "srgp").stderr == ""


def test_columns_approximation_and_noise_are_as_asked_for(tmp_path: Path) -> None:
    model, csv = tmp_path / "m.srgp", tmp_path / "d.csv"
    data = table(200).assign(w=lambda d: 1.0 + (d.a > 3.0), other=5.0)
    data.to_csv(csv, index=False)
    asked = ("--features", "b,a", "--weight", "w", "--approximation", "fitc")
    run("fit", csv, "--target", "y", *asked, "-m", 8, "--learner", "exact", "-o", model)
    est = SparseGPRegressor(n_inducing=8, approximation="fitc", learner="exact")
    plain = est.fit_source(Table(csv, "y", ["b", "a"])).bound_
    est.fit_source(Table(csv, "y", ["b", "a"], "w"))
    found = SparseGPRegressor.load(model)
    assert found.feature_names_in_.tolist() == ["b", "a"]
    assert repr(found.model_.approximation) == "FITC()"
    assert found.bound_ == est.bound_ != plain
    for words, noise in (((), True), (("--no-noise",), False)):
        run("predict", model, csv, *words, "-o", tmp_path / "p.csv")
        deviation = est.predict(data[["b", "a"]], return_std=True, include_noise=noise)[1]
        # Two routes to the same bits, but for the digits of the file.
        written = pd.read_csv(tmp_path / "p.csv")["deviation"]
        np.testing.assert_allclose(written, deviation, rtol=1e-12)
    run("update", model, csv, "--weight", "w", "-o", model)
    est.partial_fit_source(Table(csv, "y", ["b", "a"], "w"))
    assert SparseGPRegressor.load(model).bound_ == est.bound_


def test_info(folder: Path) -> None:
    told = json.loads(run("info", folder / "m.srgp", "--json").stdout)
    assert told["features"] == ["a", "b"]
    assert told["targets"] == ["y"]
    assert told["noise deviation"] == pytest.approx(0.1, rel=0.2)
    assert "lengthscales" in run("info", folder / "m.srgp").stdout


def test_the_users_names_are_shown_as_they_are(folder: Path, tmp_path: Path) -> None:
    """Neither styles of Rich, nor words of ours, nor cut off."""
    names = {"a": "flow [/s]", "b": "[kW]", "y": ":smile: [red]"}
    table().rename(columns=names).to_csv(tmp_path / "x[red].csv", index=False)
    model = tmp_path / f"{'long' * 20}[bold].srgp"
    fit = ("fit", tmp_path / "x[red].csv", "--target", names["y"], "--learner", "exact")
    shown = run(*fit, "-m", 5, "-o", model).stdout
    assert str(model) in re.sub(r"[│\s]", "", shown).replace("model", "", 1)
    shown = run("info", model).stdout
    for name in names.values():
        assert name in shown
    table().to_csv(tmp_path / "max_seconds  [x].csv", index=False)
    told = run("evaluate", model, tmp_path / "max_seconds  [x].csv", code=2).stderr
    assert "max_seconds  [x].csv has no column 'flow [/s]'" in told
    words = ("fit", folder / "train.csv", "--target", "n_inducing", "-o", tmp_path / "m.srgp")
    assert "has no column 'n_inducing'" in run(*words, code=2).stderr
    table(20).rename(columns=names).assign(word="w").to_csv(tmp_path / "w.csv", index=False)
    words = ("fit", tmp_path / "w.csv", "--target", names["y"], "-o", tmp_path / "m.srgp")
    assert "--features 'flow [/s],[kW]'" in run(*words, code=2).stderr


@pytest.mark.parametrize("keep", ["all", "mean", "a,deviation"])
def test_columns_named_as_answers_are_not_written_over(
    keep: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(20).assign(mean=1.0, deviation=2.0).to_csv(tmp_path / "d.csv", index=False)
    words = ("predict", folder / "m.srgp", tmp_path / "d.csv", "-o", tmp_path / "p.csv", "--keep")
    with monkeypatch.context() as patch:
        patch.setattr(SparseGPRegressor, "_answer", lambda *_: 1 / 0)
        told = run(*words, keep, code=2).stderr
    column = "deviation" if "deviation" in keep else "mean"
    assert f"the predictions have a column '{column}' of their own: leave it out of --keep" in told
    assert not (tmp_path / "p.csv").exists()
    run(*words, "a")  # they may be there


def test_columns_named_as_one_of_several_answers(tmp_path: Path) -> None:
    data = table(50).assign(z=lambda d: 2.0 * d.y, mean=0.0, deviation_z=0.0)
    est = SparseGPRegressor(n_inducing=5, learner=None)
    est.fit_source(Table(data, ["y", "z"], ["a", "b"]))
    inputs = Table(data, features=["a", "b"])
    with pytest.raises(ValueError, match="have a column 'deviation_z' of their own"):
        write_table(tmp_path / "p.csv", est.predict_source(inputs, "all"))
    assert not (tmp_path / "p.csv").exists()
    assert write_table(tmp_path / "p.csv", est.predict_source(inputs, ["mean"])) == 50


def test_what_an_interruption_or_error_leaves_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    model = tmp_path / "m.srgp"
    fit = ("fit", folder / "train.csv", "--target", "y", "-m", 5, "--learner", "exact", "-o", model)
    with monkeypatch.context() as patch:
        patch.setattr(SparseGPRegressor, "fit_source", stop)
        assert run(*fit, code=130).stderr == "srgp: interrupted; nothing was written.\n"
    monkeypatch.setattr("srgp.tables.readers.CSV_BLOCK", 2**12)  # of which the first are looked at
    late = pd.concat([table(2000), pd.DataFrame({"a": [1.0], "b": [np.nan], "y": [1.0]})])
    late.to_csv(tmp_path / "late.csv", index=False)
    test = (*fit, "--test", tmp_path / "late.csv")
    with monkeypatch.context() as patch:
        patch.setattr(SparseGPRegressor, "_answer", stop)
        told = run(*fit, "--test", folder / "more.parquet", code=130).stderr
        assert told == f"srgp: interrupted; {model} was written.\n"
    assert model.exists()
    told = run(*test, code=2).stderr
    assert "row 2001 (line 2002), column 'b'" in told
    assert f" {model} was written before that." in told
    assert json.loads(run(*test, "--missing", "drop", "--json").stdout)["test rows dropped"] == 1
    # What is wrong at the beginning is found before learning.
    model.unlink()
    table(5).assign(b=[1.0, np.nan, 1.0, 1.0, 1.0]).to_csv(tmp_path / "early.csv", index=False)
    table(5).drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    table(5)[:0].to_csv(tmp_path / "none.csv", index=False)
    monkeypatch.setattr(SparseGPRegressor, "fit_source", stop)
    for name in ("early", "less", "none"):
        assert f"{name}.csv h" in run(*fit, "--test", tmp_path / f"{name}.csv", code=2).stderr


def test_an_interruption_at_the_end_is_quiet() -> None:
    """While JAX clears its caches, for instance."""
    code = (
        "import atexit, os, signal, sys, srgp.cli\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "sys.argv = ['srgp', '--version']\n"
        "srgp.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout == f"srgp {srgp.__version__}\n"


def test_an_interruption_between_commands_is_one_line() -> None:
    code = (
        "import sys, typer, srgp.cli\n"
        "from srgp.cli import commands, shows\n"
        "def app(**_): raise typer.Abort\n"
        "commands.app = app\n"
        "srgp.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "srgp: interrupted; nothing was written.\n")


def test_models_of_data_frames_are_of_use(tmp_path: Path) -> None:
    """They know the names of their inputs, and the command names the target."""
    data = table(100)
    data.to_csv(tmp_path / "d.csv", index=False)
    est = SparseGPRegressor(n_inducing=8, learner=None).fit(data[["a", "b"]], data.y)
    model, csv = tmp_path / "m.srgp", tmp_path / "d.csv"
    est.save(model)
    run("predict", model, csv, "-o", tmp_path / "p.csv")
    expected = est.predict(data[["a", "b"]])
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["mean"], expected, rtol=1e-12)
    update = ("update", model, csv, "-o", tmp_path / "u.srgp")
    for words in (("evaluate", model, csv), update):
        assert "name the column by --target" in run(*words, code=2).stderr
        assert (
            "2 columns, but the model has 1 output" in run(*words, "--target", "a,y", code=2).stderr
        )
    told = json.loads(run("evaluate", model, csv, "--target", "y", "--json").stdout)
    assert told["rows judged"] == 100
    assert told["RMSE"] == pytest.approx(np.sqrt(np.mean((expected - data.y) ** 2)), rel=1e-10)
    run(*update, "--target", "y")
    assert SparseGPRegressor.load(tmp_path / "u.srgp").target_names_ == ("y",)
    run("evaluate", tmp_path / "u.srgp", csv)  # it knows by now
    told = run("evaluate", tmp_path / "u.srgp", csv, "--target", "a", code=2).stderr
    assert "has learned y, not a: leave --target out" in told
    est.fit(data[["a", "b"]].to_numpy(), data.y).save(model)
    told = run("predict", model, csv, "-o", tmp_path / "p.csv", code=2).stderr
    assert "does not know the names of its inputs" in told


def test_merge_refuses_models_of_other_columns(folder: Path, tmp_path: Path) -> None:
    est = SparseGPRegressor.load(folder / "m.srgp")
    other = SparseGPRegressor.load(folder / "m.srgp").restart()
    other.partial_fit(table(10)[["a", "b"]], table(10).y)
    merge = ("merge", folder / "m.srgp", tmp_path / "o.srgp", "-o", tmp_path / "both.srgp")
    for name, value, message in [
        ("feature_names_in_", np.array(["b", "a"], object), "other columns, a, b and b, a:"),
        ("target_names_", ("z",), "other columns, y and z:"),
    ]:
        kept = getattr(other, name)
        setattr(other, name, value)
        other.save(tmp_path / "o.srgp")
        told = run(*merge, code=2).stderr
        assert f"{tmp_path / 'o.srgp'} does not fit" in told
        assert f"these models have learned {message}" in told
        with pytest.raises(ValueError, match="merge those of the same, in the same order"):
            est.merge(other)
        setattr(other, name, kept)
    assert est.merge(other).n_samples_seen_ == 310


def test_several_targets_are_judged_one_by_one(tmp_path: Path) -> None:
    data = table(200).assign(**{"big [kW]": lambda d: 1000.0 * np.cos(d.a)})
    data.to_csv(tmp_path / "d.csv", index=False)
    model, csv, picture = tmp_path / "m.srgp", tmp_path / "d.csv", tmp_path / "p.svg"
    fit = ("fit", csv, "--target", "y,big [kW]", "-m", 8, "--learner", "exact", "-o", model)
    fitted = json.loads(run(*fit, "--json").stdout)
    words = ("evaluate", model, csv)
    told = json.loads(run(*words, "--json").stdout)
    assert "RMSE" not in told
    assert fitted["targets"].keys() == told["targets"].keys()
    est = SparseGPRegressor.load(model)
    mean, deviation = est.predict(data[["a", "b"]], return_std=True)
    for i, name in enumerate(("y", "big [kW]")):
        alone = srgp.metrics.scores(data[name], mean[:, i], deviation[:, i] ** 2)
        assert told["targets"][name]["RMSE"] == pytest.approx(alone.rmse, rel=1e-10)
        assert told["targets"][name]["NLPD"] == pytest.approx(alone.nlpd, rel=1e-10)
    shown = run(*words, "--plot", picture).stdout
    assert "y: RMSE" in shown
    assert "big [kW]: coverage of 95 %" in shown
    drawn = picture.read_text()
    assert "<!-- big [kW] -->" in drawn
    assert 'id="axes_4"' in drawn


def test_demo(tmp_path: Path) -> None:
    told = json.loads(run("demo", "-o", tmp_path / "d.png", "--samples", 4000, "--json").stdout)
    for name in ("SRGP", "batch VFE"):
        # The noise of a measurement is 0.02, and so is that of what it is predicted from.
        assert 0.02 < told[name]["RMSE"] < 0.06
        assert 0.8 < told[name]["coverage of 95 %"] < 0.99
        assert told[name]["error against the truth"] < 0.05
    assert (tmp_path / "d.png").read_bytes().startswith(b"\x89PNG")


def test_a_comparison_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"SRGP": {"RMSE": 0.5, "rows": 1000}, "VFE [kW]": {"RMSE": 0.25, "rows": 10}}
    comparison("a tank", columns, {"picture": "x[red].png"}, as_json=False)
    shown = capsys.readouterr().out
    for text in ("a tank", "VFE [kW]", "0.25", "1,000", "picture: x[red].png"):
        assert text in shown


def test_user_errors_are_one_line_and_write_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.srgp"
    train, model = folder / "train.csv", folder / "m.srgp"
    (tmp_path / "cut.srgp").write_bytes(model.read_bytes()[:-10])
    table().assign(a=np.nan).to_csv(tmp_path / "gaps.csv", index=False)
    for words, message in [
        (("fit", tmp_path / "none.csv", "--target", "y", "-o", out), "no file"),
        (("fit", train, "--target", "z", "-o", out), "no column 'z'"),
        (("fit", train, "--target", "y", "-o", tmp_path / "no" / "m.srgp"), "does not exist"),
        (("fit", train, "--target", "y", "--kernel", "sine", "-o", out), "kernel must be"),
        (
            ("fit", tmp_path / "gaps.csv", "--target", "y", "-o", out),
            "missing value in row 1 (line 2)",
        ),
        (("predict", tmp_path / "cut.srgp", train, "-o", tmp_path / "p.csv"), "cut.srgp"),
        (("predict", model, train, "-o", tmp_path / "p.txt"), "ending"),
        (("merge", model, "-o", out), "at least two"),
    ]:
        result = run(*words, code=2)
        assert message in result.stderr
        assert result.stderr.startswith("srgp: ")
        assert len(result.stderr.strip().splitlines()) == 1
        assert "Traceback" not in result.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.srgp", "gaps.csv"]


def test_an_input_is_never_written_over(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in ("one.csv", "two.csv"):
        table(50).to_csv(data / name, index=False)
    (tmp_path / "link.csv").symlink_to(data / "two.csv")
    model = tmp_path / "m.csv"  # whatever its name
    model.write_bytes((folder / "m.srgp").read_bytes())
    before = {p: p.read_bytes() for p in (*data.iterdir(), model)}
    one, fit = data / "one.csv", ("--target", "y", "-m", 5)
    for words in [
        ("predict", model, one, "-o", one),
        ("predict", model, data, "-o", data / "two.csv"),
        ("predict", model, data / "*.csv", "-o", tmp_path / "link.csv"),
        ("predict", model, one, "-o", model),
        ("fit", one, *fit, "-o", one),
        ("fit", one, *fit, "--test", data / "two.csv", "-o", data / "two.csv"),
        ("update", model, one, "-o", one),
        ("update", model, one, "--afresh", "-o", model),
        ("evaluate", model, one, "--plot", model),
        ("merge", model, folder / "m.srgp", "-o", model),
    ]:
        assert "one of the inputs" in run(*words, code=2).stderr
    assert {p: p.read_bytes() for p in before} == before
    run("update", model, one, "-o", model)  # which is how a model grows


def test_an_output_is_tried_before_the_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("it worked first")

    for name in ("fit_source", "partial_fit_source", "predict_source", "_answer"):
        monkeypatch.setattr(SparseGPRegressor, name, work)
    monkeypatch.setattr("srgp.experiments.tank.run", work)
    model, train = folder / "m.srgp", folder / "train.csv"
    fit = ("fit", train, "--target", "y")
    (tmp_path / "kept").mkdir()
    for words, ending in [
        ((*fit, "-o"), ".srgp"),
        (("update", model, train, "-o"), ".srgp"),
        (("predict", model, train, "-o"), ".csv"),
        (("evaluate", model, train, "--plot"), ".png"),
        (("merge", model, model, "-o"), ".srgp"),
        (("demo", "-o"), ".png"),
    ]:
        # Nobody may make files in /proc, not even root.
        assert "into the folder /proc" in run(*words, f"/proc/x{ending}", code=2).stderr
        assert "is a folder" in run(*words, tmp_path, code=2).stderr
        assert "does not exist" in run(*words, tmp_path / "no" / f"x{ending}", code=2).stderr
    kept = (*fit, "-o", tmp_path / "m.srgp", "--checkpoint")
    assert "into the folder /proc" in run(*kept, "/proc/kept/deep", code=2).stderr
    inside = (*fit, "-o", tmp_path / "kept" / "m.srgp", "--checkpoint", tmp_path / "kept")
    assert "folder of the checkpoint" in run(*inside, code=2).stderr
    told = run("evaluate", model, train, "--plot", tmp_path / "p.xyz", code=2).stderr
    assert "kind of picture" in told


def test_errors_of_the_system_name_the_users_file(folder: Path, tmp_path: Path) -> None:
    told = run("info", tmp_path / "nowhere.srgp", code=2).stderr
    assert told == f"srgp: {tmp_path / 'nowhere.srgp'} does not exist: check the path.\n"
    assert "is a folder: name a file" in run("info", tmp_path, code=2).stderr
    below = run("info", folder / "m.srgp" / "x", code=2).stderr
    assert "lies within a file" in below
    for error in (
        PermissionError(13, "Permission denied", "a.csv"),
        OSError(28, "No space left on device", "a.csv"),
        OSError(5, "Input/output error", "a.csv"),
    ):
        assert re.fullmatch(r"a\.csv cannot be \w+.*\.", said(error))


def test_a_temporary_file_is_not_what_is_named(tmp_path: Path) -> None:
    def write() -> None:
        with replacing(tmp_path / "out.csv") as temporary:
            temporary.write_text("half")
            raise OSError(27, "Too large", str(temporary))

    with pytest.raises(OSError, match=r"/out\.csv could not be written \(Too large\)"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_usage_errors_are_one_line(folder: Path) -> None:
    model = folder / "m.srgp"
    fit = ["fit", folder / "train.csv", "--target", "y", "-o", "x.srgp"]
    for words, message in [
        (["nope"], "No such command 'nope'. See `srgp --help`."),
        (["fit"], "Missing argument"),
        (["info", model, "--json5"], "No such option: --json5"),
        (["predict", model, model, "-o", "x.csv", "--missing", "none"], "is not one of 'error', "),
        ([*fit, "--max-seconds", "-1"], "Invalid value for '--max-seconds'"),
        ([*fit, "--seed", "-1"], "Invalid value for '--seed'"),
    ]:
        done = command(*words)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.startswith("srgp: ")
        assert len(done.stderr.splitlines()) == 1


def test_version_and_help_come_at_once() -> None:
    assert command("--version").stdout == f"srgp {srgp.__version__}\n"
    shown = command("predict", "--help").stdout
    assert "--missing <error|drop>" in shown
    assert "<bool>" not in shown
    assert "<Any>" not in shown
    heavy = ("jax", "numpy", "sklearn", "rich", "pyarrow", "matplotlib", "pandas")
    code = (
        "import sys, srgp.cli.shows, srgp.cli.commands; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_names_all_that_the_library_knows() -> None:
    assert ", ".join(choices.KERNELS) == commands.KERNELS
    assert ", ".join(choices.APPROXIMATIONS) == commands.APPROXIMATIONS


def test_an_interruption_of_the_imports_is_one_line() -> None:
    code = (
        "import sys, srgp.cli\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "srgp.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "srgp: interrupted; nothing was written.\n"


@pytest.mark.parametrize("command", ["fit", "update", "predict"])
def test_a_full_disk_leaves_what_was_there(command: str, folder: Path, tmp_path: Path) -> None:
    """Files of at most 1 kB: the system refuses the rest, as a full disk does."""
    program = str(Path(sys.executable).parent / "srgp")
    out = tmp_path / ("out.csv" if command == "predict" else "out.srgp")
    out.write_text("precious")
    words = {
        "fit": ["fit", folder / "train.csv", "--target", "y", "-m", 12, "--learner", "exact"],
        "update": ["update", folder / "m.srgp", folder / "more.parquet"],
        "predict": ["predict", folder / "m.srgp", folder / "more.parquet"],
    }[command]
    # Compiled code is read and never written: it would be cut off, too.
    environment = {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 2 && exec "$@"', "sh", program, *map(str, words), "-o", out],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert out.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


def test_without_its_extra_the_command_says_so() -> None:
    code = "import sys; sys.modules['typer'] = None; import srgp.cli; srgp.cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "srgp: the command line needs typer: pip install 'srgp[cli]'."


def test_compiled_code_is_kept_and_made_again_where_damaged(folder: Path, tmp_path: Path) -> None:
    """As a process leaves it that was killed while it wrote."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    cut: list[Path] = []
    for _ in range(2):
        done = command("evaluate", folder / "m.srgp", folder / "more.parquet", env=environment)
        assert done.returncode == 0
        assert done.stderr == ""
        (kept,) = (tmp_path / "srgp").iterdir()
        files = [p for p in kept.glob("*-cache") if p.stat().st_size > 100]
        assert files, "nothing was kept"
        assert set(cut) <= set(files)
        cut = files[:5]
        for file in cut:
            file.write_bytes(file.read_bytes()[:50])
    # A place that cannot be written to is no reason to stop.
    environment["XDG_CACHE_HOME"] = str(folder / "train.csv")
    assert command("info", folder / "m.srgp", env=environment).returncode == 0


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).parent / "srgp"
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    for name in (
        "fit",
        "update",
        "learn",
        "predict",
        "evaluate",
        "merge",
        "info",
        "demo",
        "reproduce",
    ):
        assert name in done.stdout
