"""How good a model is, in numbers and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from srgp.cli.outputs import save_picture
from srgp.cli.progress import counting
from srgp.cli.screen import chosen, tell
from srgp.metrics import scores

if TYPE_CHECKING:
    from srgp.regressor import SparseGPRegressor
    from srgp.tables import Table

Answers: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]  # targets, means, variances

DRAWN = 20  # targets in a picture, at most


def answers(
    est: "SparseGPRegressor", table: "Table", quiet: bool, at_most: int | None = None
) -> Answers:
    """Targets, means and variances of the rows of a table, or of a random part of it."""
    found: list[Answers] = []
    rows, total = 0, table.rows_known()
    if total is not None and at_most is not None:
        total = min(total, at_most)
    with counting("judging", total, quiet) as add:
        for X, y, w in table.batches(16_384, None if at_most is None else 0):
            present = w > 0.0
            mean, deviation = est._answer(est.scaler_.inputs(X[present]), True)
            found.append((y[present], mean, deviation**2))
            add(len(mean))
            rows += len(mean)
            if at_most is not None and rows >= at_most:
                break
    y, mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return y, mean, variance


def judged(found: Answers, names: Sequence[str]) -> dict[str, Any]:
    """The scores that are shown; of several targets those of each, as their units differ."""
    each = {
        name: chosen(scores(*columns)) for name, columns in zip(names, _each(found), strict=True)
    }
    rows = {"rows judged": len(found[0])}
    return {**rows, "targets": each} if len(each) > 1 else {**rows, **each[names[0]]}


def _each(found: Answers) -> list[Answers]:
    """One target after the other."""
    columns = [a.reshape(len(a), -1).T for a in found]
    return list(zip(*columns, strict=True))


def picture(path: Path, found: Answers, names: Sequence[str]) -> None:
    """Predictions against measurements, and calibration, for each target."""
    from matplotlib.figure import Figure

    from srgp import plots

    drawn = names[:DRAWN]
    figure = Figure(figsize=(7.2, 3.4 * len(drawn)), layout="constrained")
    axes = figure.subplots(len(drawn), 2, squeeze=False)
    for name, columns, (left, right) in zip(drawn, _each(found), axes, strict=False):
        plots.prediction_vs_truth(*columns, ax=left)
        plots.calibration(*columns, ax=right)
        if len(names) > 1:
            left.set_title(name, loc="left", parse_math=False)
    save_picture(figure, path)
    if len(names) > DRAWN:
        tell(f"{path} shows the first {DRAWN} of {len(names)} targets.")
