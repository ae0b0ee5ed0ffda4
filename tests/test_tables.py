"""Tables: the same rows by every route, orders by seed, gaps named, nothing left half done."""

import builtins
import importlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import srgp
from srgp.reading import _Reader
from srgp.sources import Held, Source, as_source
from srgp.tables import Table, readers, write_table, writer
from srgp.tables import columns as column_types

N = 53  # no multiple of any batch size, row group or file below
NAMES = ("i", "half", "flag", "y", "w")


def columns(start: int = 0, stop: int = N) -> dict[str, np.ndarray]:
    """Rows that tell their own number, as an integer, a float and a boolean; y = 2i, w = 1 + i."""
    i = np.arange(start, stop)
    return {"i": i, "half": i + 0.5, "flag": i % 2 == 0, "y": 2.0 * i, "w": 1.0 + i}


def frame(start: int = 0, stop: int = N) -> pd.DataFrame:
    return pd.DataFrame(columns(start, stop))


def parquet(path: Path, start: int = 0, stop: int = N, group: int = 7) -> Path:
    pq.write_table(pa.table(columns(start, stop)), path, row_group_size=group)
    return path


def folder(path: Path, kind: str) -> Path:
    path = path / kind
    (path / "rest").mkdir(parents=True)
    for k, (start, stop) in enumerate([(0, 20), (20, 21), (21, N)]):
        inside = path / ("rest" if k == 2 else ".") / f"part{k}.{kind}"
        if kind == "parquet":
            parquet(inside, start, stop)
        else:
            frame(start, stop).to_csv(inside, index=False)
    (path / "README.txt").write_text("no data")
    (path / "_SUCCESS.csv").write_text("")
    return path


def csv(path: Path, name: str = "data.csv", **options: Any) -> Path:
    frame().to_csv(path / name, index=False, **options)
    return path / name


def dataset(path: Path) -> Any:
    return pyarrow.dataset.dataset(parquet(path / "set.parquet"))


FILES: dict[str, Callable[[Path], Any]] = {
    "csv": csv,
    "gz": lambda path: str(csv(path, "data.csv.gz")),
    "bz2": lambda path: csv(path, "data.csv.bz2"),
    "parquet": lambda path: parquet(path / "data.parquet"),
    "pq": lambda path: parquet(path / "data.pq", group=100),
    "csv folder": lambda path: folder(path, "csv"),
    "parquet folder": lambda path: folder(path, "parquet"),
    "pattern": lambda path: str(folder(path, "parquet") / "**" / "part[0-9].parquet"),
    "list": lambda path: [parquet(path / "z.pq", 0, 30), str(parquet(path / "a.pq", 30, N))],
    "dataset": dataset,
    "dataset in memory": lambda path: pyarrow.dataset.dataset(pa.table(columns())),
}
FRAMES: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda path: frame(),
    "nullable pandas": lambda path: frame().convert_dtypes(),
    "arrow pandas": lambda path: frame().convert_dtypes(dtype_backend="pyarrow"),
    "odd index": lambda path: frame().set_index(pd.Index(["type", "cast", "gather"] + ["to"] * 50)),
    "polars": lambda path: pl.DataFrame(columns()),
    "arrow": lambda path: pa.table(columns()),
    "record batch": lambda path: pa.record_batch(columns()),
}
ROUTES = {**FILES, **FRAMES}
any_route = pytest.mark.parametrize("route", ROUTES)
any_files = pytest.mark.parametrize("route", FILES)


def opened(path: Path, route: str, **options: Any) -> Table:
    return Table(ROUTES[route](path), **{"target": "y", "weight": "w", **options})


def passed(table: Source, size: int, seed: int | None = None) -> list[float]:
    """The numbers of the rows of a pass in order, after a look at shapes, padding and the rest."""
    numbers: list[float] = []
    batches = list(table.batches(size, seed))
    for k, (X, y, w) in enumerate(batches):
        assert X.shape == (size, 3)
        assert y.shape == w.shape == (size,)
        assert X.dtype == y.dtype == w.dtype == np.float64
        present = w > 0.0
        rows = int(present.sum())
        assert rows == size or k == len(batches) - 1
        assert present[:rows].all()
        assert not X[rows:].any()
        i = X[:rows, 0]
        np.testing.assert_array_equal(X[:rows, 1], i + 0.5)
        np.testing.assert_array_equal(X[:rows, 2], i % 2 == 0)
        np.testing.assert_array_equal(y[:rows], 2.0 * i)
        np.testing.assert_array_equal(w[:rows], 1.0 + i)
        numbers += i.tolist()
    return numbers


# -- the same rows by every route ---------------------------------------------------------------


@any_route
def test_every_row_once_a_pass_and_in_order(tmp_path: Path, route: str) -> None:
    table = opened(tmp_path, route)
    assert isinstance(table, Source)
    assert as_source(table) is table
    assert table.feature_names == ("i", "half", "flag")
    assert table.target_names == ("y",)
    assert table.column_names == NAMES
    assert table.count() == table.present() == N
    assert table.dropped == 0
    for size in (1, 10, N, 64):
        assert passed(table, size) == list(range(N))
        assert sorted(passed(table, size, seed=1)) == list(range(N))


