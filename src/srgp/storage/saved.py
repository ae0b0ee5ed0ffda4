"""A model with all that belongs to it, in one file."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from srgp.checks import as_floats
from srgp.kernels import Kernel
from srgp.learners import History
from srgp.model import Model
from srgp.statistics import Statistics, check_belongs
from srgp.storage.files import FilePath, library_version, read_arrays, refuse, write_arrays
from srgp.storage.values import Packer, Unpacker

KIND = "model"


@dataclasses.dataclass(frozen=True, eq=False)
class Saved:
    """What a model file holds: of the data the sums and the inducing inputs, which may be rows.

    statistics:    of this model; with them the model goes on learning, merging and unlearning.
    scaler:        arrays that standardise inputs and targets, by names of your choice.
    feature_names: of the inputs; target_names of the outputs.
    history:       of the learning that led here.
    settings:      plain values, for whatever builds on the model.
    version:       of the library that wrote the file.
    """

    model: Model
    statistics: Statistics | None = None
    scaler: Mapping[str, np.ndarray] | None = None
    feature_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    history: History | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    version: str = dataclasses.field(default_factory=library_version)


def write(path: FilePath, saved: Saved) -> None:
    """Write a model to one file, whole or not at all: an old file stays until then.

    Kernels of your own are saved by the name of their class; `srgp.kernels.Function` cannot be.

    >>> import os, tempfile
    >>> import numpy as np, srgp
    >>> from srgp import storage
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [1.0]])
    >>> seen = srgp.summarise(model, [[0.2], [0.7]], [1.0, 2.0])
    >>> path = os.path.join(tempfile.mkdtemp(), "model.srgp")
    >>> storage.write(path, storage.Saved(model, seen, feature_names=("hour",)))
    >>> found = storage.read(path)
    >>> found.statistics + srgp.summarise(found.model, [[0.5]], [1.5])
    Statistics(rows=3, inducing=2)
    """
    if saved.statistics is not None:
        check_belongs(saved.model, saved.statistics)
    packer = Packer()
    about = {
        "model": packer.encode(saved.model, "model"),
        "statistics": packer.encode(saved.statistics, "statistics"),
        "scaler": packer.encode(_as_scaler(saved.scaler), "scaler"),
        "feature_names": _as_names(saved.feature_names, "feature_names"),
        "target_names": _as_names(saved.target_names, "target_names"),
        "history": packer.encode(saved.history, "history"),
        "settings": packer.encode(dict(saved.settings), "settings"),
        "version": library_version(),
    }
    _check_returns(saved.model, about, packer)
    write_arrays(path, KIND, packer.arrays, about)


def read(path: FilePath, kernels: Iterable[type[Kernel]] = ()) -> Saved:
    """What `write` wrote; a ValueError that names the file and the reason if it is refused.

    kernels: the classes of your own kernels in the model. Handing one in says that it computes
             what it did when the file was written; it may live in another module by now.

    >>> import os, tempfile
    >>> import srgp
    >>> from srgp import kernels as k, storage
    >>> class Dot(k.Kernel):
    ...     scale: k.Parameter = 1.0
    ...
    ...     def pair(self, x, z):
    ...         return self.scale * (x @ z)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.srgp")
    >>> storage.write(path, storage.Saved(srgp.Model(Dot(scale=2.0) + k.SE(), 0.1, [[1.0]])))
    >>> storage.read(path, kernels=[Dot]).model.kernel
    Dot(scale=2.0) + SE(variance=1.0, lengthscales=1.0)
    """
    arrays, about = read_arrays(path, KIND)
    unpacker = Unpacker(arrays, kernels)
    try:
        fields = unpacker.decode(about)
        for name in ("feature_names", "target_names"):
            fields[name] = None if fields[name] is None else tuple(fields[name])
        saved = Saved(**fields)
        return dataclasses.replace(saved, statistics=_belonging(saved, bool(unpacker.used)))
    except (LookupError, TypeError, ValueError) as error:
        refuse(path, f"cannot be read: {error}")


def _belonging(saved: Saved, own: bool) -> Statistics | None:
    """The statistics, once it is sure that they are of this model."""
    statistics, fingerprint = saved.statistics, saved.model.fingerprint
    if statistics is None or statistics.fingerprint == fingerprint:
        return statistics
    if not own:
        raise ValueError(
            f"its statistics are not of its model as srgp {library_version()} rebuilds it; "
            f"read it with srgp {saved.version}, which wrote it."
        )
    # A fingerprint names the module of a kernel, which may have moved.
    return dataclasses.replace(statistics, fingerprint=fingerprint)


def _check_returns(model: Model, about: dict[str, Any], packer: Packer) -> None:
    """Refuse to write a model that reading would not give back."""
    try:
        again = Unpacker(packer.arrays, packer.own.values()).decode(about["model"])
        same = again.fingerprint == model.fingerprint
    except (TypeError, ValueError) as error:
        raise ValueError(f"{model.kernel!r} cannot be rebuilt from its fields: {error}") from error
    if not same:
        raise ValueError(
            f"{model.kernel!r} is another kernel when rebuilt from its fields: its `__post_init__` "
            "must leave the fields as they are when given its own result."
        )


def _as_names(names: Sequence[str] | None, what: str) -> list[str] | None:
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{what} must be a tuple of strings, got {names!r}.")
    return [str(name) for name in names]  # those of NumPy are of a class of their own


def _as_scaler(scaler: Mapping[str, Any] | None) -> dict[str, np.ndarray] | None:
    if scaler is None:
        return None
    return {name: as_floats(array, f"scaler {name!r}") for name, array in scaler.items()}
