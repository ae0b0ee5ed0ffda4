"""Where in a file something is wrong, in the words of those who look it up there."""

import codecs
import contextlib
import re
from collections.abc import Sequence

from srgp.tables.columns import pyarrow

BEGINNING = 4096  # bytes of a CSV file that are looked at
COMMA = r"[-+]?\d+,\d+"  # a number with a decimal comma
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


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


def refuse_beginning(path: str) -> None:
    """An error for a CSV file that is empty, or not in UTF-8."""
    raw = _beginning(path)
    if not raw.removeprefix(codecs.BOM_UTF8).strip() and len(raw) < BEGINNING:
        raise ValueError(
            f"{path} cannot be read as csv: it is empty. Its first line has to name the columns, "
            "and rows to follow: write it again, or leave it out."
        )
    refuse_encoding(raw, path)


def refuse_encoding(raw: bytes, where: str) -> None:
    """An error for the beginning of a CSV file that is not in UTF-8."""
    header = raw.splitlines()[0] if raw.splitlines() else b""
    try:
        # Without its end, it may be cut within a character.
        codecs.getincrementaldecoder("utf-8")().decode(header, final=b"\n" in raw)
        known = not raw.startswith(UTF16) and b"\0" not in raw
    except UnicodeDecodeError:
        known = False
    if not known:
        raise ValueError(
            f"{where} cannot be read as csv: its encoding is not UTF-8 (UTF-16 or Latin-1, perhaps)"
            ". Save it as UTF-8."
        )


def refuse_commas(path: str) -> None:
    """An error for a CSV file that seems to have decimal commas."""
    raw = b""
    with contextlib.suppress(pyarrow().ArrowException, OSError):
        raw = _beginning(path)
    text = raw.decode(errors="replace")
    # Beside another separator or a quote: bare ones separate columns.
    found = re.search(rf'[;\t|"]\s*({COMMA})(?![\d,])|(?<![\d,])({COMMA})\s*[;\t|"]', text)
    if found is not None:
        raise ValueError(
            f"{path} cannot be read as csv: its numbers seem to have decimal commas, such as "
            f"{(found[1] or found[2])!r}. Write them with points."
        )


def has_comma(cell: str) -> bool:
    """Whether it is a number with a decimal comma."""
    return re.fullmatch(COMMA, cell.strip()) is not None


def _beginning(path: str) -> bytes:
    with pyarrow().input_stream(path) as stream:
        return bytes(stream.read(BEGINNING))


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
