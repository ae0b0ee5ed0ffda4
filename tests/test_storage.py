"""Files: what was written comes back bit for bit, and what was not written is refused."""

import ast
import dataclasses
import hashlib
import json
import math
import os
import pickle
import signal
import stat
import string
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from problems import KERNELS, MODELS, problem

import srgp
from srgp import kernels as k
from srgp import storage
from srgp.atomic import ABANDONED, replacing
from srgp.kernels.describing import describe
from srgp.learners import History, Record
from srgp.storage import files
from srgp.sums import Sums

GOLDEN = Path(__file__).parent / "golden"
P = problem(N=15, M=4)
NESTED = (k.SE(active_dims=[0]) + 0.5) * (k.Linear(active_dims=(1, 0)) + 2.0 * k.Matern12())


class Bump(k.Kernel):
    level: k.Parameter = k.real(default=-0.5)
    width: k.Parameter = 1.0
    power: int = k.static(default=2)

    def pair(self, x: Any, z: Any) -> Any:
        return jnp.exp(-jnp.sum((x - z) ** 2 / self.width)) ** self.power + self.level**2


def moved(module: str) -> type[Bump]:
    """The same class, as if it were defined in another module."""
    return type("Bump", (Bump,), {"__module__": module, "__qualname__": "Bump"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.srgp"


def some_statistics(model: srgp.Model, seed: int = 0, *outputs: int) -> srgp.Statistics:
    """Sums of the right shapes and no data, which cost no compilation."""
    M, draw = len(model.inducing), np.random.default_rng(seed).normal
    shapes = [(M, M), (M, *outputs), outputs, (), ()]
    A, b, c, log_noise, a = (np.asarray(draw(size=shape)) for shape in shapes)
    sums: Any = (A, b, c, log_noise, a, np.array(15.0))
    return srgp.Statistics(Sums(*sums), model.fingerprint)


def assert_same_sums(found: Any, statistics: srgp.Statistics) -> None:
    assert [bits(part) for part in found.sums] == [bits(part) for part in statistics.sums]
    assert found.fingerprint == statistics.fingerprint


def there_and_back(path: Path, saved: storage.Saved, **options: Any) -> storage.Saved:
    storage.write(path, saved)
    return storage.read(path, **options)


def bits(array: Any) -> tuple[Any, ...]:
    array = np.asarray(array)
    return array.dtype.str, array.shape, array.tobytes()


def assert_same_model(found: srgp.Model, model: srgp.Model) -> None:
    assert describe(found.kernel) == describe(model.kernel)
    assert bits(found.noise) == bits(model.noise)
    assert bits(found.inducing) == bits(model.inducing)
    assert repr(found.approximation) == repr(model.approximation)
    assert type(found.approximation) is type(model.approximation)


# -- there and back -------------------------------------------------------------------------------


def test_the_kernels_below_are_all_there_are() -> None:
    def classes(kernel: k.Kernel) -> set[type]:
        children = (getattr(kernel, name) for name in kernel._data)
        nested = (classes(child) for child in children if isinstance(child, k.Kernel))
        return {type(kernel)}.union(*nested)

    tested = set().union(*(classes(kernel) for kernel, _ in KERNELS.values()))
    public = {getattr(k, name) for name in k.__all__ if name[0].isupper()}
    assert tested == public - {k.Kernel, k.Stationary, k.Function, k.Parameter}


@pytest.mark.parametrize(
    "kernel", [*(pair[0] for pair in KERNELS.values()), NESTED], ids=[*KERNELS, "nested"]
)
def test_every_kernel_comes_back(kernel: k.Kernel, path: Path) -> None:
    model = srgp.Model(kernel, 0.1 + 0.2, P.R)
    found = there_and_back(path, storage.Saved(model)).model
    assert_same_model(found, model)
    assert repr(found) == repr(model)
    assert bits(found.kernel(P.X, P.R)) == bits(kernel(P.X, P.R))


@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one output", "two outputs"])
@pytest.mark.parametrize("name", MODELS)
def test_every_approximation_comes_back_and_goes_on(
    name: str, outputs: tuple[int, ...], path: Path
) -> None:
    model = srgp.Model(k.SE(), 0.3, P.R, MODELS[name][0])
    first, rest = some_statistics(model, 1, *outputs), some_statistics(model, 2, *outputs)
    found = there_and_back(path, storage.Saved(model, first))
    assert found.statistics is not None
    assert_same_model(found.model, model)
    assert_same_sums(found.statistics, first)
    assert_same_sums(found.statistics + rest, first + rest)
    assert_same_sums(first + rest - found.statistics, first + rest - first)


@pytest.mark.parametrize(("name", "Q"), [("VFE", None), ("PITC", 2)])
def test_a_loaded_model_predicts_and_learns_bit_by_bit_as_the_original(
    name: str, Q: int | None, path: Path
) -> None:
    y = problem(N=15, M=4, Q=Q).y
    model = srgp.Model(k.SE(lengthscales=[0.7, 1.3]) + 0.5, 0.3, P.R, MODELS[name][0])
    statistics = srgp.summarise(model, P.X, y)
    found = there_and_back(path, storage.Saved(model, statistics))
    assert found.statistics is not None
    assert_same_sums(srgp.summarise(found.model, P.X, y), statistics)
    predicted = srgp.posterior(model, statistics).predict(P.Xs)
    assert bits(srgp.posterior(found.model, found.statistics).predict(P.Xs)) == bits(predicted)


def test_all_that_belongs_to_a_model_comes_back(path: Path) -> None:
    history = History(
        [
            Record(0.1, 1.0, -math.inf, math.nan, None, 0.01, 3),
            Record(np.float64(0.2), 2.0, -1.5, None, 0.3, None, 0),
        ]
    )
    kept = {
        "nested": {"$": 1, "$float": ["a", (1, (2.5, None))]},
        "special": [math.inf, -math.inf, -0.0, True, 10**30],
        "kernel": k.SE(active_dims=[1]),
        "approximation": srgp.PITC(block_size=3),
        "grid": np.arange(3),
    }
    saved = storage.Saved(
        srgp.Model(k.SE(), 0.1, P.R),
        scaler={"mean": np.array([0.1, 0.2]), "scale": np.array(3.0), "": np.zeros((0, 2))},
        feature_names=("x", "Größe", '"\\\n', "\ud800"),
        target_names=tuple(np.array(["y"])),
        history=history,
        settings=kept,
        version="0.0.1",
    )
    found = there_and_back(path, saved)
    assert found.statistics is None
    assert found.scaler is not None
    assert {n: bits(a) for n, a in found.scaler.items()} == {
        n: bits(a)
        for n, a in saved.scaler.items()  # type: ignore[union-attr]
    }
    assert (found.feature_names, found.target_names) == (saved.feature_names, ("y",))
    assert type(found.target_names[0]) is str  # type: ignore[index]
    assert isinstance(found.history, History)
    assert str(found.history) == str(history)
    assert repr(found.history[1]) == repr(history[1]._replace(seconds=0.2))
    assert repr(found.settings) == repr(kept)
    assert found.version == srgp.__version__  # of whoever wrote the file, not of what was in it


def test_the_rest_may_be_left_out(path: Path) -> None:
    found = there_and_back(path, storage.Saved(srgp.Model(k.SE(), 0.1, P.R)))
    rest = [getattr(found, f.name) for f in dataclasses.fields(found)][1:]
    assert rest == [None, None, None, None, None, {}, srgp.__version__]


@pytest.mark.parametrize("number", [np.int64(3), np.float32(2.0), np.bool_(True), np.float64(2.0)])
def test_a_numpy_number_in_a_kernel_stays_one(number: Any, path: Path) -> None:
    model = srgp.Model(k.Polynomial(degree=number) + k.SE(), 0.1, P.R)
    found = there_and_back(path, storage.Saved(model, some_statistics(model)))
    assert found.model.fingerprint == model.fingerprint
    assert type(found.model.kernel.left.degree) is type(number)  # type: ignore[attr-defined]


ARRAYS = hnp.arrays(
    st.sampled_from(["<f8", "<f4", "<i8", "<u4", "|b1", "|u1"]), hnp.array_shapes(min_dims=0)
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("0" * 64),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(string.ascii_letters + "$.", max_size=4), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=40)
@given(values=VALUES, arrays=st.dictionaries(st.text("ab.", max_size=3), ARRAYS, max_size=3))
def test_any_values_and_arrays_come_back(
    values: Any, arrays: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("values") / "some.srgp"
    tree, parts = storage.pack({"values": values, "a": arrays, "a.a": arrays})
    storage.write_arrays(path, "some", parts, {"tree": tree})
    found_arrays, about = storage.read_arrays(path, "some")
    found = storage.unpack(about["tree"], found_arrays)
    assert repr(found["values"]) == repr(values)
    for name in ("a", "a.a"):
        assert {n: bits(a) for n, a in found[name].items()} == {
            n: bits(a) for n, a in arrays.items()
        }


@pytest.mark.parametrize(
    "array",
    [np.arange(12.0).reshape(3, 4).T[::2], np.arange(3.0).astype(">f8"), np.array(math.nan)],
)
def test_layout_and_byte_order_do_not_matter(array: np.ndarray, path: Path) -> None:
    storage.write_arrays(path, "some", {"a": array}, {})
    found = storage.read_arrays(path, "some")[0]["a"]
    assert found.shape == array.shape
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, array)
    found += 1.0  # an ordinary array, not a window on the file


def test_the_same_content_gives_the_same_file(path: Path) -> None:
    model = srgp.Model(NESTED, 0.1, P.R)
    storage.write(path, storage.Saved(model, some_statistics(model)))
    first = path.read_bytes()
    storage.write(path, storage.read(path))
    assert path.read_bytes() == first


def test_another_process_reads_it_and_goes_on(path: Path) -> None:
    model = srgp.Model(NESTED, 0.1, P.R, srgp.FITC())
    storage.write(path, storage.Saved(model, some_statistics(model)))
    code = (
        "import sys; from srgp import storage; found = storage.read(sys.argv[1]); "
        "print(found.model.fingerprint == found.statistics.fingerprint)"
    )
    command = [sys.executable, "-c", code, str(path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "True"


# -- the format stays readable --------------------------------------------------------------------


def test_a_file_of_format_1_is_read_and_predicts_the_same() -> None:
    expected = json.loads((GOLDEN / "model-v1.json").read_text())
    found = storage.read(GOLDEN / "model-v1.srgp")
    assert found.statistics is not None
    assert found.version == expected["version"]
    assert found.feature_names == ("hour", "température")
    assert found.target_names == ("load", "price")
    assert repr(found.scaler) == "{'X_mean': array([ 0.1, -0.2]), 'y_scale': array(2.5)}"
    assert found.history is not None
    assert found.history.column("bound") == [-math.inf, -12.125]
    assert found.history.column("learning_rate") == [0.01, None]
    assert repr(found.settings) == (
        "{'n_inducing': 6, 'rates': (0.1, 0.01), 'limit': inf, 'note': None}"
    )
    # If this changes, older files need their statistics' fingerprints translated.
    assert found.model.fingerprint == expected["fingerprint"]
    # Rounding, which differs between machines, times cond(K_RR), at most about 1e4 here.
    mean, variance = srgp.posterior(found.model, found.statistics).predict(expected["Xs"])
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-10)
    np.testing.assert_allclose(variance, expected["variance"], rtol=1e-10)


def test_a_regressor_of_format_1_is_read_and_goes_on() -> None:
    """As users have it: settings, scaling, names, sums, history, the optimiser's memory."""
    expected = json.loads((GOLDEN / "regressor-v1.json").read_text())
    est = srgp.SparseGPRegressor.load(GOLDEN / "regressor-v1.srgp")
    assert est.get_params()["n_inducing"] == 6
    assert est.adapt == srgp.OnePass(steps=2)
    assert est.feature_names_in_.tolist() == ["hour", "température"]
    assert est.target_names_ == ("load",)
    assert est.n_samples_seen_ == 60
    assert est.history_ is not None
    assert est.history_.column("refused")[-1] == 0
    # Rounding, which differs between machines, times cond(K_RR), at most about 1e6 here.
    assert est.bound_ == pytest.approx(expected["bound"], rel=1e-9)
    X = pd.DataFrame(expected["X"], columns=["hour", "température"])
    mean, deviation = est.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-9)
    np.testing.assert_allclose(deviation, expected["deviation"], rtol=1e-9)
    # θ follows these rows by what the optimiser remembered; a step's rounding may be larger.
    est.partial_fit(X, expected["mean"])
    assert est.n_samples_seen_ == 65
    np.testing.assert_allclose(est.predict(X), expected["later"], rtol=1e-6)


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header's record, and make everything else fit again."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    record = json.loads(json.loads(raw[8 : 8 + length])["__metadata__"]["srgp"])
    record["digest"] = files.ZEROS
    change(record)
    text = json.dumps(record)
    raw = safetensors.numpy.save(safetensors.numpy.load(raw), {"srgp": text})
    digest = hashlib.blake2b(raw, digest_size=32).hexdigest()
    path.write_bytes(raw.replace(files.ZEROS.encode(), digest.encode(), 1))


def small(path: Path) -> bytes:
    storage.write_arrays(path, "state", {"a": np.array([0.1, 0.2]), "n": np.array(3)}, {"b": 1})
    return path.read_bytes()


def test_a_newer_format_asks_for_a_newer_library(path: Path) -> None:
    small(path)
    rewrite(path, lambda record: None)
    assert storage.read_arrays(path, "state")[1] == {"b": 1}  # nothing but the change is refused
    rewrite(path, lambda record: record.update(format=storage.FORMAT + 1, version="9.8.7"))
    with pytest.raises(
        ValueError, match=r"model\.srgp was written by srgp 9\.8\.7, format 2; .*up"
    ):
        storage.read_arrays(path, "state")


# -- refusal --------------------------------------------------------------------------------------


def test_every_changed_byte_is_refused(path: Path) -> None:
    raw = small(path)
    rng = np.random.default_rng(0)
    for position in range(len(raw)):
        # Every bit of the start and of the header's padding, a random one elsewhere.
        whole = position < 8 or raw[position] == ord(" ")
        for bit in range(8) if whole else rng.integers(8, size=1):
            changed = bytearray(raw)
            changed[position] ^= 1 << int(bit)
            path.write_bytes(changed)
            with pytest.raises(
                ValueError, match=r"model\.srgp .*: (check|copy|restore|upgrade|rea)"
            ):
                storage.read_arrays(path, "state")


def test_every_cut_and_anything_appended_is_refused(path: Path) -> None:
    raw = small(path)
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(ValueError, match=r"model\.srgp is (cut off|not a file)"):
            storage.read_arrays(path, "state")
    path.write_bytes(raw + b"\0")
    with pytest.raises(ValueError, match="has something appended"):
        storage.read_arrays(path, "state")


def test_a_changed_number_in_a_model_is_refused(path: Path) -> None:
    model = srgp.Model(k.SE(), 0.1, P.R)
    storage.write(path, storage.Saved(model, some_statistics(model)))
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"model\.srgp has been changed or damaged"):
        storage.read(path)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"PK\x03\x04 a zip file, or anything else that is longer than a few bytes",
        pickle.dumps(list(range(100))),
        safetensors.numpy.save({"a": np.ones(2)}),
        safetensors.numpy.save({"a": np.ones(2)}, {"srgp": "{}"}),
        safetensors.numpy.save({"a": np.ones(2)}, {"srgp": "NaN"}),
        safetensors.numpy.save({"a": np.ones(2)}, {"srgp": "[" * 100_000}),
        (20).to_bytes(8, "little") + b'["not", "an object"]',
    ],
    ids=["empty", "zip", "pickle", "plain", "no record", "NaN", "deep", "list"],
)
def test_another_file_is_refused(raw: bytes, path: Path) -> None:
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=r"model\.srgp is not a file that srgp wrote.*: check the"):
        storage.read(path)


