"""What settings of the learners bring: sections of docs/benchmarks.md from .chains and .rates."""

from typing import Any

import numpy as np

from benchmarks.markdown import table, when


def chains(found: dict[str, Any]) -> str:
    rows = [
        [
            str(r["D"]),
            r["settings"],
            *(f"{bound:,}" for bound in r["bounds"]),
            f"{max(r['seconds']):.1f}",
        ]
        for r in found["rows"]
    ]
    seeds = [f"bound, seed {i}" for i in range(len(found["rows"][0]["bounds"]))]
    return (
        f"`python -m benchmarks.chains` ({when(found['machine'])}): the synthetic problems, "
        f"{found['epochs']} epochs of `SRGP`. The default makes the sums of a short chain anew at "
        "each θ, restarts its recursion every few batches and gives Adam a short memory. *Sums of "
        "their time* is `fresh=False`; of *those*, the other two are taken back as well, alone and "
        "together. The paper's settings have none of the three, no schedule, and batches of 5000. "
        "Seconds are of the slowest run, with other work beside; the first of each kind includes "
        "compilation.\n\n" + table(["D", "settings", *seeds, "seconds"], rows) + _toy(found["toy"])
    )


def _toy(found: list[dict[str, Any]]) -> str:
    """How far each way ends from the optimum of the toy."""
    seeds = sorted({r["seed"] for r in found})
    by_name: dict[str, list[str]] = {}
    for r in sorted(found, key=lambda r: r["seed"]):
        by_name.setdefault(r["settings"], []).append(f"{r['bound']:.2%}, {r['parameter']:.0%}")
    return (
        "\n\nOn the toy (N = 1000, M = 15, B = 100), how far bound, and the worst of σ0, σn and ℓ, "
        "end from the optimum, which L-BFGS finds; above it where it is negative. Within 0.1 % and "
        f"1 % in a few epochs is wanted. {_reached(found)} σ0 and ℓ lie on a ridge, along which "
        "the bound hardly changes. Sums of earlier batches that stay at the θ of their time bend "
        "the gradient more than that: without them an epoch of one chain is a gradient of the "
        "bound itself. A rate of 0.3 in place of 0.1 comes closer in ten epochs, and was tried "
        "here only. *All parameters together* have one preconditioner, O(P³) a step for P of "
        "them, in place of Adam's, which has a number for each.\n\n"
        + table(
            ["settings", *(f"seed {seed}" for seed in seeds)],
            [[name, *cells] for name, cells in by_name.items()],
        )
    )


def _reached(found: list[dict[str, Any]]) -> str:
    """How far the default ends at most, by the number of epochs."""
    worst: dict[str, list[float]] = {}
    for r in found:
        if r["settings"].startswith("default, "):
            most = worst.setdefault(r["settings"].removeprefix("default, "), [-np.inf, 0.0])
            most[:] = max(most[0], r["bound"]), max(most[1], r["parameter"])
    told = [f"{b:.2%} and {p:.0%} after {epochs}" for epochs, (b, p) in worst.items()]
    return f"By default it is at most {', '.join(told)}."


def rates(problems: dict[str, Any]) -> str:
    """Where a learning rate of any size ends, beside the start."""
    steps = list(next(iter(problems.values()))["runs"][0]["gained"])
    rows = [
        [
            name,
            f"{problem['N']:,}",
            str(problem["M"]),
            f"`{run['learner']}`",
            *(f"{gained:.3f}" for gained in run["gained"].values()),
        ]
        for name, problem in problems.items()
        for run in problem["runs"]
    ]
    where = ", ".join(sorted({when(problem["machine"]) for problem in problems.values()}))
    least = min(min(run["gained"].values()) for p in problems.values() for run in p["runs"])
    return (
        f"`python -m benchmarks.rates` ({where}): how far the bound of all training rows ends "
        "above that of the start, in nats a row, by learning rate. Settings are otherwise as they "
        "come, but batches of 100 on the toy and two epochs of `SRGP` on the flights. Both "
        "learners give back the best of the start and the ends of epochs, by the bound of all data "
        "or of many random rows, so that none should end below its start; that a rate is large "
        f"should not leave it there either. The least gain here is {least:.3f}. `Sites` goes back "
        "to its best where it loses more than half of what it had gained.\n\n"
        + table(["data", "rows", "M", "learner", *(f"rate {rate}" for rate in steps)], rows)
    )
