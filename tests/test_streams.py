"""Streams: the batch answer where nothing is forgotten, and a better one where the world moves."""

from collections.abc import Callable

import numpy as np
import pytest
from river import checks, datasets, evaluate, linear_model, metrics, preprocessing

import srgp
from srgp import kernels as k
from srgp import sysid
from srgp.streams import OnlineGP, Prequential, SlidingWindow
from srgp.streams.regions import renewed
from srgp.streams.river import RiverGP
from srgp.sysid import NARX

MODEL = srgp.Model(srgp.kernels.SE(lengthscales=0.8), 0.01, np.linspace(0, 6, 12)[:, None])


def rows(
    count: int, seed: int = 0, function: Callable[[np.ndarray], np.ndarray] = np.sin
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (count, 1))
    return X, function(X[:, 0]) + 0.1 * rng.normal(size=count)


class TestPrequential:
    def test_against_the_whole_list(self) -> None:
        rng = np.random.default_rng(0)
        y, mean, variance = rng.normal(size=50), rng.normal(size=50), rng.uniform(0.5, 2, 50)
        scores = Prequential(window=20)
        for part in np.split(np.arange(50), [1, 4, 30, 31]):
            scores.add(y[part], mean[part], variance[part])
        for score, last in ((scores.overall, slice(None)), (scores.recent, slice(-20, None))):
            expected = srgp.metrics.scores(y[last], mean[last], variance[last])
            assert score.rmse == pytest.approx(expected.rmse)
            assert score.nlpd == pytest.approx(expected.nlpd)
            assert score.coverage == pytest.approx(expected.coverage)
        assert (scores.overall.rows, scores.recent.rows) == (50, 20)

    def test_before_the_first_row(self) -> None:
        assert np.isnan(Prequential().recent.rmse)
        with pytest.raises(ValueError, match="window"):
            Prequential(window=0)

    def test_a_score_that_is_not_finite_is_refused(self) -> None:
        scores = Prequential(window=3)
        scores.add([1.0, 2.0], 0.0, 1.0)
        before = scores.overall, scores.recent
        for y, mean, variance in ((1e300, 0.0, 1.0), (1.0, 0.0, 0.0), (np.nan, 0.0, 1.0)):
            with pytest.raises(ValueError, match="scored"):
                scores.add([0.0, y], mean, variance)
            with pytest.raises(ValueError, match="scored"):
                scores.add_one(y, mean, variance)
        assert (scores.overall, scores.recent) == before


class TestSlidingWindow:
    @pytest.mark.parametrize("step", [1, 7, 60])
    def test_equals_the_last_rows(self, step: int) -> None:
        X, y = rows(300)
        window = SlidingWindow(MODEL, rows=50)
        for i in range(0, 300, step):
            window.add(X[i : i + step], y[i : i + step])
        expected = srgp.summarise(MODEL, X[-50:], y[-50:])
        assert window.statistics.n == 50
        np.testing.assert_allclose(window.statistics.sums.A, expected.sums.A, atol=1e-9)
        mean, _ = window.posterior.predict([[3.0]])
        exact, _ = srgp.posterior(MODEL, expected).predict([[3.0]])
        np.testing.assert_allclose(mean, exact, rtol=1e-7)

    def test_rounding_errors_do_not_add_up(self) -> None:
        """Rows a million times larger pass by; fresh sums remove what they leave behind."""
        X, y = rows(2000)
        y[:1000] *= 1e6
        window = SlidingWindow(MODEL, rows=100)
        for i in range(0, 2000, 20):
            window.add(X[i : i + 20], y[i : i + 20])
        exact = srgp.summarise(MODEL, X[-100:], y[-100:])
        np.testing.assert_allclose(window.statistics.sums.b, exact.sums.b, rtol=1e-9, atol=1e-9)

    def test_thousands_of_single_steps(self) -> None:
        """Sixty times the window, its errors looked at all along, in A, b and c.

        Between two fresh sums 50 rows come and 50 go: rounding of 1e-16 a row, and some room.
        """
        X, y = rows(3000)
        y[1500:1600] *= 1e3  # what passes by leaves its rounding behind, until the fresh sum
        model = MODEL.replace(inducing=MODEL.inducing[::3])
        window = SlidingWindow(model, rows=50).add(X[:50], y[:50])
        for i in range(50, 3000):
            window.add(X[i : i + 1], y[i : i + 1])
            if i % 50 in (24, 48) and not 1500 <= i < 1750:
                exact = srgp.summarise(model, X[i - 49 : i + 1], y[i - 49 : i + 1]).sums
                for name in ("A", "b", "c"):
                    found, fresh = getattr(window.statistics.sums, name), getattr(exact, name)
                    np.testing.assert_allclose(found, fresh, atol=1e-12 * np.abs(fresh).max())
        assert window.statistics.n == 50

    def test_bad_rows_change_nothing(self) -> None:
        X, y = rows(30)
        window = SlidingWindow(MODEL, rows=20).add(X, y)
        before = window.statistics
        for wrong in ((X[:2] * np.nan, y[:2]), (X[:2], y[:3]), (X[:2], np.ones((2, 2)))):
            with pytest.raises(ValueError):
                window.add(*wrong)
        assert window.statistics is before
        with pytest.raises(ValueError, match="no row"):
            _ = SlidingWindow(MODEL, rows=5).statistics


