"""The package as a whole: layers, light import, scoped precision, compilation, public names."""

import ast
import dataclasses
import functools
import importlib
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import problem

import srgp
from srgp import kernels as k
from srgp import sums

SOURCE = Path(srgp.__file__).parent

# A module imports only from modules above it.
LAYERS = [
    "precision",
    "compiled",
    "pytree",
    "checks",
    "atomic",
    "sysid",
    "metrics",
    "blas",
    "linalg",
    "kernels",
    "approximations",
    "single",
    "model",
    "priors",
    "parameters",
    "drawing",
    "reading",
    "sources",
    "sums",
    "statistics",
    "bound",
    "posterior",
    "moving",
    "recursion",
    "filtering",
    "fullgp",
    "inducing",
    "tables",
    "scaling",
    "slopes",
    "moments",
    "collapsed",
    "sensitivity",
    "blocks",
    "stacked",
    "passes",
    "propagation",
    "differentiated",
    "gradient",
    "chained",
    "learners",
    "onepass",
    "distributed",
    "streams",
    "storage",
    "regressor",
    "plots",
    "experiments",
    "cli",
]


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "srgp":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("srgp."):
            found.add(str(node.module).split(".")[1])
    return found


def test_modules_import_only_from_those_above() -> None:
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if name == "__init__":
            continue
        assert name in LAYERS, f"{name} has no place in the layers"
        allowed = set(LAYERS[: LAYERS.index(name) + 1])
        assert imported_modules(path) <= allowed, f"{path.name} imports from below"


def test_import_is_light() -> None:
    heavy = ("sklearn", "matplotlib", "pandas", "pyarrow", "polars", "safetensors", "typer")
    code = f"import sys, srgp; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_double_precision_without_touching_the_users_setting() -> None:
    code = """
import numpy as np, jax, jax.numpy as jnp, srgp
model = srgp.Model(srgp.kernels.SE(), 0.1, [[0.0], [1.0]])
s = srgp.summarise(model, [[0.5]], [1.0])
mean, var = srgp.posterior(model, s).predict([[0.2]])
f = srgp.Filter.start(model).update([0.5], 1.0)
assert mean.dtype == var.dtype == s.sums.A.dtype == f.predict([[0.2]])[0].dtype == np.float64
assert not jax.config.jax_enable_x64
assert jnp.ones(3).dtype == jnp.float32
assert (jnp.ones(3) * mean[0]).dtype == jnp.float32
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_single_precision_input_is_taken_as_double() -> None:
    p = problem()
    X = jnp.asarray(p.X, dtype=jnp.float32)
    model = srgp.Model(k.SE(), p.noise, np.asarray(p.R, dtype=np.float32))
    s = srgp.summarise(model, X, p.y.astype(np.float32))
    t = srgp.summarise(model, np.asarray(X, np.float64), p.y.astype(np.float32).astype(float))
    assert srgp.log_bound(model, s) == srgp.log_bound(model, t)


def test_compiled_code_is_kept_where_asked_and_only_once(tmp_path: Path) -> None:
    code = """
