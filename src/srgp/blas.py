"""BLAS's triangular solve and symmetric product, with Python's lock released.

Neither XLA nor NumPy has them both, and SciPy's wrappers hold the lock. SciPy publishes the
addresses for compiled callers, and through those several blocks of data are worked on at once, one
thread each: faster than BLAS's own threads, which wait busily where the kernel is evaluated.
"""

import contextlib
import contextvars
import ctypes
import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cython_blas
from scipy.linalg.lapack import dtrtri
from threadpoolctl import threadpool_info

# A millisecond or two of one core: a thread takes part of one to be started and to answer.
WORTH_THREADS = 1e8

# Rows of the triangle that are substituted by their inverse, at most, and the condition up to which
# that is as good; so many that BLAS substitutes, at least.
LARGE, HARMLESS, SMALL = 128, 100.0, 32

# OpenBLAS's kernels with a substitution of their own, K from the right by an upper triangle.
WELL_WRITTEN = ("Haswell", "Zen")

# Each worker holds a block of the kernel matrix, so their number is bounded.
MOST_WORKERS = 16

# glibc keeps blocks up to the size of the largest that it has seen freed, if that is below 32 MB;
# others go back to the system, and fetching their pages again takes longer than filling them.
np.empty(2**25 - 2**14, np.uint8)

_alone = contextvars.ContextVar("alone", default=False)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """One block at a time, where others use the other cores."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def workers() -> int:
    """How many blocks to work on at once: one for each core that this process may use."""
    if _alone.get():
        return 1
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return min(len(allowed(0)), MOST_WORKERS)


class AtOnce(Executor):
    """Does work where it is submitted: what is small costs less than handing it over."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Its result is there already."""
        done: Future[Any] = Future()
        done.set_result(work(*args, **kwargs))
        return done


class Borrowed(Executor):
    """Threads that are there already: leaving waits for what was submitted, and keeps them."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool, self._begun = pool, set[Future[Any]]()

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """In one of the threads, in turn."""
        future = self._pool.submit(work, *args, **kwargs)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing that was submitted is at work any more."""
        for future in list(self._begun):
            if not (cancel_futures and future.cancel()) and wait:
                future.exception()  # waits


# Of each thread that asks: those of another are busy with its own work.
_kept = threading.local()


def executor(flops: float) -> Executor:
    """For jobs of so many flops together: threads, one for each core, where they pay.

    They are kept for the next time: new ones take part of a millisecond each to start, and memory
    of their own from the C library, none of which is given back.
    """
    if flops <= WORTH_THREADS:
        return AtOnce()
    wanted = os.getpid(), workers()  # no thread survives a fork
    if getattr(_kept, "key", None) != wanted:
        _kept.key, _kept.pool = wanted, ThreadPoolExecutor(wanted[1], "srgp-blas")
    return Borrowed(_kept.pool)


def in_order(
    pool: Executor, work: Callable[[Any], Any], items: Iterable[Any], count: int
) -> Iterator[Any]:
    """work(item) in order, `count` of them begun before they are asked for."""
    begun: deque[Any] = deque()
    for item in items:
        if len(begun) > count:
            yield begun.popleft().result()
        begun.append(pool.submit(work, item))
    while begun:
        yield begun.popleft().result()


