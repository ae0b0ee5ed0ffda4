"""Where the rows of a table are read from: frames in memory, files, datasets."""

import contextlib
import functools
import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from srgp.tables.columns import (
    is_number,
    library,
    listed,
    nothing,
    pyarrow,
    refuse_absent,
    repeated,
)
from srgp.tables.places import (
    first_word,
    has_comma,
    place,
    refuse_beginning,
    refuse_commas,
    refuse_delimiter,
)

Where: TypeAlias = Any  # a path, a pattern, a list of them, a frame, or a pyarrow table or dataset

CODECS = {"gz": "gzip", "bz2": "bz2"}  # that pyarrow tells by the ending when it reads
ENDINGS = ".csv, .csv.gz, .csv.bz2, .parquet or .pq"
CHUNK_BYTES = 2**22  # of numbers read at once
# What pyarrow says before what is wrong; the name of the file is told anyway.
OPENING = re.compile(r"^Could not open \w+ input source '.*?': (Invalid: )?", re.DOTALL)
STREAM = 2**20  # bytes of a column of Parquet read at once
CSV_BLOCK = 2**20  # bytes; set here since the boundaries of what arrives decide a random order
HINTS = {
    "csv": "In CSV a missing number is empty or NA, each line has as many cells as the header, and "
    "what stands between them is told by delimiter=','.",
    "parquet": "Is the file complete, and of this kind?",
    "data": "Look whether all files of the dataset are there, and have its schema.",
}


class Stretch(NamedTuple):
    """Consecutive rows: where they come from, the number of the first there, and the columns."""

    name: str
    first: int
    rows: int
    columns: Mapping[str, Any]


class Frame:
    """A data frame in memory."""

    def __init__(self, name: str, columns: dict[str, Any]) -> None:
        self.name, self._columns = name, columns
        self.kinds = {n: c.type if library(c) == "pyarrow" else c.dtype for n, c in columns.items()}

    def check(self, names: Iterable[str], numbers: bool = True, alike: bool = False) -> None:
        """Whether the columns are there."""
        refuse_absent(names, self.kinds, self.name)

    def rows(self) -> int:
        """How many rows there are."""
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def stretches(
        self, used: Sequence[str], kept: Sequence[str], rng: np.random.Generator | None
    ) -> Iterator[Stretch]:
        """All of it."""
        yield Stretch(self.name, 0, self.rows(), self._columns)


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


