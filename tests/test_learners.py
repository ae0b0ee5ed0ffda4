"""Learning θ: every learner climbs, is reproducible, obeys its options, and never returns NaN.

One small problem serves most tests, so that its compiled steps are shared: a sine with noise 0.1²,
600 rows, 8 inducing inputs, batches of 100.
"""

import importlib
import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import MODELS, problem

import srgp
from srgp import kernels as k
from srgp import sensitivity
from srgp.learners import History, Record, as_learner, auto, stepping
from srgp.learners.base import Report, Task, batch_shape
from srgp.parameters import Coordinates
from srgp.precision import double
from srgp.sources import Arrays, Held

rng = np.random.default_rng(0)
X = rng.uniform(0, 6, (600, 1))
y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
START = srgp.Model(k.SE(), 0.3, np.linspace(0.3, 5.7, 8)[:, None])
DATA = (X, y)

LEARNERS: dict[str, Any] = {
    "SRGP": srgp.SRGP(batch_size=100, epochs=60, learning_rate=0.1),
    "Exact": srgp.Exact(),
    "Sites": srgp.Sites(batch_size=100, epochs=60, learning_rate=0.1),
    "Auto": srgp.Auto(),
}
SHORT: dict[str, Any] = {
    "SRGP": srgp.SRGP(batch_size=100, epochs=4),
    "Exact": srgp.Exact(iterations=4),
    "Sites": srgp.Sites(batch_size=100, epochs=4),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)
short = pytest.mark.parametrize("name", SHORT)
# A model that runs away may end anywhere, K_RR singular; small data may fit any lengthscale.
may_end_singular = pytest.mark.filterwarnings("ignore::srgp.JitterWarning")


def bound_at(model: srgp.Model, *data: Any) -> float:
    return srgp.log_bound(model, srgp.summarise(model, *(data or DATA)))


@pytest.fixture(scope="module")
def learned() -> Callable[[str], srgp.Learned]:
    """The result of each learner on the shared problem, once."""
    found: dict[str, srgp.Learned] = {}

    def get(name: str) -> srgp.Learned:
        if name not in found:
            found[name] = srgp.learn(START, DATA, LEARNERS[name])
        return found[name]

    return get


def same(one: srgp.Model, other: srgp.Model) -> bool:
    leaves = zip(*map(jax.tree.leaves, (one, other)), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in leaves)


# -- where learning ends ------------------------------------------------------------------------


@every_learner
def test_reaches_the_optimum_and_its_bound_is_clean(name: str, learned: Any) -> None:
    """Within 1 % of L-BFGS's optimum; SRGP, whose gradients are another objective's, within 2 %."""
    result = learned(name)
    start, best = bound_at(START), learned("Exact").bound
    assert best > start + 700
    assert result.bound > best - (0.02 if name == "SRGP" else 0.01) * abs(best)
    assert result.bound <= best + 0.01 * abs(best)
    # The statistics belong to the model returned, and so does the bound.
    assert result.bound == pytest.approx(bound_at(result.model), rel=1e-12)
    assert result.statistics.n == 600
    mean, _ = srgp.posterior(result.model, result.statistics).predict([[1.0], [3.0]])
    np.testing.assert_allclose(mean, np.sin([1.0, 3.0]), atol=0.05)
    assert float(result.model.noise) == pytest.approx(0.01, rel=0.2)
    assert isinstance(result.model.inducing, np.ndarray)
    assert result.model.inducing.dtype == np.float64


def test_the_exact_optimum_is_stationary(learned: Any) -> None:
    """In the coordinates of the optimiser: logarithms, and R in units of its spread."""
    model = learned("Exact").model
    _, at = srgp.value_and_grad(model, DATA)
    slopes = [
        at.noise * model.noise,
        at.kernel.variance * model.kernel.variance,
        at.kernel.lengthscales * model.kernel.lengthscales,
        *(at.inducing * np.std(START.inducing)).ravel(),
    ]
    assert np.abs(slopes).max() < 1e-3 * len(X)