@any_route
def test_inputs_alone_come_in_order_with_the_columns_kept(tmp_path: Path, route: str) -> None:
    table = Table(ROUTES[route](tmp_path), features=["half", "i"])
    for size in (5, 100):
        parts = list(table.inputs(size, keep=["w", "i"]))
        assert all(len(part.X) <= size for part in parts)
        rows = np.concatenate([part.rows for part in parts])
        X = np.concatenate([part.X for part in parts])
        w = np.concatenate([np.asarray(part.columns["w"]) for part in parts])
        i = np.concatenate([np.asarray(part.columns["i"]) for part in parts])
        np.testing.assert_array_equal(rows, np.arange(N))
        np.testing.assert_array_equal(X, np.stack([rows + 0.5, rows], 1))
        np.testing.assert_array_equal(w, 1.0 + rows)
        np.testing.assert_array_equal(i, rows)
    assert next(table.inputs()).columns == {}
    assert set(next(table.inputs(keep="all")).columns) == set(NAMES)


@any_route
def test_several_targets_and_features_by_name(tmp_path: Path, route: str) -> None:
    table = opened(tmp_path, route, target=["y", "i"], features="half", weight=None)
    ((X, y, w),) = table.batches(N)
    np.testing.assert_array_equal(X, columns()["half"][:, None])
    np.testing.assert_array_equal(y, np.stack([columns()["y"], columns()["i"]], 1))
    np.testing.assert_array_equal(w, np.ones(N))
    single = opened(tmp_path / "..", "pandas", target=["y"])
    assert next(single.batches(4))[1].shape == (4, 1)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "CSV_BLOCK", 256)


def test_other_separators(tmp_path: Path) -> None:
    path = csv(tmp_path, sep=";")
    assert passed(Table(path, "y", weight="w", delimiter=";"), 10) == list(range(N))


def test_line_ends_within_quotes(tmp_path: Path, small_blocks: None) -> None:
    note = 'two\nlines, "quoted"\n'
    frame().assign(note=note).to_csv(tmp_path / "data.csv", index=False)
    table = Table(tmp_path / "data.csv", "y", ["i", "half", "flag"], "w")
    assert passed(table, 10) == list(range(N))
    notes = [v.as_py() for part in table.inputs(keep=["note"]) for v in part.columns["note"]]
    assert notes == [note] * N


def test_integers_may_become_decimals_later_in_a_file(tmp_path: Path, small_blocks: None) -> None:
    """The type of a CSV column is guessed from its first block; a feature is a float anyway."""
    path = tmp_path / "long.csv"
    path.write_text("a,b,y\n" + "1,2,10\n" * 100 + "1.5,x,10\n")
    table = Table(path, "y", ["a"])  # b, which turns into text, is not even looked at
    *_, (X, _, w) = table.batches(30)
    assert X[w > 0][-1] == 1.5
    assert table.count() == 101
    with pytest.raises(ValueError, match=r"long\.csv, row 101 .*'x' in column 'b'"):
        list(Table(path, "y").batches(30))
    with pytest.raises(ValueError, match="'x'"):
        list(table.inputs(keep=["b"]))


def test_a_column_empty_at_first_may_hold_numbers_later(tmp_path: Path, small_blocks: None) -> None:
    path = tmp_path / "late.csv"
    path.write_text("a,y\n" + ",0\n" * 200 + "7,1\n")
    table = Table(path, "y", missing="drop")
    assert (table.count(), table.dropped) == (1, 200)
    assert next(table.batches(1))[0] == [[7.0]]
    assert next(table.inputs()).rows.tolist() == [200]


def test_only_the_needed_columns_of_parquet_are_read(tmp_path: Path) -> None:
    path = parquet(tmp_path / "data.parquet", group=100)
    place = pq.ParquetFile(path).metadata.row_group(0).column(NAMES.index("half"))
    first = place.dictionary_page_offset or place.data_page_offset
    with open(path, "r+b") as file:
        file.seek(first)
        file.write(b"\xff" * place.total_compressed_size)
    table = Table(path, "y", ["i", "flag"], "w")
    np.testing.assert_array_equal(next(table.batches(N))[0][:, 0], np.arange(N))
    assert len(next(table.inputs(keep=["w"])).X) == N
    with pytest.raises(ValueError, match=r"data\.parquet cannot be read as parquet"):
        list(Table(path, "y").batches(N))


def test_columns_in_another_order_are_matched_by_name(tmp_path: Path) -> None:
    frame(0, 20).to_csv(tmp_path / "a.csv", index=False)
    frame(20, N)[list(reversed(NAMES))].to_csv(tmp_path / "b.csv", index=False)
    assert passed(Table(tmp_path, "y", weight="w"), 8) == list(range(N))


def test_types_of_numbers(tmp_path: Path) -> None:
    many = {
        "small": pa.array([1, None, 3], pa.int8()),
        "huge": pa.array([2**63, 0, 2**64 - 1], pa.uint64()),
        "single": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "exact": pa.array([1.25, 2.5, 3.0]).cast(pa.decimal128(10, 2)),
        "flag": pa.array([True, False, True]),
        "dotted.name": pa.array([1.0, 2.0, 3.0]),
        "y": pa.array([1.0, 2.0, 3.0]),
    }
    expected = [[1, 2**63, 0.5, 1.25, 1, 1], [3, 2**64 - 1, 2.5, 3, 1, 3]]
    arrow = pa.table(many)
    pq.write_table(arrow, tmp_path / "types.parquet")
    backed = arrow.to_pandas(types_mapper=pd.ArrowDtype)
    for where in (arrow, tmp_path / "types.parquet", pl.from_arrow(arrow), backed):
        table = Table(where, "y", missing="drop")
        np.testing.assert_array_equal(next(table.batches(2))[0], np.array(expected, float))
        assert table.dropped == 1


