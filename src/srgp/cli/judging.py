"""How good a model is, in numbers and as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from srgp.cli.outputs import save_picture
from srgp.cli.screen import chosen
from srgp.metrics import scores

if TYPE_CHECKING:
    from srgp.regressor import SparseGPRegressor
    from srgp.tables import Table


def answers(
    est: "SparseGPRegressor", table: "Table", at_most: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Targets, means and variances of the rows of a table, or of a random part of it."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    rows = 0
    for X, y, w in table.batches(16_384, None if at_most is None else 0):
        present = w > 0.0
        mean, deviation = est._answer(est.scaler_.inputs(X[present]), True)
        found.append((y[present], mean, deviation**2))
        rows += int(present.sum())
        if at_most is not None and rows >= at_most:
            break
    y, mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return y, mean, variance


def judged(found: tuple[np.ndarray, np.ndarray, np.ndarray]) -> dict[str, float]:
    """The scores that are shown."""
    return {"rows judged": len(found[0]), **chosen(scores(*found))}


def picture(path: Path, y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> None:
    """Predictions against measurements, and calibration."""
    from matplotlib.figure import Figure

    from srgp import plots

    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    columns = [a.reshape(len(a), -1)[:, 0] for a in (y, mean, variance)]
    plots.prediction_vs_truth(*columns, ax=left)
    plots.calibration(*columns, ax=right)
    save_picture(figure, path)
