"""Asking a cluster for what its tasks promise; what goes wrong on the way is said in words."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from srgp.distributed.cluster import in_words


def answered(client: Any, tasks: Any) -> Any:
    """What a task, or each of a list of them, promises."""
    return _answer(client, _begun(client, tasks))


def coming(client: Any, promised: Iterable[Any]) -> Iterator[Any]:
    """What is promised, one after the other, each begun before the last is used."""
    ahead = None
    for task in promised:
        ahead, ready = _begun(client, task), ahead
        if ready is not None:
            yield _answer(client, ready)
    yield _answer(client, ahead)


def _begun(client: Any, tasks: Any) -> Any:
    with warnings.catch_warnings(), in_words(client):
        # θ and its M×M matrices travel with the tasks, so that a lost worker loses nothing.
        warnings.filterwarnings("ignore", message="Sending large graph")
        return client.compute(tasks)


def _answer(client: Any, futures: Any) -> Any:
    with in_words(client):
        return client.gather(futures)