def test_partitions_of_a_dataset_are_columns(tmp_path: Path) -> None:
    flavour = {"partitioning": ["flag"], "partitioning_flavor": "hive"}
    pyarrow.dataset.write_dataset(pa.table(columns()), tmp_path, format="parquet", **flavour)
    whole = pyarrow.dataset.dataset(
        tmp_path,
        partitioning=pyarrow.dataset.partitioning(pa.schema([("flag", pa.bool_())]), flavor="hive"),
    )
    table = Table(whole, "y", ["i", "half", "flag"], "w")
    assert sorted(passed(table, 9)) == list(range(N))


# -- orders -------------------------------------------------------------------------------------


@any_route
def test_the_seed_decides_the_order(tmp_path: Path, route: str) -> None:
    table = opened(tmp_path, route, buffer_rows=16)
    first = passed(table, 4, seed=3)
    assert passed(table, 4, seed=3) == first
    other = passed(table, 4, seed=4)
    # It is the batches that differ, not only their order within.
    sets = [{frozenset(order[i : i + 4]) for i in range(0, N, 4)} for order in (first, other)]
    assert len(sets[0] & sets[1]) < 4


@any_files
def test_the_order_does_not_depend_on_threads(tmp_path: Path, route: str) -> None:
    table = opened(tmp_path, route, buffer_rows=16)
    first = passed(table, 4, seed=3)
    threads = pa.cpu_count()
    try:
        for count in (1, 4):
            pa.set_cpu_count(count)
            assert passed(table, 4, seed=3) == first
    finally:
        pa.set_cpu_count(threads)


@settings(max_examples=25)
@given(
    cuts=st.lists(st.integers(1, N - 1), max_size=4, unique=True).map(sorted),
    group=st.integers(1, 30),
    size=st.integers(1, 60),
    buffer=st.integers(1, 60),
    seed=st.integers(0, 2**31),
)
def test_any_files_in_any_order_give_every_row_once(
    tmp_path_factory: pytest.TempPathFactory,
    cuts: list[int],
    group: int,
    size: int,
    buffer: int,
    seed: int,
) -> None:
    path = tmp_path_factory.mktemp("files")
    for k, (start, stop) in enumerate(zip([0, *cuts], [*cuts, N], strict=True)):
        parquet(path / f"{k}.parquet", start, stop, group)
    table = Table(path, "y", weight="w", buffer_rows=buffer)
    assert passed(table, size) == list(range(N))
    assert sorted(passed(table, size, seed)) == list(range(N))


def test_row_groups_are_read_in_random_order(tmp_path: Path) -> None:
    """With a buffer of one row the order is that of the groups: each one whole, not in turn."""
    table = Table(parquet(tmp_path / "a.parquet"), "y", weight="w", buffer_rows=1)
    starts = set()
    for seed in range(5):
        order = np.array(passed(table, 1, seed))
        groups = order // 7
        assert (np.diff(groups) != 0).sum() == groups.max()
        starts.add(tuple(groups))
    assert len(starts) == 5


def test_a_buffer_mixes_row_groups(tmp_path: Path) -> None:
    table = Table(parquet(tmp_path / "a.parquet"), "y", weight="w", buffer_rows=28)
    groups = np.array(passed(table, 7, seed=0)) // 7
    assert len(set(groups[:28])) == 4  # four groups fill the buffer, which takes no more
    assert len(set(groups[:7])) >= 3  # and a batch is drawn from all of them


def test_a_frame_is_shuffled_as_a_whole() -> None:
    table = Table(frame(), "y", weight="w", buffer_rows=1)
    order = np.random.default_rng(5).permutation(N)
    assert set(passed(table, 10, seed=5)[:10]) == set(order[:10])


@any_files
def test_files_that_the_buffer_holds_are_shuffled_as_arrays(tmp_path: Path, route: str) -> None:
    """The same batches, whatever the files and row groups; read anew in every pass."""
    table = opened(tmp_path, route, buffer_rows=N)
    arrays = next(table.batches(N))
    for size in (7, N, N + 3):
        for found, expected in zip(
            table.batches(size, seed=3), Held(*arrays).batches(size, seed=3), strict=True
        ):
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_array_equal(a, b)
    before = table.rows_read
    passed(table, 7, seed=4)
    assert table.rows_read == before + N


# -- learning from files ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 2))
    y, w = np.sin(X[:, 0]) + 0.1 * rng.normal(size=300), rng.uniform(0, 2, 300)
    w[:9] = 0.0
    path = tmp_path_factory.mktemp("regression")
    for k, rows in enumerate(np.split(np.arange(300), [80, 200])):
        data = {"a": X[rows, 0], "b": X[rows, 1], "y": y[rows], "w": w[rows]}
        pq.write_table(pa.table(data), path / f"{k}.parquet", row_group_size=33)
    return path, (X, y, w)


def test_the_exact_gradient_from_files_is_that_from_arrays(regression: tuple[Path, Any]) -> None:
    """Both add the same 300 rows, in blocks that may be cut elsewhere: rounding apart, equal."""
    path, (X, y, w) = regression
    model = srgp.Model(srgp.kernels.SE(lengthscales=[1.0, 1.0]), 0.1, X[:10])
    table = Table(path, "y", weight="w")
    assert (table.count(), table.present()) == (300, 291)
    value, gradient = srgp.value_and_grad(model, table)
    expected, slopes = srgp.value_and_grad(model, (X, y, w))
    assert value == pytest.approx(expected, rel=1e-12)
    scale = np.abs(slopes.inducing).max()
    np.testing.assert_allclose(gradient.inducing, slopes.inducing, rtol=0, atol=1e-12 * scale)
    assert gradient.noise == pytest.approx(slopes.noise, rel=1e-12)


