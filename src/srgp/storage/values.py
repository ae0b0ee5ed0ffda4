"""Models and what belongs to them as JSON values and arrays, and back.

A JSON object with the key "$" stands for what JSON lacks, {"$": ["tuple", 1, 2]} for instance:

    tuple, float (nan, inf, -inf), number (a NumPy scalar), array (its name in the file),
    kernel (of srgp.kernels), own (a kernel of the user's), approximation,
    model, statistics, history

Keys of dicts that start with "$" get one more, so that nothing is mistaken for these.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from srgp import approximations, kernels
from srgp.approximations import Approximation
from srgp.kernels import Function, Kernel
from srgp.learners import History, Record
from srgp.model import Model
from srgp.statistics import Statistics
from srgp.sums import Sums


def _classes(module: Any, base: type) -> dict[str, Any]:
    found = {name: thing for name, thing in vars(module).items() if isinstance(thing, type)}
    return {name: thing for name, thing in found.items() if issubclass(thing, base)}


BUILT_IN: dict[str, type[Kernel]] = _classes(kernels, Kernel)
del BUILT_IN["Function"]  # its function is code
APPROXIMATIONS: dict[str, type[Approximation]] = _classes(approximations, Approximation)


def pack(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """`value` as (JSON values, arrays by name), for `write_arrays`.

    It may be made of None, booleans, numbers, strings, lists, tuples, dicts with strings as keys,
    arrays, kernels, approximations, models, statistics and histories.

    >>> import srgp
    >>> from srgp.storage import pack, unpack
    >>> tree, arrays = pack({"kernel": 2.0 * srgp.kernels.SE(), "rates": (0.1, float("inf"))})
    >>> sorted(arrays)
    ['kernel.left.variance', 'kernel.right.lengthscales', 'kernel.right.variance']
    >>> unpack(tree, arrays)["rates"]
    (0.1, inf)
    """
    packer = Packer()
    return packer.encode(value, ""), packer.arrays


def unpack(tree: Any, arrays: Mapping[str, np.ndarray], own: Iterable[type[Kernel]] = ()) -> Any:
    """What `pack` was given. `own` are the kernel classes in it that are not of srgp.kernels.

    >>> import srgp
    >>> from srgp.storage import pack, unpack
    >>> unpack(*pack(srgp.Model(srgp.kernels.SE(), 0.1, [[0.0], [1.0]], srgp.PEP(alpha=0.5))))
    Model(SE(variance=1.0, lengthscales=1.0), noise=0.1, inducing=(2, 1), PEP(alpha=0.5))
    """
    return Unpacker(arrays, own).decode(tree)


class Packer:
    """Collects the arrays, and the classes that reading will need, on the way through a value."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.own: dict[str, type[Kernel]] = {}

    def encode(self, value: Any, path: str) -> Any:
        """JSON values for `value`, which is found at `path`."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$": ["float", repr(value)]}
        if isinstance(value, np.str_):
            return str(value)
        if type(value) is dict:
            return {_escaped(key, path): self.encode(v, _at(path, key)) for key, v in value.items()}
        if type(value) is list:
            return self._each(value, path)
        return {"$": self._special(value, path)}

    def _special(self, value: Any, path: str) -> list[Any]:
        if type(value) is tuple:
            return ["tuple", *self._each(value, path)]
        if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.itemsize <= 8:
            return ["number", value.dtype.name, self.encode(value.item(), path)]
        if isinstance(value, np.ndarray | jax.Array):
            return ["array", self._keep(np.asarray(value), path)]
        if isinstance(value, Kernel):
            return self._kernel(value, path)
        if isinstance(value, Approximation):
            return ["approximation", _name(value, APPROXIMATIONS), self._fields(value, path)]
        if isinstance(value, Model):
            return ["model", self._fields(value, path)]
        if isinstance(value, Statistics):
            sums = {name: np.asarray(part) for name, part in value.sums._asdict().items()}
            return ["statistics", self.encode(sums, path), value.fingerprint]
        if isinstance(value, History):
            # Plain numbers, whichever the learner counted in.
            rows = [[None if v is None else np.asarray(v).item() for v in row] for row in value]
            return ["history", list(Record._fields), self.encode(rows, path)]
        raise ValueError(
            f"{path or 'this'} is {value!r}, of type {type(value).__name__}, which cannot be "
            "saved: numbers, strings, arrays, and lists, tuples and dicts of them can be."
        )

    def _each(self, values: Iterable[Any], path: str) -> list[Any]:
        return [self.encode(value, _at(path, str(i))) for i, value in enumerate(values)]

    def _fields(self, value: Any, path: str) -> dict[str, Any]:
        names = (field.name for field in dataclasses.fields(value))
        return {name: self.encode(getattr(value, name), _at(path, name)) for name in names}

    def _keep(self, array: np.ndarray, path: str) -> str:
        name = path or "array"
        while name in self.arrays:  # {"a.b": …} beside {"a": {"b": …}}
            name += "'"
        self.arrays[name] = array
        return name

    def _kernel(self, kernel: Kernel, path: str) -> list[Any]:
        name = type(kernel).__name__
        if isinstance(kernel, Function):
            raise ValueError(
                f"{kernel!r} wraps a plain function, and a file holds no code: write it as a small "
                "class, a subclass of srgp.kernels.Kernel with the function as its `pair`."
            )
        if BUILT_IN.get(name) is type(kernel):
            return ["kernel", name, self._fields(kernel, path)]
        if self.own.setdefault(name, type(kernel)) is not type(kernel):
            raise ValueError(f"two kernel classes are both called {name}: rename one of them.")
        return ["own", name, self._fields(kernel, path)]


class Unpacker:
    """Rebuilds what a `Packer` took apart; `used` are the user's own kernel classes in it."""

    def __init__(self, arrays: Mapping[str, np.ndarray], own: Iterable[type[Kernel]]) -> None:
        self.arrays, self.own = arrays, _by_name(own)
        self.used: set[str] = set()

    def decode(self, tree: Any) -> Any:
        """The value that these JSON values stand for."""
        if isinstance(tree, list):
            return [self.decode(value) for value in tree]
        if not isinstance(tree, dict):
            return tree
        if "$" in tree:
            tag, *content = tree["$"]
            return self._special(tag, content)
        return {key.removeprefix("$"): self.decode(value) for key, value in tree.items()}

    def _special(self, tag: str, content: list[Any]) -> Any:
        match tag, content:
            case "tuple", values:
                return tuple(self.decode(value) for value in values)
            case "float", [("nan" | "inf" | "-inf") as name]:
                return float(name)
            case "number", [str(dtype), value]:
                return np.asarray(self.decode(value), dtype=dtype)[()]
            case "array", [str(name)]:
                return self.arrays[name]
            case ("kernel" | "own" | "approximation") as kind, [str(name), dict(fields)]:
                return _build(self._class(kind, name), self.decode(fields))
            case "model", [dict(fields)]:
                return _build(Model, self.decode(fields))
            case "statistics", [dict(sums), str(fingerprint)]:
                return Statistics(Sums(**self.decode(sums)), fingerprint)
            case "history", [list(names), list(rows)]:
                records = (dict(zip(names, row, strict=True)) for row in self.decode(rows))
                return History(Record(**record) for record in records)
        raise ValueError(f"{tag!r} stands for nothing that srgp knows.")

    def _class(self, kind: str, name: str) -> type:
        if kind == "own":
            self.used.add(name)
        tables: dict[str, Mapping[str, type]]
        tables = {"kernel": BUILT_IN, "own": self.own, "approximation": APPROXIMATIONS}
        if name in tables[kind]:
            return tables[kind][name]
        if kind != "own":
            raise ValueError(f"there is no {kind} {name} in srgp.")
        raise ValueError(
            f"the kernel class {name} is not one of srgp, and files hold no code: hand in the "
            f"class itself, as in kernels=[{name}]."
        )


def _build(cls: type, fields: dict[str, Any]) -> Any:
    expected = {field.name for field in dataclasses.fields(cls)}
    if set(fields) != expected:
        raise ValueError(
            f"{cls.__name__} has the fields {', '.join(sorted(expected))}, but "
            f"{', '.join(sorted(fields))} were saved: use the class as it was then."
        )
    return cls(**fields)


def _by_name(own: Iterable[type[Kernel]]) -> dict[str, type[Kernel]]:
    found: dict[str, type[Kernel]] = {}
    for cls in own:
        if not (isinstance(cls, type) and issubclass(cls, Kernel)):
            raise ValueError(f"kernels must be classes of kernels, [MyKernel], got {cls!r}.")
        if found.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(f"two kernel classes handed in are both called {cls.__name__}.")
    return found


def _name(value: Approximation, known: Mapping[str, type]) -> str:
    name = type(value).__name__
    if known.get(name) is not type(value):
        raise ValueError(f"the approximation {value!r} is not one of srgp, and cannot be saved.")
    return name


def _escaped(key: Any, path: str) -> str:
    if type(key) is not str:
        raise ValueError(f"{path or 'a dict'} has the key {key!r}; only strings can be saved.")
    return f"${key}" if key.startswith("$") else key


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
