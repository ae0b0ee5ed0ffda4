"""Where in a file something is wrong, in the words of those who look it up there."""

import contextlib
from collections.abc import Sequence

from srgp.tables.columns import pyarrow


def place(row: int, csv: bool) -> str:
    """Where a row is, for people: counted from 1; the header of CSV is line 1."""
    return f"row {row + 1} (line {row + 2})" if csv else f"row {row + 1}"


def refuse_delimiter(path: str, names: Sequence[str]) -> None:
    """An error for a CSV file whose header is plainly separated by something else."""
    for other in (";", "\t", "|", ",") if len(names) == 1 else ():
        if other in names[0]:
            raise ValueError(
                f"{path} has one column only, {names[0]!r}: its columns seem to be separated by "
                f"{other!r}. Then say so by delimiter={other!r}."
            )


def first_word(path: str, name: str, delimiter: str) -> tuple[int, str] | None:
    """The first cell of a CSV column that is no number, and its row from 0."""
    arrow, csv = pyarrow(), pyarrow("csv")
    text = csv.ConvertOptions(include_columns=[name], column_types={name: arrow.string()})
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    empty = {*csv.ConvertOptions().null_values}
    row = 0
    with contextlib.suppress(arrow.ArrowException):
        for batch in csv.open_csv(path, parse_options=parse, convert_options=text):
            for cell in batch.column(0).to_pylist():
                if cell is not None and cell not in empty and not _is_float(cell):
                    return row, cell
                row += 1
    return None


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
