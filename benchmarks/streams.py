"""A stream, one row at a time: microseconds of a prediction and of an update, errors, memory.

python -m benchmarks.streams

Every row is predicted, then learned, D = 4, at the same kernel and noise. Beside `OnlineGP`:
GPyTorch's `get_fantasy_model` (an exact GP that grows), GPflow's SGPR fitted again every 100 rows,
and river's Bayesian linear regression on the same features, h(x) = L⁻¹k(R, x). Then ten million
updates of one filter, and the memory along the way.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import srgp
from benchmarks.common import write
from benchmarks.crosscheck import environments
from benchmarks.peers.run import HERE, REQUIREMENTS
from srgp import kernels as k
from srgp.metrics import scores
from srgp.streams import OnlineGP, SlidingWindow

D, FIRST, NOISE = 4, 200, 0.01
ROWS = {"srgp": 5000, "gpytorch": 1000, "gpflow": 1500, "river": 1000}
COMMON = 800  # rows that errors are of: all methods see these
MANY = 10_000_000


def stream(M: int, rows: int) -> tuple[srgp.Model, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (rows, D))
    y = np.sin(2.0 * X.sum(1)) + X[:, 0] * X[:, 1] + np.sqrt(NOISE) * rng.normal(size=rows)
    R = np.random.default_rng(1).uniform(-1.0, 1.0, (M, D))
    return srgp.Model(k.SE(1.0, np.full(D, 1.0)), NOISE, R), X, y


def summed_up(times: np.ndarray, answers: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Medians and 99 % of the microseconds of all rows; errors of the first that were predicted."""
    times = 1e6 * times[len(times) // 10 :]  # what is compiled is compiled by then
    found = scores(y[FIRST : FIRST + COMMON], *answers[:COMMON].T)
    names = ("predict", "update")
    return {
        **{f"{n}_us": float(np.median(times[:, i])) for i, n in enumerate(names)},
        **{f"{n}_99_us": float(np.quantile(times[:, i], 0.99)) for i, n in enumerate(names)},
        "mean_update_us": float(times[:, 1].mean()),
        "rmse": found.rmse,
        "nlpd": found.nlpd,
        "rows": len(answers),
    }


def ours(model: srgp.Model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    gp, times, answers = OnlineGP(model), [], []
    gp.learn_many(X[:FIRST], y[:FIRST])
    for x, target in zip(X[FIRST:], y[FIRST:], strict=True):
        a = time.perf_counter()
        mean, deviation = gp.predict_one(x)
        b = time.perf_counter()
        gp.learn_one(x, float(target))
        times.append((b - a, time.perf_counter() - b))
        answers.append((mean, deviation**2))
    return summed_up(np.array(times), np.array(answers), y)


def river(model: srgp.Model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    from river.linear_model import BayesianLinearRegression

    single = model.single
    assert single is not None
    linear = BayesianLinearRegression(alpha=1.0, beta=1.0 / NOISE)
    times, answers = [], []
    for i, (x, target) in enumerate(zip(X, y, strict=True)):
        features = dict(enumerate(single._column(x)[0].tolist()))
        a = time.perf_counter()
        found = linear.predict_one(features, with_dist=True)
        b = time.perf_counter()
        linear.learn_one(features, target)
        if i >= FIRST:
            times.append((b - a, time.perf_counter() - b))
            answers.append((found.mu, found.sigma**2))
    return summed_up(np.array(times), np.array(answers), y)


def peer(name: str, model: srgp.Model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    environments.build(name, requirements=REQUIREMENTS[name])
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "question.npz"), Path(folder, "answer.npz")
        np.savez(question, X=X, y=y, R=model.inducing, variance=1.0,
                 lengthscales=np.full(D, 1.0), noise=NOISE, first=FIRST)  # fmt: skip
        runner = HERE / f"{name}_stream.py"
        environments.execute([environments.python(name), runner, question, answer], "streaming")
        with np.load(answer) as found:
            return summed_up(found["times"], found["answers"], y)


def memory() -> list[dict[str, float]]:
    """Resident memory along ten million updates, in blocks of 100 000 rows; M = 50."""
    model, X, y = stream(50, 100_000)
    f, found = srgp.Filter.start(model), []
    start = time.perf_counter()
    for done in range(0, MANY, len(X)):
        f = f.update(X, y)
        if (done + len(X)) % (MANY // 10) == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            found.append({"rows": f.n, "MB": pages * resource.getpagesize() / 1e6,
                          "seconds": time.perf_counter() - start})  # fmt: skip
    return found


def window() -> list[dict[str, float]]:
    """A window of the last 1000 rows over a million: how far its sums are from fresh ones."""
    model, X, y = stream(50, 1_000_000)
    kept, found = SlidingWindow(model, rows=1000), []
    for i in range(0, len(X), 50):
        kept.add(X[i : i + 50], y[i : i + 50])
        if (i + 50) % 100_000 == 950 and i > 1000:  # just before a fresh sum, of every 1000 rows
            fresh = srgp.summarise(model, X[i - 950 : i + 50], y[i - 950 : i + 50])
            off = np.abs(np.asarray(kept.statistics.sums.A) - np.asarray(fresh.sums.A)).max()
            found.append({"rows": i + 50, "error": float(off / np.abs(fresh.sums.A).max())})
    return found


def main() -> None:
    if sys.argv[1:] == ["memory"]:
        print(json.dumps(memory()))
        return
    rows: list[dict[str, Any]] = []
    for M in (50, 100, 300):
        for name, count in ROWS.items():
            model, X, y = stream(M, count)
            if name == "gpytorch" and M > 50:
                continue  # it has no inducing inputs
            run = {"srgp": ours, "river": river}.get(name) or (
                lambda *problem, name=name: peer(name, *problem)
            )
            rows.append({"method": name, "M": M, **run(model, X, y)})
            print(rows[-1], flush=True)
    command = [sys.executable, "-m", "benchmarks.streams", "memory"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    grown = json.loads(out)
    print(grown)
    slid = window()
    print(slid)
    write("streams", {"D": D, "common": COMMON, "streams": rows, "memory": grown, "window": slid})


if __name__ == "__main__":
    main()
