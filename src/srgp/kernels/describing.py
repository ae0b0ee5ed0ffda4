"""What a kernel is, in plain values: kernels that compute different things differ in them."""

import functools
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from srgp.kernels.base import Kernel


def describe(kernel: Kernel) -> tuple[Any, ...]:
    """A kernel's form and exact parameter values, the same in every process.

    >>> from srgp import kernels as k
    >>> from srgp.kernels.describing import describe
    >>> describe(k.Constant(2.0))[:2]
    ('srgp.kernels.base', 'Constant')
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Kernel):
            return describe(value)
        if isinstance(value, dict):
            return tuple((name, plain(v)) for name, v in sorted(value.items()))
        if isinstance(value, np.ndarray):
            return (value.shape, value.tobytes())
        if callable(value):
            return _Content(_module(value)).of(value)
        return repr(value)

    names = kernel._data + kernel._meta
    return (
        type(kernel).__module__,
        type(kernel).__qualname__,
        *((name, plain(getattr(kernel, name))) for name in names),
    )


class _Content:
    """What a function computes with: code, defaults, closure, state, and the globals that it names.

    home: the module whose functions are followed; those of other modules go by their names.
    """

    def __init__(self, home: str | None) -> None:
        self.home, self._within = home, set[int]()

    def of(self, value: Any) -> Any:
        """Plain values, without an address."""
        if id(value) in self._within:
            return "itself"
        self._within.add(id(value))
        try:
            return self._of(value)
        finally:
            self._within.remove(id(value))

    def _of(self, value: Any) -> Any:
        if isinstance(value, Kernel):
            return describe(value)
        if isinstance(value, np.ndarray | jax.Array):
            array = np.asarray(value)
            return (array.dtype.str, array.shape, array.tobytes())
        if isinstance(value, dict):
            return tuple(sorted((repr(name), self.of(v)) for name, v in value.items()))
        if isinstance(value, list | tuple):
            return (type(value).__name__, *map(self.of, value))
        if isinstance(value, types.CodeType):
            return (value.co_code, value.co_names, tuple(map(self.of, value.co_consts)))
        if isinstance(value, types.FunctionType):
            return self._of_function(value)
        if isinstance(value, functools.partial):
            return ("partial", *map(self.of, (value.func, value.args, value.keywords)))
        if isinstance(value, types.MethodType):
            return ("method", self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, types.ModuleType | type) or not hasattr(value, "__dict__"):
            return repr(value)
        if hasattr(value, "__wrapped__"):  # compiled, for instance
            return self.of(value.__wrapped__)
        # What an object's repr leaves out may matter.
        state = self.of(vars(value)), self.of(type(value).__call__ if callable(value) else None)
        return (*_name(type(value)), *state)

    def _of_function(self, function: types.FunctionType) -> tuple[Any, ...]:
        cells = tuple(self.of(cell.cell_contents) for cell in function.__closure__ or ())
        defaults = self.of((function.__defaults__, function.__kwdefaults__))
        named: tuple[Any, ...] = ()
        if function.__module__ == self.home:
            known = function.__globals__
            names = sorted(set(_names(function.__code__)) & known.keys())
            named = tuple((name, self._of_global(known[name])) for name in names)
        return (*_name(function), self.of(function.__code__), cells, defaults, named)

    def _of_global(self, value: Any) -> Any:
        ours = getattr(value, "__module__", self.home) == self.home
        if ours and not isinstance(value, types.ModuleType):
            return self.of(value)
        return _name(value)


def _module(function: Any) -> str | None:
    while isinstance(function, functools.partial):  # which is functools' own
        function = function.func
    return getattr(function, "__module__", None)


def _name(value: Any) -> tuple[Any, ...]:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__)
    return (getattr(value, "__module__", None), name)


def _names(code: types.CodeType) -> Iterator[str]:
    """Of globals and attributes, in functions within, too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
