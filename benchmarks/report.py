"""Write docs/benchmarks.md from benchmarks/results: every number there comes from a command.

python -m benchmarks.report
"""

import json
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.learning_report import available, sections
from benchmarks.markdown import table
from benchmarks.scale_report import fill_all

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

TEMPLATE = Path(__file__).parent / "benchmarks.md.in"


def load(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def where(results: dict[str, Any]) -> str:
    m = results["machine"]
    return (
        f"{m['date']}, {m['processor']}, {m['cores']} cores, Python {m['python']}, "
        f"JAX {m['jax']}, NumPy {m['numpy']}"
    )


def main() -> None:
    post, filt, white = load("posterior"), load("filter"), load("whitening")
    names = ["squared first", "inverse", "substitution", "srgp"]
    PAGE.write_text(
        TEMPLATE.read_text().format(
            machine=where(post),
            filter_machine=where(filt),
            white_machine=where(white),
            N=post["N"],
            state=post["memory"][0]["state_MB"],
            **{f"profile_{name}": value for name, value in post["profile"].items()},
            posterior=table(
                [
                    "M",
                    "cond(K_RR)",
                    "rows/s",
                    "seconds",
                    "share",
                    "strict share (quartiles)",
                    "product GFlop/s",
                ],
                [
                    [
                        str(r["M"]),
                        f"{r['condition_of_Krr']:.0e}",
                        f"{r['rows_per_second']:,.0f}",
                        f"{r['seconds']:.1f}",
                        f"{r['share']:.0%}",
                        "{:.1%} ({:.0%}–{:.0%})".format(
                            r["strict_share"], *r["strict_share_quartiles"]
                        ),
                        f"{r['product_gflops']:.0f}",
                    ]
                    for r in post["speed"]
                ],
            ),
            memory=table(
                ["N", "growth at most, MB"],
                [[f"{r['N']:,}", f"{r['growth_MB']:.1f}"] for r in post["memory"]],
            ),
            filter=table(
                [
                    "M",
                    "Python",
                    "compiled",
                    "NumPy",
                    "its update alone",
                    "NumPy / Python (rounds)",
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
                            )
                        ),
                        "{:.2f} ({:.2f} to {:.2f})".format(
                            r["python_vs_numpy"], *r["python_vs_numpy_rounds"]
                        ),
                        f"{r['compiled_vs_numpy']:.1f}",
                    ]
                    for r in filt["speed"]
                ],
            ),
            drift=table(
                ["N", "calls", "σ²", "bound", "variance", "mean", "smallest eigenvalue"],
                [
                    [
                        f"{r['N']:,}",
                        {"one": "one for all", "each": "one each"}[r["calls"]],
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
            many=table(
                ["N", "σ²", "cond(K_RR)", *names[::3]],
                [
                    [
                        f"{r['N']:,}",
                        f"{r['noise']:.0e}",
                        f"{r['condition_of_Krr']:.0e}",
                        *(f"{r['mean'][n]:.0e}" for n in names[::3]),
                    ]
                    for r in white["many_rows"]
                ],
            ),
            cost=table(
                ["product", "L⁻¹ as a product", "srgp's substitution", "LAPACK's solve"],
                [[f"{1e3 * value:.1f}" for value in white["cost"].values()]],
            ),
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
    measured = {
        name: load(name)
        for name in available(("steps", "learning", "chains", "rates", "defaults", "memory"))
    }
    with PAGE.open("a") as page:
        page.write("\n" + sections(measured) if measured else "")
    print(f"written: docs/{PAGE.name}")


if __name__ == "__main__":
    main()
    fill_all()
