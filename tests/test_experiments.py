"""The paper's experiments: their data, their results folder, and each of them in small."""

import bz2
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from srgp import experiments
from srgp.experiments import (
    airline,
    convergence,
    drift,
    flights,
    following,
    identification,
    minibatch,
    models,
    plant,
    simulation,
    tank,
)
from srgp.experiments.results import Results
from srgp.experiments.sampler import draw
from srgp.experiments.traces import Problem, ends, judged, peer_runner, theirs
from srgp.kernels import SE
from srgp.model import Model


class TestSampler:
    def test_covariances_are_the_kernels(self) -> None:
        """Over many draws, at pairs of points; the error of an average of 4000 is about 0.02."""
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (6, 2))
        F = np.stack([draw(X, 0.5, rng).f for _ in range(4000)])
        expected = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(-1) / 0.25)
        np.testing.assert_allclose(F.T @ F / len(F), expected, atol=0.1)

    @pytest.mark.parametrize(("D", "lengthscale", "tolerance"), [(1, 0.1, 1e-6), (5, 0.5, 1e-4)])
    def test_what_is_missing_is_told_and_small(
        self, D: int, lengthscale: float, tolerance: float
    ) -> None:
        X = np.random.default_rng(0).uniform(-1, 1, (2000, D))
        X[0], X[1] = 1.0, -1.0  # corners are the hardest
        f, missing = draw(X, lengthscale, np.random.default_rng(1), tolerance)
        assert np.isfinite(f).all()
        assert 0.0 < missing < tolerance

    def test_blocks_of_rows_change_nothing(self) -> None:
        X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
        whole, parts = (draw(X, 0.4, np.random.default_rng(1), rows=r).f for r in (50, 7))
        np.testing.assert_allclose(whole, parts, rtol=1e-9, atol=1e-12)


class TestTank:
    def test_samples_are_those_of_an_adaptive_solver(self) -> None:
        """The equations written down again, and SciPy's solver at a tolerance of 1e-11."""
        plant = tank.simulate(400, seed=3)

        def slopes(t: float, state: np.ndarray, w1: float) -> list[float]:
            h, C = state
            w2, k1, k2 = 0.1, 1.0, 1.0
            consumed = k1 * C / (1.0 + k2 * C) ** 2
            level = w1 + w2 - 0.2 * np.sqrt(h)
            return [level, (24.9 - C) * w1 / h + (0.1 - C) * w2 / h - consumed]

        state, found = np.array([110.0, 22.0]), []
        for w1 in plant.w:
            solved = solve_ivp(slopes, (0.0, 0.2), state, args=(w1,), rtol=1e-11, atol=1e-11)
            state = solved.y[:, -1]
            found.append(state[1])
        # Five steps a second are many for a plant that takes minutes.
        np.testing.assert_allclose(plant.f, found, rtol=1e-8)

    def test_control_and_noise_are_the_papers(self) -> None:
        plant = tank.simulate(50_000, seed=0)
        assert 0.0 <= plant.w.min() < 0.05
        assert 3.95 < plant.w.max() <= 4.0
        lengths = np.diff(np.flatnonzero(np.diff(plant.w)))
        assert (lengths.min(), lengths.max()) == (25, 100)  # 5 to 20 s
        assert np.std(plant.y - plant.f) == pytest.approx(tank.NOISE, rel=0.02)


class TestResults:
    def test_runs_are_made_once(self, tmp_path: Path) -> None:
        told: list[str] = []
        for _ in range(2):
            results = Results(tmp_path, {"N": np.int64(3)}, told.append)
            assert results.run("a b/c", lambda: {"x": np.float64(1.5)}) == {"x": 1.5}
        assert told == ["a b/c"]
        with pytest.raises(ValueError, match="other settings"):
            Results(tmp_path, {"N": 4})

    def test_repetitions_may_follow(self, tmp_path: Path) -> None:
        Results(tmp_path, {"N": 3, "repetitions": 1}).run("seed 0", lambda: {"x": 1})
        more = Results(tmp_path, {"N": 3, "repetitions": 2})
        assert more.run("seed 0", lambda: {"x": 2}) == {"x": 1}
        assert '"repetitions": 2' in (tmp_path / "settings.json").read_text()

    def test_every_run_tells_where_it_was_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        results = Results(tmp_path, {})
        days = ["2020-01-02", "2020-01-01", "2020-01-02"]
        for i, day in enumerate(days):
            monkeypatch.setattr("srgp.experiments.results.machine", lambda day=day: {"date": day})
            results.run(f"seed {i}", dict)
        results.summary("title", "")
        told = json.loads((tmp_path / "settings.json").read_text())["machines"]
        assert [m["date"] for m in told] == ["2020-01-01", "2020-01-02"]

    def test_a_failed_run_leaves_nothing(self, tmp_path: Path) -> None:
        results = Results(tmp_path, {})

        def fails() -> dict[str, Any]:
            raise FloatingPointError

        with pytest.raises(FloatingPointError):
            results.run("one", fails)
        assert results.run("one", lambda: {"x": 1}) == {"x": 1}

    def test_tables(self, tmp_path: Path) -> None:
        results = Results(tmp_path, {"N": 3})
        text = results.table("t", [{"a": 1, "b": 12345.6, "c": None}, {"a": "x", "b": 0.5, "c": 2}])
        assert text.splitlines()[2:] == ["| 1 | 12,346 | – |", "| x | 0.5 | 2 |"]
        with (tmp_path / "t.csv").open() as file:
            assert [row["b"] for row in csv.DictReader(file)] == ["12345.6", "0.5"]
        results.summary("title", text, "remark")
        assert "remark" in (tmp_path / "README.md").read_text()


