"""Immutable classes as JAX pytrees."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax


def register(cls: type, data: Sequence[str], meta: Sequence[str]) -> None:
    """Make `cls` a pytree with the fields `data` as children and `meta` as its fixed form.

    JAX rebuilds such objects without `__init__` and its checks: a gradient has the shape of a
    kernel, but any sign.
    """

    def flatten(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(obj, n) for n in data), tuple(getattr(obj, n) for n in meta)

    def flatten_with_keys(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, form = flatten(obj)
        keys = (jax.tree_util.GetAttrKey(name) for name in data)
        return tuple(zip(keys, children, strict=True)), form

    def unflatten(form: tuple[Any, ...], children: Iterable[Any]) -> Any:
        obj: Any = object.__new__(cls)
        for name, value in zip((*data, *meta), (*children, *form), strict=True):
            object.__setattr__(obj, name, value)
        return obj

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
