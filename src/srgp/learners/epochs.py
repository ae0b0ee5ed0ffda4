"""The frame of learners that go through the data again and again."""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from srgp.learners.base import Listener, Report, Task
from srgp.parameters import Values
from srgp.precision import Scalar

Place = TypeVar("Place")  # where a learner stands between two epochs: a tree of arrays


class Told(NamedTuple):
    """What an epoch tells about itself."""

    values: Values
    estimate: Scalar | float  # of the bound, from its mini-batches
    learning_rate: float  # of the last step
    refused: Scalar | int  # steps not taken
    steps: int  # those and all others


def run_epochs(
    task: Task,
    report: Listener,
    count: int,
    place: Place,
    epoch: Callable[[int, Place], tuple[Place, Told]],
) -> None:
    """Epoch after epoch, each from where the last ended, until the listener says stop."""
    like = (place, Told(task.start, 0.0, 0.0, 0, 0))
    for number in range(count):
        place, told = task.journal.step(functools.partial(epoch, number, place), like)
        stop = report(
            Report(
                told.values,
                number + 1.0,
                estimate=float(told.estimate),
                learning_rate=float(told.learning_rate),
                refused=int(told.refused),
                steps=int(told.steps),
                done=(number + 1) / count,
            )
        )
        if stop:
            return
