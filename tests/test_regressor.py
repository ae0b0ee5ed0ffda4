"""The scikit-learn front: its contract, and that it says what the core says."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import srgp
from srgp import SparseGPRegressor, learners, storage
from srgp import kernels as k
from srgp.regressor import DegenerateWarning
from srgp.regressor.weights import merge_repeats
from srgp.sources import Arrays
from srgp.tables import Table, write_table

FEW = learners.Exact(iterations=15)


# Ten inducing inputs: so that most of its small data sets have as many, and compile once.
@parametrize_with_checks([SparseGPRegressor(n_inducing=10)])
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        # They hand in data of every kind, such as one column far from zero.
        warnings.simplefilter("ignore")
        check(estimator)


def data(N: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two inputs of very different units, targets far from zero."""
    rng = np.random.default_rng(seed)
    X = rng.uniform([0.0, -1e-3], [10.0, 1e-3], (N, 2))
    return X, 500.0 + 20.0 * np.sin(X[:, 0]) + 5e3 * X[:, 1] + rng.normal(size=N)


def test_after_transformers_that_hand_on_data_frames() -> None:
    X, y = data()
    frame = pd.DataFrame(X, columns=["a", "b"])
    for kind in ("pandas", "polars"):
        pipe = make_pipeline(StandardScaler(), SparseGPRegressor(n_inducing=10, learner=FEW))
        pipe.set_output(transform=kind).fit(frame, y)
        assert pipe[-1].feature_names_in_.tolist() == ["a", "b"]
        assert pipe.score(frame, y) > 0.9


def test_is_shown_as_it_was_made(fitted: SparseGPRegressor) -> None:
    assert repr(SparseGPRegressor(n_inducing=20)) == "SparseGPRegressor(n_inducing=20)"
    for est in (fitted, SparseGPRegressor(n_inducing=20)):
        page = est._repr_html_()
        assert "SparseGPRegressor" in page
        assert "n_inducing" in page


@pytest.fixture(scope="module")
def fitted() -> SparseGPRegressor:
    return SparseGPRegressor(n_inducing=20).fit(*data())


def again(est: SparseGPRegressor) -> SparseGPRegressor:
    return pickle.loads(pickle.dumps(est))


def test_answers_are_in_the_users_units(fitted: SparseGPRegressor) -> None:
    X, y = data(seed=1)
    mean, deviation = fitted.predict(X, return_std=True)
    assert np.sqrt(np.mean((y - mean) ** 2)) == pytest.approx(1.0, abs=0.15)
    assert 0.92 < np.mean(np.abs(y - mean) < 1.96 * deviation) < 0.98
    assert fitted.noise_std_ == pytest.approx(1.0, rel=0.15)
    assert fitted.inducing_points_.shape == (20, 2)
    assert np.ptp(fitted.inducing_points_[:, 0]) > 5.0
    assert np.abs(fitted.inducing_points_[:, 1]).max() < 0.01
    assert fitted.lengthscales_[0] > 100 * fitted.lengthscales_[1]
    without = fitted.predict(X, return_std=True, include_noise=False)[1]
    added = fitted.predictive_noise_std_**2
    np.testing.assert_allclose(deviation**2 - without**2, added, rtol=1e-9)
    # A smooth function and enough inducing inputs: next to nothing is counted twice.
    assert added == pytest.approx(fitted.noise_std_**2, rel=1e-2)
    assert fitted.score(X, y) > 0.99


def test_the_bound_is_that_of_the_data_in_their_own_units(fitted: SparseGPRegressor) -> None:
    """The full GP of the same model, moved to the user's units by hand, is bounded by it."""
    X, y = data()
    spread = fitted.scaler_.y_spread
    kernel = k.SE(
        variance=fitted.model_.kernel.variance * spread**2, lengthscales=fitted.lengthscales_
    )
    model = srgp.Model(kernel, fitted.noise_std_**2, fitted.inducing_points_)
    expected = srgp.log_bound(model, srgp.summarise(model, X, y - fitted.scaler_.y_centre))
    assert fitted.bound_ == pytest.approx(expected, rel=1e-9)