class TestFilterTested:
    def test_equals_predict_then_update(self) -> None:
        X, y = rows(20)
        f = g = srgp.Filter.start(MODEL)
        for x_i, y_i in zip(X, y, strict=True):
            expected = g.predict(x_i[None], noise=True)
            mean, variance, f = f.tested(x_i, y_i)
            g = g.update(x_i, y_i)
            np.testing.assert_allclose([mean, variance], np.ravel(expected), rtol=1e-9, atol=1e-12)
        assert f.log_bound == pytest.approx(g.log_bound, rel=1e-12)

    def test_bad_samples_are_refused(self) -> None:
        f = srgp.Filter.start(MODEL)
        for x, y in (([np.nan], 0.0), ([0.0], np.inf), ([0.0, 1.0], 0.0)):
            with pytest.raises(ValueError):
                f.tested(x, y)


class TestOnlineGP:
    def test_one_at_a_time_equals_the_batch(self) -> None:
        X, y = rows(150)
        single, many = OnlineGP(MODEL), OnlineGP(MODEL)
        for x_i, y_i in zip(X, y, strict=True):
            single.learn_one(x_i, y_i)
        for i in range(0, 150, 50):
            many.learn_many(X[i : i + 50], y[i : i + 50])
        grid = np.linspace(-1, 7, 9)[:, None]
        mean, variance = srgp.posterior(MODEL, srgp.summarise(MODEL, X, y)).predict(
            grid, noise=True
        )
        for gp in (single, many):
            found, deviation = gp.predict_many(grid)
            np.testing.assert_allclose(found, mean, rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(deviation, np.sqrt(variance), rtol=1e-6)
            assert gp.rows == gp.scores.overall.rows == 150

    def test_scores_are_of_predictions_before_learning(self) -> None:
        X, y = rows(60)
        gp, kept = OnlineGP(MODEL), []
        for x_i, y_i in zip(X, y, strict=True):
            kept.append(gp.predict_one(x_i))
            gp.learn_one(x_i, y_i)
        means, deviations = np.array(kept).T
        expected = srgp.metrics.scores(y, means, deviations**2)
        assert gp.scores.overall.rmse == pytest.approx(expected.rmse, rel=1e-9)
        assert gp.scores.overall.nlpd == pytest.approx(expected.nlpd, rel=1e-9)

    def test_it_starts_by_itself_in_any_units(self) -> None:
        X, y = rows(400)
        gp = OnlineGP(n_inducing=15, warm_up=100)
        assert gp.predict_one([1.0]) == (0.0, np.inf)
        gp.learn_one(X[0] * 1e3, 5e4 + 1e3 * y[0])
        assert gp.predict_one([1.0])[0] == pytest.approx(5e4 + 1e3 * y[0])
        with pytest.raises(ValueError, match="warming up"):
            _ = gp.model
        gp.learn_many(X[1:] * 1e3, 5e4 + 1e3 * y[1:])
        for x_i, y_i in zip(*rows(50, seed=1), strict=True):
            gp.learn_one(1e3 * x_i, 5e4 + 1e3 * y_i)
        assert gp.scores.overall.rmse < 130.0
        assert "inducing=15" in repr(gp)

    @pytest.mark.parametrize("towards", ["less data", "prior"])
    def test_forgetting_follows_a_jump(self, towards: str) -> None:
        before, after = rows(300), rows(300, 1, lambda x: 2.0 + np.cos(x))
        errors = {}
        for pace in (1.0, 0.98):
            gp = OnlineGP(MODEL, forgetting=pace, towards=towards, window=100)  # type: ignore[arg-type]
            for X, y in (before, after):
                for x_i, y_i in zip(X, y, strict=True):
                    gp.learn_one(x_i, y_i)
            errors[pace] = gp.scores.recent.rmse
        assert errors[0.98] < 0.3 < 0.5 < errors[1.0]

    def test_the_pace_of_forgetting_adapts(self) -> None:
        gp = OnlineGP(MODEL, forgetting=[1.0, 0.95], window=100)
        for i in range(40):
            gp.learn_many(*rows(20, 100 + i))
        assert gp.forgetting_weights[1.0] > 0.9
        for i in range(10):
            gp.learn_many(*rows(20, 10 + i, lambda x: 2.0 + np.cos(x)))
        assert gp.forgetting_weights[0.95] > 0.9
        assert gp.scores.recent.rmse < 0.5

    def test_parameters_follow(self) -> None:
        start = MODEL.replace(noise=0.5)
        gp = OnlineGP(start, follow=srgp.OnePass(steps=5, learning_rate=0.05), chunk=50)
        gp.learn_many(*rows(25))
        for i in range(20):
            gp.learn_many(*rows(50, i + 1))
        assert 0.005 < gp.model.noise < 0.05
        assert gp.scores.recent.coverage > 0.9

    def test_inducing_inputs_follow_a_stream_that_wanders(self) -> None:
        """From [0, 6] to [12, 18]: with renewal the error stays that of the noise."""
        errors = {}
        for renew in (False, True):
            gp = OnlineGP(MODEL, n_inducing=12, renew=renew, chunk=40, window=200)
            for i in range(60):
                rng = np.random.default_rng(i)
                X = rng.uniform(0, 6, (20, 1)) + 0.2 * i
                gp.learn_many(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=20))
            errors[renew] = gp.scores.recent.rmse
        assert errors[True] < 0.2 < errors[False]
        assert gp.loss > 0.0
        assert len(gp.model.inducing) == 12
        assert gp.model.inducing.max() > 12.0

    def test_inducing_inputs_stay_while_the_data_do(self) -> None:
        X, y = rows(100)
        past = srgp.summarise(MODEL, X, y)
        R = renewed(MODEL, past, X, 12, novelty=0.1)
        np.testing.assert_array_equal(R, MODEL.inducing)
        R = renewed(MODEL, past, X + 3.0, 40, novelty=0.1)
        assert 12 < len(R) <= 40
        np.testing.assert_array_equal(R[:12], MODEL.inducing)  # room was left: none had to go

    def test_the_one_whose_loss_costs_least_makes_room(self) -> None:
        """The loss by which inducing inputs are chosen is that of moving without them."""
        X, y = rows(100)
        R = np.append(MODEL.inducing, MODEL.inducing[4:5] + 0.2, 0)  # one that others replace
        model = MODEL.replace(inducing=R)
        past = srgp.summarise(model, X, y)
        losses = [srgp.move_loss(past, model, model.replace(inducing=np.delete(R, j, 0)))
                  for j in range(len(R))]  # fmt: skip
        kept = renewed(model, past, np.array([[20.0]]), len(R), novelty=0.1)
        gone = [j for j in range(len(R)) if R[j] not in kept]
        assert gone == [int(np.argmin(losses))]
        assert kept[-1] == 20.0

    def test_the_past_is_kept_where_the_budget_allows(self) -> None:
        """Rows in the order of their input, as of a time series: none of it is lost."""
        rng = np.random.default_rng(0)
        X = np.sort(rng.uniform(0, 12, (600, 1)), axis=0)
        y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=600)
        start = srgp.Model(k.SE(lengthscales=0.8), 0.01, np.linspace(0.0, 2.0, 8)[:, None])
        gp = OnlineGP(start, n_inducing=20, renew=True, chunk=50)
        for i in range(0, 600, 50):
            gp.learn_many(X[i : i + 50], y[i : i + 50])
        mean, _ = gp.predict_many(X)
        assert np.sqrt(np.mean((mean - np.sin(2.0 * X[:, 0])) ** 2)) < 0.1
        assert len(gp.inducing_inputs) == 20

    def test_bad_input_is_refused_and_changes_nothing(self) -> None:
        X, y = rows(50)
        gp = OnlineGP(MODEL)
        gp.learn_many(X, y)
        before = gp.predict_one([2.0])
        for x, target in (([np.nan], 0.0), ([0.0, 1.0], 0.0), ([0.0], np.inf)):
            with pytest.raises(ValueError):
                gp.learn_one(x, target)
        with pytest.raises(ValueError):
            gp.learn_many(X, y[:3])
        assert gp.predict_one([2.0]) == before
        assert gp.rows == 50

    @pytest.mark.parametrize(
        "wrong",
        [
            {"forgetting": 0.0},
            {"forgetting": [0.9, 1.1]},
            {"towards": "nothing"},
            {"renew": True, "towards": "prior"},
            {"follow": srgp.OnePass(), "towards": "prior"},
            {"chunk": 0},
            {"chunk": None},
            {"window": 2.5},
            {"n_inducing": "many"},
            {"follow": True},
            {"renew": "yes"},
            {"model": "SE"},
            {"forgetting": []},
            {"forgetting": [0.9, 0.9]},
            {"forgetting": "fast"},
            {"seed": "one"},
        ],
    )
    def test_bad_settings_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError):
            OnlineGP(**{"model": MODEL, **wrong})  # type: ignore[arg-type]


