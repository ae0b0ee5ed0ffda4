"""From data to the model that learning starts from."""

import warnings
from typing import Any

import numpy as np

from srgp import inducing
from srgp.approximations import Approximation
from srgp.checks import as_count, as_inputs
from srgp.kernels import Kernel
from srgp.model import Model
from srgp.regressor.choices import KERNELS, named, warn_degenerate
from srgp.scaling import Scaler

SAMPLE = 20_000  # rows from which inducing inputs and starting values are found


def starting_model(
    X: np.ndarray,
    y: np.ndarray,
    scaler: Scaler,
    kernel: Kernel | str | None,
    n_inducing: int,
    points: Any,
    approximation: Approximation,
    seed: int,
) -> Model:
    """Kernel, noise and inducing inputs from a sample X (N, D), y (N, ...) of scaled rows.

    points: how inducing inputs are chosen, or an array of them in the units of X.
    """
    warn_degenerate(y)
    if isinstance(kernel, Kernel):
        noise = 0.1 * float(np.mean(np.var(y, 0))) or 0.1
    else:
        kind = named(kernel or "se", KERNELS, type, "kernel")
        M = inducing.tried_with(as_count(n_inducing, "n_inducing"))
        kernel, noise = inducing.starting_values(X, y, kind, seed, M)
    if isinstance(points, str):
        R = _chosen(points, X, kernel, as_count(n_inducing, "n_inducing"), seed)
    else:
        R = scaler.inputs(as_inputs(points, "inducing", columns=X.shape[1]))
    return Model(kernel, noise, R, approximation)


def _chosen(way: str, X: np.ndarray, kernel: Kernel, M: int, seed: int) -> np.ndarray:
    if way not in ("kmeans", "random", "greedy"):
        raise ValueError(
            "inducing must be 'kmeans', 'random', 'greedy' or an array of inducing inputs, "
            f"got {way!r}."
        )
    # Rows that are all different, or all that are there.
    distinct = np.unique(X, axis=0)
    if len(distinct) <= M:
        return distinct
    if way == "greedy":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return inducing.greedy(kernel, X, M, seed=seed)
    choose = inducing.kmeans if way == "kmeans" else inducing.random
    return choose(X, M, seed)
