"""What people have on a cluster, cut into parts: dask arrays, data frames, files, plain arrays."""

import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from srgp.distributed import tasks
from srgp.distributed.cluster import delayed
from srgp.sources import Arrays
from srgp.tables import Table

CUT = 32  # parts of arrays that are sent to the workers


def of_dask_arrays(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """The chunks of X with the rows of y, and of the weights, that go with them."""
    X = X.rechunk({1: -1})
    if any(np.isnan(size) for size in X.chunks[0]):
        raise ValueError("the chunks of X have unknown sizes: call X.compute_chunk_sizes() first.")
    arrays = [X]
    for name, a in (("y", y), ("sample_weight", sample_weight)):
        if a is None:
            continue
        if a.shape[0] != X.shape[0]:
            raise ValueError(f"{name} has {a.shape[0]} rows, but X has {X.shape[0]}.")
        arrays.append(a.rechunk({0: X.chunks[0], **dict.fromkeys(range(1, a.ndim), -1)}))
    columns = [a.to_delayed().ravel() for a in arrays]
    return [delayed()(tasks.as_tuple)(*rows) for rows in zip(*columns, strict=True)]


def of_frame(
    frame: Any, target: Any, features: list[str], weight: str | None, missing: str
) -> list[Any]:
    """The partitions of a dask DataFrame."""
    opened = functools.partial(tasks.framed, target, features, weight, missing)
    return [delayed()(opened)(f"part {i}", p) for i, p in enumerate(frame.to_delayed())]


def features_of(frame: Any, target: Any, features: Any, weight: str | None) -> list[str]:
    """The columns named, or all that are neither target nor weight."""
    if features is None:
        others = {weight, *([target] if isinstance(target, str) else target)}
        features = [name for name in frame.columns if name not in others]
    return [features] if isinstance(features, str) else list(features)


def of_files(table: Table) -> list[tasks.File]:
    """The files of a table, for workers to open."""
    told = table.settings()
    settings = {name: told[name] for name in ("missing", "delimiter")}
    files = [os.path.abspath(file) for file in table.files()]
    if not files:
        raise ValueError("only files can be read by workers: give paths, folders or patterns.")
    names = list(table.feature_names)
    return [
        tasks.File(file, told["target"], names, told["weight"], settings, os.path.getsize(file))
        for file in files
    ]


def of_arrays(held: Arrays) -> Iterator[tuple[np.ndarray, ...]]:
    """Arrays that are here, in pieces."""
    cut = [np.array_split(a, min(CUT, held.count())) for a in (held.X, held.y, held.w)]
    return zip(*cut, strict=True)