def fed(gp: OnlineGP, X: np.ndarray, y: np.ndarray) -> OnlineGP:
    for x_i, y_i in zip(X, y, strict=True):
        gp.learn_one(x_i, y_i)
    return gp


class TestStart:
    """Whatever the first rows are, the stream after them is learned: the noise is 0.1."""

    @pytest.mark.parametrize("level", [0.0, 7.0])
    @pytest.mark.parametrize("many", [True, False])
    def test_equal_targets_say_nothing(self, level: float, many: bool) -> None:
        gp = OnlineGP(n_inducing=12, warm_up=20, window=100)
        flat = rows(30)[0], np.full(30, level)
        gp.learn_many(*flat) if many else fed(gp, *flat)
        assert gp.predict_one([1.0]) == (level, np.inf)
        fed(gp, *rows(300, 1))
        assert gp.rows == 330
        assert gp.scores.recent.rmse < 0.2
        assert gp.scores.recent.coverage > 0.8
        assert abs(gp.scores.overall.nlpd) < 5.0

    def test_targets_that_hardly_differ_are_refuted(self) -> None:
        """In units of 1e-9 the stream is far off; the model is made anew, and `restarts` tells."""
        gp = OnlineGP(n_inducing=12, warm_up=40, window=100)
        X, y = rows(60)
        fed(gp, X, 7.0 + 1e-9 * y)
        assert gp.restarts == 0
        fed(gp, *rows(400, 1))
        assert gp.restarts == 1
        assert gp.scores.recent.rmse < 0.15
        assert gp.scores.recent.coverage > 0.85
        assert gp.predict_one([1.0])[1] == pytest.approx(0.1, rel=0.5)

    @pytest.mark.parametrize("more", [{}, {"renew": True, "follow": srgp.OnePass(), "chunk": 30}])
    def test_a_new_start_by_batches(self, more: dict[str, object]) -> None:
        gp = OnlineGP(n_inducing=12, warm_up=40, window=100, **more)  # type: ignore[arg-type]
        X, y = rows(40)
        gp.learn_many(X, 1e-9 * y)
        for i in range(8):
            gp.learn_many(*rows(40, i + 1))
        assert gp.restarts == 1
        assert gp.scores.recent.rmse < 0.2

    def test_the_shortest_warm_up(self) -> None:
        gp = fed(OnlineGP(n_inducing=12, warm_up=1, window=100), *rows(400))
        assert gp.scores.recent.rmse < 0.3
        assert gp.predict_one([1.0])[1] > 0.02
        assert gp.scores.overall.nlpd < 50.0

    def test_a_given_model_is_kept(self) -> None:
        gp = fed(OnlineGP(MODEL, warm_up=10), *rows(100, 0, lambda x: 1e3 + x))
        assert gp.restarts == 0

    def test_drift_is_left_to_forgetting(self) -> None:
        """Ten deviations off is a change of the world, not a mistake about its units."""
        gp = fed(OnlineGP(n_inducing=12, warm_up=50), *rows(100))
        fed(gp, *rows(100, 1, lambda x: 1.0 + np.sin(x)))
        assert gp.restarts == 0

    @pytest.mark.parametrize("warm", [0, 5, 60])
    def test_absurd_numbers_are_refused(self, warm: int) -> None:
        gp = fed(OnlineGP(n_inducing=12, warm_up=40), *rows(warm))
        before = gp.predict_one([1.0]), gp.rows, gp.scores.overall
        for x, y in (([1.0], 1e300), ([1.0], -1e101), ([1e200], 1.0), ([np.nan], 1.0)):
            with pytest.raises(ValueError):
                gp.learn_one(x, y)
            with pytest.raises(ValueError):
                gp.learn_many([[1.0], x], [0.0, y])
        if warm:
            with pytest.raises(ValueError, match="columns"):
                gp.learn_one([1.0, 2.0], 1.0)
        assert repr((gp.predict_one([1.0]), gp.rows, gp.scores.overall)) == repr(before)

    def test_it_recovers_from_a_wild_number(self) -> None:
        gp = fed(OnlineGP(n_inducing=12, warm_up=40, window=100), *rows(60))
        gp.learn_one([1.0], 1e90)
        fed(gp, *rows(300, 1))
        assert gp.restarts == 1
        assert gp.scores.recent.rmse < 0.15


