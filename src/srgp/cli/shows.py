"""The commands that bring their own data: the demonstration, and the paper's experiments."""

from pathlib import Path
from typing import Annotated

import typer

from srgp import experiments
from srgp.cli import using  # noqa: F401 - adds its commands, before these
from srgp.cli.commands import Json, app
from srgp.cli.outputs import check_picture
from srgp.cli.screen import chosen, clean, comparison
from srgp.experiments import NAMES


@app.command(short_help="Simulate a stirred tank, learn and predict it.")
@clean
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture.")] = Path("tank.png"),
    samples: Annotated[int, typer.Option(min=2000, help="0.2 s each; a day by default.")] = 432_000,
    as_json: Json = False,
) -> None:
    """Simulate a stirred tank, learn it from its samples, and predict what comes next."""
    check_picture(output)
    from srgp.cli.progress import telling
    from srgp.experiments import tank

    with telling("a stirred tank", as_json) as tell:
        plant, outcomes = tank.run(samples, tell=tell)
        tell(f"drawing {output}")
        tank.draw(plant, outcomes, output)
    columns = {
        name: {
            "rows": outcome.rows,
            "seconds": outcome.seconds,
            **chosen(outcome.scores),
            "error against the truth": outcome.error,
        }
        for name, outcome in outcomes.items()
    }
    srgp, batch = (outcome.rows for outcome in outcomes.values())
    about = {
        "picture": str(output),
        "reading it": f"SRGP went through all {srgp:,} rows, five times, in batches; batch VFE was "
        f"given the last {batch:,}, all at once. A tank that stays as it is can be "
        f"learned from either: both are near the noise of a measurement, {tank.NOISE:g}.",
    }
    comparison("a stirred tank, one step ahead", columns, about, as_json)


@app.command(short_help="Run an experiment of the paper.")
@clean
def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"{', '.join(NAMES)}, or all.")],
    full: Annotated[bool, typer.Option("--full", help="The paper's sizes; hours.")] = False,
    data: Annotated[Path | None, typer.Option(help="Flights, or the folder of tables.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder.")] = Path("results"),
    peers: Annotated[
        Path | None, typer.Option(help="The folder `benchmarks` of srgp's repository.")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(min=1, help="How many; more can follow later.")
    ] = None,
) -> None:
    """Run an experiment of the paper: picture, table and settings go into a folder."""
    from srgp.cli.progress import telling

    for one in NAMES if name == "all" else (name,):
        with telling(f"reproducing {one}") as tell:
            table = experiments.reproduce(one, output, full, data, peers, tell, repetitions)
        label = f"{one}-full" if full else one
        typer.echo(f"{table}\n{output / label}")
