"""A stream, one row at a time: microseconds of a prediction and of an update, errors, memory.

python -m benchmarks.streams [--small]

Every row is predicted, then learned, D = 4. Beside `OnlineGP`: GPyTorch's `get_fantasy_model` (an
exact GP that grows), GPflow's SGPR fitted again every 100 rows, and river's Bayesian linear
regression on the same features, h(x) = L⁻¹k(R, x), which it is charged for. All start from the
same kernel and noise; GPflow alone goes on to optimise them, at each fit. Then ten million updates
of one filter and a million of one `OnlineGP`, with the memory along the way, and a window that
slides a million steps of one row, which takes most of an hour. `--small` runs our own part on a few
rows and writes nothing: it shows that all of it works.
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
MANY = 10_000_000  # updates of a filter, by batches
SINGLE = 1_000_000  # updates of an `OnlineGP`, and steps of a window, by single rows
WINDOW, CHEAP = 1000, 10  # rows of that window, and its inducing inputs
SAMPLES = 10  # of the memory


def stream(M: int, rows: int) -> tuple[srgp.Model, np.ndarray, np.ndarray]:
    """A model and rows; fewer rows are the first of more, with the same noise."""
    places, noises, inducing = (np.random.default_rng(seed) for seed in (0, 2, 1))
    X = places.uniform(-1.0, 1.0, (rows, D))
    y = np.sin(2.0 * X.sum(1)) + X[:, 0] * X[:, 1] + np.sqrt(NOISE) * noises.normal(size=rows)
    R = inducing.uniform(-1.0, 1.0, (M, D))
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

    def features(x: np.ndarray) -> dict[int, float]:
        return dict(enumerate(single._column(x)[0].tolist()))

    for i, (x, target) in enumerate(zip(X, y, strict=True)):
        a = time.perf_counter()
        found = linear.predict_one(features(x), with_dist=True)
        b = time.perf_counter()
        linear.learn_one(features(x), target)  # again, as a pipeline of river does
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


def resident() -> float:
    """MB of this process at the moment."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def memory(many: int) -> list[dict[str, float]]:
    """Resident memory along ten million updates of a filter, in blocks of rows; M = 50."""
    model, X, y = stream(50, many // 100)
    f, found = srgp.Filter.start(model), []
    start = time.perf_counter()
    for done in range(0, many, len(X)):
        f = f.update(X, y)
        if (done + len(X)) % (many // SAMPLES) == 0:
            found.append({"rows": f.n, "MB": resident(), "seconds": time.perf_counter() - start})
    return found


def memory_single(count: int) -> list[dict[str, float]]:
    """The same of an `OnlineGP` that learns one row at a time, and scores itself."""
    model, X, y = stream(50, count // SAMPLES)
    gp, found = OnlineGP(model), []
    start = time.perf_counter()
    for _ in range(SAMPLES):
        for x, target in zip(X, y, strict=True):
            gp.learn_one(x, float(target))
        found.append({"rows": gp.rows, "MB": resident(), "seconds": time.perf_counter() - start})
    return found


def window(steps: int) -> list[dict[str, float]]:
    """A window that slides by single rows: how far A, b and c are from fresh ones, all along.

    Looked at just before and half-way to each hundredth fresh sum, where the errors have grown.
    """
    model, X, y = stream(CHEAP, steps + WINDOW)
    kept, found = SlidingWindow(model, rows=WINDOW), []
    kept.add(X[:WINDOW], y[:WINDOW])
    every = max(steps // (100 * WINDOW), 1) * WINDOW
    for i in range(WINDOW, len(X)):
        kept.add(X[i : i + 1], y[i : i + 1])
        if (i + 1) % every in (WINDOW - 1, WINDOW // 2):
            fresh = srgp.summarise(model, X[i + 1 - WINDOW : i + 1], y[i + 1 - WINDOW : i + 1])
            off = {name: _off(getattr(kept.statistics.sums, name), getattr(fresh.sums, name))
                   for name in "Abc"}  # fmt: skip
            found.append({"steps": i + 1 - WINDOW, **off})
    return found


def _off(found: Any, exact: Any) -> float:
    return float(np.abs(np.asarray(found) - np.asarray(exact)).max() / np.abs(exact).max())


PARTS = {"memory": memory, "memory_single": memory_single}


def apart(name: str, count: int) -> Any:
    """A part in a process of its own, whose memory nothing else has touched."""
    command = [sys.executable, "-m", "benchmarks.streams", name, str(count)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    print(name, found, flush=True)
    return found


def compared(counts: dict[str, int], sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for M in sizes:
        for name, count in counts.items():
            model, X, y = stream(M, count)
            if name == "gpytorch" and M > 50:
                continue  # it has no inducing inputs
            run = {"srgp": ours, "river": river}.get(name) or (
                lambda *problem, name=name: peer(name, *problem)
            )
            rows.append({"method": name, "M": M, **run(model, X, y)})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in PARTS:
        print(json.dumps(PARTS[sys.argv[1]](int(sys.argv[2]))))
        return
    if sys.argv[1:] == ["--small"]:
        compared({"srgp": 1000, "river": 1000}, (10,))
        apart("memory", 100_000)
        apart("memory_single", 10_000)
        print(window(5000))
        return
    rows = compared(ROWS, (50, 100, 300))
    endless = {name: apart(name, count) for name, count in (("memory", MANY),
               ("memory_single", SINGLE))}  # fmt: skip
    slid = window(SINGLE)
    print(slid)
    write("streams", {"D": D, "common": COMMON, "streams": rows, **endless, "window": slid})


if __name__ == "__main__":
    main()