@pytest.mark.parametrize("name", ["SRGP", "Sites"])
def test_the_estimate_of_a_pass_at_rest_is_the_bound(name: str) -> None:
    """SRGP: the ψ_k of an epoch add up to the bound. Sites: of all rows in one batch, likewise."""
    learner = {
        "SRGP": srgp.SRGP(100, epochs=1, learning_rate=0.0, restart=None, warm_up=0),
        "Sites": srgp.Sites(batch_size=600, epochs=1, memory=0.0, learning_rate=0.0),
    }[name]
    weights = np.where(np.arange(600) < 300, 1.5, 0.0)
    for data in (DATA, (*DATA, weights)):
        result = srgp.learn(START, data, learner)
        (estimate,) = result.history.column("estimate")
        assert estimate == pytest.approx(result.bound, rel=1e-6)
        assert result.bound == pytest.approx(bound_at(START, *data), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_sites_never_end_below_their_start(seed: int) -> None:
    """At a rate that runs away from some starts, unless that is noticed."""
    draw = np.random.default_rng(seed)
    kernel = k.SE(variance=draw.lognormal(0, 1.5), lengthscales=draw.lognormal(0, 1.0))
    start = START.replace(kernel=kernel, noise=draw.lognormal(-2, 2), inducing=X[seed : seed + 8])
    result = srgp.learn(start, DATA, srgp.Sites(batch_size=100, epochs=20, learning_rate=0.1))
    assert result.bound >= bound_at(start)


@pytest.mark.parametrize("model_name", ["FITC", "PITC"])
def test_models_with_noise_of_their_own_are_learned(model_name: str) -> None:
    approximation = srgp.FITC() if model_name == "FITC" else srgp.PITC(block_size=20)
    start = START.replace(approximation=approximation)
    exact = srgp.learn(start, DATA, srgp.Exact(iterations=40))
    slow = srgp.SRGP(batch_size=100, epochs=20, learning_rate=0.1)
    stochastic = srgp.learn(start, DATA, slow)
    for result in (exact, stochastic):
        assert result.model.approximation == approximation
        assert result.bound > bound_at(start) + 600
        assert result.bound == pytest.approx(bound_at(result.model), rel=1e-12)
    assert stochastic.bound > exact.bound - 0.03 * abs(exact.bound)


@pytest.mark.parametrize("model_name", [m for m in MODELS if m != "VFE"])
def test_sites_name_the_models_they_cannot_learn(model_name: str) -> None:
    start = START.replace(approximation=MODELS[model_name][0])
    shown = re.escape(repr(start.approximation))
    with pytest.raises(ValueError, match=rf"{shown}.*srgp\.Exact or srgp\.SRGP"):
        srgp.learn(start, DATA, srgp.Sites(batch_size=100, epochs=1))


@may_end_singular
@pytest.mark.parametrize("rows", [1, 5])
@short
def test_fewer_rows_than_inducing_inputs(name: str, rows: int) -> None:
    result = srgp.learn(START, (X[:rows], y[:rows]), SHORT[name])
    assert np.isfinite(result.bound)
    assert result.statistics.n == rows
    if name == "Exact":
        assert result.bound >= bound_at(START, X[:rows], y[:rows])


@short
def test_several_outputs_share_their_parameters(name: str) -> None:
    both = np.stack([y, 2.0 * np.cos(X[:, 0])], 1)
    result = srgp.learn(START, (X, both), SHORT[name])
    assert result.bound > bound_at(START, X, both)
    assert result.statistics.sums.b.shape == (8, 2)


@short
def test_weights_are_obeyed(name: str) -> None:
    """Rows that are pure noise, of next to no weight, change next to nothing."""
    bad = np.arange(600) % 2 == 1
    targets = np.where(bad, 100.0, y)
    data = (X, targets, np.where(bad, 1e-9, 1.0))
    longer = {
        "SRGP": srgp.SRGP(batch_size=100, epochs=20, learning_rate=0.1),
        "Exact": srgp.Exact(),
        "Sites": srgp.Sites(batch_size=100, epochs=20, learning_rate=0.1),
    }[name]
    result = srgp.learn(START, data, longer, fixed=["inducing", "kernel"])
    # 300 rows of noise 0.01 and 300 of noise σ²/1e-9, which 100² fits: σ² ≈ 0.0075.
    assert 0.004 < float(result.model.noise) < 0.03
    assert result.bound == pytest.approx(bound_at(result.model, *data), rel=1e-12)


@pytest.mark.parametrize("name", ["SRGP", "Sites"])
def test_batches_of_no_weight_are_harmless(name: str) -> None:
    weights = np.where(np.arange(600) < 60, 1.0, 0.0)
    learner = type(LEARNERS[name])(batch_size=4, epochs=1, learning_rate=0.01)
    result = srgp.learn(START, (X, y, weights), learner)  # would warn of refused steps
    assert np.isfinite(result.history.column("estimate")).all()
    assert result.bound > bound_at(START, X, y, weights)


def test_a_sum_of_kernels_and_a_fixed_group() -> None:
    start = START.replace(kernel=k.SE() + k.Linear(variance=0.123))
    result = srgp.learn(start, DATA, srgp.Exact(iterations=30), fixed=["kernel.right", "inducing"])
    assert result.bound > bound_at(start) + 600
    assert same(result.model.kernel.right, start.kernel.right)
    assert result.model.inducing.tobytes() == start.inducing.tobytes()
    assert not same(result.model.kernel.left, start.kernel.left)


def test_auto_on_more_data_goes_from_a_sample_to_all() -> None:
    draw = np.random.default_rng(1)
    inputs = draw.uniform(0, 6, (11_000, 1))
    targets = np.sin(inputs[:, 0]) + 0.1 * draw.normal(size=11_000)
    result = srgp.learn(START, (inputs, targets), srgp.Auto(iterations=20))
    epochs = result.history.column("epoch")
    assert epochs == sorted(epochs)
    # First a sample, which is less than a pass each time; then exact passes over all rows.
    assert result.history[0].estimate is not None
    assert result.history[-1].bound is not None
    assert float(result.model.noise) == pytest.approx(0.01, rel=0.1)
    exact = srgp.learn(START, (inputs, targets), srgp.Exact())
    assert result.bound > exact.bound - 0.01 * abs(exact.bound)


def test_auto_ends_in_the_middle_of_a_sample_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "SAMPLE", 50)
    monkeypatch.setattr(auto, "EVERY", 2)
    heard: list[Any] = []

    def enough(record: Record, model: srgp.Model) -> bool:
        heard.append((record, model))
        return len(heard) == 2

    result = srgp.learn(START, DATA, srgp.Auto(iterations=20), callback=enough)
    assert len(result.history) == 2
    assert all(r.bound is None and r.estimate is not None and r.done < 1 for r, _ in heard)
    assert same(result.model, heard[-1][1])
    assert result.bound > bound_at(START)


NOISY = np.random.default_rng(1)
MANY = NOISY.uniform(0, 6, (9000, 1))
SINES = np.sin(MANY[:, 0])


