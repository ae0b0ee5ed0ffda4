"""The best θ of a stochastic run is given back: judged by data, not by its own mini-batches."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srgp
from srgp import kernels as k
from srgp.learners import judge
from srgp.learners.base import Task, as_model, make_task
from srgp.learners.judge import Best, Judge, judged
from srgp.linalg import quiet
from srgp.precision import double
from srgp.sources import Arrays, Batches
from srgp.tables import Table, write_table

rng = np.random.default_rng(0)
N, M = 1200, 40
X = rng.uniform(0.0, 3.0, (N, 3))
NOISY = 0.3 * np.sin(X[:, 0]) + rng.normal(size=N)
# Close to the best θ: batches of 60 rows, flattered by 40 inducing inputs, lead away from it.
GOOD = srgp.Model(k.SE(0.1, 1.7), 1.0, X[:M])


def bound_at(model: srgp.Model, X: Any = X, y: Any = NOISY) -> float:
    return srgp.log_bound(model, srgp.summarise(model, X, y))


def task_of(source: Any, **options: Any) -> Task:
    return make_task(GOOD, source, (), options.get("priors"), options.get("seed", 0), None)


def few(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(judge, "ENOUGH", rows)
    monkeypatch.setattr(judge, "PER_INDUCING", 0)


class Trace(list[srgp.Model]):
    """The models of all reports."""

    def __call__(self, record: Any, model: srgp.Model) -> None:
        self.append(model)


LEARNERS: dict[str, Callable[..., Any]] = {
    "Sites": lambda **options: srgp.Sites(batch_size=60, epochs=6, **options),
    "SRGP": lambda **options: srgp.SRGP(batch_size=60, epochs=6, **options),
}


@pytest.mark.parametrize("rate", [0.01, 0.1])
@pytest.mark.parametrize("name", LEARNERS)
def test_noise_leads_no_one_below_the_start(name: str, rate: float) -> None:
    """And every report is the best so far."""
    trace = Trace()
    learner = LEARNERS[name](learning_rate=rate)
    result = srgp.learn(GOOD, (X, NOISY), learner, callback=trace)
    bounds = [bound_at(GOOD), *map(bound_at, trace)]
    assert all(later >= earlier - 1e-6 for earlier, later in itertools.pairwise(bounds))
    assert result.bound == pytest.approx(bounds[-1], rel=1e-12)


def test_mini_batches_alone_would_lead_sites_below() -> None:
    """What the test above tells apart: there is something to notice."""

    class Blind(Judge):
        def __call__(self, values: Any) -> float:
            return 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srgp.learners.sites.Judge", Blind)
        result = srgp.learn(GOOD, (X, NOISY), LEARNERS["Sites"](learning_rate=0.1))
    assert result.bound < bound_at(GOOD) - 50.0


def test_srgp_gives_back_the_best_of_its_ends_of_epochs() -> None:
    kept, last = Trace(), Trace()
    learner = LEARNERS["SRGP"]
    srgp.learn(GOOD, (X, NOISY), learner(), callback=kept, seed=3)
    srgp.learn(GOOD, (X, NOISY), learner(keep_best=False), callback=last, seed=3)
    ends = [bound_at(GOOD), *map(bound_at, last)]
    expected = [max(ends[: i + 1]) for i in range(1, len(ends))]
    assert expected != ends[1:]
    np.testing.assert_allclose([bound_at(model) for model in kept], expected, rtol=1e-12)


def test_the_average_of_iterates_is_judged_as_well() -> None:
    options = {"average": 0.5, "schedule": "constant", "learning_rate": 0.02}
    kept, last = Trace(), Trace()
    for trace, keep_best in ((kept, True), (last, False)):
        learner = LEARNERS["SRGP"](keep_best=keep_best, **options)
        srgp.learn(GOOD, (X, NOISY), learner, callback=trace)
    assert bound_at(kept[-1]) == pytest.approx(max(bound_at(GOOD), *map(bound_at, last)))


def test_the_paper_gives_back_its_last() -> None:
    assert srgp.SRGP().keep_best
    assert not srgp.SRGP.paper(learning_rate=0.01).keep_best


class TestJudge:
    @double
    def test_all_rows_where_they_are_few(self) -> None:
        task = task_of(Arrays(X, NOISY))
        judge = Judge(task)
        # Its sums need not be whitened: they keep some digits fewer.
        assert judge(task.start) == pytest.approx(bound_at(GOOD), rel=1e-10)
        assert judge.task.source is task.source

    @double
    def test_a_sample_counts_as_often_as_it_is_smaller(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A third of the rows: as if each of them were there three times."""
        few(monkeypatch, N // 3)
        task = task_of(Arrays(X, NOISY))
        judge = Judge(task)
        found, again = judge(task.start), judge(task.start)
        sample: Any = judge.task.source
        assert len(sample.X) == N // 3 == len(np.unique(sample.y))
        assert found == again
        expected = bound_at(GOOD, np.tile(sample.X, (3, 1)), np.tile(sample.y, 3))
        assert found == pytest.approx(expected, rel=1e-9)
        assert found == pytest.approx(bound_at(GOOD), rel=0.05)

    @double
    def test_files_are_read_once_and_give_the_same_rows(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        path = str(tmp_path / "rows.parquet")
        write_table(path, [{"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": NOISY}])
        passes = []

        def again() -> Any:
            passes.append(1)
            return iter([(X[:500], NOISY[:500]), (X[500:], NOISY[500:])])

        for rows in (N // 3, 2 * N):
            few(monkeypatch, rows)
            expected = Judge(task_of(Arrays(X, NOISY)))(task_of(Arrays(X, NOISY)).start)
            for source in (Table(path, "y"), Batches(again)):
                task = task_of(source)
                judge, before = Judge(task), len(passes)
                found = judge(task.start), judge(task.start)
                assert found == pytest.approx((expected, expected), rel=1e-12)
                assert len(passes) - before <= 1

    @double
    def test_rows_of_weight_zero_do_not_count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        weights = np.where(np.arange(N) < 600, 1.0, 0.0)
        few(monkeypatch, 700)
        task = task_of(Arrays(X, NOISY, weights))
        assert Judge(task)(task.start) == pytest.approx(bound_at(GOOD, X[:600], NOISY[:600]))

    @double
    def test_priors_count_in_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        prior = srgp.priors.LogNormal(0.1, 1.0)
        few(monkeypatch, N // 3)
        plain, with_prior = (task_of(Arrays(X, NOISY), priors=p) for p in (None, {"noise": prior}))
        difference = Judge(with_prior)(with_prior.start) - Judge(plain)(plain.start)
        assert difference == pytest.approx(float(prior(1.0)), rel=1e-6)

    @double
    @pytest.mark.parametrize(
        "approximation", [srgp.VFE(), srgp.SoR(), srgp.FITC(), srgp.TighterVFE()]
    )
    @pytest.mark.parametrize("close", [1.0, 1e-5])
    def test_any_model(self, approximation: Any, close: float) -> None:
        """With and without whitening."""
        model = srgp.Model(GOOD.kernel, 1.0, np.r_[X[:20], X[:20] + close], approximation)
        task = make_task(model, Arrays(X, NOISY), (), None, 0, None)
        with quiet():
            # R is learned in units of its spread: to and fro rounds, and close points feel it.
            expected = bound_at(as_model(task, task.start))
        assert judged(task, task.start) == pytest.approx(expected, rel=1e-9)

    @double
    def test_where_there_is_no_bound(self) -> None:
        task = task_of(Arrays(X, NOISY))
        lost = GOOD.replace(kernel=k.SE(1e308, 1.0), noise=1e-300)
        with np.errstate(all="ignore"):
            assert judged(task, task.coordinates.values(lost)) == -math.inf

    def test_the_later_of_two_that_are_as_good(self) -> None:
        best = Best(-math.inf, "start").or_else(-math.inf, "later").or_else(1.0, "good")
        assert best.or_else(0.5, "worse").or_else(math.nan, "lost") == (1.0, "good")
        assert Best(-math.inf, "start").or_else(-math.inf, "later").place == "later"