def test_of_a_huge_foreign_file_little_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Counting:
        def __init__(self, *arguments: Any) -> None:
            self.file = open(*arguments)  # noqa: SIM115

        def __enter__(self) -> "Counting":
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def fileno(self) -> int:
            return int(self.file.fileno())

        def read(self, size: int) -> Any:
            part = self.file.read(size)
            read.append(len(part))
            return part

    raw = small(path)
    monkeypatch.setattr(files, "open", Counting, raising=False)
    storage.read_arrays(path, "state")
    assert sum(read) == len(raw)
    read.clear()
    for start in (b"\xff" * 8, raw[: len(raw) - 24], raw):  # no header; a header of a shorter file
        path.write_bytes(start)
        os.truncate(path, 2**34)  # a hole, which takes no room
        with pytest.raises(ValueError, match="model"):
            storage.read_arrays(path, "state")
    assert sum(read) < 3 * len(raw)


def test_another_kind_and_a_missing_file_are_refused(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.srgp"):
        storage.read(path)
    small(path)
    with pytest.raises(ValueError, match=r"model\.srgp holds a 'state', not a 'model'"):
        storage.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.pop("model"), "'model'"),
        (lambda about: about.update(model={"$": ["eval", "1"]}), "'eval' stands for nothing"),
        (lambda about: about.update(model={"$": 3}), "int"),
        (
            lambda about: about["model"]["$"][1].update(kernel={"$": ["kernel", "os.system", {}]}),
            r"no kernel os\.system",
        ),
        (
            lambda about: about["model"]["$"][1].update(kernel={"$": ["kernel", "Function", {}]}),
            "no kernel Function",
        ),
        (
            lambda about: about["model"]["$"][1].update(noise={"$": ["array", "no such"]}),
            "no such",
        ),
        (lambda about: about["model"]["$"][1].update(noise=-1.0), "noise .* must be positive"),
        (
            lambda about: about["model"]["$"][1]["kernel"]["$"][2].pop("variance"),
            "SE has the fields active_dims, lengthscales, variance, but active_dims, lengthscales",
        ),
        (
            lambda about: about["statistics"]["$"].__setitem__(2, "0" * 32),
            "statistics are not of its model",
        ),
    ],
)
def test_content_that_makes_no_model_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, path: Path
) -> None:
    model = srgp.Model(k.SE(), 0.1, P.R)
    storage.write(path, storage.Saved(model, some_statistics(model)))
    rewrite(path, lambda record: change(record["about"]))
    with pytest.raises(ValueError, match=rf"model\.srgp cannot be read: .*({message})"):
        storage.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about["settings"]["parameters"].update(novel=1), "argument 'novel'"),
        (lambda about: about["settings"].update(parameters=[1]), "'list' object"),
        (
            lambda about: about["settings"]["parameters"]["learner"].update(learner="Newton"),
            "'Newton'",
        ),
        (
            lambda about: about["settings"]["parameters"]["learner"]["settings"].update(novel=1),
            "argument 'novel'",
        ),
        (lambda about: about["settings"].pop("weight_seen"), "'weight_seen'"),
        (lambda about: about["settings"].update(weight_seen="many"), "'many'"),
        (lambda about: about["settings"].update(streams=[1]), "'list' object"),
        (lambda about: about["scaler"].pop("x_centre"), "'x_centre'"),
    ],
)
def test_content_that_makes_no_regressor_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, path: Path
) -> None:
    """As a later version may write it, in the same format."""
    path.write_bytes((GOLDEN / "regressor-v1.srgp").read_bytes())

    def later(record: dict[str, Any]) -> None:
        record["about"]["version"] = "9.8.7"
        change(record["about"])

    rewrite(path, lambda record: None)
    srgp.SparseGPRegressor.load(path)  # nothing but the change is refused
    rewrite(path, later)
    with pytest.raises(ValueError, match=r"model\.srgp cannot be read: ") as refused:
        srgp.SparseGPRegressor.load(path)
    assert message in str(refused.value)
    assert "written by srgp 9.8.7" in str(refused.value)


