"""What learning remembers of its own work, so that it can go on after it was killed.

Learning is a fixed sequence of costly steps, each a function of what came before: an evaluation of
the bound and its gradient, or an epoch. A journal that kept the results of the first steps gives
them back instead of computing them again, and what follows is the same to the last bit.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Journal(Protocol):
    """Keeps the result of every step."""

    seconds: float  # that the steps given back once took

    def check(self, job: Mapping[str, Any]) -> None:
        """Refuse to go on with what was kept of another job."""
        ...

    def step(self, compute: Callable[[], T], like: T) -> T:
        """The result of the next step, a tree of arrays with the structure of `like`.

        The arrays have its shapes, but for those that are empty there: they may have any.
        """
        ...


class Forgetful:
    """Keeps nothing: learning that was killed starts again."""

    seconds = 0.0

    def check(self, job: Mapping[str, Any]) -> None:
        """Any job will do."""

    def step(self, compute: Callable[[], T], like: T) -> T:
        """What the step computes."""
        return compute()
