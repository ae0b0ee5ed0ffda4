"""The commands that learn, one function each, and what all commands have in common."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import srgp
from srgp.cli import opening
from srgp.cli.outputs import check_checkpoint, check_output, written
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
MANY = 2000  # inducing points, beyond which a fit takes hours
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
    batch_size: Annotated[int | None, typer.Option(min=1, help="Of sites and srgp.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of sites and srgp.")] = None,
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
    if inducing > MANY:
        tell(f"-m {inducing} takes long: time grows with its square, and 100 to 500 are usual.")
    kept = None if checkpoint is None else srgp.Checkpoint(checkpoint)
    start = time.perf_counter()
    with opening.cluster(scheduler) as client:
        source = opening.spread(table, client)
        with watching(table, source, quiet=as_json) as callback, resumable(checkpoint):
            est.fit_source(source, callback=callback, checkpoint=kept)
        seconds, dropped = time.perf_counter() - start, source.dropped
    save(est, output)
    if kept is not None:
        kept.clear()
    points = len(est.inducing_points_)
    if points < inducing:
        tell(f"{points} inducing points, not {inducing}: there are no more distinct rows.")
    found = answers(est, held_out or table, as_json, SCORED if held_out is None else None)
    closing(
        "fitted",
        {
            "model": str(output),
            "rows": est.n_samples_seen_,
            "dropped": dropped,
            "features": len(table.feature_names),
            "inducing": points,
            "bound": est.bound_,
            "seconds": seconds,
            "rows per second": est.n_samples_seen_ / seconds,
            "judged by": "training rows" if held_out is None else "test rows",
            **judged(found, table.target_names),
            **({} if held_out is None else {"test rows dropped": held_out.dropped}),
        },
        as_json,
    )


@app.command(short_help="Add rows to a model, exactly and in one pass.")
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

    est = loaded(model)
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
    save(est, output)
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


@app.command("learn", short_help="Learn from a stream into a model file.")
@clean
def learn_stream(
    model: ModelFile,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A CSV file, a folder of CSV or Parquet, or -."),
    ],
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


def loaded(model: Path) -> "SparseGPRegressor":
    """The regressor of a model file."""
    from srgp.regressor import SparseGPRegressor

    return SparseGPRegressor.load(model)


def save(est: "SparseGPRegressor", output: Path) -> None:
    """Write it, and remember that it was written."""
    _ = est.bound_  # a model without one is not worth a file
    est.save(output)
    written.append(str(output))


def _left(rows: int) -> str:
    return (
        ""
        if not rows
        else f" {rows} rows that make no batch yet are not learned: they are read again then."
    )
