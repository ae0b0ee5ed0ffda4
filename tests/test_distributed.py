"""On a cluster of two processes: the answers of one machine, whatever happens to the workers."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from problems import MODELS, problem
from sklearn.base import clone

import srgp
from srgp import kernels as k
from srgp.distributed import Partitions, connected, local_cluster, partitions, summarise
from srgp.learners import auto
from srgp.sources import Arrays, Held, Source, random_rows
from srgp.tables import Table, write_table

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
dask = pytest.importorskip("dask")


P = problem(N=630)
MODEL = srgp.Model(k.SE(variance=1.3, lengthscales=[0.5, 0.8]), P.noise, P.R)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_cluster(workers=2) as client:
        yield client


@contextlib.contextmanager
def lonely_scheduler(file: Path) -> Iterator[tuple[Any, Any]]:
    """A scheduler that is a process of its own, with one worker, and a client of it."""

    def start(*words: str) -> Any:
        command = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(file)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    scheduler = start("scheduler", "--port", "0", "--no-dashboard")
    worker = start("worker", "--no-nanny", "--nthreads", "1")
    try:
        with distributed.Client(scheduler_file=str(file)) as client:
            yield scheduler, client
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


def cut(count: int) -> list[tuple[np.ndarray, ...]]:
    arrays = [np.array_split(a.copy(), count) for a in (P.X, P.y, P.weights)]
    return list(zip(*arrays, strict=True))


def same(found: srgp.Statistics, expected: srgp.Statistics, rtol: float = 1e-11) -> None:
    assert found.fingerprint == expected.fingerprint
    for name, a, b in zip(found.sums._fields, found.sums, expected.sums, strict=True):
        scale = np.max(np.abs(b)) + 1e-300
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=rtol, err_msg=name)


class TestSums:
    @pytest.mark.parametrize("parts", [1, 3, 20])
    def test_equal_those_of_one_machine(self, client: Any, parts: int) -> None:
        expected = srgp.summarise(MODEL, P.X, P.y, P.weights)
        same(summarise(MODEL, Partitions(cut(parts), client)), expected)

    def test_of_every_kind_of_part(self, client: Any, tmp_path: Path) -> None:
        expected = srgp.summarise(MODEL, P.X, P.y, P.weights)
        X, y, w = (da.from_array(a, chunks=200) for a in (P.X, P.y, P.weights))
        frame = pd.DataFrame({"a": P.X[:, 0], "b": P.X[:, 1], "y": P.y, "w": P.weights})
        for i, piece in enumerate(np.array_split(np.arange(len(frame)), 3)):
            write_table(str(tmp_path / f"{i}.parquet"), [frame.iloc[piece].to_dict("list")])
        sources = {
            "futures": Partitions(client.scatter(cut(4)), client),
            "delayed": Partitions([dask.delayed(part) for part in cut(4)], client),
            "arrays": Partitions.from_arrays(X, y, w, client=client),
            "other chunks": Partitions.from_arrays(X, y.rechunk(50), w.rechunk(630), client=client),
            "frame": Partitions.from_frame(
                dd.from_pandas(frame, npartitions=3), "y", weight="w", client=client
            ),
            "files": Partitions.from_files(str(tmp_path), "y", weight="w", client=client),
            "numpy": Partitions.of((P.X, P.y, P.weights), client),
            "kept": Partitions(cut(4), client).persist(),
        }
        for name, source in sources.items():
            assert isinstance(source, Source), name
            assert (source.count(), source.present()) == (630, int((P.weights > 0).sum())), name
            same(summarise(MODEL, source), expected)
        assert sources["files"].feature_names == ("a", "b")

    def test_kept_parts_are_spread_evenly(self, client: Any) -> None:
        import dask
        from distributed import futures_of, wait

        lazy = [dask.delayed(part) for part in cut(6)]
        kept = Partitions(lazy, client).persist()
        futures = [future for part in kept.parts for future in futures_of(part)]
        wait(futures)
        holders = [worker for workers in client.who_has(futures).values() for worker in workers]
        assert {holders.count(worker) for worker in client.nthreads()} == {3}
        same(summarise(MODEL, kept), srgp.summarise(MODEL, P.X, P.y, P.weights))

    @pytest.mark.parametrize("model_name", ["VFE", "FITC", "TighterVFE", "PEP(0.5)", "SoR"])
    def test_gradient(self, client: Any, model_name: str) -> None:
        model = MODEL.replace(approximation=MODELS[model_name][0])
        value, gradient = srgp.value_and_grad(model, Partitions(cut(3), client))
        expected_value, expected = srgp.value_and_grad(model, (P.X, P.y, P.weights))
        assert value == pytest.approx(expected_value, rel=1e-11)
        np.testing.assert_allclose(gradient.inducing, expected.inducing, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(gradient.noise, expected.noise, rtol=1e-9)

    def test_gradient_of_an_ill_conditioned_model(self, client: Any) -> None:
        model = MODEL.replace(kernel=k.SE(lengthscales=4.0), noise=1e-4)
        value, gradient = srgp.value_and_grad(model, Partitions(cut(3), client))
        expected_value, expected = srgp.value_and_grad(model, (P.X, P.y, P.weights))
        assert value == pytest.approx(expected_value, rel=1e-9)
        scale = np.abs(expected.inducing).max()
        np.testing.assert_allclose(gradient.inducing / scale, expected.inducing / scale, atol=1e-6)


class TestLearning:
    def test_exact_equals_one_machine(self, client: Any) -> None:
        learner = srgp.Exact(iterations=5)
        found = srgp.learn(MODEL, Partitions(cut(3), client), learner)
        expected = srgp.learn(MODEL, (P.X, P.y, P.weights), learner)
        # Rounding differs by 1e-13 in the first gradient; a few steps make it more.
        assert found.bound == pytest.approx(expected.bound, rel=1e-8)
        np.testing.assert_allclose(found.model.inducing, expected.model.inducing, atol=1e-5)

    @pytest.mark.parametrize("count", [1, 3, 11])
    def test_srgp_equals_one_machine_however_the_rows_are_cut(
        self, client: Any, count: int
    ) -> None:
        learner = srgp.SRGP(batch_size=100, epochs=3, fresh=False)
        expected = srgp.learn(MODEL, (P.X, P.y, P.weights), learner, seed=4)
        promised = [dask.delayed(part) for part in cut(count)]
        for data in (Partitions(cut(count), client), Partitions(promised, client)):
            found = srgp.learn(MODEL, data, learner, seed=4)
            # 21 steps make of rounding, 1e-13 in a gradient, at most a few orders more.
            assert found.bound == pytest.approx(expected.bound, rel=1e-8)
            np.testing.assert_allclose(found.model.inducing, expected.model.inducing, atol=1e-6)

    def test_batches_are_gathered_once_for_each_core(self, client: Any) -> None:
        here = [batch[0] for batch in Held(P.X, P.y, P.weights).batches(210, 1)]
        for parts in (cut(9), [dask.delayed(part) for part in cut(9)]):
            data = Partitions(parts, client).persist()
            rounds = list(data.rounds(210, seed=1))
            assert [len(r.parts) for r in rounds] == [2, 2, 2]
            for batch, expected in zip(rounds, here, strict=True):
                rows = np.concatenate([b[0] for b in batch.batches(210)])[:210]
                np.testing.assert_array_equal(np.sort(rows, 0), np.sort(expected, 0))

    def test_rows_that_do_not_fit_are_refused_or_read_anew(
        self, client: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner = srgp.SRGP(batch_size=200, epochs=3)
        monkeypatch.setattr(partitions, "ROOM", 1e-9)
        for parts in (cut(9), [dask.delayed(part) for part in cut(9)]):
            data = Partitions(parts, client)
            with pytest.raises(ValueError, match=r"workers' memory.*reread"):
                srgp.learn(MODEL, data, learner)
            first, again = (srgp.learn(MODEL, data.reread(), learner, seed=2) for _ in range(2))
            assert first.bound > srgp.log_bound(MODEL, summarise(MODEL, data))
            assert again.bound == pytest.approx(first.bound, rel=1e-9)

    def test_srgp_of_files_with_several_outputs_and_rows_that_do_not_count(
        self, client: Any, tmp_path: Path
    ) -> None:
        """By the regressor, in its units; the first half of the rows has weight 0."""
        columns = {"a": P.X[:, 0], "b": P.X[:, 1], "y": P.y, "z": P.X[:, 0] - P.y}
        columns["w"] = (np.arange(630) >= 315).astype(float)
        for i, rows in enumerate(np.array_split(np.arange(630), 4)):
            write_table(str(tmp_path / f"{i}.csv"), [{n: c[rows] for n, c in columns.items()}])
        est = srgp.SparseGPRegressor(
            n_inducing=8,
            inducing=P.R,
            learner=srgp.SRGP(batch_size=20, epochs=2, fresh=False),
        )
        data = (P.X, np.stack([columns["y"], columns["z"]], 1), columns["w"])
        here = clone(est).fit_source(data)
        files = Partitions.from_files(str(tmp_path), ["y", "z"], ["a", "b"], "w", client=client)
        there = clone(est).fit_source(files, client=client)
        rows = pd.DataFrame(P.Xs, columns=["a", "b"])
        np.testing.assert_allclose(there.predict(rows), here.predict(P.Xs), atol=1e-6)

    def test_workers_of_several_threads(self) -> None:
        learner = srgp.SRGP(batch_size=100, epochs=2, fresh=False)
        expected = srgp.learn(MODEL, (P.X, P.y, P.weights), learner, seed=4)
        with (
            distributed.LocalCluster(1, threads_per_worker=2, dashboard_address=":0") as cluster,
            distributed.Client(cluster) as own,
        ):
            data = Partitions([dask.delayed(part) for part in cut(5)], own).persist()
            assert [len(r.parts) for r in data.rounds(210, seed=1)] == [2, 2, 2]
            found = srgp.learn(MODEL, data, learner, seed=4)
        assert found.bound == pytest.approx(expected.bound, rel=1e-8)

    @pytest.mark.parametrize("count", [1, 4])
    def test_sites_equal_one_machine(self, client: Any, count: int) -> None:
        learner = srgp.Sites(batch_size=100, epochs=3)
        expected = srgp.learn(MODEL, (P.X, P.y, P.weights), learner, seed=4)
        found = srgp.learn(MODEL, Partitions(cut(count), client), learner, seed=4)
        assert found.bound == pytest.approx(expected.bound, rel=1e-8)
        np.testing.assert_allclose(found.model.inducing, expected.model.inducing, atol=1e-6)

    @pytest.mark.parametrize("stages", ["sites", "samples", "many"])
    def test_auto_equals_one_machine_wherever_the_rows_are(
        self, client: Any, stages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Through a sample and Sites, or samples alone, to all rows, or a pass over enough."""
        settings = {"SAMPLE": 40, "PER_INDUCING": 1, "GROWTH": 2, "WORTH": 0, "STEPS": 8, "FEW": 3}
        settings |= {"MOST": 400} if stages == "many" else {}
        settings |= {"LARGEST": 2**17 if stages == "samples" else 300}
        for name, value in settings.items():
            monkeypatch.setattr(auto, name, value)
        monkeypatch.setattr(auto, "QUIET", 1e9 if stages == "sites" else 0.0)
        model = MODEL.replace(noise=0.3)
        learner = srgp.Auto(iterations=4)
        columns = {"a": P.X[:, 0], "b": P.X[:, 1], "y": P.y, "w": P.weights}
        for i, rows in enumerate(np.array_split(np.arange(630), 3)):
            write_table(str(tmp_path / f"{i}.parquet"), [{n: c[rows] for n, c in columns.items()}])
        files = str(tmp_path), "y", ["a", "b"], "w"
        expected = srgp.learn(model, (P.X, P.y, P.weights), learner, seed=2)
        rates = [r.learning_rate is not None for r in expected.history]
        assert any(rates) is (stages != "samples")  # `Sites`, or a pass of `SRGP`
        for data in (
            Table(*files),
            Partitions(cut(5), client),
            Partitions.from_files(*files, client=client),
        ):
            found = srgp.learn(model, data, learner, seed=2)
            assert len(found.history) == len(expected.history)
            # Some thirty evaluations of L-BFGS make of rounding what they make.
            assert found.bound == pytest.approx(expected.bound, rel=1e-7)
            np.testing.assert_allclose(found.model.inducing, expected.model.inducing, atol=1e-4)

    @pytest.mark.parametrize("learner", [srgp.SRGP(batch_size=200, epochs=3), "auto"])
    def test_others_improve_and_are_reproducible(self, client: Any, learner: Any) -> None:
        start = MODEL.replace(noise=1.0)
        before = srgp.log_bound(start, srgp.summarise(start, P.X, P.y))
        data = Partitions([part[:2] for part in cut(5)], client)
        first, again = (srgp.learn(start, data, learner, seed=3) for _ in range(2))
        assert first.bound > before + 100.0
        assert again.bound == pytest.approx(first.bound, rel=1e-9)
        same(first.statistics, srgp.summarise(first.model, P.X, P.y))

    @pytest.mark.parametrize(("each", "size"), [(250, 1500), (2500, 1500), (50, 600), (5000, 5000)])
    def test_rounds_hold_every_row_once(self, client: Any, each: int, size: int) -> None:
        X = np.arange(5000.0)[:, None]
        parts = [(X[i : i + each], X[i : i + each, 0]) for i in range(0, 5000, each)]
        data = Partitions(parts, client)
        rounds = [[b[0][b[2] > 0] for b in r.batches(64)] for r in data.rounds(size, seed=1)]
        seen = [np.concatenate(r).ravel() for r in rounds]
        np.testing.assert_array_equal(np.sort(np.concatenate(seen)), X.ravel())
        assert abs(len(seen) - 5000 / size) < 1.0
        assert all(0.4 * size < len(r) < 1.6 * size for r in seen)
        other = next(data.rounds(size, seed=2))
        assert not np.array_equal(next(other.batches(64))[0], rounds[0][0])

    def test_samples(self, client: Any) -> None:
        data = Partitions(cut(5), client)
        X, y, w = data.sample(100, seed=0)
        assert len(np.unique(X, axis=0)) == len(X) == len(y) == len(w) == 100
        np.testing.assert_array_equal(data.sample(100, seed=0)[0], X)
        assert not np.array_equal(data.sample(100, seed=1)[0], X)
        assert len(data.sample(10_000, seed=0)[0]) == (P.weights > 0).sum()
        here = random_rows(Arrays(P.X, P.y, P.weights), 100, seed=0)
        for mine, theirs in zip(here, (X, y, w), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        few = [(X, y, np.where(np.arange(len(X)) == 3, 1.0, 0.0)) for X, y, _ in cut(5)]
        assert (Partitions(few, client).sample(100, seed=0)[2] == 1.0).sum() == 5


class TestRegressor:
    def test_takes_an_address_and_stays_as_it_was_when_a_part_is_bad(self, client: Any) -> None:
        address = client.scheduler.address
        here = srgp.SparseGPRegressor(k.SE(), inducing=P.X[:15], learner=None).fit(P.X, P.y)
        est = srgp.SparseGPRegressor(k.SE(), inducing=P.X[:15], learner=None)
        est.fit_source((P.X, P.y), client=address)
        assert est.bound_ == pytest.approx(here.bound_, rel=1e-9)
        before = est.predict(P.Xs)
        bad = [(P.X, P.y), (P.X[:3], np.array([0.0, np.nan, 0.0]))]
        for learn in (est.fit_source, est.partial_fit_source):
            with pytest.raises(ValueError, match="part 1: y holds nan at index 1"):
                learn([dask.delayed(part) for part in bad], client=client)
            np.testing.assert_array_equal(est.predict(P.Xs), before)
        assert est.n_samples_seen_ == 630

    @pytest.mark.parametrize(
        "data",
        [
            dd.from_pandas(pd.DataFrame({"a": [1.0], "y": [1.0]}), npartitions=1),
            pd.DataFrame({"a": [1.0], "y": [1.0]}),
            lambda: iter([(P.X, P.y)]),
            3.0,
        ],
    )
    def test_other_data_are_refused_in_words(self, client: Any, data: Any) -> None:
        with pytest.raises(ValueError, match=r"\(X, y\)"):
            srgp.SparseGPRegressor().fit_source(data, client=client)

    def test_equals_one_machine(self, client: Any) -> None:
        settings: dict[str, Any] = {
            "kernel": k.SE(lengthscales=[1.0, 1.0]), "inducing": P.X[:20],
            "learner": srgp.Exact(iterations=3),
        }  # fmt: skip
        here = srgp.SparseGPRegressor(**settings).fit(P.X[:400], P.y[:400])
        X, y = da.from_array(P.X[:400], chunks=90), da.from_array(P.y[:400], chunks=90)
        there = srgp.SparseGPRegressor(**settings).fit_source((X, y), client=client)
        # Three line searches make more of the rounding errors of two orders of summation.
        assert there.bound_ == pytest.approx(here.bound_, rel=1e-6)
        there.partial_fit_source((P.X[400:], P.y[400:]), client=client)
        here.partial_fit(P.X[400:], P.y[400:])
        assert there.n_samples_seen_ == here.n_samples_seen_ == 630
        np.testing.assert_allclose(there.predict(P.Xs), here.predict(P.Xs), rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("parts", [2, 6])
    def test_starts_as_on_one_machine(
        self, client: Any, parts: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows are drawn, kernel, noise and inducing inputs found; and then learned a little."""
        monkeypatch.setattr("srgp.regressor.start.SAMPLE", 200)
        data = [part[:2] for part in cut(parts)]
        for learner in (None, srgp.Exact(iterations=2)):
            est = srgp.SparseGPRegressor(n_inducing=15, learner=learner)
            here = clone(est).fit_source((P.X, P.y))  # `fit` would sort so few rows
            there = est.fit_source(data, client=client)
            rtol = 1e-9 if learner is None else 1e-6  # line searches enlarge rounding errors
            np.testing.assert_allclose(there.model_.inducing, here.model_.inducing, rtol, rtol)
            assert there.bound_ == pytest.approx(here.bound_, rel=rtol)

    def test_defaults(self, client: Any) -> None:
        parts = [part[:2] for part in cut(6)]
        here = srgp.SparseGPRegressor(n_inducing=15).fit_source((P.X, P.y))
        there = srgp.SparseGPRegressor(n_inducing=15).fit_source(parts, client=client)
        assert there.score(P.X, P.y) > 0.5
        # L-BFGS leads rounding errors apart; it ends where the bound is flat.
        assert there.bound_ == pytest.approx(here.bound_, rel=1e-3)


def _dies_once(source: Source, folder: str) -> np.ndarray:
    """Counts rows; the worker that meets the mark takes it and dies."""
    count = np.array(source.count())
    try:
        os.rename(f"{folder}/mark", f"{folder}/taken")
    except FileNotFoundError:
        return count
    os._exit(1)


class TestFaults:
    def test_a_dead_worker_changes_nothing(self, client: Any, tmp_path: Path) -> None:
        (tmp_path / "mark").touch()
        data = Partitions([dask.delayed(part) for part in cut(20)], client)
        assert data.reduce(_dies_once, str(tmp_path)) == 630
        assert (tmp_path / "taken").exists()

    @pytest.mark.parametrize(
        ("learner", "anew"),
        [
            (srgp.Exact(8), False),
            (srgp.SRGP(batch_size=200, epochs=8), False),
            (srgp.SRGP(batch_size=200, epochs=8), True),
        ],
    )
    def test_deaths_during_learning(self, learner: Any, anew: bool) -> None:
        """A worker is killed a moment after the first report, while learning goes on."""
        with local_cluster(workers=2) as own:
            data = Partitions([dask.delayed(part) for part in cut(6)], own)
            data = data.reread() if anew else data
            expected = srgp.learn(MODEL, data, learner, seed=1)
            before = sorted(own.run(os.getpid).values())
            timers: list[threading.Timer] = []

            def kill(record: Any, model: srgp.Model) -> None:
                if not timers:
                    timers.append(threading.Timer(0.05, os.kill, (before[0], signal.SIGKILL)))
                    timers[0].start()

            found = srgp.learn(MODEL, data, learner, seed=1, callback=kill)
            assert not timers[0].is_alive()
            assert found.bound == pytest.approx(expected.bound, rel=1e-9)
            assert before[0] not in own.run(os.getpid).values()

    def test_bad_parts_are_named(self, client: Any, tmp_path: Path) -> None:
        parts = cut(4)
        parts[2][0][5, 1] = np.nan
        with pytest.raises(ValueError, match=r"part 2: X holds nan at index \(5, 1\)"):
            summarise(MODEL, Partitions(parts, client))
        odd = [(np.zeros((3, 2)), np.zeros(3)), (np.zeros((3, 1)), np.zeros(3))]
        with pytest.raises(ValueError, match="part 1 has 1 inputs"):
            Partitions(odd, client).count()
        rows = {"a": P.X[:100, 0], "b": P.X[:100, 1], "y": P.y[:100].copy()}
        write_table(str(tmp_path / "0.parquet"), [rows])
        rows["y"][7] = np.nan
        write_table(str(tmp_path / "1.parquet"), [rows])
        data = Partitions.from_files(str(tmp_path), "y", client=client)
        with pytest.raises(ValueError, match=r"1\.parquet holds a missing value in row 8"):
            summarise(MODEL, data)
        (tmp_path / "1.parquet").write_bytes(b"PAR1 no longer")
        with pytest.raises(ValueError, match=r"1\.parquet"):
            summarise(MODEL, data)

    def test_parts_without_rows_are_passed_over(self, client: Any, tmp_path: Path) -> None:
        expected = srgp.summarise(MODEL, P.X, P.y)
        none = (np.zeros((0, 2)), np.zeros(0))
        data = Partitions([none, *(part[:2] for part in cut(3)), none], client)
        same(summarise(MODEL, data), expected)
        assert data.count() == 630
        assert sum(r.count() for r in data.rounds(200, seed=0)) == 630
        assert srgp.learn(MODEL, data, srgp.SRGP(batch_size=200, epochs=1)).statistics.n == 630
        frame = pd.DataFrame({"a": P.X[:, 0], "b": P.X[:, 1], "y": P.y})
        parts = dd.from_pandas(frame, npartitions=3)
        same(summarise(MODEL, Partitions.from_frame(parts, "y", client=client)), expected)
        low = Partitions.from_frame(parts[parts["y"] > frame.y.max() - 1e-9], "y", client=client)
        assert summarise(MODEL, low).n == 1
        with pytest.raises(ValueError, match="no rows"):
            summarise(MODEL, Partitions([none], client))

    def test_parts_that_differ_are_refused(self, client: Any) -> None:
        (X, y, _), (X2, y2, _) = cut(2)
        for wrong in ((X2, y2[:, None]), (X2[:, :1], y2), (X2, np.stack([y2, y2], 1))):
            with pytest.raises(ValueError, match=r"differ|columns"):
                summarise(MODEL, Partitions([(X, y), wrong], client))

    def test_empty_and_unknown(self, client: Any) -> None:
        with pytest.raises(ValueError, match="no part"):
            Partitions([], client)
        X = da.from_array(P.X, chunks=100)
        with pytest.raises(ValueError, match="unknown sizes"):
            Partitions.from_arrays(X[X[:, 0] > 0], X[:, 0], client=client)
        with pytest.raises(ValueError, match="rows"):
            Partitions.from_arrays(X, X[:10, 0], client=client)

    @pytest.mark.parametrize("learner", [srgp.Exact(6), srgp.SRGP(batch_size=200, epochs=6)])
    def test_learning_goes_on_after_a_lost_scheduler(
        self, learner: Any, client: Any, tmp_path: Path
    ) -> None:
        """Killed while learning: said in words, and the checkpoint leads to the same model."""
        parts = [dask.delayed(part) for part in cut(3)]
        kept = tmp_path / "kept"

        def learned(client: Any, callback: Any = None) -> srgp.Learned:
            data, journal = Partitions(parts, client), srgp.Checkpoint(kept)
            return srgp.learn(MODEL, data, learner, seed=1, callback=callback, checkpoint=journal)

        with lonely_scheduler(tmp_path / "scheduler.json") as (scheduler, own):
            reports: list[Any] = []

            def kill(record: Any, model: srgp.Model) -> None:
                reports.append(record)
                if len(reports) == 3:
                    scheduler.kill()

            with pytest.raises(ConnectionError, match="checkpoint is intact"):
                learned(own, kill)
        before = {path: path.read_bytes() for path in kept.iterdir()}
        assert len(before) >= 3
        found = learned(client)
        assert all(path.read_bytes() == content for path, content in before.items())
        expected = srgp.learn(MODEL, Partitions(parts, client), learner, seed=1)
        # There was one worker before and are two now: sums of SRGP's batches round differently.
        rel = 1e-8 if isinstance(learner, srgp.SRGP) else 1e-12
        assert found.bound == pytest.approx(expected.bound, rel=rel)

    def test_a_closed_client_is_told_in_words(self) -> None:
        """Dask's own errors of it are those of a client that has no scheduler, of many kinds."""
        with local_cluster(workers=1) as own:
            data = Partitions([dask.delayed(part) for part in cut(2)], own)
        for work in (data.threads, data.persist, lambda: summarise(MODEL, data)):
            with pytest.raises(ConnectionError, match="cluster is gone"):
                work()

    def test_no_scheduler(self) -> None:
        with (
            pytest.raises(ConnectionError, match="dask scheduler"),
            dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
            connected("tcp://127.0.0.1:9"),
        ):
            pass


class TestMerge:
    def fitted(self) -> srgp.SparseGPRegressor:
        est = srgp.SparseGPRegressor(inducing=P.X[:15], learner=None)
        return est.fit(P.X[:300], P.y[:300])

    def test_same_parameters_merge_exactly(self) -> None:
        both, one, other = self.fitted(), self.fitted(), self.fitted()
        both.partial_fit(P.X[300:], P.y[300:])
        one.merge(other.restart().partial_fit(P.X[300:], P.y[300:]))
        assert one.merge_loss_ == 0.0
        np.testing.assert_allclose(one.predict(P.Xs), both.predict(P.Xs), rtol=1e-9)

    def test_other_inducing_inputs_are_refused_or_moved(self) -> None:
        est, other = self.fitted(), self.fitted().restart()
        few = other.model_.inducing[:10]
        other.model_ = other.model_.replace(inducing=few)
        other._set_statistics(
            srgp.summarise(
                other.model_, other.scaler_.inputs(P.X[300:]), other.scaler_.targets(P.y[300:])
            ),
            330.0,
        )
        before = est.bound_
        with pytest.raises(ValueError, match="different kernel parameters"):
            est.merge(other)
        assert est.bound_ == before
        # The new inducing inputs contain the old ones: nothing is lost.
        assert est.merge(other, move=True).merge_loss_ == pytest.approx(0.0, abs=1e-6)
        assert est.n_samples_seen_ == 630
        # To a part of them, too, but for the variance that these leave unexplained.
        whole = self.fitted()
        assert other.merge(whole, move=True).merge_loss_ > 0.1
        X, y = other.scaler_.inputs(P.X), other.scaler_.targets(P.y)
        same(other.statistics_, srgp.summarise(other.model_, X, y), 1e-9)
        # Elsewhere something is lost, and the bound is one still.
        away = self.fitted().restart()
        away.model_ = away.model_.replace(inducing=few + 0.1)
        away._set_statistics(0.0 * srgp.summarise(away.model_, X, y), 0.0)
        assert away.merge(other, move=True).merge_loss_ > 0.1
        exact = srgp.log_bound(away.model_, srgp.summarise(away.model_, X, y))
        assert srgp.log_bound(away.model_, away.statistics_) < exact

    def test_the_loss_of_another_kernel_is_told_to_be_missing(self) -> None:
        est, other = self.fitted(), self.fitted().restart()
        kernel = other.model_.kernel
        assert isinstance(kernel, k.SE)
        other.model_ = other.model_.replace(kernel=k.SE(kernel.variance, 0.3 * kernel.lengthscales))
        X, y = other.scaler_.inputs(P.X[300:]), other.scaler_.targets(P.y[300:])
        other._set_statistics(srgp.summarise(other.model_, X, y), 330.0)
        with pytest.warns(UserWarning, match="kernels differ.*not in merge_loss_"):
            est.merge(other, move=True)
        # The same R: nothing scatters, though rows seen by one kernel were not seen by the other.
        assert est.merge_loss_ == pytest.approx(0.0, abs=1e-6)
        assert est.n_samples_seen_ == 630

    @pytest.mark.parametrize(
        ("settings", "rows", "held"),
        [
            # Means of several rows, and inducing inputs that were moved while learning.
            ({"inducing": "kmeans", "learner": None}, 300, False),
            ({"inducing": "random", "learner": srgp.Exact(iterations=3)}, 300, False),
            ({"inducing": "greedy", "learner": srgp.Exact(iterations=3)}, 300, False),
            # Rows that stay where they are.
            ({"inducing": "random", "learner": None}, 300, True),
            ({"inducing": "greedy", "learner": None}, 300, True),
            ({"inducing": "kmeans", "learner": None}, 15, True),  # no more rows than M
        ],
    )
    def test_when_a_model_file_holds_inputs_of_rows(
        self, settings: dict[str, Any], rows: int, held: bool, tmp_path: Path
    ) -> None:
        """As docs/scale.md says."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(rows, 2)), rng.normal(size=rows)
        est = srgp.SparseGPRegressor(n_inducing=20, **settings).fit(X, y)
        est.save(tmp_path / "model.srgp")
        content = (tmp_path / "model.srgp").read_bytes()
        inputs = [row.tobytes() in content for row in est.scaler_.inputs(X)]
        assert sum(inputs) == (min(rows, 20) if held else 0)
        for value in (*X.ravel(), *y):
            assert value.tobytes() not in content
        # Only where all rows are inducing inputs is one alone with its target.
        targets = [value.tobytes() in content for value in est.scaler_.targets(y)]
        assert any(targets) == (rows < 20)

    def test_a_model_file_holds_inducing_inputs_as_they_were_given(self, tmp_path: Path) -> None:
        est = srgp.SparseGPRegressor(inducing=P.X[:15], learner=srgp.Exact(iterations=3))
        est.fit(P.X, P.y).save(tmp_path / "model.srgp")
        content = (tmp_path / "model.srgp").read_bytes()
        held = [row.tobytes() in content for row in P.X]
        assert held == [True] * 15 + [False] * (len(P.X) - 15)


@pytest.mark.parametrize("count", [2, 8])
def test_files_are_spread_over_the_workers(client: Any, tmp_path: Path, count: int) -> None:
    for i in range(count):
        (tmp_path / f"{i}.csv").write_text("a,b,y\n1.0,2.0,3.0\n")
    data = Partitions.from_files(str(tmp_path), "y", client=client)

    def where(source: Source, workers: list[str]) -> np.ndarray:
        here = distributed.get_worker().address
        return np.array([float(here == worker) for worker in workers])

    np.testing.assert_array_equal(data.reduce(where, list(client.nthreads())), count / 2)


def test_a_file_that_grows_between_passes_is_refused(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "1.0,2.0,3.0\n" * 20)
    data = Partitions.from_files(str(path), "y", client=client)
    summarise(MODEL, data)
    with path.open("a") as file:
        file.write("1.0,2.0,4.0\n")
    with pytest.raises(ValueError, match=r"rows\.csv has changed"):
        summarise(MODEL, data)


def test_dropped_rows_are_counted_by_the_workers(client: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,y\n1.0,,3.0\n1.0,2.0,3.0\n")
    (tmp_path / "b.csv").write_text("a,b,y\n1.0,,3.0\n")
    data = Partitions.from_files(str(tmp_path), "y", missing="drop", client=client)
    assert (data.count(), data.dropped) == (1, 2)


def test_one_worker_does_as_two_and_a_deadly_part_is_named(client: Any) -> None:
    two = summarise(MODEL, Partitions(cut(5), client))
    with local_cluster(workers=1) as alone:
        one = summarise(MODEL, Partitions(cut(5), alone))
        for a, b in zip(one.sums, two.sums, strict=True):
            np.testing.assert_array_equal(a, b)
        deadly = Partitions(cut(2), alone, ["a.parquet", "b.parquet"])
        with pytest.raises(ChildProcessError, match=r"workers died.*[ab]\.parquet"):
            deadly.reduce(lambda source: os._exit(1))


def test_held_rows_are_a_source() -> None:
    held = Held(P.X, P.y, P.weights)
    assert isinstance(held, Source)
    for mine, theirs in zip(
        held.batches(100, 0), Arrays(P.X, P.y, P.weights).batches(100, 0), strict=True
    ):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
