"""The paper's experiments, made again, and those of streams: `srgp reproduce NAME`."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAPER = ("toy", "convergence", "minibatch", "simulation", "airline", "plant", "models")
STREAMS = ("drift", "following", "identification")
NAMES = PAPER + STREAMS
READ_DATA = ("airline", "models", "drift", "identification")
HAVE_PEERS = ("convergence", "simulation", "airline", "plant")


def reproduce(
    name: str,
    folder: Path,
    full: bool = False,
    data: Path | None = None,
    peers: Path | None = None,
    tell: Callable[[str], Any] = lambda text: None,
    repetitions: int | None = None,
) -> str:
    """Run one experiment into `folder`/`name`; what is there already is not run again.

    full:  the paper's sizes instead of a few minutes' worth.
    data:  of the experiments that read real data.
    peers: the folder `benchmarks` of this library's repository, to run SVGP beside.
    tell:  hears what is being run.
    repetitions: how many, where an experiment has them; more can follow in the same folder.

    Gives the table, in Markdown.
    """
    # Only now: Matplotlib and scikit-learn take their time.
    from srgp.experiments.results import Results
    from srgp.experiments.traces import peer_runner

    if name not in NAMES:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(NAMES)}.")
    runner = peer_runner(peers)
    if data is not None and not data.exists():
        raise FileNotFoundError(f"{data} does not exist: name what the experiment is to read.")
    module = importlib.import_module(f"srgp.experiments.{name}")
    more = (data,) if name in READ_DATA else ()
    chosen = module.settings(full, *more)
    if repetitions is not None and "repetitions" in chosen:
        chosen["repetitions"] = repetitions
    label = f"{name}-full" if full else name
    results = Results(folder / label, {"experiment": name, "full": full, **chosen}, tell)
    table = module.run(results, chosen, runner, *more)
    alone = name in HAVE_PEERS and peers is None
    results.summary(name, table, "Peers were not run: see `--peers`." if alone else "")
    return str(table)