def many_rows(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """So that 9000 rows are many, and the sample has one report."""
    for name, value in {"LARGEST": 4500, "AHEAD": 2, "EVERY": 100, **changes}.items():
        monkeypatch.setattr(auto, name, value)


@pytest.mark.parametrize("most", [9000, 8000])
@pytest.mark.parametrize("model_name", ["VFE", "TighterVFE"])
def test_auto_on_many_rows_takes_a_few_steps_more(
    model_name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On all of them, or on as many as are enough: either way the bound of all is better for it."""
    many_rows(monkeypatch, MOST=most)
    targets = SINES + np.random.default_rng(2).normal(size=9000)  # too noisy for Sites
    start = START.replace(approximation=MODELS[model_name][0])
    seen: list[srgp.Model] = []
    result = srgp.learn(
        start, (MANY, targets), srgp.Auto(iterations=20), callback=lambda r, m: seen.append(m)
    )
    assert result.bound > bound_at(seen[0], MANY, targets)
    last = result.history[-1]
    if model_name == "VFE":  # one of the sample, then a pass of SRGP
        assert len(result.history) == 1 + auto.TURNS
        assert last.bound is None
        assert result.history[-1].epoch - result.history[0].epoch == pytest.approx(
            most / 9000, rel=0.01
        )
        return
    assert 2 < len(result.history) <= 1 + auto.FEW
    if most == 9000:
        assert last.bound == pytest.approx(result.bound, rel=1e-8)
    else:
        # What 8000 rows tell of 9000, whose noise is not the same.
        assert last.bound is None
        assert last.estimate == pytest.approx(result.bound, rel=0.02)


@pytest.mark.parametrize("stage", ["Sites", "SRGP"])
def test_auto_takes_back_what_does_not_help(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Worse:
        def __init__(self, **settings: Any) -> None: ...

        def run(self, task: Any, report: Any) -> None:
            spoiled = {**task.start, "noise": task.start["noise"] + 3.0}
            report(Report(spoiled, 1.0, done=1.0))

    worth = 0 if stage == "Sites" else 10**9
    many_rows(monkeypatch, WORTH=worth, FEW=1, **{stage: Worse})
    targets = SINES + 0.1 * np.random.default_rng(2).normal(size=9000)
    seen: list[srgp.Model] = []
    result = srgp.learn(
        START, (MANY, targets), srgp.Auto(iterations=10), callback=lambda r, m: seen.append(m)
    )
    first, worse, again = (bound_at(model, MANY, targets) for model in seen[:3])
    assert worse < first - 100
    assert again == first
    assert result.bound >= first


def test_turns_have_all_rows_once() -> None:
    held = Held(np.arange(20.0)[:, None], np.arange(20.0), np.ones(20))
    turns = auto.Turns(held, 3, seed=5)
    assert turns.count() == turns.present() == 7
    passes = [
        [row for X, y, w in turns.batches(4, seed) for row in y[w > 0.0]] for seed in range(5, 11)
    ]
    assert [len(each) for each in passes[:3]] == [7, 7, 6]
    assert sorted(itertools.chain(*passes[:3])) == held.y.tolist()
    assert [set(each) for each in passes[3:]] == [set(each) for each in passes[:3]]
    assert passes[3] != passes[0]  # in another order


@double
def test_srgp_on_a_part_of_the_data_tells_of_all_of_it() -> None:
    """The estimate is scaled up, and as much of the prior counts as there are rows."""
    coordinates = Coordinates.of(START, ())
    task = Task(Arrays(*DATA), 600, coordinates, coordinates.values(START), (), 0, np.inf, 600)
    heard: list[Report] = []
    still = srgp.SRGP(batch_size=200, epochs=1, learning_rate=1e-9)
    for share in (1.0, 0.25):
        still.run(task._replace(share=share), lambda report: heard.append(report) is not None)
    whole, part = (report.estimate for report in heard)
    assert float(part) == pytest.approx(4.0 * float(whole), rel=1e-9)


# -- out of core --------------------------------------------------------------------------------


@short
def test_a_source_out_of_core(name: str) -> None:
    parts = [(X[i : i + 70], y[i : i + 70]) for i in range(0, 600, 70)]
    arrays = srgp.learn(START, DATA, SHORT[name])
    for source in (parts, lambda: iter(parts)):
        result = srgp.learn(START, source, SHORT[name])
        assert np.isfinite(result.bound)
        assert result.bound > bound_at(START)
        assert result.statistics.n == 600
        if name == "Exact":  # which no order of rows changes
            assert result.bound == pytest.approx(arrays.bound, rel=1e-8)


def test_a_generator_is_refused_before_learning() -> None:
    with pytest.raises(ValueError, match="runs only once"):
        srgp.learn(START, (batch for batch in [DATA]))


# -- the same again -----------------------------------------------------------------------------


@every_learner
def test_the_same_seed_gives_the_same_bits(name: str, learned: Any) -> None:
    again = srgp.learn(START, DATA, LEARNERS[name])
    assert same(again.model, learned(name).model)
    assert again.bound == learned(name).bound
    columns = ("epoch", "bound", "estimate", "learning_rate", "refused")
    for column in columns:
        assert again.history.column(column) == learned(name).history.column(column)
    if name in ("SRGP", "Sites"):
        assert not same(srgp.learn(START, DATA, LEARNERS[name], seed=1).model, again.model)


@short
@pytest.mark.parametrize("fixed", ["noise", ["kernel"], ["inducing", "kernel.variance"]])
def test_fixed_parameters_keep_their_bits(name: str, fixed: Any) -> None:
    start = START.replace(kernel=k.SE(variance=1 / 3, lengthscales=0.7), noise=0.1 + 0.2)
    result = srgp.learn(start, DATA, SHORT[name], fixed=fixed)
    chosen = [fixed] if isinstance(fixed, str) else fixed
    values = {
        "kernel.variance": lambda m: m.kernel.variance,
        "kernel.lengthscales": lambda m: m.kernel.lengthscales,
        "noise": lambda m: m.noise,
        "inducing": lambda m: m.inducing,
    }
    for parameter, get in values.items():
        kept = any(parameter == f or parameter.startswith(f + ".") for f in chosen)
        assert (get(result.model).tobytes() == get(start).tobytes()) == kept, parameter
    assert result.bound > bound_at(start)


@short
def test_a_second_run_compiles_nothing(name: str) -> None:
    prior = {"noise": srgp.priors.LogNormal(0.1, 1.0)}
    other = START.replace(noise=0.5, kernel=k.SE(lengthscales=2.0), inducing=START.inducing + 0.1)
    srgp.learn(START, DATA, SHORT[name], priors=prior, validation=(X[:50], y[:50]))
    compiled: list[str] = []

    def count(event: str, _: float, **__: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        prior = {"noise": srgp.priors.LogNormal(0.1, 1.0)}
        srgp.learn(
            other, (X, 2.0 * y), SHORT[name], priors=prior, validation=(X[:50], y[:50]), seed=3
        )
        assert compiled == []
        jax.jit(lambda x: x + 1)(np.ones(3))  # the count does count
        assert compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(count)


# -- options ------------------------------------------------------------------------------------


@every_learner
def test_a_prior_pulls(name: str, learned: Any) -> None:
    prior = srgp.priors.LogNormal(median=0.5, spread=0.01)
    result = srgp.learn(START, DATA, LEARNERS[name], priors={"noise": prior})
    assert float(result.model.noise) == pytest.approx(0.5, rel=0.1)
    assert float(learned(name).model.noise) < 0.02
    assert result.bound < learned(name).bound  # it is the bound, without the prior
    assert result.bound == pytest.approx(bound_at(result.model), rel=1e-12)


def test_exact_with_a_prior_maximises_the_sum(learned: Any) -> None:
    prior = srgp.priors.LogNormal(median=0.03, spread=0.05)
    result = srgp.learn(START, DATA, srgp.Exact(), priors={"noise": prior})

    def objective(noise: float) -> float:
        with jax.enable_x64(True):
            return bound_at(result.model.replace(noise=noise)) + float(prior(noise))

    noise = float(result.model.noise)
    assert 0.011 < noise < 0.03
    assert objective(noise) > max(objective(0.97 * noise), objective(1.03 * noise))


@short
def test_the_callback_hears_and_stops(name: str) -> None:
    heard: list[tuple[Record, srgp.Model]] = []

    def listen(record: Record, model: srgp.Model) -> bool:
        heard.append((record, model))
        return len(heard) == 2

    result = srgp.learn(START, DATA, SHORT[name], callback=listen)
    assert len(heard) == len(result.history) == 2
    assert [record for record, _ in heard] == list(result.history)
    assert same(result.model, heard[1][1])
    assert not same(heard[0][1], heard[1][1])
    # Whatever it returns but True, learning goes on.
    assert len(srgp.learn(START, DATA, SHORT[name], callback=lambda *_: 1).history) == 4


@pytest.mark.parametrize("name", [*SHORT, "Auto"])
def test_no_time_means_one_report(name: str) -> None:
    learner = {**SHORT, "Auto": srgp.Auto()}[name]
    result = srgp.learn(START, DATA, learner, max_seconds=0)
    assert len(result.history) == 1
    assert np.isfinite(result.bound)


@pytest.mark.parametrize("name", ["SRGP", "Sites"])
def test_patience_ends_a_run_that_stands_still(name: str) -> None:
    still = type(LEARNERS[name])(batch_size=100, epochs=20, learning_rate=0.0)
    result = srgp.learn(START, DATA, still, patience=3)
    assert len(result.history) == 4  # the first is the best, and three more
    assert len(set(result.history.column("bound"))) == 1
    assert len(srgp.learn(START, DATA, SHORT[name], patience=3).history) == 4


@short
def test_validation_is_recorded_and_chooses_nothing(name: str) -> None:
    held_out = (np.linspace(0.2, 5.8, 50)[:, None], np.sin(np.linspace(0.2, 5.8, 50)))
    models: list[srgp.Model] = []
    result = srgp.learn(
        START,
        DATA,
        SHORT[name],
        validation=held_out,
        callback=lambda _, model: models.append(model),
    )
    rmse, bounds = result.history.column("rmse"), result.history.column("bound")
    for model, error, bound in zip(models, rmse, bounds, strict=True):
        s = srgp.summarise(model, *DATA)
        mean, _ = srgp.posterior(model, s).predict(held_out[0])
        assert error == pytest.approx(np.sqrt(np.mean((mean - held_out[1]) ** 2)), rel=1e-9)
        assert bound == pytest.approx(srgp.log_bound(model, s), rel=1e-9)
    # Bounds being known, the best of them is the result.
    assert result.bound == pytest.approx(max(bounds), rel=1e-12)


def test_validation_of_another_shape_is_refused_or_understood() -> None:
    held_out = (X[:50], y[:50])
    plain = srgp.learn(START, DATA, SHORT["SRGP"], validation=held_out).history.column("rmse")
    try:
        column = srgp.learn(START, DATA, SHORT["SRGP"], validation=(X[:50], y[:50, None]))
    except ValueError:
        pass
    else:
        assert column.history.column("rmse") == pytest.approx(plain)
    for bad in ((X[:50], y[:49]), (np.zeros((50, 2)), y[:50])):
        with pytest.raises(ValueError):
            srgp.learn(START, DATA, SHORT["SRGP"], validation=bad)


def test_history_columns_and_table() -> None:
    result = srgp.learn(START, DATA, SHORT["SRGP"])
    history = result.history
    assert isinstance(history, History)
    assert history.column("epoch") == [1.0, 2.0, 3.0, 4.0]
    assert history.column("bound") == history.column("rmse") == [None] * 4
    assert history.column("refused") == [0] * 4
    assert np.isfinite(history.column("estimate")).all()
    seconds, rates = history.column("seconds"), history.column("learning_rate")
    assert seconds == sorted(seconds)
    assert 0.1 > rates[0] > rates[1] > rates[2] > rates[3] > 0.0  # cosine
    lines = str(history).splitlines()
    assert lines[0].split() == list(Record._fields[:-1])
    assert len(lines) == 5
    assert lines[1].split()[2] == "-"
    with pytest.raises(AttributeError):
        history.column("loss")
    exact = srgp.learn(START, DATA, SHORT["Exact"]).history
    assert exact.column("bound") == sorted(exact.column("bound"))
    assert exact.column("epoch") == sorted(exact.column("epoch"))
    assert "bound=" in repr(result)
    assert "rows=600" in repr(result)


@pytest.mark.parametrize("seconds", [0.0123456, 0.123456, 123.456, 12345.6])
def test_the_columns_of_the_table_are_aligned(seconds: float) -> None:
    record = Record(seconds, 1.0 / 3.0, -1234.567, -1.2345e-5, 0.0123456, 0.0123456, 12)
    lines = str(History([record, Record(1.0, 2.0, None, None, None, None, 0)])).splitlines()
    assert len({len(line) for line in lines}) == 1


def test_progress_prints_a_line_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[Record] = []
    srgp.learn(START, DATA, SHORT["SRGP"], progress=True, callback=lambda r, _: heard.append(r))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0].split()[:2] == ["seconds", "epoch"]
    assert len(heard) == 4


RMSPROP = optax.rmsprop(0.05)


@pytest.mark.parametrize(
    ("optimizer", "rate"), [("adam", 0.1), ("amsgrad", 0.1), ("sgd", 1e-4), (RMSPROP, 1.0)]
)
@pytest.mark.parametrize("name", ["SRGP", "Sites"])
def test_optimisers(name: str, optimizer: Any, rate: float) -> None:
    learner = type(LEARNERS[name])(
        batch_size=100, epochs=5, learning_rate=rate, optimizer=optimizer
    )
    result = srgp.learn(START, DATA, learner)
    assert result.bound > bound_at(START) + 10
    assert sum(result.history.column("refused")) == 0


@pytest.mark.parametrize("name", ["SRGP", "Sites"])
def test_schedules(name: str) -> None:
    def rates(schedule: Any) -> list[float]:
        options = {"batch_size": 100, "epochs": 4, "learning_rate": 0.02, "schedule": schedule}
        return srgp.learn(START, DATA, type(LEARNERS[name])(**options)).history.column(
            "learning_rate"
        )

    assert rates("constant") == [0.02] * 4
    # The share of all 24 steps that were done before the last step of each epoch.
    shares = [(6 * epoch - 1) / 24 for epoch in range(1, 5)]
    assert rates(lambda share: 1.0 - share) == pytest.approx([0.02 * (1 - s) for s in shares])
    assert rates("cosine") == pytest.approx([0.01 * (1 + np.cos(np.pi * s)) for s in shares])


def test_average_and_warm_up() -> None:
    """Averaged steps lie between the last ones; while warming up, θ rests."""
    last: list[srgp.Model] = []
    plain = srgp.SRGP(batch_size=100, epochs=4)
    srgp.learn(START, DATA, plain, callback=lambda _, m: last.append(m))
    averaged = srgp.learn(START, DATA, srgp.SRGP(batch_size=100, epochs=4, average=0.25))
    noises = sorted(float(m.noise) for m in last[2:])
    assert noises[0] < float(averaged.model.noise) < noises[1]
    resting = srgp.learn(START, DATA, srgp.SRGP(100, 1, warm_up=5, fresh=False))
    once = srgp.learn(START, DATA, srgp.SRGP(100, 1, warm_up=0, fresh=False))
    moved = [abs(np.log(float(r.model.noise) / 0.3)) for r in (resting, once)]
    assert 0.0 < moved[0] < moved[1]
    # One batch an epoch: there is nothing to warm up on, and it learns all the same.
    whole = srgp.learn(START, DATA, srgp.SRGP(batch_size=600, epochs=2, warm_up=3))
    assert whole.bound > bound_at(START)


def test_restarts() -> None:
    """Every `restart` batches at the full rate, more rarely at a lower one, and with each epoch."""
    learner = srgp.SRGP(restart=4)
    shares = (1.0, 0.25, 0.01, 0.0)

    def lengths(steps: int, inducing: int | None = None, learner: srgp.SRGP = learner) -> list[int]:
        return [learner._chain(share, steps, 2000, inducing) for share in shares]

    assert lengths(50) == [4, 8, 40, 50]
    assert lengths(3) == [3, 3, 3, 3]
    assert lengths(50, learner=srgp.SRGP(restart=None)) == [50, 50, 50, 50]
    # With sums made anew 400 rows for each inducing input are enough, and 100 are few.
    assert lengths(50, inducing=100) == [4, 8, 20, 20]
    assert lengths(50, inducing=10) == [4, 4, 4, 4]
    assert lengths(5, inducing=100) == [5, 5, 5, 5]
    assert lengths(6, inducing=100) == [4, 6, 6, 6]

    # At rest, batches whose chain begins anew are judged by the posterior of fewer rows.
    def estimate(restart: int | None, warm_up: int) -> float:
        rest = srgp.SRGP(100, 1, 0.0, "sgd", "constant", restart, warm_up, fresh=False)
        return float(srgp.learn(START, DATA, rest).history[0].estimate or 0.0)

    apart = [bound_at(START, X[rows], y[rows]) for rows in _shuffled(2)]
    assert estimate(2, 0) == pytest.approx(sum(apart), rel=1e-6)
    firsts = [bound_at(START, X[rows[:100]], y[rows[:100]]) for rows in _shuffled(2)]
    # Of six batches three take a step: their sum stands for all.
    assert estimate(2, 1) == pytest.approx(2.0 * (sum(apart) - sum(firsts)), rel=1e-6)


def test_sums_made_anew_are_those_of_the_moment() -> None:
    """As published, sums stay at the θ of their time: the same while θ rests, another step as soon
    as it moves, and, where the bound is flat and θ moves fast, a worse end.
    """
    rng = np.random.default_rng(5)
    inputs = rng.uniform(-1.0, 1.0, (600, 2))
    data = inputs, np.sin(2.0 * inputs.sum(1)) + 0.1 * rng.normal(size=600)
    start = srgp.Model(srgp.kernels.SE(lengthscales=np.ones(2)), 0.3, inputs[:20])

    def learned(rate: float, fresh: bool, epochs: int = 1) -> srgp.Learned:
        learner = srgp.SRGP(60, epochs, rate, restart=None, warm_up=0, fresh=fresh)
        return srgp.learn(start, data, learner)

    # K_RR is ill-conditioned here: sums that stay are not whitened, and lose digits.
    resting = [learned(0.0, fresh).history[0].estimate for fresh in (True, False)]
    assert resting[0] == pytest.approx(resting[1], rel=1e-5)
    moving = [learned(0.1, fresh).history[0].estimate for fresh in (True, False)]
    assert moving[0] != pytest.approx(moving[1], rel=1e-3)
    ends = [learned(0.1, fresh, epochs=20).bound for fresh in (True, False)]
    assert ends[0] > ends[1]


def test_sums_are_made_anew_only_where_rows_are_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains that are too long carry slopes, and so do models with V̄ ≠ 0."""
    chained = importlib.import_module("srgp.chained")
    lengths: list[int] = []
    stepped = chained.stepped

    def counted(model: Any, earlier: Any, *rest: Any) -> Any:
        lengths.append(len(earlier) + 1)
        return stepped(model, earlier, *rest)

    monkeypatch.setattr(chained, "stepped", counted)
    monkeypatch.setattr(importlib.import_module("srgp.learners.srgp"), "FEW", 0)
    srgp.learn(START, DATA, srgp.SRGP(60, 1, restart=3, schedule="constant"))
    assert lengths == [2, 3, 2, 3, 2, 3]
    lengths.clear()
    srgp.learn(START, DATA, srgp.SRGP(20, 1, restart=None))  # 30 batches
    fitc = srgp.Model(START.kernel, START.noise, START.inducing, srgp.FITC())
    srgp.learn(fitc, DATA, srgp.SRGP(100, 1))
    srgp.learn(START, DATA, srgp.SRGP(100, 1, fresh=False))
    assert not lengths


def _shuffled(batches: int) -> list[np.ndarray]:
    """The rows of each chain of so many batches of 100, in the order of the first epoch."""
    order = np.random.default_rng(0).permutation(600)
    return [order[i : i + 100 * batches] for i in range(0, 600, 100 * batches)]


def test_exact_stops_by_the_mean_of_a_window() -> None:
    long = srgp.learn(START, DATA, srgp.Exact(tolerance=1e-3, window=5)).history
    gains = np.diff(long.column("bound"))
    scale = 1e-3 * max(abs(long[-1].bound or 0.0), 600)
    assert gains[-5:].mean() < scale
    assert all(gains[i : i + 5].mean() >= scale for i in range(len(gains) - 5))
    assert long.column("done") == pytest.approx([(i + 1) / 200 for i in range(len(long))])


def test_the_papers_settings() -> None:
    paper = srgp.SRGP.paper(learning_rate=0.02, batch_size=100, epochs=10)
    assert (paper.schedule, paper.warm_up, paper.average) == ("constant", 0, 0.0)
    assert (paper.optimizer, paper.restart, paper.fresh) == ("adam", None, False)
    assert srgp.learn(START, DATA, paper).bound > bound_at(START) + 100


# -- runs that run away -------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* steps would have led to:UserWarning")
@may_end_singular
@pytest.mark.parametrize("rate", [30.0, 1e3, 1e5])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", ["SRGP", "Sites"])
def test_a_huge_learning_rate_never_returns_nan(name: str, optimizer: str, rate: float) -> None:
    learner = type(LEARNERS[name])(
        batch_size=100, epochs=3, learning_rate=rate, optimizer=optimizer
    )
    result = srgp.learn(START, DATA, learner)
    assert np.isfinite(result.bound)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.model))
    assert float(result.model.noise) > 0.0