def test_learning_from_files_is_learning_from_arrays(regression: tuple[Path, Any]) -> None:
    """Three steps of L-BFGS: a few times the rounding of the gradient."""
    path, (X, y, w) = regression
    model = srgp.Model(srgp.kernels.SE(lengthscales=[1.0, 1.0]), 0.1, X[:10])
    learner = srgp.Exact(iterations=3)
    learned = srgp.learn(model, Table(path, "y", weight="w"), learner)
    expected = srgp.learn(model, (X, y, w), learner)
    assert learned.statistics.n == 291
    assert learned.history[0].bound < learned.bound
    assert learned.bound == pytest.approx(expected.bound, rel=1e-10)


def test_predictions_are_written_beside_the_columns(tmp_path: Path) -> None:
    path = csv(tmp_path)
    table = Table(path, features=["half"])
    for name in ("out.csv", "out.csv.gz", "out.parquet"):
        parts = table.inputs(10, keep="all")
        out = tmp_path / name
        assert write_table(out, ({**p.columns, "mean": 3.0 * p.X[:, 0]} for p in parts)) == N
        read = pd.read_parquet(out) if name.endswith("parquet") else pd.read_csv(out)
        assert list(read.columns) == [*NAMES, "mean"]
        for name_, values in columns().items():
            np.testing.assert_array_equal(read[name_], values)
        np.testing.assert_array_equal(read["mean"], 3.0 * columns()["half"])


def test_a_file_that_is_found_twice_counts_once(tmp_path: Path) -> None:
    data = folder(tmp_path, "parquet")
    for other in ("README.txt", "_SUCCESS.csv"):
        (data / other).unlink()
    rows, files = Table(data, "y").count(), Table(data, "y").files()
    first = next(data.rglob("*.parquet"))
    (tmp_path / "link.parquet").symlink_to(first)
    for where in (f"{data}/**", f"{data}/**/*", [data, first], [data, tmp_path / "link.parquet"]):
        found = Table(where, "y")
        assert found.count() == rows, where
        assert sorted(found.files()) == sorted(files), where


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_text_and_times_of_frames_can_be_kept(tmp_path: Path, make: Any) -> None:
    times = np.array(["2024-01-01", "2024-01-02", "2024-01-03"], "datetime64[ms]")
    data = make({"a": [1.0, None, 3.0], "text": ["x", "y", "z"], "time": times})
    table = Table(data, features=["a"], missing="drop")
    parts = list(table.inputs(1, keep=["text", "time"]))
    assert [part.rows.tolist() for part in parts] == [[0], [2]]
    write_table(tmp_path / "kept.parquet", (part.columns for part in parts))
    read = pq.read_table(tmp_path / "kept.parquet").to_pydict()
    assert read["text"] == ["x", "z"]
    assert [time.day for time in read["time"]] == [1, 3]


def test_kept_columns_have_one_type_in_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,id,note\n1,1,\n")
    (tmp_path / "b.csv").write_text("a,id,note\n2,1.5,x\n")
    table = Table(tmp_path, features=["a"])
    write_table(tmp_path / "out.parquet", (p.columns for p in table.inputs(keep="all")))
    read = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert read == {"a": [1.0, 2.0], "id": [1.0, 1.5], "note": ["", "x"]}
    (tmp_path / "a.csv").write_text("a,id,note\n1,first,\n")
    with pytest.raises(ValueError, match="column 'id' is double and string in the files"):
        list(Table(tmp_path / "*.csv", features=["a"]).inputs(keep=["id"]))


# -- gaps ---------------------------------------------------------------------------------------

GAPS = {
    "i": {3: None},
    "half": {20: np.nan, 41: np.inf},
    "y": {3: None, 50: -np.inf},
    "w": {8: None},
}
GONE = [3, 8, 20, 41, 50]


def with_gaps() -> pa.Table:
    data = {name: list(values) for name, values in columns().items()}
    for name, gaps in GAPS.items():
        for row, value in gaps.items():
            data[name][row] = value
    return pa.table(data)


def gappy(path: Path, kind: str) -> Any:
    table = with_gaps()
    if kind == "csv":
        pyarrow.csv.write_csv(table, path / "gaps.csv")
        return path / "gaps.csv"
    if kind == "parquet":
        pq.write_table(table, path / "gaps.parquet", row_group_size=7)
        return path / "gaps.parquet"
    if kind == "folder":
        pq.write_table(table[:20], path / "0.parquet", row_group_size=7)
        pq.write_table(table[20:], path / "1.parquet", row_group_size=7)
        return path
    return {"pandas": table.to_pandas, "polars": lambda: pl.from_arrow(table)}.get(
        kind, lambda: table
    )()


any_gaps = pytest.mark.parametrize(
    "kind", ["csv", "parquet", "folder", "pandas", "polars", "arrow"]
)


@any_gaps
def test_rows_with_gaps_are_dropped_and_counted(tmp_path: Path, kind: str) -> None:
    left = [i for i in range(N) if i not in GONE]
    table = Table(gappy(tmp_path, kind), "y", weight="w", missing="drop")
    assert passed(table, 8) == left
    assert sorted(passed(table, 8, seed=0)) == left
    for again in (table, Table(gappy(tmp_path, kind), "y", weight="w", missing="drop")):
        assert again.dropped == len(GONE)
        assert again.count() == again.present() == len(left)
    parts = list(table.inputs(10, keep=["flag"]))
    rows = np.concatenate([part.rows for part in parts])
    assert rows.tolist() == [i for i in range(N) if i not in (3, 20, 41)]  # targets do not matter
    np.testing.assert_array_equal(np.concatenate([part.X[:, 0] for part in parts]), rows)
    flags = np.concatenate([np.asarray(part.columns["flag"]) for part in parts])
    np.testing.assert_array_equal(flags, rows % 2 == 0)