def begun_ahead(begin: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """(item, begin(item)) in order, with the next one begun before each is handed out.

    Compiled code does not wait to be asked: it works on the next block while BLAS has this one, so
    that no core is idle while one hands over to the other.
    """
    begun = ((item, begin(item)) for item in items)
    for now, _ in itertools.pairwise(itertools.chain(begun, [None])):
        yield now  # type: ignore[misc]


def grouped(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` items, the last one shorter."""
    rest = iter(items)
    while group := list(itertools.islice(rest, size)):
        yield group


class Triangle:
    """A lower triangular L (M, M), ready for L⁻¹K or L⁻ᵀK of many K (M, B).

    BLAS's own substitution has nearly the speed of its products on some processors, and a quarter
    of it on others, and of Lᵀ. There it is by halves, W₁ = L₁₁⁻¹K₁ and W₂ = L₂₂⁻¹(K₂ − L₂₁W₁),
    down to leaves that are inverted where they are well-conditioned, and small otherwise.
    """

    def __init__(self, lower: np.ndarray) -> None:
        self._lower = np.ascontiguousarray(lower, np.float64)

    def __len__(self) -> int:
        return len(self._lower)

    def _steps(self, transposed: bool) -> Iterable["_Leaf | _Carry"]:
        """In the order of substitution: Lᵀ from its end."""
        if transposed:
            return reversed(self._halves)
        return [_Leaf(0, len(self), None)] if _substitutes_well() else self._halves

    @functools.cached_property
    def _halves(self) -> list["_Leaf | _Carry"]:
        return list(self._halved(0, len(self)))

    def _halved(self, start: int, end: int) -> Iterator["_Leaf | _Carry"]:
        """The steps of rows start to end, from the first to the last."""
        leaf, count = self._lower[start:end, start:end], end - start
        inverse = _harmless_inverse(leaf) if count <= LARGE else None
        if inverse is not None or count <= SMALL:
            yield _Leaf(start, end, inverse)
            return
        # A power of two times SMALL: only the last leaf is of another size.
        middle = start + (SMALL << ((count - 1) // SMALL).bit_length() - 1)
        yield from self._halved(start, middle)
        yield _Carry(start, middle, end)
        yield from self._halved(middle, end)

    def solve(self, K: np.ndarray, transposed: bool = False) -> None:
        """K ← L⁻¹K in place, or L⁻ᵀK, even where NumPy takes K for read-only, as it does the
        memory of a JAX array.
        """
        _check(K)
        if len(K) != len(self):
            raise ValueError(f"L has {len(self)} rows, but K has {len(K)}.")  # BLAS would go on
        for step in self._steps(transposed):
            step(self._lower, K, transposed)


class _Leaf(NamedTuple):
    """Rows of K that are substituted at once."""

    start: int
    end: int
    inverse: np.ndarray | None

    def __call__(self, lower: np.ndarray, K: np.ndarray, transposed: bool) -> None:
        M, B = map(_int, K.shape)
        triangle = _address(lower, self.start, self.start), M
        work, count = "dtrsm", _int(self.end - self.start)
        if self.inverse is not None:
            work, triangle = "dtrmm", (_address(self.inverse), count)
        # BLAS counts by columns, and so sees Kᵀ ← Kᵀ L⁻ᵀ: the factor on the right, upper, as it is.
        form = b"R", b"U", b"T" if transposed else b"N", b"N"
        _routine(work)(*form, B, count, _number(1.0), *triangle, _address(K, self.start), B)


class _Carry(NamedTuple):
    """K₂ ← K₂ − L₂₁W₁ between two halves of rows; of Lᵀ, K₁ ← K₁ − L₂₁ᵀW₂."""

    start: int
    middle: int
    end: int

    def __call__(self, lower: np.ndarray, K: np.ndarray, transposed: bool) -> None:
        M, B = map(_int, K.shape)
        upper, below = _int(self.middle - self.start), _int(self.end - self.middle)
        known, changed = _address(K, self.start), _address(K, self.middle)
        form, sizes = (b"N", b"N"), (B, below, upper)
        if transposed:
            form, sizes, known, changed = (b"N", b"T"), (B, upper, below), changed, known
        corner = _address(lower, self.middle, self.start)
        _routine("dgemm")(
            *form, *sizes, _number(-1.0), known, B, corner, M, _number(1.0), changed, B
        )


def _harmless_inverse(leaf: np.ndarray) -> np.ndarray | None:
    """Its inverse, to multiply by at full speed; None where that would cost digits."""
    # SciPy counts by columns, too: the transpose of what BLAS sees here.
    inverse, failed = dtrtri(leaf.T, lower=False)
    if failed or not np.abs(leaf).max() * np.abs(inverse).max() <= HARMLESS:
        return None
    return inverse.T


def put_rows(K: np.ndarray, start: int, rows: np.ndarray) -> None:
    """Rows of K from `start` on become these, even where NumPy takes K for read-only."""
    _check(K)
    if rows.shape[1] != K.shape[1] or start + len(rows) > len(K):
        raise ValueError(f"{rows.shape} rows do not fit into {K.shape} from {start} on.")
    rows = np.ascontiguousarray(rows, np.float64)
    ctypes.memmove(_address(K, start), rows.ctypes.data, rows.nbytes)


def add_gram(K: np.ndarray, total: np.ndarray) -> None:
    """The lower half of total (M, M) grows by that of KKᵀ, K (M, B)."""
    _check(total, K)
    M, B = K.shape
    _routine("dsyrk")(
        b"U", b"T", _int(M), _int(B), _number(1.0), _address(K), _int(B), _number(1.0),
        _address(total), _int(M),
    )  # fmt: skip


def add_product(A: np.ndarray, B: np.ndarray, total: np.ndarray) -> None:
    """total (M, B) grows by the product of A (M, K) and B (K, B), which is rounded by itself."""
    _check(total, A, B)
    if total.shape != (len(A), B.shape[1]) or A.shape[1] != len(B):
        raise ValueError(f"{A.shape} times {B.shape} is not {total.shape}.")  # BLAS would go on
    K, rows = map(_int, B.shape)
    _routine("dgemm")(
        b"N", b"N", rows, _int(len(A)), K, _number(1.0), _address(B), rows, _address(A), K,
        _number(1.0), _address(total), rows,
    )  # fmt: skip


def mirrored(lower: np.ndarray) -> np.ndarray:
    """The symmetric matrix of a lower half, above which there are zeros."""
    both = lower + lower.T
    both[np.diag_indices_from(both)] *= 0.5  # twice a number, and half of that, are exact
    return both


def _check(*arrays: np.ndarray) -> None:
    # An address tells BLAS nothing of layout or type.
    for array in arrays:
        if array.dtype != np.float64 or not array.flags.c_contiguous:
            raise TypeError("BLAS needs contiguous arrays of float64.")


@functools.cache
def _substitutes_well() -> bool:
    """Whether BLAS has a substitution L⁻¹K that was written for this kind of processor.

    Asked by name, not by the clock: the same machine has to give the same bits every time.
    """
    found = [lib for lib in threadpool_info() if lib["internal_api"] == "openblas"]
    return bool(found) and all(lib["architecture"] in WELL_WRITTEN for lib in found)


@functools.cache
def _routine(name: str) -> Callable[..., None]:
    capsule = vars(cython_blas)["__pyx_capi__"][name]
    api = ctypes.pythonapi
    signature = api.PyCapsule_GetName
    signature.restype, signature.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = api.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    parameters = signature(capsule).decode().partition("(")[2].rstrip(")").split(", ")
    kinds = [_kind(parameter) for parameter in parameters]
    return ctypes.CFUNCTYPE(None, *kinds)(pointer(capsule, signature(capsule)))


def _kind(parameter: str) -> Any:
    """The type of one parameter, from the signature that SciPy publishes."""
    kinds = {"char *": ctypes.c_char_p, "int *": ctypes.POINTER(ctypes.c_int)}
    if parameter.endswith("_d *"):
        return ctypes.c_void_p
    return kinds[parameter]  # integers of another size would be another type, and fail here


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _number(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))


def _address(array: np.ndarray, row: int = 0, column: int = 0) -> Any:
    return ctypes.c_void_p(array.ctypes.data + 8 * (row * array.shape[1] + column))
