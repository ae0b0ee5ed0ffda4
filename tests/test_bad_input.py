"""Bad input: a ValueError that says what is wrong, and nothing changed."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from problems import problem

import srgp
from srgp import kernels as k

P = problem()
MODEL = srgp.Model(k.SE(), P.noise, P.R)


def with_nan(a: np.ndarray, where: Any) -> np.ndarray:
    a = a.copy()
    a[where] = np.nan
    return a


BAD_DATA: list[tuple[Any, Any, Any, str]] = [
    (with_nan(P.X, (3, 1)), P.y, None, r"X holds nan at index \(3, 1\)"),
    (P.X, with_nan(P.y, 5), None, "y holds nan at index 5"),
    (P.X, np.where(np.arange(40) == 3, -1e300, P.y), None, r"y holds -1e\+300 at index 3.*units"),
    (np.where(P.X > 1.9, np.inf, P.X), P.y, None, "X holds inf"),
    (P.X[:, :1], P.y, None, "X has 1 columns.*have 2"),
    (P.X[:, 0], P.y, None, r"reshape\(-1, 1\)"),
    (P.X[:0], P.y[:0], None, "empty"),
    (P.X, P.y[:-1], None, r"y must have shape \(40,\)"),
    (P.X, P.y[:, None, None], None, "y must have shape"),
    (P.X, np.empty((40, 0)), None, "y must have shape"),
    ([["a", "b"]] * 40, P.y, None, "numeric"),
    (P.X.astype(str), P.y, None, "X must be numeric.*no number"),
    (P.X.astype("S"), P.y, None, "X must be numeric.*no number"),
    (P.X.astype(str).astype(object), P.y, None, "X must be numeric.*no number"),
    (P.X.astype(complex).astype(object), P.y, None, "X must be numeric"),
    ([[10**400, 1]] * 40, P.y, None, "X must be numeric.*too large"),
    (np.ma.masked_greater(P.X, 1.9), P.y, None, r"X is masked at index \("),
    (P.X, np.ma.masked_array(P.y, np.arange(40) == 5), None, "y is masked at index 5"),
    (P.X, P.y, -P.weights, "must not be negative"),
    (P.X, P.y, P.weights[:-1], "sample_weight must have shape"),
    (P.X, P.y, with_nan(P.weights, 2), "sample_weight holds nan at index 2"),
]


def test_sums_that_overflow_are_refused_before_they_spoil_others() -> None:
    """The kernel decides what is too large an input: SE is zero there, a linear one is not."""
    far = np.where(np.arange(40)[:, None] == 3, 1e200, P.X)
    assert srgp.summarise(MODEL, far, P.y).n == 40
    linear = MODEL.replace(kernel=k.SE() + k.Linear())
    for rows in (far, far[3:4]):
        with pytest.raises(FloatingPointError, match="a sum over these rows is not finite"):
            srgp.summarise(linear, rows, P.y[: len(rows)])


@pytest.mark.parametrize(("X", "y", "weights", "message"), BAD_DATA)
def test_bad_data_is_refused_and_changes_nothing(
    X: Any, y: Any, weights: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        srgp.summarise(MODEL, X, y, weights)
    f = srgp.Filter.start(MODEL).update(P.X, P.y)
    before = f.predict(P.Xs)
    with pytest.raises(ValueError, match=message):
        f.update(X, y, weights)
    np.testing.assert_array_equal(f.predict(P.Xs), before)
    assert f.n == 40


@pytest.mark.parametrize(
    ("x", "y", "weight", "message"),
    [
        ([np.nan, 0.0], 1.0, None, "X holds nan"),
        ([0.0, 0.0], np.inf, None, "y holds inf"),
        ([0.0], 1.0, None, "X has 1 columns"),
        ([0.0, 0.0, 0.0], 1.0, None, "X has 3 columns"),
        ([0.0, 0.0], "high", None, "y must be"),
        ([0.0, 0.0], "1.0", None, "y must be"),
        ([0.0, 0.0], 1j, None, "y "),
        ([0.0, 0.0], None, None, "y "),
        ([0.0, 0.0], np.datetime64("2020-01-01"), None, "y "),
        ([0.0, 0.0], np.ma.masked, None, "y "),
        ([1j, 0.0], 1.0, None, "not of real numbers"),
        (["0.0", "1.0"], 1.0, None, "X must be numeric"),
        (np.array(["2020", "2021"], "M8[Y]"), 1.0, None, "not of real numbers"),
        (np.array([1, 2], "m8[s]"), 1.0, None, "not of real numbers"),
        (np.ma.masked_array([0.0, 1.0], [False, True]), 1.0, None, "X is masked at index 1"),
        ([0.0, 0.0], 1.0, -1.0, "must not be negative"),
        ([0.0, 0.0], 1.0, "1.0", "sample_weight must be numeric"),
    ],
)
def test_a_bad_single_sample(x: Any, y: Any, weight: Any, message: str) -> None:
    f = srgp.Filter.start(MODEL)
    with pytest.raises(ValueError, match=message):
        f.update(x, y, weight)
    if weight is None:
        with pytest.raises(ValueError, match=message):
            f.tested(x, y)
        with pytest.raises(ValueError):
            srgp.streams.OnlineGP(MODEL).learn_one(x, y)


def test_a_sample_of_any_kind_of_number() -> None:
    f = srgp.Filter.start(MODEL)
    expected = f.update(np.array([1.0, 0.0]), 1.0).log_bound
    for x in ([1, 0], np.float32([1, 0]), np.array([True, False]), np.array([1.0, 0.0], object)):
        for y in (1, True, np.float32(1), np.array(1), Fraction(1)):
            for found in (f.update(x, y), f.tested(x, y)[2]):
                assert found.log_bound == pytest.approx(expected, rel=1e-14)  # rounding alone


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: srgp.Model(k.SE(), -0.1, P.R), "noise .* must be positive"),
        (lambda: srgp.Model(k.SE(), 0.0, P.R), "noise .* must be positive"),
        (lambda: srgp.Model(k.SE(), [0.1, 0.2], P.R), "one number"),
        (lambda: srgp.Model(k.SE(), 0.1, with_nan(P.R, (0, 0))), "inducing holds nan"),
        (lambda: srgp.Model(k.SE(), 0.1, P.R[:, 0]), "reshape"),
        (lambda: srgp.Model(k.SE(lengthscales=[1.0] * 3), 0.1, P.R), "lengthscales"),
        (lambda: srgp.Model(np.exp, 0.1, P.R), "kernel must be"),  # type: ignore[arg-type]
        (lambda: srgp.Model(k.SE(), 0.1, P.R, "vfe"), "approximation must be"),  # type: ignore[arg-type]
        (lambda: srgp.PEP(alpha=1.5), "alpha must lie"),
        (lambda: srgp.PEP(alpha=-0.1), "alpha must lie"),
        (lambda: srgp.PEP(alpha=np.nan), "alpha must lie"),
        (lambda: srgp.PEP(alpha=None), "alpha must be one number"),  # type: ignore[arg-type]
        (lambda: srgp.PEP(alpha=1j), "alpha must be one number"),  # type: ignore[arg-type]
        (lambda: srgp.PEP(alpha="0.5"), "alpha must be one number"),  # type: ignore[arg-type]
        (lambda: k.Polynomial(degree=np.inf), "degree must be a whole number"),  # type: ignore[arg-type]
        (lambda: k.Polynomial(degree="a"), "degree must be a whole number"),  # type: ignore[arg-type]
        (lambda: srgp.Model(k.SE(), 0.1, np.empty((5, 0))), "inducing has no columns"),
        (lambda: srgp.FullGP(k.SE(), 1.0, np.empty((40, 0)), P.y), "X has no columns"),
        (lambda: srgp.Filter.start(MODEL).forget("a"), "forgetting factor"),  # type: ignore[arg-type]
        (lambda: srgp.Filter.start(MODEL).forget(None), "forgetting factor"),  # type: ignore[arg-type]
        (lambda: srgp.Filter.start(MODEL).forget(0.5, ["prior"]), "towards"),  # type: ignore[arg-type]
        (lambda: srgp.inducing.greedy("SE", P.X, 3), "kernel must be"),  # type: ignore[arg-type]
        (lambda: srgp.inducing.starting_values(P.X, P.y, n_inducing=-3), "n_inducing"),
        (lambda: srgp.PITC(block_size=0), "block_size"),
        (lambda: srgp.PITC(block_size=2.5), "block_size"),
        (lambda: srgp.FullGP(k.SE(), -1.0, P.X, P.y), "noise"),
        (lambda: srgp.FullGP(k.SE(), [1.0, 2.0], P.X, P.y), "one number"),
        (lambda: srgp.FullGP(np.exp, 1.0, P.X, P.y), "kernel must be"),  # type: ignore[arg-type]
        (lambda: srgp.FullGP(k.SE(), 1.0, P.X, P.y, 0 * P.y), "weights are zero"),
        (lambda: srgp.FullGP(k.SE(), 1.0, P.X, P.y[:3]), "y must have shape"),
        (lambda: srgp.FullGP(k.SE(), 1.0, P.X, P.y).predict(P.X[:, :1]), "columns"),
        (lambda: srgp.Filter.start(MODEL).forget(0.0), "forgetting factor"),
        (lambda: srgp.Filter.start(MODEL).forget(1.5), "forgetting factor"),
        (lambda: srgp.Filter.start(MODEL).forget(0.5, "nothing"), "towards"),  # type: ignore[arg-type]
        (lambda: srgp.inducing.random(P.X, 41), "only 40 distinct rows"),
        (lambda: srgp.inducing.kmeans(P.X[[0, 0, 1]], 3), "only 2 distinct rows"),
        (lambda: srgp.inducing.random(P.X, 0), "n_inducing"),
        (lambda: srgp.inducing.greedy(k.SE(), P.X, 5, block=0), "block"),
        (lambda: srgp.inducing.greedy(k.SE(), list, 5), "produced no batch"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_statistics_of_different_models_never_mix() -> None:
    s = srgp.summarise(MODEL, P.X, P.y)
    for other in (
        MODEL.replace(kernel=k.SE(variance=2.0)),
        MODEL.replace(kernel=k.Matern32()),
        MODEL.replace(inducing=P.R + 1e-9),
        MODEL.replace(approximation=srgp.DTC()),
    ):
        t = srgp.summarise(other, P.X, P.y)
        for use in (
            lambda: s + t,  # noqa: B023
            lambda: s - t,  # noqa: B023
            lambda: srgp.posterior(other, s),  # noqa: B023
            lambda: srgp.log_bound(other, s),  # noqa: B023
            lambda: srgp.Filter.start(other, s),  # noqa: B023
            lambda: srgp.move(s, other, MODEL),  # noqa: B023
        ):
            with pytest.raises(ValueError, match=r"srgp\.move"):
                use()


def test_statistics_refuse_what_makes_no_sense() -> None:
    s = srgp.summarise(MODEL, P.X, P.y)
    with pytest.raises(ValueError, match="only what was learned"):
        0.5 * s - s
    with pytest.raises(ValueError, match="different outputs"):
        s + srgp.summarise(MODEL, P.X, np.stack([P.y, P.y], 1))
    for factor in (-1.0, np.nan, np.inf, "a", None, 1j):
        with pytest.raises(ValueError, match="factor"):
            _ = factor * s
    with pytest.raises(TypeError):
        s + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        s - 1  # type: ignore[operator]


def test_moves_that_make_no_sense() -> None:
    f = srgp.Filter.start(MODEL).update(P.X, P.y)
    with pytest.raises(ValueError, match="columns"):
        f.move(MODEL.replace(inducing=[[0.0]]))
    with pytest.raises(ValueError, match="cannot move"):
        f.move(MODEL.replace(approximation=srgp.FITC()))
    with pytest.raises(ValueError, match="outputs of shape"):
        f.update(P.X, np.stack([P.y, P.y], 1))


def test_prediction_refuses_bad_points() -> None:
    post = srgp.posterior(MODEL, srgp.summarise(MODEL, P.X, P.y))
    for use in (
        post.predict,
        post.covariance,
        post.sample_functions(0),
        lambda X: post.sample(0, X),
    ):
        with pytest.raises(ValueError, match="X has 1 columns"):
            use([[0.0]])
        with pytest.raises(ValueError, match="X holds nan"):
            use([[0.0, np.nan]])
    full = srgp.FullGP(k.SE(), 1.0, P.X, P.y)
    for gp in (post, full):
        for n in (0, -1, 1.5):
            with pytest.raises(ValueError, match="whole number"):
                gp.sample(0, P.Xs, n)  # type: ignore[arg-type]
        for key in ("a", 1.5, None, 2**70):
            with pytest.raises(ValueError, match="a seed is"):
                gp.sample(key, P.Xs)  # type: ignore[arg-type]
        for use in (gp.predict, gp.covariance, lambda X, noise, gp=gp: gp.sample(0, X, 1, noise)):
            for noise in (-1.0, np.nan, np.inf, None, "a", 1j, np.ones(11)):
                with pytest.raises(ValueError, match="noise"):
                    use(P.Xs, noise=noise)