class Files:
    """Files of one kind, or a pyarrow dataset."""

    def __init__(self, name: str, files: list[_File], kind: str, delimiter: str = ",") -> None:
        self.name, self.files, self.kind, self.delimiter = name, files, kind, delimiter
        for file in files:
            if twice := repeated(file.schema.names):
                raise ValueError(f"{file.name} has two columns named {twice!r}: rename one.")
        schema = files[0].schema
        self.kinds: dict[str, Any] = dict(zip(schema.names, schema.types, strict=True))

    def check(self, names: Iterable[str], numbers: bool = True, alike: bool = False) -> None:
        """Whether every file has these columns, numbers as in the first, and no others if alike."""
        names = tuple(names)
        for file in self.files:
            if self.kind == "csv":
                refuse_delimiter(file.name, file.schema.names)
            if alike and (other := set(file.schema.names) ^ set(self.kinds)):
                raise ValueError(
                    f"{file.name} and {self.files[0].name} differ: only one has {listed(other)}. "
                    "Name the features to use, or take files with the same columns."
                )
            refuse_absent(names, file.schema.names, file.name)
            for name in names if numbers else ():
                kind = file.schema.field(name).type
                if is_number(self.kinds[name]) and not is_number(kind):
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
    ) -> Iterator[Stretch]:
        """Record batches of the columns used and kept, pieces in a random order if rng is given."""
        names = list(dict.fromkeys((*used, *kept)))
        common = self._common(kept, used)
        rows = max(1024, min(16_384, CHUNK_BYTES // (8 * len(names))))
        order = range(len(self.pieces)) if rng is None else rng.permutation(len(self.pieces))
        for i in order:
            file, fragment, first, _ = self.pieces[i]
            schema = pyarrow().schema(
                [(n, common[n] if n in common else self._type(file, n, True)) for n in names]
            )
            try:
                with _reading(file.name, self.kind):
                    for batch in fragment.to_batches(
                        schema=schema, columns=names, batch_size=rows, batch_readahead=4
                    ):
                        columns = dict(zip(names, batch.columns, strict=True))
                        yield Stretch(file.name, first, batch.num_rows, columns)
                        first += batch.num_rows
            except ValueError as error:
                if "CSV conversion error" in str(error):
                    self.refuse_words(used, [file])
                raise

    def refuse_words(self, names: Iterable[str], files: Sequence[_File] | None = None) -> None:
        """An error for the first word in a column of numbers, with its place; CSV only."""
        for file in (files or self.files) if self.kind == "csv" else ():
            for name in names:
                found = first_word(file.name, name, self.delimiter)
                if found is not None and has_comma(found[1]):
                    raise ValueError(
                        f"{file.name}, {place(found[0], True)}: {found[1]!r} in column {name!r} "
                        "has a decimal comma. Write such numbers with a point."
                    )
                # A column that starts with a word is one of words.
                if found is not None and found[0] > 0:
                    raise ValueError(
                        f"{file.name}, {place(found[0], True)}: {found[1]!r} in column {name!r} is "
                        "not a number. Mend it, or leave that cell empty and use missing='drop'."
                    )

    def _type(self, file: _File, name: str, used: bool) -> Any:
        """The type to read a column as; that of CSV is a guess from the beginning of the file."""
        arrow, kind = pyarrow(), file.schema.field(name).type
        if self.kind != "csv" or (used and arrow.types.is_boolean(kind)):
            return kind
        if used:
            return arrow.float64()
        return arrow.string() if arrow.types.is_null(kind) else kind

    def _common(self, kept: Sequence[str], used: Sequence[str]) -> dict[str, Any]:
        """Types that the kept columns have in all files, so that they can be written into one."""
        arrow = pyarrow()
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


def opened(where: Where, delimiter: str) -> Frame | Files:
    """Whatever a table can be made of, ready to be read."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    arrow, datasets = sys.modules.get("pyarrow"), sys.modules.get("pyarrow.dataset")
    if pandas is not None and isinstance(where, pandas.DataFrame):
        columns = [where.iloc[:, i] for i in range(where.shape[1])]
        return Frame("the frame", _by_name(where.columns, columns))
    if polars is not None and isinstance(where, polars.DataFrame):
        return Frame("the frame", _by_name(where.columns, where.get_columns()))
    if arrow is not None and isinstance(where, (arrow.Table, arrow.RecordBatch)):
        return Frame("the table", _by_name(where.schema.names, where.columns))
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
    if twice := repeated(names):
        raise ValueError(f"the frame has two columns named {twice!r}: rename one.")
    return dict(zip(names, columns, strict=True))


def _of_dataset(dataset: Any) -> Files:
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:
        raise ValueError(f"the dataset cannot be read piece by piece: {error}") from error
    if not fragments:
        raise nothing("the dataset", 0)
    # Its schema is what the user has made of the files, with columns from their paths.
    files = [_File(getattr(f, "path", "the dataset"), f, dataset.schema) for f in fragments]
    return Files("the dataset", files, "data")


def _of_paths(where: Any, delimiter: str) -> Files:
    several = isinstance(where, (list, tuple))
    given = where if several else [where]
    if not all(isinstance(one, (str, os.PathLike)) for one in given):
        raise ValueError("a list given to a table holds paths; arrays need none: use (X, y).")
    # A pattern may find a folder and what is in it: every file counts once.
    once: dict[str, Path] = {}
    for path in (path for one in given for path in _found(one)):
        once.setdefault(os.path.realpath(path), path)
    paths = list(once.values())
    if not paths:
        raise ValueError("the list of files is empty: name at least one.")
    name = str(given[0]) if len(given) == 1 else f"{paths[0]} and others"
    kind, *rest = {found[0] for path in paths if (found := kind_of(path))}
    if rest:
        raise ValueError(
            f"{name} has both CSV and Parquet files: choose by a pattern such as '*.parquet'."
        )
    reader, local = _format(kind, delimiter), pyarrow("fs").LocalFileSystem()
    files = []
    for path in paths:
        with _reading(str(path), kind):
            if kind == "csv":
                refuse_beginning(str(path))
            fragment = reader.make_fragment(str(path), local)
            files.append(_File(str(path), fragment, fragment.physical_schema))
    return Files(name, files, kind, delimiter)


def _format(kind: str, delimiter: str) -> Any:
    datasets = pyarrow("dataset")
    if kind == "parquet":
        # Read as it is decoded: row groups may be larger than memory.
        return datasets.ParquetFileFormat(
            default_fragment_scan_options=datasets.ParquetFragmentScanOptions(
                use_buffered_stream=True, buffer_size=STREAM, pre_buffer=False
            )
        )
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ValueError(
            f"delimiter={delimiter!r} cannot separate columns: use one character, such as a comma, "
            "a semicolon or a tab."
        )
    csv = pyarrow("csv")
    return datasets.CsvFileFormat(
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        read_options=csv.ReadOptions(block_size=CSV_BLOCK),
    )


def _found(where: Any) -> list[Path]:
    """The data files of a path: itself, those of the folder, or those that match the pattern."""
    path = Path(where)
    if path.is_dir():
        inside = (p for p in sorted(path.rglob("*")) if p.is_file() and kind_of(p) is not None)
        found = [p for p in inside if not _hidden(p.relative_to(path))]
        if not found:
            raise ValueError(f"the folder {where} holds no data file: {ENDINGS}.")
        return found
    if path.is_file():
        if kind_of(path) is None:
            raise ValueError(f"{where} is of an unknown kind: its name must end in {ENDINGS}.")
        return [path]
    matching = sorted(glob.glob(str(where), recursive=True))
    if not matching:
        raise FileNotFoundError(f"there is no file, folder or match for {str(where)!r}.")
    return [path for one in matching for path in _found(one)]


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def kind_of(path: Path) -> tuple[str, str | None] | None:
    """("csv", compression) or ("parquet", None), by the ending of the name."""
    *_, last = endings = ["", "", *path.name.lower().split(".")[1:]]
    if last in ("parquet", "pq"):
        return "parquet", None
    if last == "csv":
        return "csv", None
    return ("csv", CODECS[last]) if last in CODECS and endings[-2] == "csv" else None


@contextlib.contextmanager
def _reading(name: str, kind: str) -> Iterator[None]:
    arrow = pyarrow()
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise ValueError(
                f"{name} cannot be read ({os.strerror(error.errno).lower()}): see to it that it is "
                "there and that you may read it."
            ) from error
        if kind == "csv":
            refuse_commas(name)
        reason = OPENING.sub("", str(error))[:300].rstrip(".")
        if twice := re.fullmatch(r"CSV file contained multiple columns named (.*)", reason):
            raise ValueError(f"{name} has two columns named {twice[1]!r}: rename one.") from error
        raise ValueError(f"{name} cannot be read as {kind}: {reason}. {HINTS[kind]}") from error
