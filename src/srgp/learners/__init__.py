"""Three ways to learn θ, one that chooses, and one call for all."""

from collections.abc import Iterable, Mapping
from typing import Any

from srgp.learners.auto import Auto
from srgp.learners.base import (
    Callback,
    History,
    Learned,
    Learner,
    Record,
    Report,
    Task,
    run,
)
from srgp.learners.exact import Exact
from srgp.learners.journal import Journal
from srgp.learners.sites import Sites
from srgp.learners.srgp import SRGP
from srgp.model import Model
from srgp.parameters import Prior

__all__ = [
    "SRGP",
    "Auto",
    "Callback",
    "Exact",
    "History",
    "Journal",
    "Learned",
    "Learner",
    "Record",
    "Report",
    "Sites",
    "Task",
    "learn",
    "printing",
]


def learn(
    model: Model,
    data: Any,
    learner: Learner | str = "auto",
    *,
    fixed: str | Iterable[str] = (),
    priors: Mapping[str, Prior] | None = None,
    validation: tuple[Any, Any] | None = None,
    callback: Callback | None = None,
    patience: int | None = None,
    max_seconds: float | None = None,
    progress: bool = False,
    seed: int = 0,
    checkpoint: Journal | None = None,
) -> Learned:
    """Learn kernel parameters, noise and inducing inputs by maximising the bound of the data.

    data:        (X, y) or (X, y, sample_weight); or, out of core, a list of such batches or a
                 function that starts a pass over them.
    learner:     "auto", "srgp", "exact", "sites", or one with settings, `srgp.SRGP(epochs=5)`.
    fixed:       names of parameters to leave as they are: "noise", "inducing", "kernel" or any part
                 of it, such as "kernel.lengthscales".
    priors:      log densities of parameters by name, {"noise": srgp.priors.LogNormal(0.1, 1)}. The
                 result is then the maximum of bound + log prior, in the parameters' own units.
    validation:  held-out (X, y); their RMSE is recorded at every report, each after a clean pass.
    callback:    called with a `Record` and the model at every report; returning True ends learning.
    patience:    end after so many reports without a better bound.
    max_seconds: end at the first report after so long.
    progress:    print one line a report.
    seed:        the same seed gives the same result.
    checkpoint:  an `srgp.Checkpoint`: the same call goes on where one that was killed came to.

    >>> import numpy as np, srgp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, (300, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)
    >>> start = srgp.Model(srgp.kernels.SE(), noise=1.0, inducing=X[:10])
    >>> result = srgp.learn(start, (X, y))
    >>> round(float(result.model.noise), 3)
    0.01
    >>> mean, variance = srgp.posterior(result.model, result.statistics).predict([[1.5]])
    """
    return run(
        model,
        data,
        as_learner(learner),
        fixed=fixed,
        priors=priors,
        validation=validation,
        callback=printing(callback) if progress else callback,
        patience=patience,
        max_seconds=max_seconds,
        seed=seed,
        journal=checkpoint,
    )


def as_learner(learner: Learner | str) -> Learner:
    """A learner by its name, with its default settings, or as it is."""
    named: dict[str, Any] = {"auto": Auto, "srgp": SRGP, "exact": Exact, "sites": Sites}
    if isinstance(learner, str):
        if learner not in named:
            raise ValueError(f"learner must be one of {', '.join(named)}, got {learner!r}.")
        made: Learner = named[learner]()
        return made
    if not isinstance(learner, Learner):
        raise ValueError(f"learner must be a name or one such as srgp.SRGP(), got {learner!r}.")
    return learner


def printing(callback: Callback | None) -> Callback:
    """A callback that prints a line a report, and then calls another."""

    def show(record: Record, model: Model) -> Any:
        lines = str(History([record])).splitlines()
        print(lines[1] if show.started else "\n".join(lines), flush=True)  # type: ignore[attr-defined]
        show.started = True  # type: ignore[attr-defined]
        return callback(record, model) if callback is not None else None

    show.started = False  # type: ignore[attr-defined]
    return show
