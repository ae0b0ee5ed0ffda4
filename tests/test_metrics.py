"""Scores of predictions, against scipy's normal law, against integrals, and against simulation.

Two routes in double precision differ by rounding only: 1e-12 relative leaves three digits of room.
Simulated numbers are compared within four of their standard errors, with a fixed seed.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from srgp import metrics

RTOL = 1e-12


def predictions(N: int = 40, Q: int | None = None, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Targets that are what mean and variance say."""
    rng = np.random.default_rng(seed)
    shape = (N,) if Q is None else (N, Q)
    mean, variance = rng.normal(size=shape), rng.gamma(2.0, size=shape)
    return mean + np.sqrt(variance) * rng.normal(size=shape), mean, variance


def test_errors_by_a_loop() -> None:
    y, mean, _ = predictions()
    errors = [float(a - b) for a, b in zip(y, mean, strict=True)]
    assert metrics.rmse(y, mean) == pytest.approx(
        (sum(e * e for e in errors) / 40) ** 0.5, rel=RTOL
    )
    assert metrics.mae(y, mean) == pytest.approx(sum(abs(e) for e in errors) / 40, rel=RTOL)


def test_log_density_and_residuals_are_scipys() -> None:
    y, mean, variance = predictions()
    law = stats.norm(mean, np.sqrt(variance))
    assert metrics.nlpd(y, mean, variance) == pytest.approx(-law.logpdf(y).mean(), rel=RTOL)
    z = metrics.standardised(y, mean, variance)
    np.testing.assert_allclose(stats.norm.cdf(z), law.cdf(y), rtol=RTOL)


@pytest.mark.parametrize(("y", "mean", "variance"), [(0.3, 0.0, 1.0), (-4.0, 1.0, 0.5), (2, 2, 9)])
def test_crps_is_its_integral(y: float, mean: float, variance: float) -> None:
    law = stats.norm(mean, variance**0.5)
    below, _ = integrate.quad(lambda t: law.cdf(t) ** 2, -60.0, y, epsabs=1e-11, limit=200)
    above, _ = integrate.quad(lambda t: law.sf(t) ** 2, y, 60.0, epsabs=1e-11, limit=200)
    found = metrics.crps([y], [mean], [variance])
    assert found == pytest.approx(below + above, abs=1e-9)  # what the quadrature promises, and room


def test_crps_of_a_sure_prediction_is_the_absolute_error() -> None:
    y, mean, _ = predictions()
    # The rest is −√(v/π) for v = 1e-20.
    assert metrics.crps(y, mean, np.full(40, 1e-20)) == pytest.approx(
        metrics.mae(y, mean), abs=1e-9
    )


@pytest.mark.parametrize("level", [0.01, 0.5, 0.95, 0.999])
def test_coverage_counts_what_lies_in_scipys_interval(level: float) -> None:
    y, mean, variance = predictions(N=500)
    low, high = stats.norm.interval(level, mean, np.sqrt(variance))
    inside = np.mean((low <= y) & (y <= high))
    assert metrics.coverage(y, mean, variance, level) == inside
    expected, observed = metrics.calibration(y, mean, variance, [0.2, level])
    np.testing.assert_array_equal(expected, [0.2, level])
    assert observed[1] == inside


def test_levels_near_one_keep_their_digits() -> None:
    level = 1.0 - 2.0**-50
    edge = stats.norm.isf(2.0**-51)
    y = [edge * (1.0 - 1e-9), edge * (1.0 + 1e-9)]
    assert metrics.coverage(y, [0.0, 0.0], [1.0, 1.0], level) == 0.5


def test_calibrated_predictions_score_as_theory_says() -> None:
    N = 200_000
    y, mean, variance = predictions(N)
    expected, observed = metrics.calibration(y, mean, variance)
    assert len(expected) == 19
    np.testing.assert_array_less(
        np.abs(observed - expected), 4.0 * np.sqrt(expected * (1.0 - expected) / N)
    )
    z2 = metrics.standardised(y, mean, variance) ** 2
    assert abs(z2.mean() - 1.0) < 4.0 * np.sqrt(2.0 / N)
    # −log density is ½(log 2πv + z²), z² of variance 2; the CRPS has expectation √(v/π).
    entropy = 0.5 * np.mean(np.log(2.0 * np.pi * np.e * variance))
    assert abs(metrics.nlpd(y, mean, variance) - entropy) < 4.0 * np.sqrt(0.5 / N)
    crps_error = 4.0 * np.sqrt(np.mean(variance) / N)  # the CRPS deviates less than |y − m|
    assert abs(metrics.crps(y, mean, variance) - np.mean(np.sqrt(variance / np.pi))) < crps_error


@pytest.mark.parametrize("score", [metrics.nlpd, metrics.crps])
def test_the_truth_scores_best(score: Any) -> None:
    y, mean, variance = predictions(20_000)
    best = score(y, mean, variance)
    assert best < min(score(y, mean, 1.3 * variance), score(y, mean, variance / 1.3))
    assert best < min(score(y, mean + 0.2, variance), score(y, mean - 0.2, variance))


def test_overconfidence_shows() -> None:
    y, mean, variance = predictions(2000)
    found = metrics.scores(y, mean, variance / 4.0)
    assert found.coverage < 0.75
    assert found.spread == pytest.approx(2.0 * metrics.scores(y, mean, variance).spread, rel=RTOL)
    assert metrics.scores(y, mean, variance * 4.0).coverage > 0.99


def test_several_outputs_are_averaged_over_all() -> None:
    arrays = predictions(30, Q=3)
    flat = [a.ravel() for a in arrays]
    assert metrics.standardised(*arrays).shape == (30, 3)
    np.testing.assert_allclose(metrics.scores(*arrays)[1:], metrics.scores(*flat)[1:], rtol=RTOL)
    assert metrics.scores(*arrays).rows == 30


