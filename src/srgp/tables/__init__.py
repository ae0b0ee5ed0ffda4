"""Rows of named columns, from CSV and Parquet files or data frames, as a source of data."""

from srgp.tables.columns import Nothing
from srgp.tables.table import Part, Table, Tally
from srgp.tables.writer import write_table

__all__ = ["Nothing", "Part", "Table", "Tally", "write_table"]