def test_a_model_alone_is_no_regressor() -> None:
    with pytest.raises(ValueError, match=r"model-v1\.srgp holds a model, but no regressor"):
        srgp.SparseGPRegressor.load(GOLDEN / "model-v1.srgp")


def damaged(raw: bytes, rng: np.random.Generator) -> bytes:
    """Cut off, or with some bits flipped, or both."""
    changed = bytearray(raw)
    kind = rng.integers(3)
    for position in rng.integers(len(raw), size=rng.integers(1, 4)) if kind < 2 else ():
        changed[position] ^= 1 << int(rng.integers(8))
    if kind > 0:
        del changed[rng.integers(len(raw)) :]
    return bytes(changed)


def test_a_regressor_that_was_damaged_anywhere_is_refused(path: Path) -> None:
    raw, rng = (GOLDEN / "regressor-v1.srgp").read_bytes(), np.random.default_rng(0)
    for _ in range(600):
        changed = damaged(raw, rng)
        if changed == raw:  # the same bit twice
            continue
        path.write_bytes(changed)
        with pytest.raises(
            ValueError, match=r"model\.srgp .*: (check|copy|restore|upgrade|read it with)"
        ):
            srgp.SparseGPRegressor.load(path)


# -- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_crash_leaves_the_old_file_and_nothing_else(
    step: str, error: BaseException, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = srgp.Model(k.SE(), 0.1, P.R)
    storage.write(path, storage.Saved(model))

    def crash(*arguments: Any) -> None:
        # By now the new content is beside the old.
        assert len(list(path.parent.iterdir())) == 2
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, crash)
        with pytest.raises(type(error)):
            storage.write(path, storage.Saved(model.replace(noise=0.2)))
    assert list(path.parent.iterdir()) == [path]
    assert storage.read(path).model.noise == 0.1
    storage.write(path, storage.Saved(model.replace(noise=0.2)))
    assert list(path.parent.iterdir()) == [path]
    assert storage.read(path).model.noise == 0.2


