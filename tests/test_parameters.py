"""θ as optimisers see it: names, coordinates, the chain rule; and the priors."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import KERNELS
from scipy import stats

import srgp
from srgp import kernels as k
from srgp import priors
from srgp.parameters import Coordinates, check_priors, log_prior, parameter_names

R = np.array([[0.0, -3.0], [1.0, 2.0], [2.5, 7.0]])


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Shifted(k.Kernel):
    """Parameters of both kinds, `real` ones first and last."""

    shift: k.Parameter = k.real(default=0.0)
    variance: k.Parameter = 1.0
    slopes: k.Parameter = k.real(default=0.0)

    def pair(self, x: Any, z: Any) -> Any:
        features = [jnp.sum((p - self.shift) * self.slopes) for p in (x, z)]
        return self.variance * (1.0 + features[0] * features[1])


def pair(x: Any, z: Any, rate: Any, nested: Any) -> Any:
    return rate * jnp.exp(-jnp.sum((x - z) ** 2 / nested["scale"])) + nested["floor"]


def function() -> k.Kernel:
    return k.Function(pair, {"rate": 2.0, "nested": {"scale": [0.5], "floor": 0.1}})


ALL = {
    **{name: kernel for name, (kernel, _) in KERNELS.items()},
    "nested": (k.SE(active_dims=[0]) + k.Linear(variance=[0.5, 2.0])) * (k.Matern32() + 0.3),
    "real": Shifted(shift=-1.5, variance=0.4, slopes=[0.0, -2.0]),
    "nested real": 2.0 * Shifted(shift=-1.5) + k.RationalQuadratic(mixture=3.0),
    "function": function(),
    "sum of functions": function() + Shifted(shift=-0.5) * function(),
}


def model_with(kernel: k.Kernel, **changes: Any) -> srgp.Model:
    return srgp.Model(kernel, 0.3, R).replace(**changes)


def on_device(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


@pytest.mark.parametrize("name", ALL)
def test_there_and_back(name: str) -> None:
    model = model_with(ALL[name])
    coordinates = Coordinates.of(model)
    values = coordinates.values(model)
    assert tuple(values) == coordinates.names == parameter_names(model)
    back = coordinates.model(values)
    assert jax.tree.structure(back) == jax.tree.structure(model)
    for found, expected in zip(*map(jax.tree.leaves, (back, model)), strict=True):
        assert np.shape(found) == np.shape(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", ALL)
def test_any_values_make_a_valid_model(name: str) -> None:
    """Positive parameters stay positive, real ones move freely, and values come back."""
    model = model_with(ALL[name])
    coordinates = Coordinates.of(model)
    rng = np.random.default_rng(0)
    values = {n: v + rng.normal(size=v.shape) for n, v in coordinates.values(model).items()}
    moved = jax.tree.map(np.asarray, coordinates.model(values))
    moved = moved.replace(kernel=moved.kernel.replace())  # both run all checks
    for n, v in coordinates.values(moved).items():
        np.testing.assert_allclose(v, values[n], rtol=1e-12, atol=1e-14)


def test_which_parameters_are_logarithms() -> None:
    model = model_with(2.0 * ALL["real"] + function())
    values = Coordinates.of(model).values(model)
    assert values["kernel.left.right.shift"] == -1.5
    np.testing.assert_array_equal(values["kernel.left.right.slopes"], [0.0, -2.0])
    assert values["kernel.left.right.variance"] == pytest.approx(np.log(0.4))
    assert values["kernel.left.left.variance"] == pytest.approx(np.log(2.0))
    assert values["kernel.right.parameters.rate"] == pytest.approx(np.log(2.0))
    assert values["kernel.right.parameters.nested.floor"] == pytest.approx(np.log(0.1))
    assert values["noise"] == pytest.approx(np.log(0.3))


def test_inducing_inputs_are_in_units_of_their_spread() -> None:
    model = model_with(k.SE())
    coordinates = Coordinates.of(model)
    values = coordinates.values(model)
    np.testing.assert_allclose(np.std(values["inducing"], 0), 1.0)
    # The unit belongs to the start, not to wherever learning stands.
    moved = coordinates.model({**values, "inducing": 2.0 * values["inducing"]})
    np.testing.assert_allclose(moved.inducing, 2.0 * R)
    scaled = model_with(k.SE(), inducing=R * [1e-6, 1e6])
    unit = Coordinates.of(scaled).values(scaled)["inducing"]
    np.testing.assert_allclose(unit, values["inducing"], rtol=1e-12)


def test_inducing_inputs_without_spread() -> None:
    for inducing in (R[:1], np.concatenate([R[:, :1], np.full((3, 1), 5.0)], 1)):
        model = model_with(k.SE(), inducing=inducing)
        coordinates = Coordinates.of(model)
        values = coordinates.values(model)
        assert np.isfinite(values["inducing"]).all()
        np.testing.assert_allclose(coordinates.model(values).inducing, inducing, rtol=1e-15)


@pytest.mark.parametrize(
    ("fixed", "left"),
    [
        ("noise", {"kernel.left.variance", "kernel.left.lengthscales", "kernel.right.variance",
                   "inducing"}),
        (["kernel"], {"noise", "inducing"}),
        (["kernel.left"], {"kernel.right.variance", "noise", "inducing"}),
        (["kernel.left.variance", "inducing"],
         {"kernel.left.lengthscales", "kernel.right.variance", "noise"}),
        (("kernel", "noise"), {"inducing"}),
        (iter(["inducing"]), {"kernel.left.variance", "kernel.left.lengthscales",
                              "kernel.right.variance", "noise"}),
    ],
)  # fmt: skip
def test_fixed_parameters_and_groups(fixed: Any, left: set[str]) -> None:
    model = model_with(k.SE(lengthscales=[0.3, 0.7]) + k.Linear(variance=0.1))
    coordinates = Coordinates.of(model, fixed)
    values = coordinates.values(model)
    assert set(values) == left
    moved = coordinates.model({name: v + 0.1 for name, v in values.items()})
    pairs = zip(*map(jax.tree.leaves, (moved, model)), strict=True)
    for name, (found, expected) in zip(coordinates.names, pairs, strict=True):
        if name in left:
            assert (np.asarray(found) != expected).all()
        else:
            assert np.asarray(found).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["variance", "kernel.var", "kernel.variance.x", "Noise", "", "k"])
def test_an_unknown_name_lists_those_there_are(name: str) -> None:
    model = model_with(k.SE())
    known = r"there are kernel\.variance, kernel\.lengthscales, noise, inducing"
    with pytest.raises(ValueError, match=known):
        Coordinates.of(model, [name])
    with pytest.raises(ValueError, match=known):
        check_priors(model, {name: priors.Gamma(2.0, 1.0)})
    with pytest.raises(ValueError, match=known):
        srgp.learn(model, (R, np.zeros(3)), fixed=name)


def test_everything_fixed_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to learn"):
        Coordinates.of(model_with(k.SE()), ["kernel", "noise", "inducing"])


@pytest.mark.parametrize("name", ["SE", "nested", "nested real", "sum of functions"])
@pytest.mark.parametrize("fixed", [(), ("noise", "inducing")])
def test_the_chain_rule_is_automatic_differentiation(name: str, fixed: Any) -> None:
    model = on_device(model_with(ALL[name]))
    coordinates = on_device(Coordinates.of(model_with(ALL[name]), fixed))
    values = coordinates.values(model)

    def objective(model: srgp.Model) -> Any:
        K = model.kernel.covariance(model.inducing, model.inducing + 0.1)
        return jnp.sum(jnp.sin(K)) * model.noise + jnp.sum(model.inducing**3)

    expected = jax.grad(lambda values: objective(coordinates.model(values)))(values)
    found = coordinates.gradient(values, jax.grad(objective)(model))
    assert set(found) == set(expected) == set(values)
    for n in values:
        assert found[n].shape == values[n].shape
        np.testing.assert_allclose(found[n], expected[n], rtol=1e-10, atol=1e-12)


# -- priors -------------------------------------------------------------------------------------

POINTS = np.array([1e-3, 0.4, 1.0, 2.5, 30.0])


@pytest.mark.parametrize(
    ("prior", "reference"),
    [
        (priors.Normal(mean=1.2, deviation=0.7), stats.norm(1.2, 0.7)),
        (priors.Normal(mean=-3.0, deviation=5.0), stats.norm(-3.0, 5.0)),
        (priors.LogNormal(median=2.0, spread=0.5), stats.lognorm(0.5, scale=2.0)),
        (priors.LogNormal(median=0.1, spread=1.5), stats.lognorm(1.5, scale=0.1)),
        (priors.Gamma(shape=2.5, rate=3.0), stats.gamma(2.5, scale=1 / 3.0)),
        (priors.Gamma(shape=0.5, rate=0.2), stats.gamma(0.5, scale=5.0)),
    ],
)
def test_log_densities(prior: Any, reference: Any) -> None:
    np.testing.assert_allclose(prior(POINTS), reference.logpdf(POINTS), rtol=1e-12)
    assert float(prior(0.4)) == pytest.approx(reference.logpdf(0.4))
    total, slope = jax.value_and_grad(lambda x: jnp.sum(prior(x)))(jnp.asarray(POINTS))
    assert total == pytest.approx(reference.logpdf(POINTS).sum())
    step = 1e-6 * POINTS
    differences = (reference.logpdf(POINTS + step) - reference.logpdf(POINTS - step)) / (2 * step)
    np.testing.assert_allclose(slope, differences, rtol=1e-5, atol=1e-6)


def test_the_log_prior_of_a_model_sums_entries_and_names() -> None:
    model = model_with(k.SE(variance=1.5, lengthscales=[0.3, 0.7]))
    chosen = check_priors(
        model,
        {
            "kernel.lengthscales": priors.Gamma(2.0, 1.0),
            "noise": priors.LogNormal(0.1, 1.0),
            "inducing": lambda value: -jnp.sum(value**2),
        },
    )
    expected = (
        stats.gamma(2.0).logpdf([0.3, 0.7]).sum()
        + stats.lognorm(1.0, scale=0.1).logpdf(0.3)
        - np.sum(R**2)
    )
    assert float(log_prior(chosen, model)) == pytest.approx(expected)
    assert log_prior(check_priors(model, None), model) == 0.0


def test_a_prior_on_a_group_is_refused() -> None:
    model = model_with(k.SE() + k.Linear())
    for group in ("kernel", "kernel.left"):
        with pytest.raises(ValueError, match="group of parameters"):
            check_priors(model, {group: priors.Gamma(2.0, 1.0)})


@pytest.mark.parametrize("bad", [lambda v: jnp.nan, lambda v: -jnp.inf, lambda v: jnp.log(-v)])
def test_a_prior_without_density_at_the_start_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"prior of 'noise'.*finite"):
        check_priors(model_with(k.SE()), {"noise": bad})