class TestLoss:
    def test_every_move_is_counted(self) -> None:
        """θ and R follow: the loss is that of each move, made again by hand."""
        start = srgp.Model(k.SE(lengthscales=0.8), 0.05, np.linspace(1, 5, 6)[:, None])
        follow = srgp.OnePass(steps=5, learning_rate=0.05)
        gp = OnlineGP(start, follow=follow, chunk=50)
        model, past, memory, expected = start, 0.0 * srgp.summarise(start, *rows(1)), None, 0.0
        for i in range(6):
            X, y = rows(50, i)
            gp.learn_many(X, y)
            old, before = model, past
            model, past, memory = follow.update(model, past, X, y, memory=memory)
            expected += srgp.move_loss(before, old, model)
        assert np.abs(gp.inducing_inputs - start.inducing).max() > 0.1
        assert gp.loss == pytest.approx(expected, rel=1e-6)
        assert gp.loss > 0.1

    def test_several_paces_follow_together(self) -> None:
        """After a jump the short memory leads, θ and R follow it, and all keep to one model."""
        gp = OnlineGP(MODEL, forgetting=[1.0, 0.97], follow=srgp.OnePass(), renew=True,
                      chunk=20, window=100)  # fmt: skip
        for i in range(20):
            gp.learn_many(*rows(20, 100 + i))
        assert gp.forgetting_weights[1.0] > 0.5
        for i in range(15):
            gp.learn_many(*rows(20, 10 + i, lambda x: 2.0 + np.cos(x)))
        assert gp.forgetting_weights[0.97] > 0.9
        assert gp.scores.recent.rmse < 0.3

    def test_several_paces_are_several_sums(self) -> None:
        """At fixed θ and R, each filter is that of its own forgotten sums."""
        gp = OnlineGP(MODEL, forgetting=[1.0, 0.9], renew=True, chunk=10, n_inducing=12)
        parts = [rows(10, i) for i in range(4)]
        for part in parts:
            gp.learn_many(*part)
        np.testing.assert_array_equal(gp.model.inducing, MODEL.inducing)
        for pace, f in zip((1.0, 0.9), gp._filters, strict=True):
            sums = srgp.summarise(MODEL, *parts[0])
            for part in parts[1:]:
                sums = pace**10 * sums + srgp.summarise(MODEL, *part)
            expected, _ = srgp.posterior(MODEL, sums).predict([[2.0]])
            np.testing.assert_allclose(f.predict([[2.0]])[0], expected, rtol=1e-8)


