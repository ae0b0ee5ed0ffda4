"""The commands, one function each."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import srgp
from srgp.cli import opening
from srgp.cli.outputs import check_checkpoint, check_output, check_picture, written
from srgp.cli.screen import check_folder, clean, closing, resumable, tell, terminable

if TYPE_CHECKING:
    from srgp.regressor import SparseGPRegressor

# What a command works with is imported in it: help comes at once.

app = typer.Typer(
    help="Gaussian process regression for large tables: learn, update, predict, merge.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

SCORED = 200_000  # rows by which a fit is judged where no test data are given
KERNELS = "se, matern12, matern32, matern52, rational_quadratic"
APPROXIMATIONS = "sor, dtc, fitc, fic, pitc, vfe, pep, tighter_vfe"

Data = Annotated[
    list[str],
    typer.Argument(metavar="DATA", help="CSV or Parquet: files, folders or patterns."),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")]
Out = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
Missing = Annotated[
    Literal["error", "drop"],
    typer.Option(help="Rows with missing values: an error, or left out and counted."),
]
Delimiter = Annotated[str, typer.Option(help="What separates the columns of a CSV file.")]
Target = Annotated[
    str | None,
    typer.Option(help="The column of the target, if the model does not know; several by commas."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(help="Work on a Dask cluster: its address, or 'local' for all cores here."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"srgp {srgp.__version__}")
        raise typer.Exit


@app.callback()
def _srgp(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Tell the version.")
    ] = False,
) -> None:
    """Gaussian process regression for large tables: learn, update, predict, merge."""


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
    kernel: Annotated[str, typer.Option(help=f"One of {KERNELS}.")] = "se",
    approximation: Annotated[str, typer.Option(help=f"One of {APPROXIMATIONS}.")] = "vfe",
    learner: Annotated[str, typer.Option(help="auto, exact, sites or srgp.")] = "auto",
    batch_size: Annotated[int | None, typer.Option(help="Of sites and srgp.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Of sites and srgp.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=0.0, help="End learning then.")] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same parameters.")
    ] = 0,
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
    check_output(output)
    from srgp.cli.judging import answers, judged
    from srgp.cli.progress import watching
    from srgp.regressor import SparseGPRegressor
    from srgp.tables import Table

    columns = (opening.one_or_more(target), opening.names(features), weight)
    table = Table(data, *columns, missing=missing, delimiter=delimiter)
    held_out = None if test is None else opening.like(table, [test], missing, delimiter)
    check_output(output, [*table.files(), *(held_out.files() if held_out else ())])
    if checkpoint is not None:
        check_checkpoint(checkpoint, output)
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
    given = {"--batch-size": batch_size, "--epochs": epochs}
    unused = [name for name, value in given.items() if value is not None]
    if unused and learner not in ("sites", "srgp"):
        tell(f"{' and '.join(unused)} left aside: for --learner sites and srgp, not {learner}.")
    kept = None if checkpoint is None else srgp.Checkpoint(checkpoint)
    start = time.perf_counter()
    with opening.cluster(scheduler) as client:
        source = opening.spread(table, client)
        with watching(table, source, quiet=as_json) as callback, resumable(checkpoint):
            est.fit_source(source, callback=callback, checkpoint=kept)
        seconds, dropped = time.perf_counter() - start, source.dropped
    _save(est, output)
    if kept is not None:
        kept.clear()
    found = answers(est, held_out or table, as_json, SCORED if held_out is None else None)
    closing(
        "fitted",
        {
            "model": str(output),
            "rows": est.n_samples_seen_,
            "dropped": dropped,
            "features": len(table.feature_names),
            "inducing": len(est.inducing_points_),
            "bound": est.bound_,
            "seconds": seconds,
            "rows per second": est.n_samples_seen_ / seconds,
            "judged by": "training rows" if held_out is None else "test rows",
            **judged(found, table.target_names),
            **({} if held_out is None else {"test rows dropped": held_out.dropped}),
        },
        as_json,
    )


@app.command()
@clean
def update(
    model: ModelFile,
    data: Data,
    output: Out,
    afresh: Annotated[
        bool,
        typer.Option("--afresh", help="Only these rows, at the same parameters: to be merged."),
    ] = False,
    target: Target = None,
    weight: Annotated[str | None, typer.Option(help="A column that counts rows.")] = None,
    scheduler: Scheduler = None,
    missing: Missing = "error",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Add rows to a model, exactly and in one pass, at the parameters it has."""
    check_output(output, [model] if afresh else [])
    from srgp.cli.progress import counting

    est = _loaded(model)
    if afresh:
        est.restart()
    table = opening.rows(est, data, missing, delimiter, target, weight)
    check_output(output, table.files())
    before, start = est.n_samples_seen_, time.perf_counter()
    with opening.cluster(scheduler) as client:
        source = opening.spread(table, client)
        total = table.rows_known() if client is None else None
        with counting("adding", total, as_json, table):
            est.partial_fit_source(source)
        seconds, dropped = time.perf_counter() - start, source.dropped
    est.target_names_ = est.target_names_ or table.target_names
    _save(est, output)
    added = est.n_samples_seen_ - before
    closing(
        "updated",
        {
            "model": str(output),
            "rows added": added,
            "dropped": dropped,
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
    from srgp.cli.following import Follower

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
    check_output(output, [model])
    from srgp.cli.progress import counting
    from srgp.tables import write_table

    est = _loaded(model)
    table = opening.inputs(est, data, missing, delimiter)
    check_output(output, table.files())
    kept: Any = "all" if keep == "all" else opening.names(keep) or ()
    start = time.perf_counter()
    with counting("predicting", table.rows_known(), as_json) as add:
        rows = write_table(output, _counted(est.predict_source(table, kept, noise), add))
    written.append(str(output))
    seconds = time.perf_counter() - start
    shown: dict[str, Any] = {"file": str(output), "rows": rows, "dropped": table.dropped}
    closing("predicted", {**shown, "seconds": seconds, "rows per second": rows / seconds}, as_json)


@app.command()
@clean
def evaluate(
    model: ModelFile,
    data: Data,
    target: Target = None,
    plot: Annotated[Path | None, typer.Option(help="A picture to write.")] = None,
    missing: Missing = "error",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Judge a model by rows whose targets are known: RMSE, NLPD, coverage."""
    if plot is not None:
        check_picture(plot, [model])
    from srgp.cli.judging import answers, judged, picture

    est = _loaded(model)
    table = opening.rows(est, data, missing, delimiter, target)
    if plot is not None:
        check_output(plot, table.files())
    found = answers(est, table, as_json)
    if plot is not None:
        picture(plot, found, table.target_names)
    shown = {"model": str(model), **judged(found, table.target_names), "dropped": table.dropped}
    closing("evaluated", shown, as_json)


@app.command()
@clean
def merge(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Model files of the same parameters.")
    ],
    output: Out,
    move: Annotated[
        bool, typer.Option(help="Carry models of other parameters over to those of the first.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add up what models of the same parameters learned, each from rows of its own."""
    check_output(output, models)
    first, *others = [_loaded(path) for path in models]
    if not others:
        raise ValueError("name at least two models to merge.")
    lost = 0.0
    for path, other in zip(models[1:], others, strict=True):
        try:
            lost += first.merge(other, move=move).merge_loss_
        except ValueError as error:
            raise ValueError(f"{path} does not fit {models[0]}: {error}") from error
    _save(first, output)
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
    import numpy as np

    from srgp import kernels, storage

    saved = storage.read(model)
    est = _loaded(model)
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
    if isinstance(est.model_.kernel, kernels.Stationary):
        shown["lengthscales"] = est.lengthscales_.tolist()
    if est.streams_:
        shown["streams"] = [
            f"{key} (row {v['row']} of {v['file'] or 'it'})" for key, v in est.streams_.items()
        ]
    closing("model", shown, as_json)


def _loaded(model: Path) -> "SparseGPRegressor":
    from srgp.regressor import SparseGPRegressor

    return SparseGPRegressor.load(model)


def _save(est: "SparseGPRegressor", output: Path) -> None:
    est.save(output)
    written.append(str(output))


def _counted(
    parts: Iterator[dict[str, Any]], add: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """The same parts; each counts when the next one is asked for."""
    for part in parts:
        yield part
        add(len(next(iter(part.values()))))


def _left(rows: int) -> str:
    return f" {rows} rows that make no batch yet are not learned: they are read again then."
