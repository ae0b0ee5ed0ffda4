"""What users hand in: turned into float64 arrays, or refused with a sentence on what to do."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

CHUNK = 65536
# Booleans, integers and floats. Of times float64 would take the integers, of complex numbers half.
REAL = "biuf"
UNREAL = (str, bytes, complex, np.complexfloating, np.datetime64, np.timedelta64)
LARGEST = 1e100  # of a target: a few more products, and its square overflows


def as_floats(values: ArrayLike, name: str) -> np.ndarray:
    """`values` as a finite float64 array, or a ValueError that names the first bad entry."""
    raw = np.asarray(values) if not isinstance(values, np.ndarray) else values
    if isinstance(raw, np.ma.MaskedArray) and np.ma.is_masked(raw):
        place = _first(np.ma.getmaskarray(raw))
        raise ValueError(f"{name} is masked at index {place}; remove or impute such rows first.")
    if raw.dtype.kind in "cmM":
        raise ValueError(
            f"{name} is of type {raw.dtype}, not of real numbers. Turn times into numbers in a "
            "unit of your choice, such as hours since the first row."
        )
    try:
        if raw.dtype.kind not in REAL:
            raw = _real_objects(raw)
        array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must be numeric, but cannot be converted to float64: {error}. "
            "Encode or drop the columns that are not numbers."
        ) from error
    rows = np.atleast_1d(array)
    # Chunk by chunk: no array of flags as long as the data.
    if not all(np.isfinite(rows[i : i + CHUNK]).all() for i in range(0, len(rows), CHUNK)):
        place = _first(~np.isfinite(array))
        raise ValueError(
            f"{name} holds {array[place]} at index {place}; remove or impute such rows first."
        )
    return array


def _first(flags: np.ndarray) -> Any:
    """Where the first of them is set, as an index."""
    where = tuple(int(i) for i in np.argwhere(flags)[0])
    return where[0] if len(where) == 1 else where


def _real_objects(raw: np.ndarray) -> np.ndarray:
    """Python objects as they are, but for those that float64 would read numbers into."""
    for value in raw.flat:
        if isinstance(value, UNREAL):
            raise ValueError(f"{value!r} is no number")
    return raw


def as_number(value: Any, name: str) -> float:
    """One number; which of them will do, NaN and infinity among them, the caller says."""
    array = np.asarray(value)
    try:
        if array.ndim == 0 and array.dtype.kind in REAL + "O" and not np.ma.is_masked(value):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be one number, got {value!r}.")


def as_added(noise: bool | float, own: np.ndarray) -> np.ndarray:
    """The variance that a measurement adds: the model's own, none, or one that is given."""
    if isinstance(noise, bool | np.bool_):
        return own if noise else np.zeros(())
    added = as_number(noise, "noise (True, False or a variance ≥ 0)")
    if not 0.0 <= added < np.inf:
        raise ValueError(f"noise must be True, False or a variance ≥ 0, got {added}.")
    return np.asarray(added)


def kept(array: np.ndarray) -> np.ndarray:
    """A copy that nobody can change: what becomes of the user's own array later does no harm."""
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def as_inputs(X: ArrayLike, name: str = "X", columns: int | None = None) -> np.ndarray:
    """Inputs of shape (N, D), N ≥ 1."""
    array = as_floats(X, name)
    if array.ndim != 2:
        hint = f"; use {name}.reshape(-1, 1) for a single input" if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (rows, inputs), got {array.shape}{hint}.")
    if array.shape[0] == 0:
        raise ValueError(f"{name} is empty: at least one row is needed.")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has no columns: at least one input is needed.")
    if columns is not None and array.shape[1] != columns:
        raise ValueError(
            f"{name} has {array.shape[1]} columns, but the model's inputs have {columns}."
        )
    return array


def as_targets(y: ArrayLike, rows: int) -> np.ndarray:
    """Targets of shape (N,), or (N, Q) for Q outputs that share kernel and inducing inputs."""
    array = as_floats(y, "y")
    if array.ndim not in (1, 2) or array.shape[0] != rows or array.shape[1:] == (0,):
        raise ValueError(
            f"y must have shape ({rows},), or ({rows}, outputs), to go with X; got {array.shape}."
        )
    if array.size and max(array.max(), -array.min()) > LARGEST:
        place = _first(np.abs(array) > LARGEST)
        raise ValueError(
            f"y holds {array[place]:g} at index {place}, whose square has no room in double "
            "precision: remove such rows, or give y in larger units."
        )
    return array


def as_weights(sample_weight: ArrayLike | None, rows: int) -> np.ndarray:
    """Weights w ≥ 0 of shape (N,): the noise variance of row i is σ²/w_i. None means all one."""
    if sample_weight is None:
        return np.broadcast_to(1.0, (rows,))  # takes no memory
    array = as_floats(sample_weight, "sample_weight")
    if array.shape != (rows,):
        raise ValueError(f"sample_weight must have shape ({rows},), got {array.shape}.")
    if (array < 0).any():
        raise ValueError(
            f"sample_weight must not be negative, got {array.min():g} at row {array.argmin()}; "
            "a weight divides the noise variance, and weight 0 leaves the row out."
        )
    return array


def as_positive(value: ArrayLike, name: str) -> np.ndarray:
    """A finite number, or array of numbers, greater than zero."""
    array = as_floats(value, name)
    if array.size == 0:
        raise ValueError(f"{name} must be positive, got no number.")
    if not (array > 0).all():
        raise ValueError(f"{name} must be positive, got {array.min():g}.")
    return array


def as_count(value: int, name: str) -> int:
    """A whole number ≥ 1."""
    try:
        valid = not isinstance(value, bool) and int(value) == value and value >= 1
    except (TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise ValueError(f"{name} must be a whole number ≥ 1, got {value!r}.")
    return int(value)


def finite(result: np.ndarray, what: str) -> np.ndarray:
    """`result`, unless a number overflowed on the way: NaN never leaves silently."""
    if not np.isfinite(result).all():
        raise FloatingPointError(
            f"{what} is not finite in double precision. Inputs or targets are extremely large, or "
            "the noise extremely small: rescale the data."
        )
    return result


def shared_variance(variance: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The variance that outputs share, in the shape of their mean: mean ± 2√variance works."""
    columns = variance.reshape(-1, *[1] * (mean.ndim - 1))
    return np.broadcast_to(columns, mean.shape).copy()


def padded_blocks(arrays: tuple[np.ndarray, ...], rows: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Consecutive blocks of exactly `rows` rows, the last filled with zeros.

    Fixed shapes mean one compilation for every batch size. The weights are among the arrays: zero
    weight is what marks a filled row.
    """
    for start in range(0, len(arrays[0]), rows):
        block = tuple(a[start : start + rows] for a in arrays)
        missing = rows - len(block[0])
        if missing:
            block = tuple(np.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)) for a in block)
        yield block
