"""Rows of named columns, from CSV and Parquet files or data frames, as a source of data."""

import contextlib
import difflib
import functools
import glob
import importlib
import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from srgp.checks import as_count
from srgp.sources import Arrays, Batch, ahead, rebatched

Where: TypeAlias = Any  # a path, a pattern, a list of them, a frame, or a pyarrow table or dataset
Names: TypeAlias = str | Sequence[str]

CODECS = {"gz": "gzip", "bz2": "bz2"}  # that pyarrow tells by the ending when it reads
ENDINGS = ".csv, .csv.gz, .csv.bz2, .parquet or .pq"
CHUNK_BYTES = 2**24  # of numbers read at once
CSV_BLOCK = 2**20  # bytes; set here since the boundaries of what arrives decide a random order
ROW_GROUP = 2**17  # rows of a row group that we write
HINTS = {
    "csv": "In CSV a missing number is empty or NA, each line has as many cells as the header, and "
    "delimiter= tells what stands between them.",
    "parquet": "Is the file complete, and of this kind?",
    "data": "Look whether all files of the dataset are there, and have its schema.",
}


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
    buffer_rows: a random order of files is one of files and row groups, and of so many rows at a
        time read from them; of a data frame it is one of all rows. A CSV file has no row groups:
        where a long one is sorted, Parquet is shuffled better.
    delimiter: what separates the columns of a CSV file.

    Files are read a piece at a time, ahead of use, and only the columns that are needed. Rows are
    counted from 0, without the header.

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
        self._data = _opened(where, delimiter)
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
        if twice := _repeated(self._used):
            raise ValueError(f"column {twice!r} is asked for twice among features, target, weight.")
        self._data.check(self._used, alike=features is None)
        _refuse_text(self._data, self._used, features is None, others)
        self._tally: Tally | None = None

    def __repr__(self) -> str:
        return f"Table({self._data.name}, {len(self.feature_names)} features)"

    @property
    def column_names(self) -> tuple[str, ...]:
        """All columns there are, used or not."""
        return tuple(self._data.kinds)

    @property
    def dropped(self) -> int:
        """How many rows a pass leaves out since a number is missing."""
        return 0 if self.missing == "error" else self._tallied().dropped

    def count(self) -> int:
        """How many rows there are, without those dropped; Parquet knows without reading them."""
        rows = None if self.missing == "drop" else self._data.rows()
        return rows or self._tallied().rows

    def present(self) -> int:
        """How many of them have a weight above 0."""
        return self.count() if self.weight_name is None else self._tallied().present

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Batches of exactly `size` rows, the last padded; in a random order if a seed is given."""
        if not self.target_names:
            raise ValueError("this table has no target to learn from: Table(..., target=name).")
        if isinstance(self._data, _Frame):
            return self._arrays.batches(size, seed)
        rng = None if seed is None else np.random.default_rng(seed)
        return ahead(rebatched(self._arriving(rng), size, rng, self.buffer_rows))

    def inputs(
        self, size: int = 65_536, keep: Sequence[str] | Literal["all"] = ()
    ) -> Iterator[Part]:
        """The inputs alone, in order, at most `size` rows at a time, with other columns to keep.

        Only the features (and what is kept) are read; a missing target does not matter here.
        Kept columns are as in the file, but CSV has no types: its features are floats.
        """
        kept = self.column_names if keep == "all" else _as_names(keep)
        self._data.check(kept, numbers=False)
        return ahead(self._parts(as_count(size, "size"), kept))

    @functools.cached_property
    def _arrays(self) -> Arrays:
        (batch,) = self._arriving(None)
        return Arrays(*batch)

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
                    row = int(stretch.first + chosen[np.argmax(weights < 0.0)])
                    raise ValueError(
                        f"{stretch.name}, row {row}: the weight {self.weight_name!r} is negative. "
                        "A weight divides the noise variance, and weight 0 leaves the row out."
                    )
            rows += len(values)
            present += int((weights > 0.0).sum())
            dropped += stretch.rows - len(values)
            if len(values):
                X = np.ascontiguousarray(values[:, :inputs])
                yield X, np.ascontiguousarray(values[:, outputs]), weights
        self._note(Tally(rows, present, dropped))

    def _note(self, tally: Tally) -> None:
        if tally.rows == 0:
            raise _nothing(self._data.name, tally.dropped)
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
                columns = {name: _take(stretch.columns[name], some) for name in kept}
                yield Part(seen + some, X[i : i + size], columns)
            seen += stretch.rows
            found += len(X)
        if not found:
            raise _nothing(self._data.name, seen)

    def _numbers(self, stretch: "_Stretch", names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The columns as floats, shape (B, C), of the rows without a gap, and which these are."""
        values = np.empty((stretch.rows, len(names)))
        for j, name in enumerate(names):
            values[:, j] = _floats(stretch.columns[name])
        finite = np.isfinite(values)
        whole = finite.all(axis=1)
        if not whole.all() and self.missing == "error":
            i, j = (int(k) for k in np.argwhere(~finite)[0])
            what = "a missing value" if np.isnan(values[i, j]) else str(values[i, j])
            raise ValueError(
                f"{stretch.name} holds {what} in row {stretch.first + i} (counted from 0, without "
                f"a header), column {names[j]!r}. Leave such rows out by missing='drop', or "
                "impute them first."
            )
        return (values if whole.all() else values[whole]), np.flatnonzero(whole)


