"""The commands that use what was learned: predict, evaluate, merge, info."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from srgp.cli import opening
from srgp.cli.commands import (
    Data,
    Delimiter,
    Json,
    Missing,
    ModelFile,
    Out,
    Target,
    app,
    loaded,
    save,
)
from srgp.cli.outputs import check_output, check_picture, written
from srgp.cli.screen import clean, closing

# What a command works with is imported in it: help comes at once.


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

    est = loaded(model)
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


@app.command(short_help="Judge a model by rows whose targets are known.")
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

    est = loaded(model)
    table = opening.rows(est, data, missing, delimiter, target)
    if plot is not None:
        check_output(plot, table.files())
    found = answers(est, table, as_json)
    if plot is not None:
        picture(plot, found, table.target_names)
    shown = {"model": str(model), **judged(found, table.target_names), "dropped": table.dropped}
    closing("evaluated", shown, as_json)


@app.command(short_help="Add up what models have learned apart.")
@clean
def merge(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL", help="Model files of the same parameters.")
    ],
    output: Out,
    move: Annotated[
        bool,
        typer.Option(
            help="Carry models of other parameters, but the same scaling, over to the first's."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Add up what models of the same parameters learned, each from rows of its own."""
    check_output(output, models)
    from srgp.tables.columns import repeated

    if twice := repeated(str(path.resolve()) for path in models):
        raise ValueError(f"{twice} is named twice: its rows would count twice.")
    first, *others = [loaded(path) for path in models]
    if not others:
        raise ValueError("name at least two models to merge.")
    lost = 0.0
    for path, other in zip(models[1:], others, strict=True):
        try:
            lost += first.merge(other, move=move).merge_loss_
        except ValueError as error:
            raise ValueError(f"{path} does not fit {models[0]}: {error}") from error
    save(first, output)
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
    est = loaded(model)
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


def _counted(
    parts: Iterator[dict[str, Any]], add: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """The same parts; each counts when the next one is asked for."""
    for part in parts:
        yield part
        add(len(next(iter(part.values()))))
