"""Writes the golden files of the current format, and what their models predict.

    python tests/golden/make.py

A file of an older format is never made again: it stands for the files that users have.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

import srgp
from srgp import kernels as k
from srgp import storage
from srgp.learners import History, Record
from srgp.tables import Table

HERE = Path(__file__).parent


def content() -> storage.Saved:
    """A small model that uses every part of a file."""
    rng = np.random.default_rng(20)
    X = rng.uniform(-2, 2, (30, 2))
    y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2], 1) + 0.1 * rng.normal(size=(30, 2))
    season = k.Periodic(period=1.7, active_dims=[0]) * k.SE(lengthscales=[0.8, 1.1])
    model = srgp.Model(
        season + 0.3 * k.Polynomial(offset=0.7, degree=3, active_dims=[1]) + k.Matern32(),
        noise=0.05,
        inducing=rng.uniform(-2, 2, (6, 2)),
        approximation=srgp.PEP(alpha=0.25),
    )
    return storage.Saved(
        model,
        srgp.summarise(model, X, y),
        scaler={"X_mean": np.array([0.1, -0.2]), "y_scale": np.array(2.5)},
        feature_names=("hour", "température"),
        target_names=("load", "price"),
        history=History(
            [
                Record(0.5, 1.0, -math.inf, -3.25, None, 0.01, 2),
                Record(1.5, 2.0, -12.125, None, 0.5, None, 0),
            ]
        ),
        settings={"n_inducing": 6, "rates": (0.1, 0.01), "limit": math.inf, "note": None},
    )


def regressor() -> tuple[srgp.SparseGPRegressor, pd.DataFrame]:
    """One as users save it, and rows to ask it about."""
    rng = np.random.default_rng(22)
    X = pd.DataFrame(rng.uniform(0, 24, (65, 2)), columns=["hour", "température"])
    X["load"] = 100.0 + 10.0 * np.sin(X["hour"] / 4.0) + X["température"] + rng.normal(size=65)
    est = srgp.SparseGPRegressor(
        n_inducing=6, learner=srgp.SRGP(batch_size=20, epochs=2), adapt=srgp.OnePass(steps=2)
    )
    est.fit_source(Table(X[:40], "load"))
    est.partial_fit_source(Table(X[40:60], "load"))
    return est, X.iloc[60:, :2]


def write_regressor() -> None:
    """The regressor's file, and what it answers before and after it learned these answers."""
    est, X = regressor()
    path = HERE / f"regressor-v{storage.FORMAT}.srgp"
    est.save(path)
    mean, deviation = est.predict(X, return_std=True)
    expected = {
        "bound": est.bound_,
        "X": X.to_numpy().tolist(),
        "mean": mean.tolist(),
        "deviation": deviation.tolist(),
        "later": est.partial_fit(X, mean).predict(X).tolist(),
    }
    path.with_suffix(".json").write_text(json.dumps(expected, indent=1) + "\n")


def write_model() -> None:
    """The model's file, and the expected numbers beside it."""
    saved = content()
    assert saved.statistics is not None
    path = HERE / f"model-v{storage.FORMAT}.srgp"
    storage.write(path, saved)
    Xs = np.random.default_rng(21).uniform(-3, 3, (5, 2))
    mean, variance = srgp.posterior(saved.model, saved.statistics).predict(Xs)
    expected = {
        "version": srgp.__version__,
        "fingerprint": saved.model.fingerprint,
        "Xs": Xs.tolist(),
        "mean": mean.tolist(),
        "variance": variance.tolist(),
    }
    path.with_suffix(".json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    write_model()
    write_regressor()