class TestFlights:
    HEADER = (
        "Year,Month,DayofMonth,DayOfWeek,DepTime,CRSDepTime,ArrTime,UniqueCarrier,TailNum,"
        "AirTime,ArrDelay,Distance,Cancelled"
    )
    ROWS = (
        "2008,1,3,4,2003,1955,2211,WN,N1,116,-14,810,0",
        "2008,1,3,4,754,735,1002,WN,N2,113,2,810,0",
        "2008,5,3,4,754,735,1002,WN,N1,113,2,810,0",  # May
        "2008,2,3,4,NA,735,NA,WN,N1,NA,NA,810,1",  # cancelled
        "2008,2,3,4,628,620,804,WN,N3,76,14,515,0",  # plane without a year
        "2008,2,3,4,628,620,804,WN,N9,76,14,515,0",  # plane unknown
        "2008,4,3,4,926,930,1054,WN,N2,78,-6,515,0",
    )
    PLANES = "tailnum,type,year\nN1,Corporation,1998\nN2,Corporation,2003\nN3,,None\nN4,,\n"

    @pytest.mark.parametrize("packed", [False, True])
    def test_the_public_files_are_joined_filtered_and_mapped(
        self, tmp_path: Path, packed: bool
    ) -> None:
        text = "\n".join((self.HEADER, *self.ROWS)) + "\n"
        if packed:
            (tmp_path / "2008.csv.bz2").write_bytes(bz2.compress(text.encode()))
        else:
            (tmp_path / "2008.csv").write_text(text)
        (tmp_path / flights.PLANES).write_text(self.PLANES)
        X, y = flights.read(tmp_path)
        np.testing.assert_array_equal(
            X,
            [
                [1, 3, 4, 754, 1002, 113, 810, 5],
                [1, 3, 4, 2003, 2211, 116, 810, 10],
                [4, 3, 4, 926, 1054, 78, 515, 5],
            ],
        )
        np.testing.assert_array_equal(y, [2, -14, -6])

    def test_parquet_as_it_is(self, tmp_path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: np.arange(3, dtype=np.int16) + i for i, name in enumerate(flights.INPUTS)}
        pq.write_table(
            pa.table({**columns, "ArrDelay": [5, 6, 7], "more": [0, 0, 0]}), tmp_path / "a.parquet"
        )
        for path in (tmp_path, tmp_path / "a.parquet"):
            X, y = flights.read(path)
            assert X.shape == (3, 8)
            assert X[0].tolist() == list(range(8))
            assert y.tolist() == [5, 6, 7]

    def test_what_is_missing_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="does not exist"):
            flights.read(tmp_path / "nowhere")
        with pytest.raises(FileNotFoundError, match=r"2008\.csv"):
            flights.read(tmp_path)
        (tmp_path / "2008.csv").write_text(self.HEADER + "\n" + self.ROWS[0] + "\n")
        with pytest.raises(FileNotFoundError, match="planes"):
            flights.read(tmp_path)
        (tmp_path / flights.PLANES).write_text("tailnum,year\nN7,1999\n")
        with pytest.raises(ValueError, match="no flight"):
            flights.read(tmp_path)