def test_refused_steps_are_counted_and_reported() -> None:
    learner = srgp.SRGP(batch_size=100, epochs=2, learning_rate=1e5, restart=None)
    with pytest.warns(
        UserWarning, match=r"10 of 12 steps would have led to.*smaller learning rate"
    ) as c:
        result = srgp.learn(START, DATA, learner)
    assert result.history.column("refused") == [5, 5]  # one batch an epoch warms up
    assert result.bound == pytest.approx(bound_at(START), rel=1e-12)
    assert c[0].filename == __file__


def test_one_refused_step_of_many_is_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that follow make it good, and warnings are errors here; two of them are told."""
    module = importlib.import_module("srgp.learners.srgp")
    make, wrong_at = module._step, [10]
    steps = itertools.count(1)

    def sometimes(*args: Any) -> Any:
        *rest, wrong = make(*args)
        return *rest, wrong + (next(steps) in wrong_at)

    monkeypatch.setattr(module, "_step", sometimes)
    learner = srgp.SRGP(batch_size=6, epochs=1, fresh=False)
    assert srgp.learn(START, DATA, learner).history.column("refused") == [1]
    steps, wrong_at[1:] = itertools.count(1), [20]
    with pytest.warns(UserWarning, match="2 of 100 steps"):
        srgp.learn(START, DATA, learner)


def test_impossible_sums_give_no_gradient_and_theta_coasts() -> None:
    """Staying where the step is refused, all rows as one batch would be refused for ever."""
    module = importlib.import_module("srgp.learners.srgp")
    with jax.enable_x64(True):
        coordinates = Coordinates.of(START)
        adam = stepping.as_optimizer("adam")
        values = coordinates.values(START)
        good = sensitivity.batch_parts(START, None, [(X, y, np.ones(600))])
        made, *rest = good
        too_much = (made._replace(raw=made.raw._replace(c=0.5 * made.raw.c)), *rest)
        memory = adam.init(values)
        refused, places = [], [values]
        for parts in (good, too_much, too_much):
            state = module._nothing(START, parts)
            values, memory, _, _, wrong = module._step(
                (adam, ()), coordinates, values, memory, state, parts, 1.0, 0.01
            )
            refused.append(int(wrong))
            places.append(jax.tree.map(np.asarray, values))
    assert refused == [0, 1, 1]
    first, second, third = (
        np.concatenate([np.ravel(b[n] - a[n]) for n in sorted(a)])
        for a, b in itertools.pairwise(places)
    )
    # Adam without a gradient: the direction stays, the length shrinks.
    for later in (second, third):
        np.testing.assert_array_equal(np.sign(later), np.sign(first))
    assert np.abs(third).max() < np.abs(second).max() < np.abs(first).max()


def test_data_of_any_scale_are_learned_or_refused_aloud() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scale in (1e-6, 1e6):
            result = srgp.learn(START, (X, scale * y), srgp.Exact(iterations=60))
            assert np.isfinite(result.bound)
            assert result.bound > bound_at(START, X, scale * y)


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "settings"),
    [
        (srgp.SRGP, {"batch_size": 0}),
        (srgp.SRGP, {"batch_size": 2.5}),
        (srgp.SRGP, {"epochs": 0}),
        (srgp.SRGP, {"restart": 0}),
        (srgp.Exact, {"window": 0}),
        (srgp.SRGP, {"optimizer": "adamw"}),
        (srgp.SRGP, {"optimizer": optax.adam}),
        (srgp.SRGP, {"schedule": "linear"}),
        (srgp.SRGP, {"learning_rate": float("nan")}),
        (srgp.SRGP, {"learning_rate": -0.1}),
        (srgp.Sites, {"batch_size": 0}),
        (srgp.Sites, {"epochs": -1}),
        (srgp.Sites, {"memory": 1.0}),
        (srgp.Sites, {"memory": -0.1}),
        (srgp.Sites, {"optimizer": 3}),
        (srgp.Sites, {"learning_rate": float("nan")}),
        (srgp.Exact, {"iterations": 0}),
        (srgp.Exact, {"memory": 0}),
        (srgp.Auto, {"iterations": 0}),
        (as_learner, {"learner": "adam"}),
        (as_learner, {"learner": "SRGP"}),
        (as_learner, {"learner": None}),
        (as_learner, {"learner": 3}),
    ],
    ids=lambda value: getattr(value, "__name__", None) or "-".join(value),
)
def test_wrong_settings_are_refused(learner: Callable[..., Any], settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        learner(**settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learner": "lbfgs"}, "auto, srgp, exact, sites"),
        ({"data": (np.zeros((3, 2)), np.zeros(3))}, "columns"),
        ({"data": (X, y[:-1])}, "shape"),
        ({"data": (X, np.full(600, np.nan))}, "nan"),
        ({"data": 7}, "data must be"),
        ({"data": []}, "no batch"),
        ({"fixed": ["kernel.period"]}, "no parameter is called"),
        ({"fixed": ["kernel", "noise", "inducing"]}, "nothing to learn"),
        ({"priors": {"kernel": srgp.priors.Gamma(1.0, 1.0)}}, "group"),
        ({"validation": (np.zeros((3, 2)), np.zeros(3))}, "columns"),
    ],
)
def test_wrong_calls_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        srgp.learn(START, **{"data": DATA, "learner": SHORT["Exact"], **options})


@pytest.mark.parametrize("batch", [1, 7, 100, 5000])
@pytest.mark.parametrize("total", [1, 6, 600])
@pytest.mark.parametrize(("at_most", "unit"), [(50, 1), (10**6, 1), (60, 20), (10, 20)])
def test_batches_are_whole_chunks(batch: int, total: int, at_most: int, unit: int) -> None:
    size, rows = batch_shape(batch, total, at_most, unit)
    assert size % rows == rows % unit == 0
    assert size >= min(batch, total)
    assert rows <= max(at_most, unit)
    assert size - min(batch, total) < unit * (size // rows)  # little padding


def test_an_estimate_that_is_no_number_is_none() -> None:
    class Lost:
        def run(self, task: Any, report: Any) -> None:
            for estimate in (np.nan, -np.inf, 3.0):
                report(Report(task.start, 1.0, estimate=estimate))

    assert srgp.learn(START, DATA, Lost()).history.column("estimate") == [None, None, 3.0]


def test_a_batch_without_a_bound_does_not_spoil_the_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of six batches gives NaN: the estimate of the epoch is the mean of the others."""
    module = importlib.import_module("srgp.learners.sites")
    make, told = module._sites_cotangent, []

    def sometimes(*args: Any) -> Any:
        at, gradient, elbo, state = make(*args)
        told.append(float(elbo))
        return at, gradient, elbo if len(told) != 3 else jax.numpy.nan * elbo, state

    monkeypatch.setattr(module, "_sites_cotangent", sometimes)
    result = srgp.learn(START, DATA, srgp.Sites(batch_size=100, epochs=1, learning_rate=0.0))
    assert len(told) == 6
    expected = np.mean([value for i, value in enumerate(told) if i != 2])
    assert result.history.column("estimate") == [pytest.approx(expected)]