@any_gaps
@pytest.mark.parametrize(
    ("target", "feature", "row"), [("flag", "i", 3), ("flag", "half", 20), ("y", "flag", 3)]
)
def test_a_gap_is_named(tmp_path: Path, kind: str, target: str, feature: str, row: int) -> None:
    """With file, row within the file and column."""
    table = Table(gappy(tmp_path, kind), target, [feature])
    names = {"csv": "gaps.csv", "parquet": "gaps.parquet", "arrow": "the table"}
    name = names.get(kind, "the frame")
    if kind == "folder":  # cut after 20 rows
        name, row = f"{row // 20}.parquet", row % 20
    column = "y" if target == "y" else feature
    where = rf"row {row + 1} \(line {row + 2}\)" if kind == "csv" else f"row {row + 1}"
    message = f"{name} holds a missing value in {where}, column '{column}'.*missing='drop'"
    with pytest.raises(ValueError, match=message):
        list(table.batches(10))


def test_a_gap_is_named_by_its_row_in_the_file_in_any_order(tmp_path: Path) -> None:
    table = Table(gappy(tmp_path, "parquet"), "flag", ["half"], buffer_rows=1)
    found = set()
    for seed in range(8):
        with pytest.raises(ValueError, match="column 'half'") as raised:
            list(table.batches(5, seed))
        found.add(str(raised.value).split(",")[0].split(" holds ")[1])
    assert found == {"a missing value in row 21", "inf in row 42"}


def test_a_gap_late_in_a_csv_file_is_named(tmp_path: Path, small_blocks: None) -> None:
    (tmp_path / "a.csv").write_text("a,y\n" + "1,2\n" * 300 + ",2\n")
    with pytest.raises(ValueError, match=r"a\.csv holds a missing value in row 301 \(line 302\)"):
        Table(tmp_path, "y").count()


@pytest.mark.parametrize("late", [False, True])
def test_a_word_among_numbers_is_named(tmp_path: Path, late: bool) -> None:
    """Where it decides what is taken for the column's type, and where that is known by then."""
    before = 200_000 if late else 50
    lines = ["a,b,y", *["1,2.5,3"] * before, "1,hello,3", *["1,2.5,3"] * 20]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    where = rf"a\.csv, row {before + 1} \(line {before + 2}\): 'hello' in column 'b' is not a num"
    with pytest.raises(ValueError, match=where):
        Table(tmp_path / "a.csv", "y").count()


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_suspected(tmp_path: Path, delimiter: str) -> None:
    (tmp_path / "a.csv").write_text(f"a{delimiter}y\n1{delimiter}2\n")
    with pytest.raises(ValueError, match="one column only") as raised:
        Table(tmp_path / "a.csv", "y")
    assert f"delimiter={delimiter!r}" in str(raised.value)
    assert Table(tmp_path / "a.csv", "y", delimiter=delimiter).count() == 1


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a;b;y\n1,5;2,3;4,0\n", ","),
        ("a;b;y\n1;2;4\n1;2;-4,5\n", ","),
        ("a\tb\ty\n1,5\t2\t4\n", ","),
        ("a;b;y\n1,5;2,3;4,0\n", ";"),
        ("a;b;y\n1;2;3\n1;2;3,5\n", ";"),
        ('a,b,y\n"1,5",2,4\n', ","),
    ],
)
def test_decimal_commas_are_called_so(tmp_path: Path, text: str, delimiter: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=r"a\.csv.*decimal comma.* with (a point|points)\.$"):
        Table(tmp_path / "a.csv", "y", delimiter=delimiter)
    (tmp_path / "a.csv").write_text("a,b,y\n1,5\n")  # a line that is too short has none
    with pytest.raises(ValueError, match="as many cells"):
        Table(tmp_path / "a.csv", "y")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_other_encodings_are_called_so(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_text("ä,y\n1,2\n", encoding=encoding)
    with pytest.raises(ValueError, match=r"a\.csv.*encoding is not UTF-8.*Save it as UTF-8\.$"):
        Table(tmp_path / "a.csv", "y")
    for known in ("utf-8", "utf-8-sig"):
        (tmp_path / "a.csv").write_text("ä" * 3000 + ",y\n1,2\n", encoding=known)
        assert Table(tmp_path / "a.csv", "y").count() == 1


@pytest.mark.parametrize("delimiter", ["", ";;", "\n", '"', "§"])
def test_what_cannot_be_a_delimiter_is_refused(tmp_path: Path, delimiter: str) -> None:
    with pytest.raises(ValueError, match=r"delimiter='.*' cannot separate.* one character"):
        Table(csv(tmp_path), "y", delimiter=delimiter)


def test_predictions_count_what_they_drop(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n1,2\n,3\n4,5\n")
    table = Table(tmp_path / "a.csv", features="a", missing="drop")
    assert sum(len(part.X) for part in table.inputs()) == 2
    (tmp_path / "a.csv").unlink()  # known without another pass
    assert table.dropped == 1


def test_negative_weights_are_named(tmp_path: Path) -> None:
    data = pa.table({"a": [1.0, None, 3.0], "y": [0.0] * 3, "w": [1.0, 1.0, -1.0]})
    pq.write_table(data, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"row 3: the weight 'w' is negative.* row counts"):
        list(Table(tmp_path, "y", weight="w", missing="drop").batches(2))


def test_weights_of_zero_are_not_present(tmp_path: Path) -> None:
    data = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0.0] * 3, "w": [1.0, 0.0, 2.0]})
    data.to_parquet(tmp_path / "a.parquet")
    for where in (data, tmp_path):
        table = Table(where, "y", weight="w")
        assert (table.count(), table.present()) == (3, 2)