def write_table(path: str | os.PathLike[str], batches: Iterable[Mapping[str, Any]]) -> int:
    """Write batches of named columns as CSV or Parquet, by the ending of the path; give the rows.

    Every batch maps the same names to columns of one length: arrays, lists, series. They are
    written as they come, to a file that gets its name when complete: a failure leaves nothing.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from srgp.tables import write_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "out.csv")
    ...     rows = write_table(path, ({"i": [i, i + 1], "half": [i / 2, 0.1]} for i in (0, 2)))
    ...     print(rows, path.read_text().split())
    4 ['"i","half"', '0,0', '1,0.1', '2,1', '3,0.1']
    """
    path = Path(path)
    kind = _kind(path)
    if kind is None:
        raise ValueError(f"{path} has an ending that tells no kind of file: use {ENDINGS}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist: make it first.")
    tables = _grouped(_as_arrow(batch) for batch in batches)
    first = next(tables, None)
    if first is None:
        raise ValueError(f"there is no batch to write to {path}.")
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(hidden, "xb") as file:
            rows = _write(kind, file, first, tables)
        os.replace(hidden, path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    return rows


# -- what the columns of a frame, and of a record batch, have in common ---------------------------


class _Stretch(NamedTuple):
    """Consecutive rows: where they come from, the number of the first there, and the columns."""

    name: str
    first: int
    rows: int
    columns: Mapping[str, Any]


class _Frame:
    """A data frame in memory."""

    def __init__(self, name: str, columns: dict[str, Any]) -> None:
        self.name, self._columns = name, columns
        self.kinds = {
            n: c.type if _library(c) == "pyarrow" else c.dtype for n, c in columns.items()
        }

    def check(self, names: Iterable[str], numbers: bool = True, alike: bool = False) -> None:
        """Whether the columns are there."""
        _refuse_absent(names, self.kinds, self.name)

    def rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def stretches(
        self, used: Sequence[str], kept: Sequence[str], rng: np.random.Generator | None
    ) -> Iterator[_Stretch]:
        """All of it."""
        yield _Stretch(self.name, 0, self.rows(), self._columns)


def _library(thing: Any) -> str:
    # By name: a pandas series has whatever attribute its index has a label for.
    return type(thing).__module__.split(".")[0].lstrip("_")


def _floats(column: Any) -> np.ndarray:
    """float64, with NaN for null."""
    if _library(column) == "pyarrow":
        return column.cast(_arrow().float64(), safe=False).to_numpy(zero_copy_only=False)
    if _library(column) == "polars":
        return column.cast(sys.modules["polars"].Float64).to_numpy()
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _take(column: Any, rows: np.ndarray) -> Any:
    return column.gather(rows) if _library(column) == "polars" else column.take(rows)


def _is_number(kind: Any) -> bool:
    """Whether a column of this type of pyarrow, polars or pandas can be taken as floats."""
    if _library(kind) == "polars":
        return bool(kind.is_numeric()) or str(kind) in ("Boolean", "Null")
    if _library(kind) == "pyarrow":
        types = _arrow("types")
        known = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
        return any(is_such(kind) for is_such in known) or types.is_null(kind)
    pandas = sys.modules["pandas"].api.types
    numeric = pandas.is_numeric_dtype(kind) or pandas.is_bool_dtype(kind)
    # A category of booleans, and complex numbers, pass for numeric in pandas.
    return bool(numeric) and kind.kind != "c" and not isinstance(kind, pandas.CategoricalDtype)


# -- files ----------------------------------------------------------------------------------------


class _File(NamedTuple):
    name: str
    fragment: Any
    schema: Any


class _Piece(NamedTuple):
    """A file, or a row group of it: what can be read on its own."""

    file: _File
    fragment: Any
    first: int
    rows: int | None  # where known without reading


class _Files:
    """Files of one kind, or a pyarrow dataset."""

    def __init__(self, name: str, files: list[_File], kind: str) -> None:
        self.name, self.files, self.kind = name, files, kind
        for file in files:
            if twice := _repeated(file.schema.names):
                raise ValueError(f"{file.name} has two columns named {twice!r}: rename one.")
        schema = files[0].schema
        self.kinds: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))

    def check(self, names: Iterable[str], numbers: bool = True, alike: bool = False) -> None:
        """Whether every file has these columns, numbers as in the first, and no others if alike."""
        names = tuple(names)
        for file in self.files:
            if alike and (other := set(file.schema.names) ^ set(self.kinds)):
                raise ValueError(
                    f"{file.name} and {self.files[0].name} differ: only one has {_listed(other)}. "
                    "Name the features to use, or take files with the same columns."
                )
            _refuse_absent(names, file.schema.names, file.name)
            for name in names if numbers else ():
                kind = file.schema.field(name).type
                if _is_number(self.kinds[name]) and not _is_number(kind):
                    raise ValueError(
                        f"column {name!r} is {kind} in {file.name}, but {self.kinds[name]} in "
                        f"{self.files[0].name}: make them the same, or leave one out."
                    )

    @functools.cached_property
    def pieces(self) -> list[_Piece]:
        """Row groups of Parquet, whole files of CSV."""
        pieces = []
        for file in self.files:
            with _reading(file.name, self.kind):
                if not hasattr(file.fragment, "split_by_row_group"):
                    pieces.append(_Piece(file, file.fragment, 0, None))
                    continue
                first = 0
                for group in file.fragment.split_by_row_group():
                    rows = group.row_groups[0].num_rows
                    pieces.append(_Piece(file, group, first, rows))
                    first += rows
        return pieces

    def rows(self) -> int | None:
        """How many rows there are, where that can be known without reading them."""
        known = [piece.rows for piece in self.pieces]
        return None if None in known else sum(known)  # type: ignore[arg-type]

    def stretches(
        self, used: Sequence[str], kept: Sequence[str], rng: np.random.Generator | None
    ) -> Iterator[_Stretch]:
        """Record batches of the columns used and kept, pieces in a random order if rng is given."""
        names = list(dict.fromkeys((*used, *kept)))
        common = self._common(kept, used)
        rows = max(1024, min(65_536, CHUNK_BYTES // (8 * len(names))))
        order = range(len(self.pieces)) if rng is None else rng.permutation(len(self.pieces))
        for i in order:
            file, fragment, first, _ = self.pieces[i]
            schema = _arrow().schema(
                [(n, common[n] if n in common else self._type(file, n, True)) for n in names]
            )
            with _reading(file.name, self.kind):
                for batch in fragment.to_batches(
                    schema=schema, columns=names, batch_size=rows, batch_readahead=4
                ):
                    columns = dict(zip(names, batch.columns, strict=True))
                    yield _Stretch(file.name, first, batch.num_rows, columns)
                    first += batch.num_rows

    def _type(self, file: _File, name: str, used: bool) -> Any:
        """The type to read a column as; that of CSV is a guess from the beginning of the file."""
        arrow, kind = _arrow(), file.schema.field(name).type
        if self.kind != "csv" or (used and arrow.types.is_boolean(kind)):
            return kind
        if used:
            return arrow.float64()
        return arrow.string() if arrow.types.is_null(kind) else kind

    def _common(self, kept: Sequence[str], used: Sequence[str]) -> dict[str, Any]:
        """Types that the kept columns have in all files, so that they can be written into one."""
        arrow = _arrow()
        found = {}
        for name in kept:
            kinds = {self._type(file, name, name in used) for file in self.files}
            try:
                schemas = [arrow.schema([(name, kind)]) for kind in kinds]
                found[name] = arrow.unify_schemas(schemas, promote_options="permissive").types[0]
            except arrow.ArrowException:
                raise ValueError(
                    f"column {name!r} is {' and '.join(sorted(map(str, kinds)))} in the files of "
                    f"{self.name}: do not keep it, or make it the same in all."
                ) from None
        return found


def _opened(where: Where, delimiter: str) -> _Frame | _Files:
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    arrow, datasets = sys.modules.get("pyarrow"), sys.modules.get("pyarrow.dataset")
    if pandas is not None and isinstance(where, pandas.DataFrame):
        columns = [where.iloc[:, i] for i in range(where.shape[1])]
        return _Frame("the frame", _by_name(where.columns, columns))
    if polars is not None and isinstance(where, polars.DataFrame):
        return _Frame("the frame", _by_name(where.columns, where.get_columns()))
    if arrow is not None and isinstance(where, (arrow.Table, arrow.RecordBatch)):
        return _Frame("the table", _by_name(where.schema.names, where.columns))
    if datasets is not None and isinstance(where, datasets.Dataset):
        return _of_dataset(where)
    if isinstance(where, (str, os.PathLike, list, tuple)):
        return _of_paths(where, delimiter)
    hint = " Collect it first: frame.collect()." if hasattr(where, "collect") else ""
    raise ValueError(
        "a table is opened from a path, a list of paths, a pandas or polars DataFrame, or a "
        f"pyarrow Table or Dataset; got {type(where).__name__}.{hint}"
    )


def _by_name(names: Iterable[Any], columns: Sequence[Any]) -> dict[str, Any]:
    names = [str(name) for name in names]
    if twice := _repeated(names):
        raise ValueError(f"the frame has two columns named {twice!r}: rename one.")
    return dict(zip(names, columns, strict=True))


def _of_dataset(dataset: Any) -> _Files:
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:
        raise ValueError(f"the dataset cannot be read piece by piece: {error}") from error
    if not fragments:
        raise _nothing("the dataset", 0)
    # Its schema is what the user has made of the files, with columns from their paths.
    files = [_File(getattr(f, "path", "the dataset"), f, dataset.schema) for f in fragments]
    return _Files("the dataset", files, "data")


def _of_paths(where: Any, delimiter: str) -> _Files:
    several = isinstance(where, (list, tuple))
    given = where if several else [where]
    if not all(isinstance(one, (str, os.PathLike)) for one in given):
        raise ValueError("a list given to a table holds paths; arrays need none: use (X, y).")
    paths = [path for one in given for path in _found(one)]
    name = f"{paths[0]} and others" if several and len(paths) > 1 else str(where)
    if not paths:
        raise ValueError("the list of files is empty: name at least one.")
    kind, *rest = {found[0] for path in paths if (found := _kind(path))}
    if rest:
        raise ValueError(
            f"{name} has both CSV and Parquet files: choose by a pattern such as '*.parquet'."
        )
    reader, local = _format(kind, delimiter), _arrow("fs").LocalFileSystem()
    files = []
    for path in paths:
        with _reading(str(path), kind):
            fragment = reader.make_fragment(str(path), local)
            files.append(_File(str(path), fragment, fragment.physical_schema))
    return _Files(name, files, kind)


def _format(kind: str, delimiter: str) -> Any:
    datasets = _arrow("dataset")
    if kind == "parquet":
        return datasets.ParquetFileFormat()
    csv = _arrow("csv")
    return datasets.CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        read_options=csv.ReadOptions(block_size=CSV_BLOCK),
    )


def _found(where: Any) -> list[Path]:
    """The data files of a path: itself, those of the folder, or those that match the pattern."""
    path = Path(where)
    if path.is_dir():
        inside = (p for p in sorted(path.rglob("*")) if p.is_file() and _kind(p) is not None)
        found = [p for p in inside if not _hidden(p.relative_to(path))]
        if not found:
            raise ValueError(f"the folder {where} holds no data file: {ENDINGS}.")
        return found
    if path.is_file():
        if _kind(path) is None:
            raise ValueError(f"{where} is of an unknown kind: its name must end in {ENDINGS}.")
        return [path]
    matching = sorted(glob.glob(str(where), recursive=True))
    if not matching:
        raise FileNotFoundError(f"there is no file, folder or match for {str(where)!r}.")
    return [path for one in matching for path in _found(one)]


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _kind(path: Path) -> tuple[str, str | None] | None:
    """("csv", compression) or ("parquet", None), by the ending of the name."""
    *_, last = endings = ["", "", *path.name.lower().split(".")[1:]]
    if last in ("parquet", "pq"):
        return "parquet", None
    if last == "csv":
        return "csv", None
    return ("csv", CODECS[last]) if last in CODECS and endings[-2] == "csv" else None


def _arrow(part: str = "") -> Any:
    """pyarrow, or a module of it, imported when it is needed first."""
    try:
        return importlib.import_module(f"pyarrow.{part}" if part else "pyarrow")
    except ImportError as error:
        raise ImportError("files need pyarrow: pip install 'srgp[files]'.") from error


@contextlib.contextmanager
def _reading(name: str, kind: str) -> Iterator[None]:
    arrow = _arrow()
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(
            f"{name} cannot be read as {kind}: {str(error)[:300]}. {HINTS[kind]}"
        ) from error


# -- writing --------------------------------------------------------------------------------------


def _as_arrow(batch: Mapping[str, Any]) -> Any:
    columns = {}
    for name, values in batch.items():
        column = values.to_arrow() if _library(values) == "polars" else values
        if _library(column) not in ("pyarrow", "pandas") and hasattr(column, "__array__"):
            column = np.asarray(column)
        if isinstance(column, np.ndarray) and column.ndim != 1:
            raise ValueError(
                f"column {name!r} has shape {column.shape}: give every output a name of its own."
            )
        columns[str(name)] = column
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of a batch must be of one length, got {lengths}.")
    return _arrow().table(columns)


def _grouped(tables: Iterator[Any]) -> Iterator[Any]:
    """Larger tables of the first one's types: small row groups make Parquet slow."""
    arrow = _arrow()
    held: list[Any] = []
    schema, rows = None, 0
    for table in tables:
        schema = table.schema if schema is None else schema
        if table.schema.names != schema.names:
            raise ValueError(
                f"batches must have the same columns: {_listed(schema.names)} first, then "
                f"{_listed(table.schema.names)}."
            )
        held.append(table.cast(schema))
        rows += len(table)
        if rows >= ROW_GROUP:
            yield arrow.concat_tables(held)
            held, rows = [], 0
    if held:
        yield arrow.concat_tables(held)


def _write(kind: tuple[str, str | None], file: Any, first: Any, tables: Iterator[Any]) -> int:
    arrow = _arrow()
    rows = 0
    with contextlib.ExitStack() as stack:
        if kind[1] is not None:
            file = stack.enter_context(arrow.CompressedOutputStream(file, kind[1]))
        new = _arrow("csv").CSVWriter if kind[0] == "csv" else _arrow("parquet").ParquetWriter
        writer = stack.enter_context(new(file, first.schema))
        while first is not None:
            writer.write_table(first)
            rows += len(first)
            first = next(tables, None)
    return rows


# -- names and refusals ---------------------------------------------------------------------------


def _as_names(names: Names | None) -> tuple[str, ...]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else tuple(str(name) for name in names)


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _listed(names: Iterable[str], most: int = 20) -> str:
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _refuse_absent(names: Iterable[str], there: Iterable[str], where: str) -> None:
    there = list(there)
    for name in names:
        if name not in there:
            close = difflib.get_close_matches(name, there, cutoff=0.5)
            hint = f" Did you mean {_listed(close)}?" if close else ""
            raise ValueError(f"{where} has no column {name!r}.{hint} It has {_listed(there)}.")


def _refuse_text(
    data: _Frame | _Files, used: Sequence[str], all_taken: bool, others: Sequence[str]
) -> None:
    text = [name for name in used if not _is_number(data.kinds[name])]
    if not text:
        return
    named = ", ".join(f"{name!r} ({data.kinds[name]})" for name in text)
    numeric = [name for name in used if name not in text and name not in others]
    rest = f", or name the features to use: features={numeric}" if all_taken and numeric else ""
    raise ValueError(
        f"{data.name} has columns that are not numeric: {named}. Drop them, or encode them as "
        f"numbers{rest}."
    )


def _nothing(name: str, dropped: int) -> ValueError:
    if dropped:
        return ValueError(f"all {dropped} rows of {name} have a missing value: none is left.")
    return ValueError(f"{name} holds no rows.")