def _state(at: srgp.Model, parts: Any) -> Any:
    return sensitivity.as_state(at, sensitivity.factor_of(at, None), parts)


class TestRobustSteps:
    def test_no_batch_is_likelier_than_one_predicted_exactly(self) -> None:
        """`most` bounds ψ for every model, with weights, at sensible and at extreme parameters."""
        p = problem(seed=2)
        for approximation in (srgp.VFE(), srgp.DTC(), srgp.FITC(), srgp.PEP(0.5)):
            for noise in (1e-4, 1.0):
                model = srgp.Model(srgp.kernels.SE(), noise, p.R, approximation)
                with jax.enable_x64(True):
                    at = jax.tree.map(jnp.asarray, model)
                    parts = sensitivity.batch_parts(at, None, [(p.X, p.y, p.weights)])
                    limit = float(sensitivity.most(at, _state(at, parts)))
                bound = srgp.log_bound(model, srgp.summarise(model, p.X, p.y, p.weights))
                assert bound <= limit
        # Reached where there is nothing to explain: rows of zeros, without noise left over.
        silent = srgp.Model(1e-12 * srgp.kernels.SE(), 1.0, p.R)
        with jax.enable_x64(True):
            at = jax.tree.map(jnp.asarray, silent)
            parts = sensitivity.batch_parts(at, None, [(p.X, 0.0 * p.y, p.weights)])
            limit = float(sensitivity.most(at, _state(at, parts)))
        bound = srgp.log_bound(silent, srgp.summarise(silent, p.X, 0.0 * p.y, p.weights))
        assert bound == pytest.approx(limit, abs=1e-6)

    def test_one_wild_gradient_does_not_blind_the_optimiser(self) -> None:
        values = {"a": jnp.zeros(3)}
        optimizer = stepping.as_optimizer("quick-adam")
        memory = optimizer.init(values)
        rng = np.random.default_rng(0)
        sizes = []
        for step in range(40):
            gradient = {"a": jnp.asarray(1.0 + 0.1 * rng.normal(size=3))}
            if step == 20:
                gradient = {"a": jnp.full(3, 1e12)}
            updates, memory = optimizer.update(gradient, memory, values)
            sizes.append(float(jnp.abs(updates["a"]).max()))
        assert min(sizes[25:]) > 0.3  # Adam alone would stand still for hundreds of steps

    @pytest.mark.parametrize("seed", range(4))
    def test_inducing_inputs_too_close_for_the_lengthscale(self, seed: int) -> None:
        """Fifteen on an interval of two lengthscales: K_RR is singular to rounding on the way."""
        rng = np.random.default_rng(0)
        X = rng.uniform(-1.0, 1.0, (1000, 1))
        y = 2.0 * np.sin(4.0 * X[:, 0]) + 0.1 * rng.normal(size=1000)
        R = np.linspace(-1.0, 1.0, 15)[:, None]
        start = srgp.Model(srgp.kernels.SE(lengthscales=[1.0]), 1.0, R)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", srgp.JitterWarning)
            best = srgp.learn(start, (X, y), srgp.Exact()).bound
            found = srgp.learn(start, (X, y), srgp.SRGP(batch_size=100), seed=seed)
        assert sum(record.refused for record in found.history) == 0
        assert found.bound > best - 0.05 * abs(best)