def test_joint_covariance_and_samples(fitted: SparseGPRegressor) -> None:
    X, _ = data(5, seed=2)
    mean, deviation = fitted.predict(X, return_std=True, include_noise=False)
    same, covariance = fitted.predict(X, return_cov=True, include_noise=False)
    np.testing.assert_array_equal(mean, same)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), deviation, rtol=1e-6)
    drawn = fitted.sample_y(X, 4000, random_state=1)
    assert drawn.shape == (5, 4000)
    np.testing.assert_allclose(drawn.mean(1), mean, atol=5 * deviation.max() / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(drawn), covariance, atol=0.15 * covariance.max())
    np.testing.assert_array_equal(drawn, fitted.sample_y(X, 4000, random_state=1))


def rough(N: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A function with more bends than a dozen inducing inputs can follow."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    return X, np.sin(6.0 * X[:, 0]) * np.cos(5.0 * X[:, 1]) + 0.1 * rng.normal(size=N)


def test_intervals_do_not_count_twice_what_inducing_inputs_miss() -> None:
    est = SparseGPRegressor(n_inducing=12).fit(*rough(3000, 0))
    X, y = rough(3000, 1)
    mean, deviation = est.predict(X, return_std=True)
    _, plain = est.posterior_.predict(est.scaler_.inputs(X), noise=True)

    def covered(deviation: np.ndarray) -> float:
        return float(np.mean(np.abs(y - mean) < 1.96 * deviation))

    assert 0.93 < covered(deviation) < 0.97
    # Twice counted, σ would cover more by three standard errors of 3000 rows at least.
    assert covered(np.sqrt(plain) * est.scaler_.y_spread) > 0.95 + 3 * np.sqrt(0.05 * 0.95 / 3000)
    # Errors are, on average, what was promised: 3000 of them, within three standard errors.
    assert np.mean((y - mean) ** 2 / deviation**2) == pytest.approx(1.0, abs=3 * np.sqrt(2 / 3000))


def test_the_noise_of_a_measurement_comes_from_the_errors_of_the_rows_learned() -> None:
    """By hand, from the rows themselves; and at VFE's optimum it is σ² − 2d̄."""
    X, y = rough(500, 0)
    est = SparseGPRegressor(n_inducing=8, learner=srgp.Exact(iterations=300, tolerance=0.0))
    est.fit(X, y)
    Xs, ys = est.scaler_.inputs(X), est.scaler_.targets(y)
    mean, variance = est.posterior_.predict(Xs)
    sor = est.model_.replace(approximation=srgp.SoR())
    _, weights_alone = srgp.posterior(sor, srgp.summarise(sor, Xs, ys)).predict(Xs)
    unexplained = np.mean(variance - weights_alone)
    by_hand = np.mean((ys - mean) ** 2 + weights_alone) - unexplained
    found = (est.predictive_noise_std_ / est.scaler_.y_spread) ** 2
    assert 0.1 * est.model_.noise < found < est.model_.noise
    assert found == pytest.approx(by_hand, rel=1e-9)
    assert found == pytest.approx(est.model_.noise - 2.0 * unexplained, rel=1e-3)


def test_every_output_has_the_noise_of_its_own_errors() -> None:
    """They share σ², which would be too much for one of them and too little for another."""

    def outputs(N: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1.0, 1.0, (N, 2))
        f = np.stack([np.sin(3.0 * X[:, 0]), np.cos(2.0 * X[:, 1]), X.sum(1)], 1)
        return X, 100.0 * (f + [0.035, 0.2, 0.0] * rng.normal(size=(N, 3)))

    est = SparseGPRegressor(n_inducing=30).fit(*outputs(3000, 0))
    X, y = outputs(2000, 1)
    mean, deviation = est.predict(X, return_std=True)
    covered = np.mean(np.abs(y - mean) < 1.96 * deviation, 0)
    # 2000 rows of 95 %: a standard error of half a percent; what has no noise may be covered whole.
    assert (covered[:2] > 0.93).all()
    assert (covered[:2] < 0.97).all()
    assert covered[2] > 0.93
    assert est.predictive_noise_std_[:2] == pytest.approx([3.5, 20.0], rel=0.1)
    assert est.predictive_noise_std_[2] < 0.5
    same, covariance = est.predict(X[:4], return_cov=True)
    np.testing.assert_array_equal(same, est.predict(X[:4]))
    np.testing.assert_allclose(
        np.sqrt(np.diagonal(covariance)).T, deviation[:4], rtol=1e-6
    )  # two ways to a small difference of the prior variance
    drawn = est.sample_y(X[:4], 4000, include_noise=True)
    np.testing.assert_allclose(drawn.std(-1), deviation[:4], rtol=0.06)  # five standard errors


def test_an_output_without_any_error_has_next_to_no_noise() -> None:
    X, y = data(60)
    with pytest.warns(DegenerateWarning):
        est = SparseGPRegressor(n_inducing=5, learner=None).fit(X, np.stack([y, 0.0 * y], 1))
    assert (est.predictive_noise_std_ >= 0.0).all()
    drawn = est.sample_y(X[:3], 10, include_noise=True)
    assert np.isfinite(drawn).all()
    assert np.isfinite(est.predict(X, return_std=True, include_noise=False)[1]).all()


def test_a_caller_without_a_module_is_warned_like_others() -> None:
    code = "import srgp; srgp.SparseGPRegressor(learner=None).fit([[0.0], [1.0]], [1.0, 1.0])"
    with pytest.warns(DegenerateWarning):
        exec(code, {})


def test_partial_fit_is_one_exact_posterior() -> None:
    X, y = data()
    parts = SparseGPRegressor(n_inducing=15, learner=FEW).fit(X[:250], y[:250])
    theta = parts.model_
    for i in range(250, 400, 30):
        parts.partial_fit(X[i : i + 30], y[i : i + 30])
    assert parts.model_ is theta
    assert parts.n_samples_seen_ == 400
    Xs, ys = parts.scaler_.inputs(X), parts.scaler_.targets(y)
    whole = srgp.summarise(theta, Xs, ys)
    mean, variance = srgp.posterior(theta, whole).predict(Xs)
    found, deviation = parts.predict(X, return_std=True, include_noise=False)
    np.testing.assert_allclose(found, parts.scaler_.targets_back(mean), rtol=1e-9)
    np.testing.assert_allclose(deviation, np.sqrt(variance) * parts.scaler_.y_spread, rtol=1e-8)
    assert parts.bound_ == pytest.approx(
        srgp.log_bound(theta, whole) - 400 * np.log(parts.scaler_.y_spread), rel=1e-9
    )


def test_unlearn_merge_and_restart(fitted: SparseGPRegressor) -> None:
    X, y = data(60, seed=3)
    one = again(fitted).partial_fit(X, y)
    assert one.bound_ != pytest.approx(fitted.bound_, rel=1e-3)
    merged = again(fitted).merge(again(fitted).restart().partial_fit(X, y))
    assert merged.n_samples_seen_ == one.n_samples_seen_ == 460
    np.testing.assert_allclose(merged.predict(X), one.predict(X), rtol=1e-10)
    assert merged.bound_ == pytest.approx(one.bound_, rel=1e-12)
    one.unlearn(X, y)
    assert one.n_samples_seen_ == 400
    np.testing.assert_allclose(one.predict(X), fitted.predict(X), rtol=1e-8)
    assert one.bound_ == pytest.approx(fitted.bound_, rel=1e-9)


def test_rows_that_cannot_have_been_learned_stay(fitted: SparseGPRegressor) -> None:
    X, y = data(30, seed=4)
    est, before = again(fitted), fitted.predict(X)
    for rows, targets in [
        (np.repeat(X[:1], 300, 0), np.repeat(y[:1], 300)),  # one place 300 times
        (X, y + 1000.0),
        (data(400)[0], data(400)[1] + 1.0),  # the rows learned, with other targets
    ]:
        with pytest.raises(ValueError, match="never learned"):
            est.unlearn(rows, targets)
    np.testing.assert_array_equal(est.predict(X), before)
    assert est.n_samples_seen_ == 400
    assert est.unlearn(*data(400)).n_samples_seen_ == 0  # all of them leave nothing


def test_bounds_along_the_way_are_in_the_units_of_y(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data(200)
    told: list[Any] = []
    est = SparseGPRegressor(n_inducing=10, learner=srgp.Exact(iterations=5), verbose=True)
    est.fit_source((X, 1000.0 * y), callback=lambda record, model: told.append(record))
    assert est.history_[-1].bound == pytest.approx(est.bound_, rel=1e-9)
    assert told == list(est.history_)
    assert f"{est.history_[-1].bound:.8g}" in capsys.readouterr().out


def test_degenerate_data_are_warned_of() -> None:
    X = np.linspace(0, 1, 20)[:, None]
    for rows, targets, message in [
        (X[:1], X[:1, 0], "only one row"),
        (X, np.full(20, 3.0), "the target is constant"),
        (X, np.column_stack([X[:, 0], np.ones(20)]), "one of the targets is constant"),
    ]:
        with pytest.warns(DegenerateWarning, match=message):
            SparseGPRegressor(n_inducing=5, learner=None).fit(rows, targets)


def test_nothing_is_learned_from_targets_that_tell_nothing() -> None:
    """Noise and variance would go to zero: certain of everything after one row."""
    X = np.linspace(0, 1, 20)[:, None]
    for rows, targets in [(X[:1], X[:1, 0]), (X, np.full(20, 3.0)), (X, np.ones((20, 2)))]:
        with pytest.warns(DegenerateWarning):
            est = SparseGPRegressor(n_inducing=5).fit(rows, targets)
        assert est.history_ is None
        mean, deviation = est.predict([[0.5], [100.0]], return_std=True)
        np.testing.assert_allclose(mean, np.stack([targets[0]] * 2), atol=1e-6)
        # Far from all rows it is the prior's, in units of y.
        np.testing.assert_allclose(deviation[1], 1.0, rtol=0.01)
        assert (deviation > 1e-4).all()
    with pytest.warns(DegenerateWarning):  # the other output can be learned
        est = SparseGPRegressor(n_inducing=5).fit(X, np.column_stack([X[:, 0], np.ones(20)]))
    assert est.history_ is not None


def test_numbers_too_large_to_be_squared_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match=r"X has numbers too large .* column 1"):
        SparseGPRegressor(n_inducing=5).fit(X * [1.0, 1e200], X[:, 0])
    est = SparseGPRegressor(n_inducing=5)
    with pytest.raises(ValueError, match=r"y holds -?\d.*e\+\d+ at index \d+, whose square"):
        est.fit(X, 1e200 * X[:, 0])
    before = est.fit(X, X[:, 0]).predict(X)
    with pytest.raises(ValueError, match="whose square has no room"):
        est.partial_fit(X, 1e300 * X[:, 0])
    np.testing.assert_array_equal(est.predict(X), before)
    assert est.n_samples_seen_ == 30


def test_columns_that_are_not_numeric_are_named() -> None:
    X, y = data(20)
    frames = (
        pd.DataFrame(X, columns=["a", "b"]).assign(b=pd.Timestamp("2020-01-01")),
        pd.DataFrame(X, columns=["a", "b"]).assign(b="word"),
        pl.DataFrame({"a": X[:, 0], "b": ["word"] * 20}),
    )
    for frame in frames:
        with pytest.raises(ValueError, match=r"columns that are not numeric: 'b' \(.*encode"):
            SparseGPRegressor(n_inducing=5).fit(frame, y)


def test_units_do_not_matter_however_small() -> None:
    """Powers of two, which change no digit; the squares of such numbers are zero."""
    X, y = data(100)
    est, tiny = SparseGPRegressor(n_inducing=10, learner=FEW), 2.0**-900
    for fit in (est.fit, lambda X, y: est.fit_source(lambda: [(X, y)])):
        expected = fit(X, y).predict(X, return_std=True)
        found = fit(tiny * X, tiny * y).predict(tiny * X, return_std=True)
        np.testing.assert_allclose(np.divide(found, tiny), expected, rtol=1e-9)


def test_refusals_change_nothing(fitted: SparseGPRegressor) -> None:
    X, y = data(30, seed=4)
    est, before = again(fitted), fitted.predict(X)
    with pytest.raises(ValueError, match="standardise their data differently"):
        est.merge(SparseGPRegressor(n_inducing=20, learner=FEW).fit(X, y))
    with pytest.raises(ValueError, match="only 400 were learned"):
        est.unlearn(*data(500, seed=5))
    with pytest.raises(ValueError, match="not for both"):
        est.predict(X, return_std=True, return_cov=True)
    with pytest.raises(ValueError, match=r"y has shape \(rows, 2\), but shape \(rows,\)"):
        est.partial_fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="NaN"):
        est.partial_fit(X, np.where(y > y[0], y, np.nan))
    with pytest.raises(ValueError, match="4096 at most"):
        est.sample_y(np.zeros((5000, 2)))
    with pytest.raises(ValueError, match="holds nan"):
        est.fit_source([(np.full((5, 3), np.nan), y[:5])])
    assert est.n_features_in_ == 2
    est.forgetting = 0.0
    with pytest.raises(ValueError, match="forgetting"):
        est.partial_fit(X, y)
    est.forgetting = 0.5
    with pytest.raises(ValueError, match="partly forgotten"):
        est.unlearn(X, y)
    np.testing.assert_array_equal(est.predict(X), before)
    with pytest.raises(NotFittedError):
        SparseGPRegressor().predict(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "sine"}, "kernel must be one of se"),
        ({"approximation": "exact"}, "approximation must be one of sor"),
        ({"learner": "adam"}, "learner must be one of auto"),
        ({"inducing": "corners"}, "inducing must be 'kmeans'"),
        ({"inducing": [[1.0]]}, "1 columns"),
        ({"n_inducing": 0}, "n_inducing must be a whole number"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SparseGPRegressor(**parameters).fit(*data(40))


def test_forgetting_lets_the_past_count_less() -> None:
    X, y = data(100)
    est = SparseGPRegressor(n_inducing=10, learner=FEW, forgetting=0.1).fit(X, y)
    est.partial_fit(X, y + 30.0)
    # 10 rows' worth of the old level, 100 of the new.
    assert est.n_samples_seen_ == 110
    assert np.mean(est.predict(X) - y) == pytest.approx(30.0 * 100 / 110, abs=1.5)


def test_a_weight_counts_rows() -> None:
    X, y = data(60)
    counts = np.random.default_rng(0).integers(0, 4, 60)
    weighted = SparseGPRegressor(n_inducing=10, learner=FEW).fit(X, y, sample_weight=counts)
    repeated = SparseGPRegressor(n_inducing=10, learner=FEW).fit(
        np.repeat(X, counts, 0), np.repeat(y, counts)
    )
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    assert weighted.bound_ == repeated.bound_
    assert weighted.n_samples_seen_ == counts.sum()
    # The bound is that of the rows, each as often as it counts.
    scaled = (repeated.scaler_.inputs(X), repeated.scaler_.targets(y))
    Xs, ys = (np.repeat(a, counts, 0) for a in scaled)
    whole = srgp.log_bound(repeated.model_, srgp.summarise(repeated.model_, Xs, ys))
    scale = counts.sum() * np.log(repeated.scaler_.y_spread)
    assert repeated.bound_ == pytest.approx(whole - scale, rel=1e-10)


def test_repeats_are_merged_and_sorted() -> None:
    merged = merge_repeats(Arrays([[2.0], [1.0], [2.0], [2.0]], [5.0, 4.0, 5.0, 6.0], [1, 2, 3, 0]))
    assert merged.X.ravel().tolist() == [1.0, 2.0]
    assert merged.y.tolist() == [4.0, 5.0]
    assert merged.w.tolist() == [2.0, 4.0]


def test_several_outputs() -> None:
    X, y = data(200)
    both = SparseGPRegressor(n_inducing=15).fit(X, np.column_stack([y, 1e-3 * np.cos(X[:, 0])]))
    mean, deviation = both.predict(X, return_std=True)
    assert mean.shape == deviation.shape == (200, 2)
    assert both.predict(X[:3], return_cov=True)[1].shape == (3, 3, 2)
    assert both.sample_y(X[:3], 4).shape == (3, 2, 4)
    assert np.corrcoef(mean[:, 1], np.cos(X[:, 0]))[0, 1] > 0.999
    assert deviation[0, 0] > 500 * deviation[0, 1]


@pytest.mark.parametrize("approximation", ["sor", "dtc", "fitc", "pep", "tighter_vfe", srgp.VFE()])
def test_every_approximation(approximation: Any) -> None:
    X, y = data(150)
    est = SparseGPRegressor(n_inducing=8, approximation=approximation, learner=FEW).fit(X, y)
    assert est.score(X, y) > 0.9
    assert np.isfinite(est.bound_)
    assert est.n_samples_seen_ == 150


@pytest.mark.parametrize("inducing", ["random", "greedy", data()[0][:12]])
def test_every_choice_of_inducing_inputs(inducing: Any) -> None:
    X, y = data(150)
    est = SparseGPRegressor(n_inducing=12, inducing=inducing, learner=FEW).fit(X, y)
    assert est.inducing_points_.shape == (12, 2)
    assert est.score(X, y) > 0.9


def test_a_kernel_of_ones_own_and_names() -> None:
    X, y = data(150)
    start = k.SE() + k.Linear()
    est = SparseGPRegressor(start, n_inducing=8, learner=FEW).fit(X, y)
    assert type(est.model_.kernel) is type(start)
    with pytest.raises(AttributeError, match="no lengthscales"):
        _ = est.lengthscales_
    kept = SparseGPRegressor("matern52", n_inducing=8, learner=None).fit(X, y)
    assert isinstance(kept.model_.kernel, k.Matern52)
    assert kept.history_ is None


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_and_their_names(frame: Any) -> None:
    X, y = data(80)
    table = frame({"hour": X[:, 0], "level": X[:, 1]})
    est = SparseGPRegressor(n_inducing=8, learner=FEW).fit(table, y)
    assert est.feature_names_in_.tolist() == ["hour", "level"]
    plain = SparseGPRegressor(n_inducing=8, learner=FEW).fit(X, y)
    np.testing.assert_array_equal(est.predict(table), plain.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        est.predict(frame({"level": X[:, 1], "hour": X[:, 0]}))


def test_in_the_company_of_others() -> None:
    X, y = data(120)
    small = SparseGPRegressor(n_inducing=8, learner=FEW)
    pipeline = make_pipeline(StandardScaler(), small).fit(X, y)
    assert pipeline.score(X, y) > 0.9
    positive = TransformedTargetRegressor(small, func=np.log, inverse_func=np.exp).fit(X, y)
    assert positive.score(X, y) > 0.9
    search = GridSearchCV(small, {"n_inducing": [2, 8]}, cv=2).fit(X, y)
    assert search.best_params_ == {"n_inducing": 8}
    assert clone(small).get_params()["learner"] is not None


def test_the_same_seed_gives_the_same_bits() -> None:
    X, y = data(150)
    one, two, other = (
        SparseGPRegressor(n_inducing=8, learner=FEW, random_state=seed).fit(X, y).predict(X)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


def test_out_of_core_is_the_same_as_in_memory() -> None:
    X, y = data(300)
    batches = [(X[i : i + 70], y[i : i + 70]) for i in range(0, 300, 70)]
    est = SparseGPRegressor(inducing=X[:10], learner=FEW)
    streamed, whole = clone(est).fit_source(batches), clone(est).fit_source((X, y))
    # The same rows are drawn, in the same order; L-BFGS makes a little more of other roundings.
    np.testing.assert_allclose(streamed.predict(X), whole.predict(X), rtol=1e-6)
    assert streamed.bound_ == pytest.approx(whole.bound_, rel=1e-6)
    held = clone(est).fit(X, y)
    grown = again(held).partial_fit_source(batches)
    twice = again(held).partial_fit(X, y)
    np.testing.assert_allclose(grown.predict(X), twice.predict(X), rtol=1e-8)
    assert grown.n_samples_seen_ == 600


def test_one_pass_takes_a_generator_and_a_path_is_no_table() -> None:
    X, y = data(300)
    est = SparseGPRegressor(inducing=X[:10], learner=None).fit(X, y)
    for adapt in (False, True):
        parts = [(X[i : i + 70], y[i : i + 70]) for i in range(0, 300, 70)]
        grown = again(est).set_params(adapt=adapt).partial_fit_source(part for part in parts)
        listed = again(est).set_params(adapt=adapt).partial_fit_source(parts)
        assert grown.n_samples_seen_ == 600
        np.testing.assert_array_equal(grown.predict(X), listed.predict(X))
    with pytest.raises(ValueError, match="a generator runs only once"):
        clone(est).partial_fit_source(part for part in parts)
    with pytest.raises(ValueError, match=r"'d.csv' is a path: open it as srgp.tables.Table"):
        est.partial_fit_source("d.csv")


def test_other_columns_are_not_learned() -> None:
    X, y = data(100)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    est = SparseGPRegressor(inducing=X[:10], learner=None).fit_source(Table(frame, "y"))
    before = est.predict(frame[["a", "b"]])
    for other, message in (
        (Table(frame[["b", "a", "y"]], "y"), "the features b, a, but a, b were learned"),
        (Table(frame, "y", ["a"]), "the features a, but a, b"),
        (Table(frame.rename(columns={"y": "z"}), "z"), "the targets z, but y"),
        ([(X[:, :1], y)], r"inputs of shape \(1,\), but \(2,\) were learned"),
        ([(X, y[:, None])], r"outputs of shape \(1,\), but \(\) were learned"),
    ):
        with pytest.raises(ValueError, match=message):
            est.partial_fit_source(other)
    np.testing.assert_array_equal(est.predict(frame[["a", "b"]]), before)
    assert est.n_samples_seen_ == 100


def test_a_fit_that_fails_changes_nothing() -> None:
    X, y = data(100)
    frame = pd.DataFrame(X, columns=["a", "b"])
    est = SparseGPRegressor(inducing=X[:10], learner=None).fit(frame, y)
    before = est.predict(frame)
    for bad in (frame.rename(columns={"a": "q"}).assign(b=np.nan), X[:, :1], frame.assign(c=1.0)):
        with pytest.raises(ValueError):
            est.fit(bad, y)
    np.testing.assert_array_equal(est.predict(frame), before)


def test_saving_draws_nothing_from_a_random_state(tmp_path: Path) -> None:
    X, y = data(50)
    state = np.random.RandomState(3)
    est = SparseGPRegressor(inducing=X[:5], learner=None, random_state=state).fit(X, y)
    before = state.get_state()[2]
    est.save(tmp_path / "m.srgp")
    assert state.get_state()[2] == before


def test_tables_in_and_out(tmp_path: Path) -> None:
    X, y = data(200)
    columns = {"a": X[:, 0], "b": X[:, 1], "y": y, "z": -y}
    write_table(tmp_path / "in.parquet", [columns])
    table = Table(tmp_path / "in.parquet", target=["y", "z"], features=["a", "b"])
    est = SparseGPRegressor(inducing=X[:10], learner=FEW).fit_source(table)
    assert est.target_names_ == ("y", "z")
    assert est.feature_names_in_.tolist() == ["a", "b"]
    assert write_table(tmp_path / "out.csv", est.predict_source(table, keep=["b"])) == 200
    out = pd.read_csv(tmp_path / "out.csv")
    names = ["b", "mean_y", "deviation_y", "mean_z", "deviation_z"]
    assert out.columns.tolist() == names
    mean, deviation = est.predict(pd.DataFrame({"a": X[:, 0], "b": X[:, 1]}), return_std=True)
    np.testing.assert_allclose(out[["mean_y", "mean_z"]], mean, rtol=1e-12)
    np.testing.assert_allclose(out[["deviation_y", "deviation_z"]], deviation, rtol=1e-12)
    with pytest.raises(ValueError, match="the table has the features b, a"):
        next(est.predict_source(Table(tmp_path / "in.parquet", features=["b", "a"])))


def test_files_keep_every_bit(tmp_path: Path, fitted: SparseGPRegressor) -> None:
    X, y = data(40, seed=6)
    path = tmp_path / "model.srgp"
    fitted.save(path)
    loaded = SparseGPRegressor.load(path)
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    assert loaded.bound_ == fitted.bound_
    assert loaded.get_params() == fitted.get_params()
    assert [r.bound for r in loaded.history_] == [r.bound for r in fitted.history_]
    more, expected = loaded.partial_fit(X, y), again(fitted).partial_fit(X, y)
    np.testing.assert_array_equal(more.predict(X), expected.predict(X))
    np.testing.assert_allclose(more.unlearn(X, y).predict(X), fitted.predict(X), rtol=1e-8)


def test_files_keep_objects_given_as_parameters(tmp_path: Path) -> None:
    X, y = data(60)
    table = pd.DataFrame(X, columns=["a", "b"])
    given = SparseGPRegressor(
        k.SE() * k.Matern32(), inducing=X[:7], approximation=srgp.PEP(0.3), learner=FEW
    ).fit(table, y)
    given.save(tmp_path / "m.srgp")
    loaded = SparseGPRegressor.load(tmp_path / "m.srgp")
    assert loaded.feature_names_in_.tolist() == ["a", "b"]
    assert loaded.learner == FEW
    assert loaded.approximation == srgp.PEP(0.3)
    np.testing.assert_array_equal(loaded.inducing, X[:7])
    np.testing.assert_array_equal(clone(loaded).fit(table, y).predict(table), given.predict(table))
    model = given.model_
    storage.write(tmp_path / "bare.srgp", storage.Saved(model))
    with pytest.raises(ValueError, match="no regressor"):
        SparseGPRegressor.load(tmp_path / "bare.srgp")


@pytest.mark.parametrize("make", [lambda m: m, lambda m: srgp.Filter.start(m).update([0.5], 1.0)])
def test_pickles_keep_double_precision(make: Any) -> None:
    model = srgp.Model(k.SE(), noise=0.1, inducing=[[0.0], [1.0 / 3.0]])
    thing = make(model)
    _ = model.basis
    copied = pickle.loads(pickle.dumps(thing))
    f, g = thing, copied
    if isinstance(thing, srgp.Model):
        f, g = (srgp.Filter.start(x).update([0.2], 2.0) for x in (thing, copied))
    X = np.linspace(-1, 1, 9)[:, None]
    np.testing.assert_array_equal(f.predict(X)[0], g.predict(X)[0])
    np.testing.assert_array_equal(
        f.update([0.1], 3.0).predict(X)[1], g.update([0.1], 3.0).predict(X)[1]
    )