import sys, srgp
print(srgp.keep_compiled_code(sys.argv[1]) == srgp.keep_compiled_code("another"))
srgp.Model(srgp.kernels.SE(), 0.1, [[0.0], [1.0]]).basis
"""
    command = [sys.executable, "-c", code, str(tmp_path / "kept")]
    env = {name: v for name, v in os.environ.items() if not name.startswith("JAX_")}
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert out.stdout.strip() == "True"
    assert list((tmp_path / "kept").iterdir())
    (tmp_path / "file").touch()
    code = "import sys, srgp; print(srgp.keep_compiled_code(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(tmp_path / "file" / "below")]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert out.stdout.strip() == "None"


def test_two_compilations_serve_all_batch_sizes() -> None:
    """One for up to 256 rows, one for all others; none for a single row."""
    p = problem(N=3000, M=6, D=3)
    model = srgp.Model(k.RationalQuadratic(), p.noise, p.R)
    srgp.summarise(model, p.X[:2], p.y[:2])
    srgp.summarise(model, p.X[:257], p.y[:257])
    compiled = sums._asked._cache_size()
    for n in (1, 2, 17, 100, 999, 3000):
        srgp.summarise(model, p.X[:n], p.y[:n])
    other = model.replace(noise=0.7, inducing=p.R + 1.0, kernel=k.RationalQuadratic(mixture=3.0))
    srgp.summarise(other, p.X, p.y)
    assert sums._asked._cache_size() == compiled


def test_filter_and_prediction_compile_a_fixed_number_of_times() -> None:
    recursion = importlib.import_module("srgp.recursion")
    posterior = importlib.import_module("srgp.posterior")
    p = problem(N=200, M=6, D=3)
    model = srgp.Model(k.RationalQuadratic(), p.noise, p.R)
    functions = (
        recursion.observed,
        recursion.learned,
        recursion.update_one,
        posterior.predict_latent,
    )
    before = [f._cache_size() for f in functions]
    f = srgp.Filter.start(model)
    for n in (1, 2, 3, 50, 64, 65, 200):
        f = f.update(p.X[:n], p.y[:n]).update(p.X[0], p.y[0])
        f.predict(p.X[:n])
    grown = [f._cache_size() - b for f, b in zip(functions, before, strict=True)]
    observed, learned, one, predicted = grown
    assert observed <= 1
    assert learned <= 2  # the state before may be on the host, or on the device
    assert one <= 1
    assert predicted <= len(posterior.PREDICTION_ROWS)


def test_a_model_is_a_pytree_and_its_gradient_has_its_shape() -> None:
    p = problem()
    model = srgp.Model(k.SE(lengthscales=[1.0, 2.0]), p.noise, p.R)
    with jax.enable_x64(True):

        def bound(model: srgp.Model) -> jax.Array:
            return srgp.Filter.start(model).update(p.X, p.y).state.log_bound

        slope = jax.jvp(bound, (model,), (jax.tree.map(np.ones_like, model),))[1]
    assert np.isfinite(slope)
    assert jax.tree.structure(model) == jax.tree.structure(jax.tree.map(np.negative, model))


@pytest.mark.parametrize("name", srgp.__all__)
def test_public_names_are_documented(name: str) -> None:
    thing = getattr(srgp, name)
    assert thing.__doc__
    assert len(thing.__doc__) > 40
    for part in public_parts(thing) if inspect.ismodule(thing) else [thing]:
        if inspect.isclass(part) or inspect.isfunction(part):
            assert ">>>" in (inspect.getdoc(part) or ""), f"{part} has no example"


def public_parts(module: ModuleType) -> list[Any]:
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    names = getattr(module, "__all__", [n for n in own if not n.startswith("_")])
    return [getattr(module, name) for name in names if name != "Parameter"]


def test_fingerprints_tell_functions_apart() -> None:
    def constant(level: float) -> k.Kernel:
        return k.Function(lambda x, z: level + 0.0 * x[0])

    kernels = [
        k.Function(lambda x, z: 1.0 + 0.0 * x[0]),
        k.Function(lambda x, z: 2.0 + 0.0 * x[0]),
        constant(1.0),
        constant(2.0),
    ]
    assert len({srgp.Model(kernel, 0.1, [[0.0]]).fingerprint for kernel in kernels}) == 4
    assert len({srgp.Model(constant(1.0), 0.1, [[0.0]]).fingerprint for _ in range(2)}) == 1


RATE: object = 1.0


def _scaled(x: jax.Array, z: jax.Array) -> jax.Array:
    return RATE * (x @ z)  # type: ignore[operator]


def _indirect(x: jax.Array, z: jax.Array) -> jax.Array:
    return _scaled(x, z)


class _Scale:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, x: jax.Array, z: jax.Array) -> jax.Array:
        return self.rate * (x @ z)

    def method(self, x: jax.Array, z: jax.Array) -> jax.Array:
        return self.rate * (x @ z)

    def __repr__(self) -> str:
        return "_Scale()"


def _with_default(rate: float) -> Callable[..., jax.Array]:
    return lambda x, z, rate=rate: rate * (x @ z)


def _with_keyword(rate: float) -> Callable[..., jax.Array]:
    return lambda x, z, *, rate=rate: rate * (x @ z)


def _with_array(rate: float) -> Callable[..., jax.Array]:
    many = [np.zeros(2000)]  # more than a repr shows
    many[0][1000] = rate
    return lambda x, z: many[0][1000] + x @ z


@pytest.mark.parametrize(
    "make",
    [
        _with_default,
        _with_keyword,
        _with_array,
        _Scale,
        lambda rate: _Scale(rate).method,
        lambda rate: jax.jit(_Scale(rate)),
        lambda rate: functools.partial(_Scale.__call__, _Scale(rate)),
    ],
)
def test_fingerprints_hold_what_a_function_computes_with(make: Callable[[float], Any]) -> None:
    one, same, other = (srgp.Model(k.Function(make(r)), 0.1, [[1.0]]) for r in (1.0, 1.0, 2.0))
    assert one.fingerprint == same.fingerprint != other.fingerprint
    with pytest.raises(ValueError, match="different kernel"):
        srgp.summarise(one, [[1.0]], [1.0]) + srgp.summarise(other, [[1.0]], [1.0])


@pytest.mark.parametrize("function", [_scaled, _indirect, functools.partial(_indirect)])
def test_fingerprints_hold_globals(
    function: Callable[..., jax.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for rate in (1.0, 2.0, np.array(1.0), np.array(2.0)):
        monkeypatch.setattr(sys.modules[__name__], "RATE", rate)
        found.add(srgp.Model(k.Function(function), 0.1, [[1.0]]).fingerprint)
    assert len(found) == 4


def test_fingerprints_of_functions_that_name_themselves() -> None:
    def power(x: jax.Array, z: jax.Array, n: int = 2) -> jax.Array:
        return x @ z if n == 1 else (x @ z) * power(x, z, n - 1)

    assert len({srgp.Model(k.Function(power), 0.1, [[1.0]]).fingerprint for _ in range(2)}) == 1


def test_a_warning_points_at_the_users_line() -> None:
    model = srgp.Model(k.SE(), 0.1, [[0.0], [0.0]])
    with pytest.warns(srgp.JitterWarning) as caught:
        srgp.summarise(model, [[1.0]], [1.0])
    assert caught[0].filename == __file__


def test_fingerprints_are_the_same_in_every_process() -> None:
    code = (
        "import srgp; from srgp import kernels as k; "
        "print(srgp.Model(k.SE() + 2.0 * k.Linear(active_dims=[0]), 0.1, [[0.0], [1.0]])"
        ".fingerprint)"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(runs) == 1
    assert len(runs.pop().strip()) == 32


def test_models_keep_arrays_of_their_own() -> None:
    """In-place changes of what was handed in change nothing, and what is kept cannot be changed."""
    p = problem()
    mine = [np.array(v) for v in (p.R, 0.2, [0.5, 0.8], 1.3, 2.0)]
    R, noise, lengthscales, variance, rate = mine
    kernel = k.SE(variance, lengthscales) + k.Function(
        lambda x, z, rate: rate * jnp.dot(x, z), {"rate": rate}
    )
    model = srgp.Model(kernel, noise, R)
    full = srgp.FullGP(kernel, noise, R, R[:, 0])
    before, fingerprint = model.kernel(p.X), model.fingerprint
    expected = full.log_likelihood
    for array in mine:
        array *= 5.0
    np.testing.assert_array_equal(model.inducing, p.R)
    np.testing.assert_array_equal(model.kernel(p.X), before)
    assert model.replace().fingerprint == fingerprint
    assert dataclasses.replace(full).log_likelihood == expected
    for kept in (*jax.tree.leaves(model), full.X, full.y, full.noise, full.sample_weight):
        assert not kept.flags.writeable
    plain = model.replace(kernel=kernel.left)
    assert pickle.loads(pickle.dumps(plain)).fingerprint == plain.fingerprint