# -- counting -----------------------------------------------------------------------------------


def test_parquet_is_counted_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = folder(tmp_path, "parquet")
    table = Table(where, "y", ["i"])
    drops = Table(where, "y", ["i"], missing="drop")

    def refuse(*_: Any) -> Iterator[Any]:
        raise AssertionError("the data are read")

    monkeypatch.setattr(readers.Files, "stretches", refuse)
    assert table.count() == table.present() == N
    assert table.dropped == 0
    with pytest.raises(AssertionError, match="the data are read"):
        drops.count()


def test_counts_are_found_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    stretches = readers.Files.stretches

    def counted(*given: Any) -> Iterator[Any]:
        passes.append(1)
        return stretches(*given)

    monkeypatch.setattr(readers.Files, "stretches", counted)
    table = Table(csv(tmp_path), "y", weight="w", missing="drop")
    assert (table.count(), table.present(), table.dropped, len(passes)) == (N, N, 0, 1)
    table = Table(csv(tmp_path), "y", weight="w", missing="drop")
    list(table.batches(10))
    assert (table.count(), table.present(), table.dropped, len(passes)) == (N, N, 0, 2)


def test_files_that_change_between_passes_are_noticed(tmp_path: Path) -> None:
    path = csv(tmp_path)
    table = Table(path, "y", weight="w")
    assert table.count() == N
    frame(0, 20).to_csv(path, index=False)
    with pytest.raises(ValueError, match="has changed between two passes"):
        list(table.batches(10))


# -- errors that tell what to do ----------------------------------------------------------------


@any_route
def test_a_missing_column_is_named_with_what_is_like_it(tmp_path: Path, route: str) -> None:
    where = ROUTES[route](tmp_path)
    for given_ in ({"target": "hafl"}, {"target": "y", "features": ["hafl"]}, {"weight": "hafl"}):
        with pytest.raises(
            ValueError, match=r"no column 'hafl'\. Did you mean 'half'.*'flag', 'y'"
        ):
            Table(where, **{"features": ["i"], **given_})
    with pytest.raises(ValueError, match="no column 'hafl'"):
        Table(where, features=["i"]).inputs(keep=["hafl"])


TEXT = {
    "a": [1.0, 2.0],
    "city": ["Bern", "Chur"],
    "day": np.array(["2024-01-01", "2024-01-02"], "datetime64[ms]"),
    "y": [1.0, 2.0],
}


@pytest.mark.parametrize("kind", ["pandas", "category", "polars", "arrow", "csv", "parquet"])
def test_columns_that_are_not_numeric_are_refused(tmp_path: Path, kind: str) -> None:
    data = pd.DataFrame(TEXT)
    where: Any = {
        "pandas": data,
        "category": data.astype({"city": "category"}),
        "polars": pl.DataFrame(TEXT),
        "arrow": pa.table(TEXT),
    }.get(kind, tmp_path / f"text.{kind}")
    if kind == "csv":
        data.to_csv(where, index=False)
    if kind == "parquet":
        data.astype({"city": "category"}).to_parquet(where)
    pattern = r"not numeric: 'city' \(.+\), 'day' \(.+\).*encode.*features=\['a'\]"
    with pytest.raises(ValueError, match=pattern):
        Table(where, "y")
    with pytest.raises(ValueError, match=r"not numeric: 'day' \([^)]+\)+\. Drop .* numbers\."):
        Table(where, "y", ["a", "day"])
    with pytest.raises(ValueError, match="not numeric: 'city'"):
        Table(where, "city", ["a"])
    assert next(Table(where, "y", ["a"]).batches(2))[0].tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1j]),
        pd.Series([True], dtype="category"),
        pd.Series([1], dtype="category"),
        pd.Series([1.0], dtype=object),
        pd.Series([1], dtype="timedelta64[s]"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_what_pandas_may_take_for_numbers_is_refused(column: pd.Series) -> None:
    with pytest.raises(ValueError, match="not numeric: 'a'"):
        Table(pd.DataFrame({"a": column, "y": [0.0]}), "y")


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    frame(0, 20).to_csv(tmp_path / "a.csv", index=False)
    frame(20, N).assign(extra=1).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match=r"b\.csv and .*a\.csv differ: only one has 'extra'"):
        Table(tmp_path, "y")
    assert passed(Table(tmp_path, "y", ["i", "half", "flag"], "w"), 10) == list(range(N))
    frame(20, N).drop(columns="half").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match=r"b\.csv has no column 'half'"):
        Table(tmp_path, "y", ["half"])
    frame(20, N).assign(half="x").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match=r"column 'half' is string in .*b\.csv, but double in"):
        Table(tmp_path, "y")


