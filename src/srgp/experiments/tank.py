"""A day of the paper's stirred tank: the plant is simulated, identified, and predicted.

    dh/dt = w₁ + w₂ − 0.2 √h
    dC/dt = (C₁ − C) w₁/h + (C₂ − C) w₂/h − k₁C / (1 + k₂C)²

C is the concentration at the outlet, h the level, w₁ the controlled flow: steps of random height in
[0, 4], each for 5 to 20 s. Sampled every 0.2 s with noise, y_t is learned from y_{t−1}, y_{t−2},
w_t, w_{t−1}, w_{t−2} (paper: section 5.4).

    srgp demo --output tank.png
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from srgp.atomic import replacing
from srgp.learners import SRGP, Exact
from srgp.metrics import Scores, scores
from srgp.plots.style import BLUE, GREY, ORANGE
from srgp.precision import double
from srgp.regressor import SparseGPRegressor
from srgp.sysid import NARX

PERIOD = 0.2  # seconds between samples
DAY = round(86_400 / PERIOD)
NOISE = 0.02  # deviation of a measurement
LAGS = 2
SUBSET = 10_000  # rows for the batch model
SHOWN = 600  # samples in the picture


class Plant(NamedTuple):
    """What happened: control w, true concentration f, measured concentration y."""

    w: np.ndarray
    f: np.ndarray
    y: np.ndarray


class Outcome(NamedTuple):
    """A model of the plant on samples it has not seen."""

    rows: int
    seconds: float
    mean: np.ndarray
    deviation: np.ndarray  # of a measurement
    scores: Scores
    error: float  # root mean square against the true concentration


def simulate(count: int = DAY, seed: int = 0, weaker_from: int | None = None) -> Plant:
    """`count` samples of the plant under random steps; Runge-Kutta of order 4.

    From sample `weaker_from` on, the first feed has C₁ = 20 in place of 24.9.

    >>> from srgp.experiments import tank
    >>> plant = tank.simulate(1000)
    >>> plant.f.shape, bool(plant.w.max() <= 4.0)
    ((1000,), True)
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(round(5 / PERIOD), round(20 / PERIOD), count // 25 + 1, endpoint=True)
    w = np.repeat(rng.uniform(0.0, 4.0, len(lengths)), lengths)[:count]
    weaker = np.arange(count) >= (count if weaker_from is None else weaker_from)
    f = np.asarray(_concentration(w, np.where(weaker, 20.0, 24.9)))
    return Plant(w, f, f + NOISE * rng.normal(size=count))


def slopes(state: Any, w1: Any, C1: Any = 24.9, w2: float = 0.1) -> Any:
    """The plant's equations: d/dt of (h, C)."""
    h, C = state
    level = w1 + w2 - 0.2 * jnp.sqrt(h)
    feed = (C1 - C) * w1 / h + (0.1 - C) * w2 / h
    return jnp.stack([level, feed - C / (1.0 + C) ** 2])


@double
def _concentration(w: np.ndarray, feeds: np.ndarray) -> Any:
    def step(state: Any, given: Any) -> Any:
        a = slopes(state, *given)
        b = slopes(state + 0.5 * PERIOD * a, *given)
        c = slopes(state + 0.5 * PERIOD * b, *given)
        d = slopes(state + PERIOD * c, *given)
        after = state + PERIOD / 6.0 * (a + 2.0 * b + 2.0 * c + d)
        return after, after[1]

    # From where the plant rests under the mean flow.
    return jax.lax.scan(step, jnp.asarray([110.0, 22.0]), (jnp.asarray(w), jnp.asarray(feeds)))[1]


def features(plant: Plant) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [y_{t−1}, y_{t−2}, w_t, w_{t−1}, w_{t−2}] and the target y_t."""
    return NARX(LAGS, LAGS).rows(plant.y, plant.w)


def run(
    count: int = DAY, inducing: int = 100, tell: Callable[[str], Any] = lambda text: None
) -> tuple[Plant, dict[str, Outcome]]:
    """SRGP on four fifths of the samples, batch VFE on the last of these; judged by the rest.

    tell: hears what is being done.
    """
    tell(f"simulating {count:,} samples")
    plant = simulate(count)
    X, y = features(plant)
    cut = len(X) * 4 // 5
    few = slice(max(0, cut - SUBSET), cut)
    tell(f"SRGP learns from {cut:,} rows")
    recursive = _outcome(SRGP(epochs=5), inducing, X, y, slice(0, cut), cut, plant.f[LAGS:])
    tell(f"batch VFE learns from the last {cut - few.start:,}")
    batch = _outcome(Exact(100), inducing, X, y, few, cut, plant.f[LAGS:])
    return plant, {"SRGP": recursive, "batch VFE": batch}


def _outcome(
    learner: Any, inducing: int, X: np.ndarray, y: np.ndarray, rows: slice, cut: int, f: np.ndarray
) -> Outcome:
    start = time.perf_counter()
    est = SparseGPRegressor(n_inducing=inducing, learner=learner).fit(X[rows], y[rows])
    seconds = time.perf_counter() - start
    mean, deviation = est.predict(X[cut:], return_std=True)
    found = scores(y[cut:], mean, deviation**2)
    error = float(np.sqrt(np.mean((mean - f[cut:]) ** 2)))
    return Outcome(est.n_samples_seen_, seconds, mean, deviation, found, error)


def draw(plant: Plant, outcomes: Mapping[str, Outcome], output: Path) -> None:
    """Prediction with its band against the truth, the errors of both models, and the control."""
    from matplotlib.figure import Figure

    best = outcomes["SRGP"]
    first = len(plant.f) - len(best.mean)
    part = slice(0, min(SHOWN, len(best.mean)))
    at = slice(first, first + part.stop)
    t = PERIOD * np.arange(part.stop)
    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 1))
    band = 1.96 * best.deviation[part]
    top.plot(t, plant.y[at], ".", color=GREY, ms=3, label="measured")
    top.fill_between(t, best.mean[part] - band, best.mean[part] + band, color=BLUE, alpha=0.2, lw=0)
    top.plot(t, best.mean[part], color=BLUE, lw=1.4, label="SRGP, one step ahead, 95 %")
    top.plot(t, plant.f[at], "--", color="black", lw=1.0, label="truth")
    top.set(
        ylabel="concentration (as the feed's 24.9)",
        title="A stirred tank, identified from a day of samples",
    )
    # They nearly agree: a broad pale line below a thin dashed one shows both.
    looks: tuple[dict[str, Any], ...] = (
        {"color": BLUE, "lw": 2.4, "alpha": 0.5},
        {"color": ORANGE, "lw": 0.9, "ls": (0, (4, 2))},
    )
    for (name, outcome), look in zip(outcomes.items(), looks, strict=True):
        error = outcome.mean[part] - plant.f[at]
        middle.plot(t, error, label=f"{name}, {outcome.rows:,} rows", **look)
    middle.axhline(0.0, color="black", lw=0.6)
    middle.set(ylabel="prediction − truth")
    bottom.step(t, plant.w[at], color="black", lw=1.0, where="post")
    bottom.set(ylabel="flow w₁", xlabel="seconds")
    for axes in (top, middle):
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.2 * (high - low))  # room for the legend
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper right")
    with replacing(output) as temporary:
        figure.savefig(temporary, dpi=150, format=output.suffix.removeprefix("."))