def test_what_a_killed_writer_left_is_removed_later(path: Path) -> None:
    """But not what another one is writing at this moment."""
    code = (
        "import os, pathlib, signal, sys\n"
        "from srgp.atomic import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = path.parent.iterdir()
    others = [
        path.with_name(f".{name}") for name in ("other.srgp.0123abcd.tmp", f"{path.name}.tmp")
    ]
    for other in others:
        other.write_text("of something else")
    with replacing(path) as slow:
        slow.write_text("slow")
        small(path)
        assert left.exists()  # its writer may be alive
        for old in (left, *others):
            os.utime(old, (0.0, time.time() - 2.0 * ABANDONED))
        raw = small(path)
        assert not left.exists()
        assert path.read_bytes() == raw
    assert path.read_text() == "slow"
    assert sorted(path.parent.iterdir()) == sorted([path, *others])


def test_the_content_is_on_the_disk_before_it_has_its_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def watched(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return original(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, watched(name))
    small(path)
    assert calls[:2] == ["fsync", "replace"]


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_permissions_and_links_stay(path: Path) -> None:
    (path.parent / "plain").touch()
    small(path)
    assert path.stat().st_mode == (path.parent / "plain").stat().st_mode
    path.chmod(0o600)
    link = path.with_name("link.srgp")
    link.symlink_to(path.name)
    storage.write_arrays(link, "other", {}, {})
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert storage.read_arrays(path, "other") == ({}, {})


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: storage.write_arrays(p, "x", {}, {"a": math.nan}), "plain JSON values"),
        (lambda p: storage.write_arrays(p, "x", {}, {"a": np.ones(2)}), "plain JSON values.*pack"),
        (lambda p: storage.write_arrays(p, "x", {"s": np.array(["a"])}, {}), "'s' is of type <U1"),
        (lambda p: storage.write_arrays(p, "x", {"o": np.array([{}])}, {}), "'o' is of type obj"),
        (lambda p: storage.write_arrays(p, "x", {"__metadata__": np.ones(1)}, {}), "cannot be na"),
        (lambda p: storage.write(p, saved_with(settings={"f": print})), "settings.f is <built-in"),
        (lambda p: storage.write(p, saved_with(settings={1: 2})), "settings has the key 1"),
        (lambda p: storage.write(p, saved_with(scaler={"m": [math.inf]})), "scaler 'm' holds inf"),
        (lambda p: storage.write(p, saved_with(feature_names="ab")), "must be a tuple of strings"),
        (lambda p: storage.write(p, saved_with(target_names=(1,))), "must be a tuple of strings"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_writing(
    write: Callable[[Path], None], message: str, path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        write(path)
    assert list(path.parent.iterdir()) == []


def saved_with(**fields: Any) -> storage.Saved:
    return storage.Saved(srgp.Model(k.SE(), 0.1, P.R), **fields)


def test_a_header_that_no_reader_would_take_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "HEADER_LIMIT", 1000)
    storage.write_arrays(path, "x", {}, {"text": '"' * 100})
    assert storage.read_arrays(path, "x")[1] == {"text": '"' * 100}
    with pytest.raises(ValueError, match="keep long lists of numbers as arrays"):
        storage.write_arrays(path, "x", {}, {"text": "a" * 500})


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere, to write model\.srgp"):
        small(tmp_path / "nowhere" / "model.srgp")


def test_statistics_of_another_model_are_not_written(path: Path) -> None:
    model = srgp.Model(k.SE(), 0.1, P.R)
    other = some_statistics(model.replace(kernel=k.SE(variance=2.0)))
    with pytest.raises(ValueError, match="other kernel parameters"):
        storage.write(path, storage.Saved(model, other))
    assert not path.exists()


# -- kernels and approximations of the user's own -------------------------------------------------


def test_an_own_kernel_needs_its_class(path: Path) -> None:
    kernel = k.SE() + 0.5 * Bump(level=-2.0, width=[3.0, 4.0], power=4)
    model = srgp.Model(kernel, 0.1, P.R)
    statistics = some_statistics(model)
    storage.write(path, storage.Saved(model, statistics))
    for classes in ([], [type("Sine", (k.SE,), {})]):
        with pytest.raises(ValueError, match=r"model\.srgp .* class Bump .*kernels=\[Bump\]"):
            storage.read(path, kernels=classes)
    found = storage.read(path, kernels=[Bump])
    assert_same_model(found.model, model)
    assert_same_sums(found.statistics, statistics)
    assert bits(found.model.kernel(P.X)) == bits(kernel(P.X))


def test_an_own_kernel_may_have_moved_to_another_module(path: Path) -> None:
    model = srgp.Model(moved("__main__")(width=2.0), 0.1, P.R)
    storage.write(path, storage.Saved(model, some_statistics(model)))
    there = moved("my_kernels")
    found = storage.read(path, kernels=[there])
    assert type(found.model.kernel) is there
    assert found.model.fingerprint != model.fingerprint
    assert (found.statistics + some_statistics(found.model)).n == 30.0  # type: ignore[operator]


def test_an_own_kernel_is_not_mistaken_for_a_built_in_one(path: Path) -> None:
    own = type("SE", (k.Matern12,), {})
    storage.write(path, storage.Saved(srgp.Model(own() + k.SE(), 0.1, P.R)))
    with pytest.raises(ValueError, match="the kernel class SE is not one of srgp"):
        storage.read(path)
    kernel: Any = storage.read(path, kernels=[own]).model.kernel
    assert (type(kernel.left), type(kernel.right)) == (own, k.SE)


def test_classes_of_one_name_cannot_be_told_apart(path: Path) -> None:
    one, two = moved("one"), moved("two")
    with pytest.raises(ValueError, match="two kernel classes are both called Bump"):
        storage.write(path, storage.Saved(srgp.Model(one() + two(), 0.1, P.R)))
    storage.write(path, storage.Saved(srgp.Model(one(), 0.1, P.R)))
    with pytest.raises(ValueError, match="two kernel classes handed in are both called Bump"):
        storage.read(path, kernels=[one, two])
    with pytest.raises(ValueError, match="kernels must be classes"):
        storage.read(path, kernels=[Bump()])  # type: ignore[list-item]


def test_an_own_kernel_with_other_fields_is_refused(path: Path) -> None:
    storage.write(path, storage.Saved(srgp.Model(Bump(), 0.1, P.R)))
    other = type("Bump", (k.SE,), {})
    with pytest.raises(ValueError, match="Bump has the fields active_dims, lengthscales, var"):
        storage.read(path, kernels=[other])


class Drifting(k.SE):
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "variance", 2.0 * self.variance)


class Hidden(k.SE):
    table: Any = k.static(default=None)


def test_a_kernel_that_would_not_come_back_is_not_written(path: Path) -> None:
    with pytest.raises(ValueError, match="another kernel when rebuilt"):
        storage.write(path, storage.Saved(srgp.Model(Drifting(), 0.1, P.R)))
    with pytest.raises(ValueError, match=r"model\.kernel\.table is .*cannot be saved"):
        storage.write(path, storage.Saved(srgp.Model(Hidden(table=frozenset()), 0.1, P.R)))
    assert not path.exists()


def test_a_plain_function_is_not_written(path: Path) -> None:
    kernel = k.SE() * k.Function(lambda x, z: 1.0 + x @ z)
    with pytest.raises(ValueError, match="file holds no code: write it as a small class"):
        storage.write(path, storage.Saved(srgp.Model(kernel, 0.1, P.R)))
    assert not path.exists()


def test_an_own_approximation_is_not_written(path: Path) -> None:
    own = type("VFE", (srgp.VFE,), {})
    with pytest.raises(ValueError, match="is not one of srgp, and cannot be saved"):
        storage.write(path, storage.Saved(srgp.Model(k.SE(), 0.1, P.R, own())))


# -- what is not in a file ------------------------------------------------------------------------


def test_a_file_holds_no_rows_beside_the_inducing_inputs(path: Path) -> None:
    X, y = P.X.copy(), P.y.copy()
    X[7], y[7] = [0.123456789, -1.987654321], 5.4321012345
    model = srgp.Model(k.SE(lengthscales=[0.7, 1.3]) + 0.5, 0.3, P.R)
    storage.write(path, storage.Saved(model, srgp.summarise(model, X, y)))
    raw = path.read_bytes()
    assert P.R[0].tobytes() in raw  # the search finds what is there
    for number in (*X[7], y[7]):
        assert number.tobytes() not in raw
        assert repr(float(number)).encode() not in raw


def test_a_file_is_arrays_and_json_and_nothing_else(path: Path) -> None:
    saved = storage.Saved(srgp.Model(NESTED, 0.1, P.R), settings={"a": (1, None)})
    storage.write(path, saved)
    raw = path.read_bytes()
    with pytest.raises(Exception, match=r"pickle|opcode|load key"):
        pickle.loads(raw)
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert list(header.pop("__metadata__")) == ["srgp"]
    assert sum(end - start for start, end in (e["data_offsets"] for e in header.values())) == len(
        raw[8 + int.from_bytes(raw[:8], "little") :]
    )


def test_reading_has_no_way_to_run_code() -> None:
    for module in Path(storage.__file__).parent.glob("*.py"):
        tree = ast.parse(module.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not names & {"eval", "exec", "compile", "__import__"}
        assert not imported & {"pickle", "marshal", "importlib", "runpy", "ctypes", "shelve"}
