"""Write docs/benchmarks.md from benchmarks/results: every number there comes from a command.

python -m benchmarks.report
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

TEMPLATE = """# Benchmarks

Written by `make bench` ({machine}). Ratios are of times taken in the same run, on a machine that
did nothing else on purpose; shared hardware still makes single numbers move by 10 to 20 %.

## One-pass posterior

`python -m benchmarks.posterior`: N = {N:,} rows from arrays, D = 8, squared exponential kernel, VFE,
float64; statistics, factorisation and all. Two products are needed, W = L⁻¹K_RX and WWᵀ. *Share* is
the rate of these two, counted as matrix products of 2NM² flops each, relative to the rate of a plain
product of the same shape measured in the same run. *Strict share* counts only the triangular and the
symmetric half of them, for which XLA has no routine. The kernel matrix itself, N·M exponentials, is
in the time but in no count: at M = 100 it is most of the time.

{posterior}

Where K_RR is well-conditioned, W is one product with L⁻¹; otherwise it is a blocked substitution with
refinement (see [Design](design.md#numerics)), which costs more and is exact to rounding.

Memory beyond the data, M = 500 (the state itself is {state:.1f} MB):

{memory}

## Single-sample updates

`python -m benchmarks.filter`: microseconds for one `Filter.update` of one sample, D = 4. *Python*: one
call a sample. *Compiled*: `update` with many samples, which runs the same recursion in one loop.
*NumPy*: the same job (kernel vector, triangular solve, rank-1 update, log density) in the plain
covariance form, and its rank-1 update alone.

{filter}

Below M ≈ 100 a call from Python costs what it costs to enter compiled code, and NumPy's few small
operations cost less; hand over several samples at a time there.

Drift of the square-root recursion after N single updates, against the batch answer of the same data,
with a third of the input space never visited (relative error of bound and variance; error of the mean
in posterior deviations; smallest eigenvalue of the posterior covariance of u, which must be positive):

{drift}

## Whitening before squaring

`python -m benchmarks.whitening`: VFE, N = {wN}, M = {wM}, against 60-digit arithmetic. Error of the
predictive mean in predictive deviations, then relative error of the bound. *Squared first* sums
K_RX K_XR and whitens at the end; the others whiten each batch first, by an explicit inverse, by
LAPACK's triangular solve, and as srgp does. NaN: the posterior precision was not positive definite.

{whitening}
"""


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def load(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def main() -> None:
    post, filt, white = load("posterior"), load("filter"), load("whitening")
    m = post["machine"]
    names = ["squared first", "inverse", "substitution", "srgp"]
    PAGE.write_text(
        TEMPLATE.format(
            machine=f"{m['date']}, {m['processor']}, {m['cores']} cores, Python {m['python']}, "
            f"JAX {m['jax']}, NumPy {m['numpy']}",
            N=post["N"],
            state=post["memory"][0]["state_MB"],
            posterior=table(
                [
                    "M",
                    "cond(K_RR)",
                    "rows/s",
                    "seconds",
                    "share",
                    "strict share",
                    "product GFlop/s",
                ],
                [
                    [
                        str(r["M"]),
                        f"{r['condition_of_Krr']:.0e}",
                        f"{r['rows_per_second']:,.0f}",
                        f"{r['seconds']:.1f}",
                        f"{r['share']:.0%}",
                        f"{r['strict_share']:.0%}",
                        f"{r['product_gflops']:.0f}",
                    ]
                    for r in post["speed"]
                ],
            ),
            memory=table(
                ["N", "growth of the peak, MB"],
                [[f"{r['N']:,}", f"{r['growth_MB']:.1f}"] for r in post["memory"]],
            ),
            filter=table(
                [
                    "M",
                    "Python",
                    "compiled",
                    "NumPy",
                    "its update alone",
                    "NumPy / Python",
                    "NumPy / compiled",
                ],
                [
                    [
                        str(r["M"]),
                        *(
                            f"{r[key]:.1f}"
                            for key in (
                                "python_us",
                                "compiled_us",
                                "numpy_us",
                                "numpy_update_us",
                                "python_vs_numpy",
                                "compiled_vs_numpy",
                            )
                        ),
                    ]
                    for r in filt["speed"]
                ],
            ),
            drift=table(
                ["N", "σ²", "bound", "variance", "mean", "smallest eigenvalue"],
                [
                    [
                        f"{r['N']:,}",
                        f"{r['noise']:.0e}",
                        *(
                            f"{r[key]:.0e}"
                            for key in (
                                "bound",
                                "variance",
                                "mean_in_deviations",
                                "smallest_eigenvalue",
                            )
                        ),
                    ]
                    for r in filt["drift"]
                ],
            ),
            wN=white["N"],
            wM=white["M"],
            whitening=table(
                ["cond(K_RR)", "σ²", *names],
                [
                    [
                        f"{r['condition_of_Krr']:.0e}",
                        f"{r['noise']:.0e}",
                        *(f"{r['mean'][n]:.0e}, {r['bound'][n]:.0e}" for n in names),
                    ]
                    for r in white["errors"]
                ],
            ),
        )
    )
    print(f"written: docs/{PAGE.name}")


if __name__ == "__main__":
    main()