class TestSystems:
    u = np.sin(np.arange(400) / 7.0) + np.cos(np.arange(400) / 3.0)

    def plant(self, noise: float = 0.0) -> np.ndarray:
        y = np.zeros(400)
        for t in range(2, 400):
            y[t] = 0.6 * y[t - 1] - 0.2 * y[t - 2] + 0.5 * self.u[t - 1]
        return y + noise * np.random.default_rng(0).normal(size=400)

    def test_a_linear_plant_is_found_exactly(self) -> None:
        y, narx = self.plant(), NARX(lags=2, input_lags=1)
        predict = sysid.linear(*narx.rows(y, self.u))
        run = narx.simulate(predict, y[:2], self.u)
        np.testing.assert_allclose(run.mean, y[2:], atol=1e-9)
        for steps in (1, 5):
            found = narx.ahead(predict, y, self.u, steps).mean
            np.testing.assert_allclose(found, y[narx.first + steps - 1 :], atol=1e-9)

    def test_one_step_ahead_is_the_regression(self) -> None:
        y, narx = self.plant(0.1), NARX(lags=3, input_lags=0)
        X, target = narx.rows(y, np.stack([self.u, self.u**2], 1))
        assert X.shape == (397, 5)
        predict = sysid.linear(X, target)
        for trajectories in (0, 7):
            found = narx.ahead(predict, y, np.stack([self.u, self.u**2], 1), 1, trajectories)
            np.testing.assert_allclose(found.mean, predict(X)[0])
            np.testing.assert_allclose(found.deviation, np.sqrt(predict(X)[1]))

    def test_uncertainty_is_carried_along(self) -> None:
        """y_t = 0.9 y_{t−1} + N(0, 0.1²): the deviation grows to 0.1/√(1 − 0.81)."""
        narx = NARX(lags=1, input_lags=0)

        def predict(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return 0.9 * X[:, 0], np.full(len(X), 0.01)

        run = narx.simulate(predict, [1.0], np.zeros(80), trajectories=4000)
        assert run.deviation[0] == pytest.approx(0.1, rel=0.1)
        assert run.deviation[-1] == pytest.approx(0.1 / np.sqrt(0.19), rel=0.1)
        np.testing.assert_allclose(run.mean[:10], 0.9 ** np.arange(1, 11), atol=0.02)

    def test_recursive_least_squares_are_those_of_the_batch(self) -> None:
        """But for the prior of 1e-8, and the variance, which is of predictions."""
        X, target = NARX(lags=2, input_lags=1).rows(self.plant(0.1), self.u)
        line, predict = sysid.Recursive(), sysid.linear(X, target)
        for x_i, y_i in zip(X, target, strict=True):
            line.learn_one(x_i, y_i)
        np.testing.assert_allclose(line(X)[0], predict(X)[0], atol=1e-6)
        assert np.median(line(X)[1]) == pytest.approx(predict(X)[1][0], rel=0.1)
        with pytest.raises(ValueError, match="columns"):
            line.learn_one([1.0], 0.0)
        with pytest.raises(ValueError, match="nothing"):
            sysid.Recursive()(X)

    @staticmethod
    def known(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """y_t = 0.9 y_{t−1} + 0.5 u_t + N(0, 0.1²)."""
        return 0.9 * X[:, 0] + 0.5 * X[:, 1], np.full(len(X), 0.01)

    def test_several_steps_ahead_are_the_steps_of_a_simulation(self) -> None:
        """From the same past; the mean of 20 000 draws is good to 0.002, their deviation too."""
        narx, u = NARX(lags=1, input_lags=0), self.u[:8]
        run = narx.simulate(self.known, [1.0], u, trajectories=20_000)
        y = np.append(1.0, np.zeros(7))
        for steps in (1, 3, 7):
            found = narx.ahead(self.known, y, u, steps, trajectories=20_000, seed=1)
            assert found.mean[0] == pytest.approx(run.mean[steps - 1], abs=0.01)
            assert found.deviation[0] == pytest.approx(run.deviation[steps - 1], abs=0.01)
            exact = 0.1 * np.sqrt((0.81 ** np.arange(steps)).sum())
            assert found.deviation[0] == pytest.approx(exact, rel=0.03)

    def test_intervals_several_steps_ahead_cover(self) -> None:
        """3000 rows; errors ten steps ahead are correlated over ten, so 0.95 is good to 0.02."""
        rng, narx = np.random.default_rng(0), NARX(lags=1, input_lags=0)
        u, y = rng.normal(size=3000), np.zeros(3000)
        for t in range(1, 3000):
            y[t] = 0.9 * y[t - 1] + 0.5 * u[t] + 0.1 * rng.normal()
        covered = {}
        for trajectories in (0, 100):
            found = narx.ahead(self.known, y, u, 10, trajectories)
            inside = np.abs(y[10:] - found.mean) <= 1.96 * found.deviation
            covered[trajectories] = inside.mean()
        assert covered[100] == pytest.approx(0.95, abs=0.03)
        assert covered[0] < 0.8  # that of a single step is too small

    @pytest.mark.parametrize("trajectories", [1, -3, 2.5, True])
    def test_one_trajectory_has_no_deviation(self, trajectories: int) -> None:
        narx = NARX(lags=1, input_lags=0)
        with pytest.raises(ValueError, match="trajectories"):
            narx.simulate(self.known, [1.0], np.zeros(5), trajectories)
        with pytest.raises(ValueError, match="trajectories"):
            narx.ahead(self.known, np.zeros(5), np.zeros(5), 2, trajectories)

    def test_a_gp_beats_the_line_on_a_curved_plant(self) -> None:
        rng = np.random.default_rng(0)
        u = np.repeat(rng.uniform(-1, 1, 120), 10)
        y = np.zeros(1200)
        for t in range(1, 1200):
            y[t] = 0.7 * y[t - 1] + np.tanh(3.0 * u[t - 1]) + 0.3 * u[t - 1] ** 2
        y = y + 0.02 * rng.normal(size=1200)
        narx = NARX(lags=1, input_lags=1, direct=False)
        X, target = narx.rows(y[:900], u[:900])
        est = srgp.SparseGPRegressor(n_inducing=30).fit(X, target)

        def gp(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            mean, deviation = est.predict(rows, return_std=True)
            return mean, deviation**2

        errors = [
            np.sqrt(np.mean((narx.simulate(p, y[900:901], u[900:]).mean - y[901:]) ** 2))
            for p in (gp, sysid.linear(X, target))
        ]
        assert errors[0] < 0.3 * errors[1]

    def test_bad_series_are_refused(self) -> None:
        narx = NARX()
        with pytest.raises(ValueError, match="shape"):
            narx.rows(np.zeros(5), np.zeros(6))
        with pytest.raises(ValueError, match="no row"):
            narx.rows(np.zeros(2), np.zeros(2))
        with pytest.raises(ValueError, match="too few"):
            narx.ahead(sysid.linear([[0.0]], [0.0]), np.zeros(5), np.zeros(5), 10)
        with pytest.raises(ValueError, match="no input"):
            NARX(input_lags=0, direct=False)
        with pytest.raises(ValueError, match="lags"):
            NARX(lags=0)


class TestRiver:
    @pytest.mark.parametrize("settings", [{}, {"forgetting": (1.0, 0.99)}])
    def test_rivers_own_checks(self, settings: dict[str, object]) -> None:
        model = RiverGP(n_inducing=10, warm_up=30, **settings)  # type: ignore[arg-type]
        names = set()
        for check in checks.yield_checks(model):
            check(model.clone())
            names.add(check.__name__)
        assert {"check_pickling", "check_emerging_features", "check_learn_one"} <= names

    def test_in_a_pipeline(self) -> None:
        model = preprocessing.StandardScaler() | RiverGP(n_inducing=20, warm_up=100)
        line = preprocessing.StandardScaler() | linear_model.LinearRegression()
        errors = [
            evaluate.progressive_val_score(stream, one, metrics.MAE()).get()
            for one in (model, line)
            for stream in (datasets.synth.Friedman(seed=0).take(400),)
        ]
        assert errors[0] < 0.7 * errors[1]
        assert model["RiverGP"].scores.overall.rows == 300
