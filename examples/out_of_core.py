"""Learn from a folder of Parquet files, a batch at a time, and write predictions to a file."""

import tempfile
from pathlib import Path

import numpy as np

from srgp import SparseGPRegressor
from srgp.tables import Table, write_table

folder = Path(tempfile.mkdtemp())
for month in range(4):
    rng = np.random.default_rng(month)
    hour, load = rng.uniform(0, 24, 5000), rng.uniform(0, 1, 5000)
    price = 30 + 10 * np.sin(hour / 24 * 2 * np.pi) + 25 * load**2 + rng.normal(size=5000)
    write_table(folder / f"{month}.parquet", [{"hour": hour, "load": load, "price": price}])

table = Table(str(folder), target="price")
est = SparseGPRegressor(n_inducing=40).fit_source(table)
rows = write_table(folder / "answers.csv", est.predict_source(table, keep=["hour"]))
print(f"{est.n_samples_seen_} rows learned, {rows} predictions written")
print(f"noise deviation {est.noise_std_:.2f}")
