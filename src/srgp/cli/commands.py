"""The commands, one function each."""

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import srgp
from srgp.cli.following import Follower
from srgp.cli.screen import (
    check_folder,
    chosen,
    clean,
    closing,
    resumable,
    tell,
    terminable,
    watching,
)
from srgp.metrics import scores
from srgp.regressor import APPROXIMATIONS, KERNELS, SparseGPRegressor
from srgp.tables import Table, write_table

app = typer.Typer(
    help="Gaussian process regression for large tables: learn, update, predict, merge.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

SCORED = 200_000  # rows by which a fit is judged where no test data are given

Data = Annotated[list[str], typer.Argument(help="CSV or Parquet: files, folders or patterns.")]
ModelFile = Annotated[Path, typer.Argument(help="A model file.")]
Out = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
Missing = Annotated[
    Any, typer.Option(help="Rows with missing values: 'error', or 'drop' to leave them out.")
]
Delimiter = Annotated[str, typer.Option(help="What separates the columns of a CSV file.")]
Scheduler = Annotated[
    str | None,
    typer.Option(help="Work on a Dask cluster: its address, or 'local' for all cores here."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


@app.command()
@clean
def fit(
    data: Data,
    target: Annotated[str, typer.Option(help="The column to predict; several by commas.")],
    output: Out,
    features: Annotated[
        str | None, typer.Option(help="The input columns, by commas; all others if left out.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="A column that counts rows.")] = None,
    inducing: Annotated[int, typer.Option("--inducing", "-m", help="Inducing points.")] = 100,
    kernel: Annotated[str, typer.Option(help=f"One of {', '.join(KERNELS)}.")] = "se",
    approximation: Annotated[
        str, typer.Option(help=f"One of {', '.join(APPROXIMATIONS)}.")
    ] = "vfe",
    learner: Annotated[str, typer.Option(help="auto, exact, sites or srgp.")] = "auto",
    batch_size: Annotated[int | None, typer.Option(help="Of sites and srgp.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Of sites and srgp.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="End learning then.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    test: Annotated[str | None, typer.Option(help="Data to judge the model by.")] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A folder: the same command goes on from it after an interruption."),
    ] = None,
    scheduler: Scheduler = None,
    missing: Missing = "error",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Learn a model from a table and write it to a file."""
    check_folder(output)
    table = Table(
        data,
        _one_or_more(target),
        _names(features),
        weight,
        missing=missing,
        delimiter=delimiter,
    )
    held_out = None if test is None else _like(table, [test], missing, delimiter)
    est = SparseGPRegressor(
        kernel=kernel,
        n_inducing=inducing,
        approximation=approximation,
        learner=learner,
        batch_size=batch_size,
        epochs=epochs,
        max_seconds=max_seconds,
        random_state=seed,
    )
    kept = None if checkpoint is None else srgp.Checkpoint(checkpoint)
    start = time.perf_counter()
    with (
        _cluster(scheduler) as client,
        watching(table.count(), quiet=as_json) as callback,
        resumable(checkpoint),
    ):
        est.fit_source(table, callback=callback, checkpoint=kept, client=client)
    seconds = time.perf_counter() - start
    est.save(output)
    if kept is not None:
        kept.clear()
    judged = _scores(est, held_out or table, SCORED if held_out is None else None)
    closing(
        "fitted",
        {
            "model": str(output),
            "rows": est.n_samples_seen_,
            "dropped": table.dropped,
            "features": len(table.feature_names),
            "inducing": len(est.inducing_points_),
            "bound": est.bound_,
            "seconds": seconds,
            "rows per second": est.n_samples_seen_ / seconds,
            "judged by": "training rows" if held_out is None else "test rows",
            **judged,
        },
        as_json,
    )


@app.command()
@clean
def update(
    model: ModelFile,
    data: Data,
    output: Out,
    weight: Annotated[str | None, typer.Option(help="A column that counts rows.")] = None,
    scheduler: Scheduler = None,
    missing: Missing = "error",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Add rows to a model, exactly and in one pass, at the parameters it has."""
    check_folder(output)
    est = SparseGPRegressor.load(model)
    table = _of(est, data, missing, delimiter, weight=weight)
    before, start = est.n_samples_seen_, time.perf_counter()
    with _cluster(scheduler) as client:
        est.partial_fit_source(table, client)
    seconds = time.perf_counter() - start
    est.save(output)
    added = est.n_samples_seen_ - before
    closing(
        "updated",
        {
            "model": str(output),
            "rows added": added,
            "dropped": table.dropped,
            "rows": est.n_samples_seen_,
            "bound": est.bound_,
            "seconds": seconds,
            "rows per second": added / seconds,
        },
        as_json,
    )


@app.command("learn")
@clean
def learn_stream(
    model: ModelFile,
    source: Annotated[str, typer.Argument(help="A CSV file, a folder of CSV or Parquet, or -.")],
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more: the file grows, or files come.")
    ] = False,
    idle: Annotated[
        float | None,
        typer.Option(min=0.0, help="With --follow or -: end after so many seconds without rows."),
    ] = None,
    batch_rows: Annotated[
        int, typer.Option(min=1, help="Rows learned at a time; fewer are waited for.")
    ] = 1000,
    rejects: Annotated[
        Path | None, typer.Option(help="Where malformed rows go; model file + .rejects.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn from a stream into a model file, each row once, whenever it is interrupted."""
    aside = rejects or model.with_name(model.name + ".rejects")
    check_folder(aside)
    if idle is not None and not follow and source != "-":
        raise ValueError("--idle is for streams that are waited for: add --follow.")
    follower = Follower(model, source, batch_rows, aside, tell)
    start = time.perf_counter()
    with terminable(), resumable(model, lambda: _left(follower.pending)):
        found = follower.run(follow, idle)
    seconds = time.perf_counter() - start
    shown = {
        "model": str(model),
        "rows learned": found.learned,
        "rows rejected": found.rejected,
        "rows": follower.est.n_samples_seen_,
        "seconds": seconds,
        "rows per second": found.learned / seconds,
    }
    closing("learned", {**shown, "rejects": str(aside)} if found.rejected else shown, as_json)


@app.command()
@clean
def predict(
    model: ModelFile,
    data: Data,
    output: Out,
    keep: Annotated[
        str | None, typer.Option(help="Columns to carry along, by commas, or 'all'.")
    ] = None,
    noise: Annotated[
        bool, typer.Option(help="The deviation of a measurement, or of the function behind it.")
    ] = True,
    missing: Missing = "error",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Write mean and deviation for every row of a table."""
    est = SparseGPRegressor.load(model)
    table = _of(est, data, missing, delimiter, target=False)
    kept: Any = "all" if keep == "all" else _names(keep) or ()
    start = time.perf_counter()
    rows = write_table(output, est.predict_source(table, kept, noise))
    seconds = time.perf_counter() - start
    closing(
        "predicted",
        {"file": str(output), "rows": rows, "seconds": seconds, "rows per second": rows / seconds},
        as_json,
    )


@app.command()
@clean
def evaluate(
    model: ModelFile,
    data: Data,
    plot: Annotated[Path | None, typer.Option(help="A picture to write.")] = None,
    missing: Missing = "error",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Judge a model by rows whose targets are known: RMSE, NLPD, coverage."""
    est = SparseGPRegressor.load(model)
    table = _of(est, data, missing, delimiter)
    answers = _answers(est, table, None)
    if plot is not None:
        _picture(plot, *answers)
    closing("evaluated", {"model": str(model), **_plain(answers)}, as_json)


@app.command()
@clean
def merge(
    models: Annotated[list[Path], typer.Argument(help="Model files of the same parameters.")],
    output: Out,
    move: Annotated[
        bool, typer.Option(help="Carry models of other parameters over to those of the first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add up what models of the same parameters learned, each from rows of its own."""
    check_folder(output)
    first, *others = [SparseGPRegressor.load(path) for path in models]
    if not others:
        raise ValueError("name at least two models to merge.")
    lost = 0.0
    for path, other in zip(models[1:], others, strict=True):
        try:
            lost += first.merge(other, move=move).merge_loss_
        except ValueError as error:
            raise ValueError(f"{path} does not fit {models[0]}: {error}") from error
    first.save(output)
    shown = {
        "model": str(output),
        "rows": first.n_samples_seen_,
        "bound": first.bound_,
        "lost, nats": lost,
    }
    closing("merged", shown, as_json)


@app.command()
@clean
def info(model: ModelFile, as_json: Json = False) -> None:
    """Tell what a model file holds."""
    saved = srgp.storage.read(model)
    est = SparseGPRegressor.load(model)
    names = getattr(est, "feature_names_in_", None)
    shown: dict[str, Any] = {
        "model": str(model),
        "written by": f"srgp {saved.version}",
        "rows": est.n_samples_seen_,
        "features": est.n_features_in_ if names is None else list(names),
        "targets": list(est.target_names_ or ()),
        "inducing": len(est.inducing_points_),
        "approximation": repr(est.model_.approximation),
        "kernel": type(est.model_.kernel).__name__,
        "noise deviation": np.asarray(est.noise_std_).tolist(),
        "bound": est.bound_,
    }
    if isinstance(est.model_.kernel, srgp.kernels.Stationary):
        shown["lengthscales"] = est.lengthscales_.tolist()
    if est.streams_:
        shown["streams"] = [
            f"{key} (row {v['row']} of {v['file'] or 'it'})" for key, v in est.streams_.items()
        ]
    closing("model", shown, as_json)


# -- what the commands share ------------------------------------------------------------------


def _left(rows: int) -> str:
    return f" {rows} rows that make no batch yet are not learned: they are read again then."


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _one_or_more(target: str) -> str | list[str]:
    names = _names(target) or [""]
    return names[0] if len(names) == 1 else names


def _like(table: Table, data: list[str], missing: Any, delimiter: str) -> Table:
    """Other files with the columns of a table."""
    names = table.target_names
    target = names[0] if len(names) == 1 else list(names)
    return Table(
        data,
        target,
        list(table.feature_names),
        missing=missing,
        delimiter=delimiter,
    )


def _of(
    est: SparseGPRegressor,
    data: list[str],
    missing: Any,
    delimiter: str,
    target: bool = True,
    weight: str | None = None,
) -> Table:
    """Files with the columns that a model was learned from."""
    names, targets = getattr(est, "feature_names_in_", None), est.target_names_
    if names is None or targets is None:
        raise ValueError("this model was not learned from a table with names: use it from Python.")
    single = est.scaler_.y_spread.ndim == 0
    wanted = (targets[0] if single else list(targets)) if target else None
    return Table(data, wanted, list(names), weight, missing=missing, delimiter=delimiter)


def _answers(
    est: SparseGPRegressor, table: Table, at_most: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Targets, means and variances of the rows of a table, or of a random part of it."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    rows = 0
    for X, y, w in table.batches(16_384, None if at_most is None else 0):
        present = w > 0.0
        mean, deviation = est._answer(est.scaler_.inputs(X[present]), True)
        found.append((y[present], mean, deviation**2))
        rows += int(present.sum())
        if at_most is not None and rows >= at_most:
            break
    y, mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return y, mean, variance


def _scores(est: SparseGPRegressor, table: Table, at_most: int | None) -> dict[str, float]:
    return _plain(_answers(est, table, at_most))


def _plain(answers: tuple[np.ndarray, np.ndarray, np.ndarray]) -> dict[str, float]:
    return {"rows judged": len(answers[0]), **chosen(scores(*answers))}


def _picture(path: Path, y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
    from matplotlib.figure import Figure

    from srgp import plots

    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    columns = [a.reshape(len(a), -1)[:, 0] for a in (y, mean, variance)]
    plots.prediction_vs_truth(*columns, ax=left)
    plots.calibration(*columns, ax=right)
    figure.savefig(path, dpi=150)


def _cluster(scheduler: str | None) -> AbstractContextManager[Any]:
    """The client of a cluster, if one is asked for."""
    if scheduler is None:
        return nullcontext()
    from srgp.distributed import connected

    return connected(scheduler)
