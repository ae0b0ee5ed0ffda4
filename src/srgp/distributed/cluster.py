"""The cluster: one that is there, or one of this machine's own processes."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from srgp.blas import workers as cores

# A worker is one core's: XLA and BLAS would start a thread for every core in each of them. Dask's
# own setting of MALLOC_TRIM_THRESHOLD_ is left out: with it, every block of the kernel matrix is
# given back to the system and fetched again, which takes as long as its exponentials.
ENVIRONMENT = {
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
MISSING = "the cluster needs Dask: install it with `pip install 'srgp[dask]'`."


def dask_distributed() -> Any:
    """Dask's scheduler, or a word on how to get it."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError(MISSING) from error
    return distributed


@contextlib.contextmanager
def local_cluster(workers: int | None = None) -> Iterator[Any]:
    """A client of a cluster on this machine: `workers` processes of one thread, one for each core.

    >>> from srgp.distributed import local_cluster
    >>> with local_cluster(workers=1) as client:
    ...     client.submit(sum, [1, 2]).result()
    3
    """
    distributed = dask_distributed()
    import dask

    count = workers or cores()
    settings = {
        "distributed.nanny.pre-spawn-environ": ENVIRONMENT,
        # Workers are alike: a part that moves leaves the others with less than their share.
        "distributed.scheduler.work-stealing": False,
    }
    with dask.config.set(settings):
        cluster = distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # any free port
        )
    with cluster, distributed.Client(cluster) as client:
        yield client


@contextlib.contextmanager
def connected(scheduler: str) -> Iterator[Any]:
    """A client of the scheduler at an address, "tcp://host:8786"; or "local": `local_cluster`.

    >>> from srgp.distributed import connected, local_cluster
    >>> with local_cluster(workers=1) as mine, connected(mine.scheduler.address) as client:
    ...     client.submit(sum, [1, 2]).result()
    3
    """
    if scheduler == "local":
        with local_cluster() as client:
            yield client
        return
    distributed = dask_distributed()
    try:
        client = distributed.Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {scheduler}: {error}. Start one with `dask scheduler`, "
            "or use 'local' for the cores of this machine."
        ) from error
    with client:
        yield client


def client_or_current(client: Any) -> Any:
    """The client given, or the one in use."""
    if client is not None:
        return client
    distributed = dask_distributed()
    try:
        return distributed.get_client()
    except ValueError as error:
        raise ValueError(
            "no Dask client is connected: give client=distributed.Client(address), or work inside "
            "`with srgp.distributed.local_cluster():`."
        ) from error


@contextlib.contextmanager
def in_words(client: Any) -> Iterator[None]:
    """What goes wrong between this client and its cluster, in words."""
    distributed = dask_distributed()
    lost = (
        distributed.CancelledError,
        distributed.client.ClosedClientError,
        distributed.comm.CommClosedError,
    )
    try:
        yield
    except distributed.KilledWorker as error:
        raise ChildProcessError(
            f"a part of the data was given up after its workers died, several times over: {error}. "
            "Mostly they ran out of memory: make smaller parts."
        ) from error
    except Exception as error:
        # A client that has lost its scheduler fails in many ways, some of them its own mistakes.
        if not isinstance(error, lost) and client.status == "running":
            raise
        raise ConnectionError(
            f"the Dask cluster is gone, or has lost data that were only there ({error}). What was "
            "saved by a checkpoint is intact: run the same again once the cluster is back."
        ) from error


@contextlib.contextmanager
def preferring(worker: str | None) -> Iterator[None]:
    """Tasks for this worker; for another, if it is gone."""
    import dask

    given = {} if worker is None else {"workers": worker, "allow_other_workers": True}
    with dask.annotate(**given):  # type: ignore[attr-defined]
        yield


def delayed() -> Callable[..., Any]:
    """`dask.delayed`, or a word on how to get it."""
    try:
        from dask.delayed import delayed
    except ImportError as error:
        raise ImportError(MISSING) from error
    made: Callable[..., Any] = delayed
    return made
