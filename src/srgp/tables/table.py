"""Columns of files or frames as a source of data."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from srgp.checks import LARGEST, as_count
from srgp.reading import ahead
from srgp.sources import Arrays, Batch, Held, rebatched
from srgp.tables.columns import floats, is_number, nothing, repeated, take
from srgp.tables.places import place
from srgp.tables.readers import Files, Frame, Stretch, Where, opened

Names: TypeAlias = str | Sequence[str]


class Part(NamedTuple):
    """Some rows to predict: their numbers in the data, inputs (B, D), and columns carried along."""

    rows: np.ndarray
    X: np.ndarray
    columns: dict[str, Any]


class Tally(NamedTuple):
    """What a whole pass found."""

    rows: int
    present: int  # of weight above 0
    dropped: int


class Table:
    """Columns of files or of a data frame as inputs, targets and weights, for learning and more.

    where: a path to a CSV or Parquet file, a folder of them (with its subfolders), a glob pattern,
        a list of such; or a pandas or polars DataFrame, a pyarrow Table or Dataset.
    target: the name of y, shape (N,), or several names, shape (N, Q); None to predict only.
    features: the names of X's columns in order; None takes all others, which must be numeric.
    weight: the name of the column of sample weights.
    missing: what to do about nulls, NaN and infinities in these columns: "error", or "drop" to
        leave such rows out and count them.
    buffer_rows: files of more rows than this are shuffled by the order of files and row groups,
        and within so many rows at a time read from them; fewer rows, and those of a data frame, by
        their number, as arrays are. A CSV file has no row groups: where a long one is sorted,
        Parquet is shuffled better.
    delimiter: what separates the columns of a CSV file.

    Files are read a piece at a time, ahead of use, and only the columns that are needed. Messages
    count rows from 1, without the header, and name the line of a CSV file as well.

    >>> import tempfile
    >>> from srgp.tables import Table, write_table
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = f"{folder.name}/data.parquet"
    >>> write_table(path, [{"a": [0.0, 1.0], "b": [2, 3], "y": [0.5, 0.6]}])
    2
    >>> table = Table(path, target="y")
    >>> table.feature_names, table.count()
    (('a', 'b'), 2)
    >>> [X.tolist() for X, y, w in table.batches(2)]
    [[[0.0, 2.0], [1.0, 3.0]]]
    >>> parts = Table(path, features=["a"]).inputs(keep=["b"])
    >>> answers = ({**part.columns, "mean": part.X[:, 0] + 1.0} for part in parts)
    >>> write_table(f"{folder.name}/answer.csv", answers)
    2
    >>> folder.cleanup()
    """

    def __init__(
        self,
        where: Where,
        target: Names | None = None,
        features: Names | None = None,
        weight: str | None = None,
        *,
        missing: Literal["error", "drop"] = "error",
        buffer_rows: int = 131_072,
        delimiter: str = ",",
    ) -> None:
        if missing not in ("error", "drop"):
            raise ValueError(f"missing must be 'error' or 'drop', got {missing!r}.")
        self.missing, self.buffer_rows = missing, as_count(buffer_rows, "buffer_rows")
        self._settings = {
            "where": where,
            "target": target,
            "features": features,
            "weight": weight,
            "missing": missing,
            "delimiter": delimiter,
        }
        self._data = opened(where, delimiter)
        self._single = isinstance(target, str)
        self.target_names = _as_names(target)
        self.weight_name = weight
        others = (*self.target_names, *_as_names(weight))
        if features is None:
            self._data.check(others)
            self.feature_names = tuple(n for n in self._data.kinds if n not in others)
        else:
            self.feature_names = _as_names(features)
        self._used = (*self.feature_names, *others)
        if not self.feature_names:
            raise ValueError(f"{self._data.name} has no column for inputs: name some as features.")
        if twice := repeated(self._used):
            raise ValueError(f"column {twice!r} is asked for twice among features, target, weight.")
        self._data.check(self._used, alike=features is None)
        refuse_text(self._data, self._used, features is None, others)
        self._tally: Tally | None = None
        self.rows_read = 0  # so far, in all passes

    def __repr__(self) -> str:
        return f"Table({self._data.name}, {len(self.feature_names)} features)"

    @property
    def column_names(self) -> tuple[str, ...]:
        """All columns there are, used or not."""
        return tuple(self._data.kinds)

    def settings(self) -> dict[str, Any]:
        """What it was made with."""
        return dict(self._settings)

    def files(self) -> list[str]:
        """The paths of its files; none of a data frame."""
        return [] if isinstance(self._data, Frame) else [file.name for file in self._data.files]

    @property
    def dropped(self) -> int:
        """How many rows a pass leaves out since a number is missing."""
        return 0 if self.missing == "error" else self._tallied().dropped

    def count(self) -> int:
        """How many rows there are, without those dropped; Parquet knows without reading them."""
        rows = None if self.missing == "drop" else self._data.rows()
        return rows or self._tallied().rows

    def rows_known(self) -> int | None:
        """How many rows there are, those dropped too, where no pass is needed to know."""
        tally = self._tally
        return self._data.rows() or (None if tally is None else tally.rows + tally.dropped)

    def present(self) -> int:
        """How many of them have a weight above 0."""
        return self.count() if self.weight_name is None else self._tallied().present

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded; in a random order if a seed is given."""
        if not self.target_names:
            raise ValueError("this table has no target to learn from: Table(..., target=name).")
        if isinstance(self._data, Frame):
            return self._arrays.batches(size, seed)
        if seed is not None and self.count() <= self.buffer_rows:
            return ahead(self._from_memory(size, seed))
        rng = None if seed is None else np.random.default_rng(seed)
        # Files are read while batches are cut, too: a row group is long to decode. Their order is
        # drawn before the first row comes, and rows are shuffled after that: by one generator.
        return ahead(rebatched(ahead(self._arriving(rng)), size, rng, self.buffer_rows))

    def inputs(
        self, size: int = 65_536, keep: Sequence[str] | Literal["all"] = ()
    ) -> Iterator[Part]:
        """The inputs alone, in order, at most `size` rows at a time, with other columns to keep.

        Only the features (and what is kept) are read; a missing target does not matter here.
        Kept columns are as in the file, but CSV has no types: its features are floats.
        """
        kept = self._kept(keep)
        self._data.check(kept, numbers=False)
        return ahead(self._parts(as_count(size, "size"), kept))

    def refuse_kept(self, keep: Sequence[str] | Literal["all"], answers: Sequence[str]) -> None:
        """An error for the first column to keep that has the name of one that is added."""
        for name in self._kept(keep):
            if name in answers:
                raise ValueError(
                    f"the predictions have a column {name!r} of their own: leave it out of `keep`, "
                    f"or rename that of {self._data.name}."
                )

    def _kept(self, keep: Sequence[str] | Literal["all"]) -> tuple[str, ...]:
        return self.column_names if keep == "all" else _as_names(keep)

    @functools.cached_property
    def _arrays(self) -> Arrays:
        (batch,) = self._arriving(None)
        return Arrays(*batch)

    def _from_memory(self, size: int, seed: int) -> Iterator[Batch]:
        """Random batches of few rows, which are read anew: files stay the only copy."""
        arrays = zip(*self._arriving(None), strict=True)
        yield from Held(*map(np.concatenate, arrays)).batches(size, seed)

    def _tallied(self) -> Tally:
        if self._tally is None:
            for _ in self._arriving(None):
                pass
        assert self._tally is not None
        return self._tally

    def _arriving(self, rng: np.random.Generator | None) -> Iterator[Batch]:
        rows = present = dropped = 0
        inputs = len(self.feature_names)
        outputs = inputs if self._single else slice(inputs, inputs + len(self.target_names))
        for stretch in self._data.stretches(self._used, (), rng):
            values, chosen = self._numbers(stretch, self._used)
            weights = np.broadcast_to(1.0, len(values))
            if self.weight_name is not None:
                weights = values[:, -1]
                if (weights < 0.0).any():
                    row = self._place(stretch, int(chosen[np.argmax(weights < 0.0)]))
                    raise ValueError(
                        f"{stretch.name}, {row}: the weight {self.weight_name!r} is negative. "
                        "It tells how much the row counts: use 0 to leave it out."
                    )
            self.rows_read += stretch.rows
            rows += len(values)
            present += int((weights > 0.0).sum())
            dropped += stretch.rows - len(values)
            if len(values):
                X = np.ascontiguousarray(values[:, :inputs])
                yield X, np.ascontiguousarray(values[:, outputs]), weights
        self._note(Tally(rows, present, dropped))

    def _note(self, tally: Tally) -> None:
        if tally.rows == 0:
            raise nothing(self._data.name, tally.dropped)
        if self._tally not in (None, tally):
            raise ValueError(
                f"{self._data.name} has changed between two passes: {self._tally} before, {tally} "
                "now. Learn from files that nobody writes to."
            )
        self._tally = tally

    def _parts(self, size: int, kept: Sequence[str]) -> Iterator[Part]:
        seen = found = 0
        for stretch in self._data.stretches(self.feature_names, kept, None):
            X, chosen = self._numbers(stretch, self.feature_names)
            for i in range(0, len(X), size):
                some = chosen[i : i + size]
                columns = {name: take(stretch.columns[name], some) for name in kept}
                yield Part(seen + some, X[i : i + size], columns)
            seen += stretch.rows
            found += len(X)
        if not found:
            raise nothing(self._data.name, seen)
        if self._used == self.feature_names:
            self._note(Tally(found, found, seen - found))

    def _numbers(self, stretch: "Stretch", names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The columns as floats, shape (B, C), of the rows without a gap, and which these are."""
        values = np.empty((stretch.rows, len(names)))
        for j, name in enumerate(names):
            values[:, j] = floats(stretch.columns[name])
        usable = np.abs(values) <= LARGEST  # NaN compares false
        whole = usable.all(axis=1)
        if not whole.all() and self.missing == "error":
            i, j = (int(k) for k in np.argwhere(~usable)[0])
            what = "a missing value" if np.isnan(values[i, j]) else f"{values[i, j]:g}"
            size = ", too large to be squared" if np.isfinite(values[i, j]) else ""
            raise ValueError(
                f"{stretch.name} holds {what} in {self._place(stretch, i)}, column {names[j]!r}"
                f"{size}. Leave such rows out by missing='drop', or impute them first."
            )
        return (values if whole.all() else values[whole]), np.flatnonzero(whole)

    def _place(self, stretch: "Stretch", i: int) -> str:
        return place(stretch.first + i, isinstance(self._data, Files) and self._data.kind == "csv")


def _as_names(names: Names | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(str(name) for name in names)


def refuse_text(
    data: Frame | Files, used: Sequence[str], all_taken: bool = False, others: Sequence[str] = ()
) -> None:
    """An error that names the columns that are not numeric, where there are any."""
    text = [name for name in used if not is_number(data.kinds[name])]
    if not text:
        return
    if isinstance(data, Files):
        data.refuse_words(text)
    named = ", ".join(f"{name!r} ({data.kinds[name]})" for name in text)
    numeric = [name for name in used if name not in text and name not in others]
    rest = f", or name the features to use: features={numeric}" if all_taken and numeric else ""
    raise ValueError(
        f"{data.name} has columns that are not numeric: {named}. Drop them, or encode them as "
        f"numbers{rest}."
    )