def test_toy(tmp_path: Path) -> None:
    table = experiments.reproduce("toy", tmp_path)
    assert "difference" in table
    with (tmp_path / "toy" / "toy.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert abs(float(last["bound ψ"])) < 1e-8
    assert (tmp_path / "toy" / "toy.png").stat().st_size > 10_000


def small(module: Any, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The experiment with other settings."""
    before = module.settings

    def fewer(*args: Any) -> dict[str, Any]:
        return {**before(*args), **changes}

    monkeypatch.setattr(module, "settings", fewer)


def test_convergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(convergence, monkeypatch, epochs=3)
    table = experiments.reproduce("convergence", tmp_path)
    assert "batch VFE" in table
    folder = tmp_path / "convergence"
    assert "Peers were not run" in (folder / "README.md").read_text()
    before = {p: p.stat().st_mtime_ns for p in (folder / "runs").iterdir()}
    assert experiments.reproduce("convergence", tmp_path) == table
    assert before == {p: p.stat().st_mtime_ns for p in (folder / "runs").iterdir()}
    assert not list((folder / "runs").glob("*.steps"))


def test_minibatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatch, "N", 1000)
    small(minibatch, monkeypatch, updates=200, repetitions=2, B=[200, 1000])
    experiments.reproduce("minibatch", tmp_path)
    with (tmp_path / "minibatch" / "minibatch.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["B"] for row in rows] == ["200", "1000"]
    assert all(float(row["error at the end"]) > 0.0 for row in rows)


def test_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {"N": 600, "test": 100, "B": 200, "epochs": 2, "repetitions": 2}
    small(simulation, monkeypatch, dimensions=[1, 2], **changes)
    experiments.reproduce("simulation", tmp_path)
    with (tmp_path / "simulation" / "simulation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert {row["repetitions"] for row in rows} == {"2"}
    assert {p.name for p in (tmp_path / "simulation").glob("*.png")} == {
        "simulation-epoch.png",
        "simulation-seconds.png",
    }


def test_airline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(1, 20, (1200, 8)).astype(float)
    monkeypatch.setattr(flights, "read", lambda path: (X, X[:, 3] + rng.normal(size=1200)))
    changes: dict[str, Any] = {"N": 1000, "test": 200, "M": 10, "B": 200, "epochs": 2}
    small(airline, monkeypatch, repetitions=1, **changes)
    (tmp_path / "somewhere").mkdir()
    table = experiments.reproduce("airline", tmp_path, data=tmp_path / "somewhere")
    assert "SRGP, paper's settings" in table
    told = json.loads((tmp_path / "airline" / "settings.json").read_text())["settings"]
    assert told["flights"] == "somewhere"


def test_plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: dict[str, Any] = {"samples": 4000, "test": 1000, "horizons": [500, 2000]}
    small(plant, monkeypatch, repetitions=1, full_gp=500, **changes)
    monkeypatch.setattr(plant, "M", 20)
    experiments.reproduce("plant", tmp_path)
    with (tmp_path / "plant" / "plant.csv").open() as file:
        rows = {(row["method"], row["horizon"]): row for row in csv.DictReader(file)}
    assert set(rows) == {
        ("SRGP", "500"),
        ("batch VFE", "500"),
        ("full GP", "500"),
        ("SRGP", "2000"),
        ("batch VFE", "2000"),
    }
    # More data help; running freely is harder than one step ahead.
    assert float(rows["batch VFE", "2000"]["RMSE"]) < float(rows["batch VFE", "500"]["RMSE"])
    assert all(float(row["free-run RMSE"]) > float(row["RMSE"]) for row in rows.values())


def test_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(models, monkeypatch, N=300, test=100, M=10, max_seconds=2.0)
    monkeypatch.setattr(models, "MODELS", ("vfe", "fitc"))
    experiments.reproduce("models", tmp_path)
    with (tmp_path / "models" / "models.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert {row["data"] for row in rows} >= {"diabetes", "GP, D = 5"}
    assert (tmp_path / "models" / "models.png").exists()


def table_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetting helps, and so it is with half hours of demand read from a file."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    small(drift, monkeypatch, rows=900, M=15, warm_up=150, window=150, demand=600)
    times = np.datetime64("2012-01-01T00:00:00") + np.arange(700) * np.timedelta64(1800, "s")
    rng = np.random.default_rng(0)
    columns = {"Time": times, "Demand": 4000 + 500 * rng.normal(size=700),
               "Temperature": rng.normal(size=700), "Holiday": np.zeros(700, bool)}  # fmt: skip
    (tmp_path / "data" / "vic_elec").mkdir(parents=True)
    pq.write_table(pa.table(columns), tmp_path / "data" / drift.DEMAND)
    experiments.reproduce("drift", tmp_path, data=tmp_path / "data")
    rmse = {(r["stream"], r["method"]): float(r["rmse"]) for r in table_of(tmp_path, "drift")}
    for stream in ("abrupt", "gradual"):
        assert rmse[stream, "towards the prior, 0.998"] < 0.7 * rmse[stream, "no forgetting"]
        assert rmse[stream, "adapting"] < 0.7 * rmse[stream, "no forgetting"]
    assert rmse["demand", "no forgetting"] == pytest.approx(0.5, abs=0.1)  # noise alone, in GW
    assert (tmp_path / "drift" / "drift.png").exists()


def test_following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The past is kept by what follows, and lost by what does not."""
    small(following, monkeypatch, rows=1000, M=45, repetitions=1)
    experiments.reproduce("following", tmp_path)
    table = {r["method"]: r for r in table_of(tmp_path, "following")}
    past = {method: float(r["whole past"]) for method, r in table.items()}
    assert past["follow θ, renew R"] < 0.2 < past["θ and R of the first chunk"]
    assert past["batch, all rows at once"] < 0.1
    assert past["θ fitted again every 5 chunks, all rows kept"] < 0.5
    for method, r in table.items():
        assert 0.0 < float(r["coverage"]) <= 1.0
        assert (r["its NLPD"] == "") == ("batch" in method)  # it has no next chunk


def test_identification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    small(identification, monkeypatch, samples=2500, M=20, warm_up=400)
    monkeypatch.setattr(identification, "PLANTS", {"cascaded tanks": "cascaded_tanks"})
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-1, 1, 40), 10)
    y = np.zeros(400)
    for t in range(1, 400):
        y[t] = 0.8 * y[t - 1] + 0.4 * np.tanh(2.0 * u[t - 1]) + 0.01 * rng.normal()
    folder = tmp_path / "data" / "cascaded_tanks"
    folder.mkdir(parents=True)
    halves = {"uEst": u[:200], "yEst": y[:200], "uVal": u[200:], "yVal": y[200:]}
    pq.write_table(pa.table(halves), folder / "cascaded_tanks.parquet")
    monkeypatch.setattr(identification, "SHOWN", 100)
    experiments.reproduce("identification", tmp_path, data=tmp_path / "data")
    rows = {(r["plant"], r["model"]): r for r in table_of(tmp_path, "identification")}
    gp, line = rows["cascaded tanks", "GP"], rows["cascaded tanks", "linear"]
    assert float(gp["free run"]) < 0.5 * float(line["free run"])  # tanh is not linear
    online, recursive = (rows["cascaded tanks", f"{name} online"] for name in ("GP", "linear"))
    assert float(online["online"]) < float(recursive["online"])
    assert float(online["free run"]) < float(recursive["free run"])
    assert 0.5 < float(online["coverage"]) <= 1.0
    assert float(rows["changing", "no forgetting"]["online"]) < 0.05
    assert (tmp_path / "identification" / "cascaded-tanks.png").exists()
    assert float(rows["changing", "following"]["99 % µs"]) > 0.0