@pytest.mark.parametrize("patience", [None, 5])
@pytest.mark.parametrize("learner", [srgp.Exact(iterations=2), srgp.Auto(iterations=2)])
def test_data_that_cannot_be_read_are_no_run_away(
    learner: Any, patience: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever pass fails: the error is told, and no worse model is taken for the result."""
    for name, value in {
        "SAMPLE": 32,
        "PER_INDUCING": 1,
        "WORTH": 0,
        "QUIET": 1e9,
        "STEPS": 1,
    }.items():
        monkeypatch.setattr(auto, name, value)  # a sample, then Sites, undone or not, then all
    p, left = problem(N=200), 0

    def passes() -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("rows.parquet cannot be read")
        yield p.X, p.y

    model = srgp.Model(k.SE(lengthscales=[1.0, 1.0]), 0.5, p.R)
    told = []
    for count in range(1000):
        left = count
        try:
            srgp.learn(model, passes, learner, patience=patience)
            break
        except ValueError as error:
            told.append(str(error))
    assert 5 < count < 999
    assert set(told) == {"rows.parquet cannot be read"}


def test_auto_leaves_few_parameters_to_the_exact_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "WORTH", 1.0)

    class Unwanted:
        def __init__(self, **settings: Any) -> None:
            raise AssertionError("Sites are not worth it here")

    monkeypatch.setattr(auto, "Sites", Unwanted)
    draw = np.random.default_rng(0)
    inputs = draw.uniform(0, 6, (11_000, 1))
    targets = np.sin(inputs[:, 0]) + 0.1 * draw.normal(size=11_000)
    parameters = START.inducing.size + 3
    srgp.learn(START, (inputs, targets), srgp.Auto(iterations=parameters))
    with pytest.raises(AssertionError, match="not worth it"):
        srgp.learn(START, (inputs, targets), srgp.Auto(iterations=parameters - 1))