def test_empty_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("a,y\n")
    pq.write_table(pa.table({"a": pa.array([], pa.float64()), "y": []}), tmp_path / "none.parquet")
    empty = pd.DataFrame({"a": [], "y": []}, dtype=float)
    for where in (tmp_path / "none.csv", tmp_path / "none.parquet", empty, pl.DataFrame(empty)):
        table = Table(where, "y")
        with pytest.raises(ValueError, match="holds no rows"):
            table.count()
        with pytest.raises(ValueError, match="holds no rows"):
            list(table.batches(3))
        with pytest.raises(ValueError, match="holds no rows"):
            list(table.inputs())
    with pytest.raises(ValueError, match=r"no rows: give data with at least one\.$"):
        table.count()
    gone = Table(pd.DataFrame({"a": [np.nan] * 3, "y": [1.0] * 3}), "y", missing="drop")
    with pytest.raises(ValueError, match=r"all 3 rows .* missing .*Impute"):
        gone.count()


def test_files_that_cannot_be_read_are_named(tmp_path: Path, small_blocks: None) -> None:
    for name, text in {
        "none.csv": "",
        "bad.parquet": "hello, world",
        "bad.csv.gz": "a,y\n1,2\n",
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=f"{name} cannot be read as (csv|parquet): "):
            Table(tmp_path / name, "y")
    (tmp_path / "ragged.csv").write_text("a,y\n" + "1,2\n" * 100 + "3\n")
    with pytest.raises(ValueError, match=r"ragged\.csv cannot be read.*as many cells"):
        Table(tmp_path / "ragged.csv", "y").count()
    path = parquet(tmp_path / "gone.parquet")
    table = Table(path, "y")
    path.unlink()
    with pytest.raises(ValueError, match=r"gone\.parquet cannot be read"):
        list(table.batches(3))


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    def refuse(*_: Any) -> None:  # root may read everything
        raise PermissionError(13, "[Errno 13] Failed to open local file")

    monkeypatch.setattr(readers, "_format", lambda *_: type("", (), {"make_fragment": refuse}))
    for path in (csv(tmp_path), parquet(tmp_path / "a.parquet")):
        told = rf"{path.name} cannot be read \(permission denied\): .* you may read it\.$"
        with pytest.raises(ValueError, match=told):
            Table(path, "y")


def test_an_empty_file_is_called_so(tmp_path: Path) -> None:
    for content in (b"", b"\n\n", b"\xef\xbb\xbf"):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.csv cannot be read as csv: it is empty\."):
            Table(tmp_path / "a.csv", "y")


def test_what_is_no_data_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a,y\n1,2\n")
    with pytest.raises(ValueError, match=r"notes\.txt is of an unknown kind.*\.csv"):
        Table(tmp_path / "notes.txt", "y")
    with pytest.raises(ValueError, match=r"the folder .* holds no data file"):
        Table(tmp_path, "y")
    with pytest.raises(FileNotFoundError, match=r"no file, folder or match for '.*nothing\.csv'"):
        Table(tmp_path / "nothing.csv", "y")
    with pytest.raises(FileNotFoundError, match="match"):
        Table(f"{tmp_path}/*.csv", "y")
    with pytest.raises(ValueError, match="list of files is empty"):
        Table([], "y")
    with pytest.raises(ValueError, match="holds paths"):
        Table((np.zeros((3, 1)), np.zeros(3)), "y")
    with pytest.raises(ValueError, match=r"got LazyFrame\. Collect it first"):
        Table(pl.DataFrame(TEXT).lazy(), "y")
    with pytest.raises(ValueError, match=r"got int\.$"):
        Table(3, "y")
    csv(tmp_path)
    parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"both CSV and Parquet.*pattern"):
        Table(tmp_path, "y")


def test_a_filtered_dataset_is_refused(tmp_path: Path) -> None:
    whole = dataset(tmp_path)
    with pytest.raises(ValueError, match=r"piece by piece.*filter"):
        Table(whole.filter(pyarrow.dataset.field("i") > 3), "y")


def test_what_is_wrong_with_a_csv_file_is_told_in_short(tmp_path: Path) -> None:
    (tmp_path / "twice.csv").write_text("a,a,y\n1,2,3\n")
    with pytest.raises(ValueError, match=r"twice\.csv has two columns named 'a': rename one\."):
        Table(tmp_path / "twice.csv", "y")
    (tmp_path / "short.csv").write_text("a,b,y\n1,2,3\n4,5\n")
    with pytest.raises(ValueError, match=r"short\.csv cannot be read as csv: CSV parse error: Row"):
        Table(tmp_path / "short.csv", "y")