def test_scores_are_the_single_numbers_and_readable() -> None:
    y, mean, variance = predictions()
    found = metrics.scores(y, mean, variance)
    z = metrics.standardised(y, mean, variance)
    for name in ("nlpd", "crps", "coverage"):
        assert getattr(found, name) == getattr(metrics, name)(y, mean, variance)
    assert (found.rmse, found.mae) == (metrics.rmse(y, mean), metrics.mae(y, mean))
    assert found.spread == pytest.approx(np.sqrt(np.mean(z**2)), rel=RTOL)
    assert all(type(number) is float for number in found[1:])
    assert f"RMSE {found.rmse:.4g}" in str(found)
    assert f"covers {100 * found.coverage:.1f} %" in str(found)
    assert "\n" not in str(found)


# Six decimals: the square of an error of 1e-200 is zero in double precision.
VALUES = st.floats(-100, 100).map(lambda value: round(value, 6))
NUMBERS = st.lists(st.tuples(VALUES, VALUES, st.floats(1e-3, 100)), min_size=1)


@given(NUMBERS, st.integers(-8, 8))
def test_units_do_not_matter(rows: list[tuple[float, float, float]], power: int) -> None:
    """Scaling by a power of two is exact: errors scale, the NLPD shifts, coverage stays."""
    y, mean, variance = np.array(rows).T
    c = 2.0**power
    old, new = metrics.scores(y, mean, variance), metrics.scores(c * y, c * mean, c * c * variance)
    assert new.rmse == c * old.rmse
    assert new.mae == c * old.mae
    # Residuals up to 6000 deviations make the NLPD of the order of 1e7 at most.
    assert new.nlpd - old.nlpd == pytest.approx(np.log(c), abs=1e-7)
    assert new.crps == pytest.approx(c * old.crps, rel=1e-12)
    assert (new.coverage, new.spread) == (old.coverage, old.spread)


@given(NUMBERS)
def test_what_holds_for_any_numbers(rows: list[tuple[float, float, float]]) -> None:
    y, mean, variance = np.array(rows).T
    found = metrics.scores(y, mean, variance)
    assert found.mae <= found.rmse * (1.0 + 1e-12)
    # CRPS = E|Y − y| − ½E|Y − Y'| lies within √(v/π) of the absolute error, and is positive.
    slack = np.sqrt(variance / np.pi).mean() + 1e-12 * found.mae  # rounding of the difference
    assert abs(found.crps - found.mae) <= slack
    assert found.crps > 0.0
    _, observed = metrics.calibration(y, mean, variance)
    assert (np.diff(observed) >= 0.0).all()


Y, MEAN, VARIANCE = predictions(5)


def changed(a: np.ndarray, value: float) -> np.ndarray:
    a = a.copy()
    a[3] = value
    return a


@pytest.mark.parametrize("score", [metrics.nlpd, metrics.crps, metrics.coverage, metrics.scores])
@pytest.mark.parametrize(
    ("y", "mean", "variance", "message"),
    [
        (changed(Y, np.nan), MEAN, VARIANCE, "y holds nan at index 3"),
        (Y, changed(MEAN, np.inf), VARIANCE, "mean holds inf at index 3"),
        (Y, MEAN, changed(VARIANCE, np.nan), "variance holds nan at index 3"),
        (Y, MEAN, changed(VARIANCE, 0.0), "variance must be positive, got 0 at index 3"),
        (Y, MEAN, changed(VARIANCE, -1.0), "variance must be positive, got -1 at index 3"),
        (Y, MEAN[:, None], VARIANCE, r"mean must have the shape of y, \(5,\), got \(5, 1\)"),
        (Y, MEAN[:4], VARIANCE, "mean must have the shape"),
        (Y, MEAN, VARIANCE[:1], "variance must have the shape"),
        (Y, MEAN, 1.0, "variance must have the shape"),
        ([], [], [], "y is empty"),
        (np.empty((3, 0)), np.empty((3, 0)), np.empty((3, 0)), "y is empty"),
        (1.0, 1.0, 1.0, "y must have shape"),
        (np.ones((2, 2, 2)), np.ones((2, 2, 2)), np.ones((2, 2, 2)), "y must have shape"),
        (["high"] * 5, MEAN, VARIANCE, "y must be numeric"),
    ],
)
def test_bad_input(score: Any, y: Any, mean: Any, variance: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(y, mean, variance)


@pytest.mark.parametrize("score", [metrics.rmse, metrics.mae])
def test_bad_input_of_errors(score: Any) -> None:
    with pytest.raises(ValueError, match="mean must have the shape"):
        score(Y, MEAN[:, None])
    with pytest.raises(ValueError, match="y is empty"):
        score([], [])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95.0])
def test_bad_levels(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        metrics.coverage(Y, MEAN, VARIANCE, level)
    with pytest.raises(ValueError, match="levels must be"):
        metrics.calibration(Y, MEAN, VARIANCE, [])
    with pytest.raises(ValueError, match="levels must be"):
        metrics.calibration(Y, MEAN, VARIANCE, 0.5)


def test_overflow_is_an_error_and_not_infinity() -> None:
    with pytest.raises(FloatingPointError, match="RMSE"):
        metrics.rmse([1e200], [0.0])
    with pytest.raises(FloatingPointError, match="NLPD"):
        metrics.nlpd([1e200], [0.0], [1.0])
    with pytest.raises(FloatingPointError, match="residual"):
        metrics.standardised([1e300], [0.0], [1e-300])
