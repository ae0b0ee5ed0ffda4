"""Learning that survives: the results of its steps in a folder, one file each."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from srgp.storage.files import FilePath, library_version, read_arrays, write_arrays

T = TypeVar("T")

KIND = "checkpoint"
ENDING = ".step"


class Checkpoint:
    """A folder that remembers how far learning came, for `srgp.learn` and `fit_source`.

    The same call with the same folder goes on after the last step that was finished, and ends in
    the same model, to the last bit, as if it had never been interrupted (with `SRGP` on a cluster
    that has other workers now, to rounding). Each step (an epoch, or an
    evaluation of the exact gradient) is a file, written whole or not at all. `clear` removes them.

    >>> import tempfile
    >>> import numpy as np, srgp
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> start = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=X[::20])
    >>> folder = tempfile.mkdtemp()
    >>> def learned():
    ...     data = (X, np.sin(X[:, 0]))
    ...     return srgp.learn(start, data, srgp.SRGP(epochs=3), checkpoint=srgp.Checkpoint(folder))
    >>> learned().bound == learned().bound  # the second time, nothing is computed twice
    True
    """

    def __init__(self, folder: FilePath) -> None:
        self.folder = Path(folder)
        self.seconds = 0.0
        self._next = 0
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder} is a file: name a folder for the checkpoint.")
        others = [p.name for p in self._files() if not re.fullmatch(rf"\d+\{ENDING}", p.name)]
        if others:
            raise ValueError(
                f"{self.folder} holds other files ({', '.join(sorted(others)[:3])}): name an empty "
                "or a new folder for the checkpoint."
            )
        self.folder.mkdir(parents=True, exist_ok=True)

    def check(self, job: Mapping[str, Any]) -> None:
        """Note what is being learned; a ValueError where the folder is about something else."""
        path = self._path()
        told = {name: _stable(value) for name, value in job.items()}
        told["version of srgp"] = library_version()
        if not path.exists():
            write_arrays(path, KIND, {}, {"job": told})
        known = read_arrays(path, KIND)[1].get("job", {})
        changed = [name for name in {**told, **known} if known.get(name) != told.get(name)]
        if changed:
            raise ValueError(
                f"{self.folder} remembers another job: {', '.join(changed)} differ. Name another "
                "folder, or remove this one to start again."
            )
        self._next += 1

    def step(self, compute: Callable[[], T], like: T) -> T:
        """The result of the next step: as kept, or computed and kept."""
        path = self._path()
        if path.exists():
            arrays, about = read_arrays(path, KIND)
            if not _fits(arrays, like) or "seconds" not in about:
                raise ValueError(
                    f"{path} holds no step of this job: name another folder for the checkpoint, or "
                    "remove this one to start again."
                )
            leaves = [arrays[str(i)] for i in range(len(arrays))]
            result: T = jax.tree.unflatten(jax.tree.structure(like), leaves)
            self.seconds += float(about["seconds"])
        else:
            start = time.perf_counter()
            result = compute()
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
            named = {str(i): leaf for i, leaf in enumerate(leaves)}
            write_arrays(path, KIND, named, {"seconds": time.perf_counter() - start})
        self._next += 1
        return result

    def clear(self) -> None:
        """Remove what was kept, and the folder if nothing else is in it."""
        for path in self._files():
            if path.suffix == ENDING:
                path.unlink()
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)
        self._next = 0

    def _path(self) -> Path:
        return self.folder / f"{self._next:06d}{ENDING}"

    def _files(self) -> list[Path]:
        found = list(self.folder.iterdir()) if self.folder.exists() else []
        # What a killed process left half-written starts with a dot.
        left = [p for p in found if re.fullmatch(rf"\.\d+\{ENDING}\..*\.tmp", p.name)]
        for path in left:
            path.unlink(missing_ok=True)
        return [p for p in found if p not in left]


def _fits(arrays: Mapping[str, np.ndarray], like: Any) -> bool:
    """Whether arrays have the shapes of a step; one that is empty there has none yet."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(like)]
    if set(arrays) != {str(i) for i in range(len(shapes))}:
        return False
    return all(shape in ((0,), arrays[str(i)].shape) for i, shape in enumerate(shapes))


def _stable(value: Any) -> str:
    """A text that is the same in every process: addresses of functions are not."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
