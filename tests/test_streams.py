"""Streams: the batch answer where nothing is forgotten, and a better one where the world moves."""

from collections.abc import Callable

import numpy as np
import pytest
from river import checks, datasets, evaluate, linear_model, metrics, preprocessing

import srgp
from srgp import kernels as k
from srgp import sysid
from srgp.onepass import carried
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
        losses = [carried(past, model, model.replace(inducing=np.delete(R, j, 0)))[1]
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
            {"renew": True, "forgetting": [0.9, 1.0]},
            {"follow": srgp.OnePass(), "towards": "prior"},
            {"chunk": 0},
        ],
    )
    def test_bad_settings_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError):
            OnlineGP(MODEL, **wrong)  # type: ignore[arg-type]


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
            found = narx.ahead(predict, y, self.u, steps)
            np.testing.assert_allclose(found, y[narx.first + steps - 1 :], atol=1e-9)

    def test_one_step_ahead_is_the_regression(self) -> None:
        y, narx = self.plant(0.1), NARX(lags=3, input_lags=0)
        X, target = narx.rows(y, np.stack([self.u, self.u**2], 1))
        assert X.shape == (397, 5)
        predict = sysid.linear(X, target)
        found = narx.ahead(predict, y, np.stack([self.u, self.u**2], 1), 1)
        np.testing.assert_allclose(found, predict(X)[0])

    def test_uncertainty_is_carried_along(self) -> None:
        """y_t = 0.9 y_{t−1} + N(0, 0.1²): the deviation grows to 0.1/√(1 − 0.81)."""
        narx = NARX(lags=1, input_lags=0)

        def predict(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return 0.9 * X[:, 0], np.full(len(X), 0.01)

        run = narx.simulate(predict, [1.0], np.zeros(80), trajectories=4000)
        assert run.deviation[0] == pytest.approx(0.1, rel=0.1)
        assert run.deviation[-1] == pytest.approx(0.1 / np.sqrt(0.19), rel=0.1)
        np.testing.assert_allclose(run.mean[:10], 0.9 ** np.arange(1, 11), atol=0.02)

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
