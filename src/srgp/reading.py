"""Reading ahead of use, in threads that are kept."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

AHEAD = 2  # batches read ahead of their use


def ahead(batches: Iterator[T]) -> Iterator[T]:
    """The same batches, read in a thread so that the next one is ready when asked for."""
    waiting: queue.Queue[Any] = queue.Queue(AHEAD)
    stop = threading.Event()

    def offer(item: Any) -> bool:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for batch in batches:
                if not offer((batch, None)):
                    return
            offer((None, None))
        except BaseException as error:
            offer((None, error))
        finally:
            if hasattr(batches, "close"):
                batches.close()

    done = _aside(read)
    try:
        while True:
            batch, error = waiting.get()
            if error is not None:
                raise error
            if batch is None:
                return
            yield batch
    finally:
        stop.set()
        done.wait()


class _Reader(threading.Thread):
    """A thread that is used again for the next pass.

    A new one for every pass would take memory of its own from the C library each time, up to eight
    times for each core, and none of it is given back.
    """

    idle: list["_Reader"] = []  # noqa: RUF012 - shared on purpose

    def __init__(self) -> None:
        super().__init__(name="srgp-reader", daemon=True)
        self.jobs: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]]
        self.jobs = queue.SimpleQueue()

    def run(self) -> None:
        """One job after the other."""
        while True:
            job, done = self.jobs.get()
            job()
            self.idle.append(self)
            done.set()
            del job, done  # nothing is held on to while waiting


def _aside(job: Callable[[], None]) -> threading.Event:
    """Do it in another thread; the event tells when it is done."""
    reader = None
    while reader is None or not reader.is_alive():  # those of before a fork are not
        try:
            reader = _Reader.idle.pop()
        except IndexError:
            reader = _Reader()
            reader.start()
    done = threading.Event()
    reader.jobs.put((job, done))
    return done