@pytest.mark.parametrize("fails", [False, True])
def test_a_peers_own_posterior_is_judged_beside_the_exact_one(fails: bool) -> None:
    """Predictions of the peer that cover nothing, or that failed, beside those at its θ."""
    rng = np.random.default_rng(0)
    X, noise = rng.uniform(-1, 1, (200, 1)), 0.1
    y = np.sin(3 * X[:, 0]) + noise * rng.normal(size=200)
    start = Model(SE(lengthscales=np.ones(1)), noise**2, X[:10])
    problem = Problem(X[:150], y[:150], X[150:], y[150:], start)

    def run_peer(peer: str, told: Any, settings: Any) -> Any:
        each = {"variance": 1.0, "lengthscales": [1.0], "noise": noise**2, "R": X[:10]}
        trace = {name: np.array([value] * 2) for name, value in each.items()}
        mean = np.full(50, np.nan if fails else 10.0)
        times = {"epoch": np.arange(2.0), "seconds": np.arange(2.0)}
        return {**trace, **times, "mean": mean, "var": np.ones(50)}, {}

    found = judged(problem, theirs(run_peer, "gpflow", {})(problem, 0, Path()))
    assert found["coverage"][-1] > 0.8
    (row,) = ends({"SVGP": [found]})
    if fails:
        assert "own" not in found
        assert "own coverage" not in row
    else:
        assert row["own coverage"] == 0.0
        ours = {name: value for name, value in found.items() if name != "own"}
        assert [r["own coverage"] for r in ends({"a": [found, ours], "b": [ours]})] == [0.0, None]


def test_bad_names_and_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"srgp\[reproduce\]"):
        experiments.reproduce("airline", tmp_path)
    with pytest.raises(FileNotFoundError, match="flights does not exist: name what"):
        experiments.reproduce("airline", tmp_path, data=tmp_path / "flights")
    with pytest.raises(FileNotFoundError, match="benchmarks"):
        experiments.reproduce("simulation", tmp_path, peers=tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="no experiment"):
        experiments.reproduce("nothing", tmp_path)
    with pytest.raises(FileNotFoundError, match="benchmarks"):
        peer_runner(tmp_path)
    assert peer_runner(None) is None
