"""The paper's toy example: a sparse GP learned online, one sample at a time, equal to the batch GP.

N = 100 samples in one dimension, M = 15 equidistant inducing points, PEP with α = 0.5, θ fixed with
a lengthscale slightly too small, B = 1. After each sample: the posterior, the cumulative bound ψ
and its derivative in the lengthscale. At k = 100 all equal the batch values (paper: Fig. 1 and 3).

    python -m srgp.experiments.toy --output toy.png
"""

import argparse
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import srgp
from srgp import kernels as k
from srgp.experiments.results import Results
from srgp.precision import double

STEPS = (1, 5, 20, 100)
LENGTHSCALE, NOISE = 0.6, 0.04
# Colour-blind safe (Okabe and Ito).
BLUE, ORANGE, BLACK = "#0072B2", "#D55E00", "#222222"


class Snapshot(NamedTuple):
    """What is known after some samples: predictions on a grid, the bound and its derivative."""

    mean: np.ndarray
    variance: np.ndarray
    bound: float
    derivative: float  # ∂ψ/∂ℓ


def data(seed: int = 3, N: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a smooth function with noise of deviation 0.2, in random order."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 10.0, (N, 1))
    return X, np.sin(X[:, 0]) + 0.5 * np.cos(3.0 * X[:, 0]) + 0.2 * rng.normal(size=N)


def toy_model(lengthscale: Any = LENGTHSCALE) -> srgp.Model:
    """PEP(½) with 15 equidistant inducing points."""
    R = np.linspace(0.0, 10.0, 15)[:, None]
    return srgp.Model(k.SE(lengthscales=lengthscale), NOISE, R, srgp.PEP(alpha=0.5))


@double
def online(X: np.ndarray, y: np.ndarray, grid: np.ndarray) -> dict[int, Snapshot]:
    """Learn sample by sample, and look at the posterior after 1, 5, 20 and 100 of them."""

    def bound_after(lengthscale: jax.Array, steps: int) -> jax.Array:
        f = srgp.Filter.start(toy_model(lengthscale))
        return f.update(X[:steps], y[:steps]).state.log_bound

    seen = {}
    f = srgp.Filter.start(toy_model())
    for i, (x_i, y_i) in enumerate(zip(X, y, strict=True), start=1):
        f = f.update(x_i, y_i)
        if i in STEPS:
            # The derivative of every step is carried along the recursion (paper: eq. 27).
            at = functools.partial(bound_after, steps=i)
            _, slope = jax.jvp(at, (jnp.asarray(LENGTHSCALE),), (jnp.ones(()),))
            seen[i] = Snapshot(*f.predict(grid), f.log_bound, float(slope))
    return seen


@double
def batch(X: np.ndarray, y: np.ndarray, grid: np.ndarray) -> Snapshot:
    """The same from the whole data at once, by N×N matrices: log N(y; 0, Q + V) − a, eq. 4."""

    def dense_bound(lengthscale: jax.Array) -> jax.Array:
        model = toy_model(lengthscale)
        inputs, R = jnp.asarray(X), jnp.asarray(model.inducing)
        K = model.kernel.covariance
        Q = K(inputs, R) @ jnp.linalg.solve(K(R, R), K(R, inputs))
        d = 1.0 - jnp.diagonal(Q)
        V = Q + jnp.diag(0.5 * d + NOISE)
        _, log_det = jnp.linalg.slogdet(V)
        fit = len(y) * jnp.log(2.0 * jnp.pi) + log_det + y @ jnp.linalg.solve(V, y)
        return -0.5 * fit - 0.5 * jnp.sum(jnp.log1p(0.5 * d / NOISE))

    value, slope = jax.value_and_grad(dense_bound)(jnp.asarray(LENGTHSCALE))
    model = toy_model()
    mean, variance = srgp.posterior(model, srgp.summarise(model, X, y)).predict(grid)
    return Snapshot(mean, variance, float(value), float(slope))


def draw(output: Path) -> tuple[dict[int, Snapshot], Snapshot]:
    """Compute everything, and draw it: full GP and batch sparse GP above, online learning below."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise SystemExit("the picture needs Matplotlib: pip install 'srgp[plots]'") from error

    X, y = data()
    grid = np.linspace(-0.5, 10.5, 400)[:, None]
    steps, whole = online(X, y, grid), batch(X, y, grid)
    full = srgp.FullGP(toy_model().kernel, NOISE, X, y)
    figure, axes = plt.subplots(
        2, 3, figsize=(12, 5.6), sharex=True, sharey=True, layout="constrained"
    )
    top = [("full GP", Snapshot(*full.predict(grid), full.log_likelihood, np.nan), len(y))]
    top += [("sparse GP, all data at once", whole, len(y))]
    panels = top + [(f"online, k = {step}", steps[step], step) for step in STEPS]
    for axis, (title, snapshot, count) in zip(axes.flat, panels, strict=True):
        _panel(axis, title, snapshot, X[:count], y[:count], grid)
    for axis in axes[-1]:
        axis.set_xlabel("x")
    for axis in axes[:, 0]:
        axis.set_ylabel("y")
    figure.suptitle("One sample at a time, and in the end exactly the batch answer", fontsize=12)
    figure.savefig(output, dpi=150)
    plt.close(figure)
    return steps, whole


def _panel(
    axis: Any, title: str, snapshot: Snapshot, X: np.ndarray, y: np.ndarray, grid: np.ndarray
) -> None:
    x, mean = grid[:, 0], snapshot.mean
    band = 1.96 * np.sqrt(snapshot.variance + NOISE)
    colour = BLACK if title == "full GP" else BLUE
    axis.fill_between(x, mean - band, mean + band, color=colour, alpha=0.18, lw=0)
    axis.plot(x, mean, color=colour, lw=1.6)
    axis.plot(X[:, 0], y, ".", color=ORANGE, ms=5)
    if title != "full GP":
        R = toy_model().inducing[:, 0]
        axis.plot(R, np.full_like(R, -3.05), "k^", ms=4, clip_on=False)
    axis.set_title(title, fontsize=10)
    axis.set_ylim(-3.1, 3.1)
    axis.text(
        0.02, 0.95, f"ψ = {snapshot.bound:.4f}", transform=axis.transAxes, va="top", fontsize=9
    )
    if np.isfinite(snapshot.derivative):
        slope = f"∂ψ/∂ℓ = {snapshot.derivative:.4f}"
        axis.text(0.98, 0.95, slope, transform=axis.transAxes, va="top", ha="right", fontsize=9)


def settings(full: bool) -> dict[str, Any]:
    """One size: the paper's."""
    return {"N": 100, "M": 15, "alpha": 0.5, "B": 1, "lengthscale": LENGTHSCALE, "noise": NOISE}


def run(results: Results, chosen: Mapping[str, Any], run_peer: Any) -> str:
    """The picture, and bound and derivative online beside those of the batch."""
    steps, whole = draw(results.folder / "toy.png")
    rows: list[dict[str, Any]] = [
        {"k": step, "bound ψ": s.bound, "∂ψ/∂ℓ": s.derivative} for step, s in steps.items()
    ]
    rows.append({"k": "batch", "bound ψ": whole.bound, "∂ψ/∂ℓ": whole.derivative})
    last = steps[STEPS[-1]]
    off = {"bound ψ": last.bound - whole.bound, "∂ψ/∂ℓ": last.derivative - whole.derivative}
    return results.table("toy", [*rows, {"k": "difference", **off}])


def main() -> None:
    """Draw the figure and print the comparison."""
    parser = argparse.ArgumentParser(description="The paper's toy example, learned online.")
    parser.add_argument("--output", type=Path, default=Path("toy.png"), help="picture to write")
    output: Path = parser.parse_args().output
    steps, whole = draw(output)
    last = steps[STEPS[-1]]
    print("   k        bound ψ      derivative ∂ψ/∂ℓ")
    for step, snapshot in steps.items():
        print(f"{step:4d} {snapshot.bound:14.8f} {snapshot.derivative:18.8f}")
    print(f"batch{whole.bound:14.8f} {whole.derivative:18.8f}")
    print(
        f"online and batch differ by {abs(last.bound - whole.bound):.1e} in the bound, "
        f"{abs(last.derivative - whole.derivative):.1e} in the derivative, "
        f"{np.abs(last.mean - whole.mean).max():.1e} in the mean."
    )
    print(f"picture: {output}")


if __name__ == "__main__":
    main()