def test_names_must_make_sense() -> None:
    with pytest.raises(ValueError, match="'y' is asked for twice"):
        Table(frame(), "y", ["i", "y"])
    with pytest.raises(ValueError, match="'i' is asked for twice"):
        Table(frame(), "y", ["i"], weight="i")
    with pytest.raises(ValueError, match="no column for inputs"):
        Table(frame()[["y"]], "y")
    with pytest.raises(ValueError, match="two columns named 'a'"):
        Table(pd.DataFrame([[1, 2]], columns=["a", "a"]), "a")
    with pytest.raises(ValueError, match="two columns named 'a'"):
        Table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), "a")
    with pytest.raises(ValueError, match="'error' or 'drop', got 'keep'"):
        Table(frame(), "y", missing="keep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="buffer_rows"):
        Table(frame(), "y", buffer_rows=0)
    with pytest.raises(ValueError, match="no target to learn from"):
        Table(frame()).batches(3)
    assert Table(pd.DataFrame({0: [1.0], 1: [2.0]}), "1").feature_names == ("0",)


# -- writing ------------------------------------------------------------------------------------

WRITABLE = ["out.csv", "out.csv.gz", "out.csv.bz2", "out.parquet", "out.pq"]


@pytest.mark.parametrize("name", WRITABLE)
def test_what_is_written_is_read_back_to_the_last_digit(tmp_path: Path, name: str) -> None:
    values = np.random.default_rng(0).normal(size=40) * 10.0 ** np.arange(-20, 20)
    parts = ({"a": values[i : i + 9], "n": np.arange(i, min(i + 9, 40))} for i in range(0, 40, 9))
    assert write_table(tmp_path / name, parts) == 40
    table = Table(tmp_path / name, "n")
    np.testing.assert_array_equal(next(table.batches(40))[0][:, 0], values)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_small_batches_become_large_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP", 10)
    write_table(tmp_path / "a.parquet", ({"a": [i, i]} for i in range(12)))
    file = pq.ParquetFile(tmp_path / "a.parquet")
    assert [file.metadata.row_group(k).num_rows for k in range(3)] == [10, 10, 4]
    assert file.read()["a"].to_pylist() == [i for i in range(12) for _ in "ab"]


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0],
        pd.Series([1.0, 2.0], index=[7, 8]),
        pl.Series([1.0, 2.0]),
        pa.chunked_array([[1.0], [2.0]]),
        np.array([1.0, 2.0], np.float32),
        srgp.kernels.base.jnp.array([1.0, 2.0]),
    ],
)
def test_columns_of_any_library_are_written(tmp_path: Path, values: Any) -> None:
    write_table(tmp_path / "a.csv", [{"a": values}])
    assert (tmp_path / "a.csv").read_text().split() == ['"a"', "1", "2"]


def test_later_batches_take_the_types_of_the_first(tmp_path: Path) -> None:
    write_table(tmp_path / "a.parquet", [{"a": [0.5]}, {"a": [1]}, {"a": pa.array([None])}])
    assert pq.read_table(tmp_path / "a.parquet")["a"].to_pylist() == [0.5, 1.0, None]


@pytest.mark.parametrize("name", WRITABLE)
def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP", 1)

    def broken() -> Iterator[dict[str, Any]]:
        yield {"a": [1.0]}
        yield {"a": [2.0]}
        during.append(len(list(tmp_path.iterdir())))
        raise KeyboardInterrupt

    for before in ([], [name]):
        if before:
            (tmp_path / name).write_text("the old one")
        during: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            write_table(tmp_path / name, broken())
        assert during == [len(before) + 1]  # it was on its way, under another name
        assert [p.name for p in tmp_path.iterdir()] == before
    assert (tmp_path / name).read_text() == "the old one"


@pytest.mark.parametrize(
    ("name", "batches", "message"),
    [
        ("a.xlsx", [{"a": [1]}], r"a\.xlsx has an ending.*\.parquet"),
        ("a.parquet.gz", [{"a": [1]}], "ending"),
        ("a.csv", [], "no batch to write"),
        ("a.csv", [{"a": [1]}, {"b": [1]}], "same columns: 'a' first, then 'b'"),
        ("a.csv", [{"a": [1], "b": [1, 2]}], r"one length, got \{'a': 1, 'b': 2\}"),
        ("a.csv", [{"a": np.zeros((2, 2))}], "a name of its own"),
        ("a.parquet", [{"a": [1]}, {"a": ["x"]}], "x"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, name: str, batches: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write_table(tmp_path / name, batches)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder .*none, .*does not exist"):
        write_table(tmp_path / "none" / "a.csv", [{"a": [1]}])


# -- threads and imports ------------------------------------------------------------------------


def busy_readers() -> int:
    return len([t for t in threading.enumerate() if t.name == "srgp-reader"]) - len(_Reader.idle)


def test_reading_ends_with_the_consumer_and_its_threads_are_used_again(tmp_path: Path) -> None:
    table = Table(parquet(tmp_path / "a.parquet"), "y")
    before = busy_readers()
    for _ in range(3):
        for reading in (table.batches(2), table.inputs(2)):
            next(reading)
            assert busy_readers() > before
            reading.close()  # type: ignore[attr-defined]
            assert busy_readers() == before
    # Two are enough for one table at a time; others may have read more of them before.
    list(table.batches(2))
    count = threading.active_count()
    list(table.batches(2))
    assert threading.active_count() == count


def test_reading_ends_with_an_error(tmp_path: Path) -> None:
    before = busy_readers()
    path = tmp_path / "bad.csv"
    path.write_text("a,y\n" + "1.0,2.0\n" * 5000 + "1.0,\n" + "1.0,2.0\n" * 5000)
    with pytest.raises(ValueError, match="row 5001"):
        list(Table(path, "y").batches(100))
    assert busy_readers() == before


def test_without_pyarrow_frames_work_and_files_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = csv(tmp_path)

    def refuse(name: str, package: str | None = None) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return builtins.__import__(name)

    monkeypatch.setattr(column_types, "importlib", type("without", (), {"import_module": refuse}))
    for where in (frame(), pl.DataFrame(columns())):
        table = Table(where, "y", weight="w")
        assert passed(table, 10) == list(range(N))
        assert len(list(table.inputs(10, keep="all"))) == 6
    with pytest.raises(ImportError, match=r"pip install 'srgp\[files\]'"):
        Table(path, "y")
    with pytest.raises(ImportError, match=r"pip install 'srgp\[files\]'"):
        write_table(tmp_path / "a.parquet", [{"a": [1]}])
    assert importlib.import_module("pyarrow") is pa


def test_importing_is_light() -> None:
    code = (
        "import sys, srgp.tables; "
        "print([m for m in ('pandas', 'polars', 'pyarrow') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
