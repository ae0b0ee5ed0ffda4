"""Sections of docs between marks: from benchmarks.scale, .cluster, .streams and .learning."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.learning_report import learners
from benchmarks.markdown import table

DOCS = Path(__file__).parent.parent / "docs"


def fill_all() -> None:
    """Every section whose results are there."""
    for page, name, write in (
        ("scale.md", "scale", scale),
        ("scale.md", "cluster", cluster),
        ("online.md", "streams", streams),
        ("choosing.md", "learning", learners),
    ):
        results = RESULTS / f"{name}.json"
        if results.exists():
            fill(DOCS / page, name, write(json.loads(results.read_text())))


def fill(page: Path, name: str, text: str) -> None:
    """Put text between <!-- name --> and <!-- /name -->."""
    marks = f"<!-- {name} -->", f"<!-- /{name} -->"
    before = page.read_text()
    found = re.sub(
        f"{marks[0]}.*?{marks[1]}",
        lambda _: f"{marks[0]}\n{text.strip()}\n{marks[1]}",
        before,
        flags=re.DOTALL,
    )
    page.write_text(found)


def where(results: dict[str, Any]) -> str:
    m = results["machine"]
    return f"{m['date']}, {m['processor']}, {m['cores']} cores"


def scale(results: dict[str, Any]) -> str:
    rows = [
        [
            r["job"],
            f"{r['rows']:,}",
            f"{r['seconds']:.0f}",
            f"{r['rows_per_second']:,.0f}",
            f"{r['peak_MB']:.0f}",
            f"{r['waiting']:.0%}",
        ]
        for r in results["jobs"]
    ]
    heads = ["job", "rows", "seconds", "rows/s", "peak memory, MB", "waiting for data"]
    return (
        f"`make bench-scale` ({where(results)}): Parquet files of half a million rows each, D = "
        f"{results['D']}, M = {results['M']}; every job is a process of its own, with compilation "
        "and the clean pass at the end that every learner makes.\n\n" + table(heads, rows)
    )


def cluster(results: dict[str, Any]) -> str:
    one, two = results["measured"]
    gains, cost = results["gains"], results["cost"]
    measured = table(
        ["", "one worker, s", "two workers, s", "gain"],
        [
            [name, f"{one[job]:.2f}", f"{two[job]:.2f}", f"{gains[job]:.2f}"]
            for job, name in (
                ("summarise", "`summarise`"),
                ("gradient", "exact gradient"),
                ("products", "plain matrix products, for comparison"),
            )
        ],
    )
    ahead = table(
        ["rows", "workers", "seconds", "computing", "scheduling", "reduction", "MB moved"],
        [
            [
                f"{r['rows']:.0e}",
                str(r["workers"]),
                f"{r['seconds']:,.1f}",
                *(f"{r[part]:.0%}" for part in ("computing", "scheduling", "reduction")),
                f"{r['moved_MB']:,.0f}",
            ]
            for r in results["predicted"]
        ],
    )
    return (
        f"`python -m benchmarks.cluster` ({where(results)}): N = {results['N']:,}, M = "
        f"{results['M']}, D = {results['D']}, workers of one thread, parts in their memory. The "
        f"two cores also run the scheduler and the client, and the machine is shared: plain matrix "
        "products in the same workers, which need nothing of each other, tell what a second core "
        f"is worth at that time.\n\n{measured}\n\n"
        "At least 1.8 is wanted. Seven runs of 2026-11-17 and 18 on an AMD EPYC, of this and "
        "earlier versions, gave 1.75 to 1.91 for `summarise`, 1.72 to 1.91 for the gradient, and "
        "1.76 to 1.92 for plain products: where the machine does not give it, it is missed.\n\n"
        f"Reductions without work, of 2 to 256 parts and sums of 1 to 10⁶ numbers, cost "
        f"{1e3 * cost['call']:.0f} ms a call, {1e3 * cost['task']:.1f} ms a part, "
        f"{1e3 * cost['level']:.0f} ms a level of the tree and {1e9 * cost['byte']:.1f} ns a byte "
        f"here (median error of this fit: {cost['median_relative_error']:.0%}). With one worker's "
        "speed they predict one exact value and gradient on more of the same workers, in parts of "
        "a million rows, or one for each worker where that is more; for two workers the prediction "
        f"is {results['model_over_measured']:.2f} of the measured time:\n\n{ahead}\n\n"
        "These are predictions, not measurements: nobody here has 256 workers, and the network of "
        "a cluster is slower than that of one machine. What they show is where the bottleneck "
        "moves: for few rows a worker, to the scheduler, which handles one part after the other. "
        "Parts of several million rows keep it away. *MB moved* are sums to their adders, in both "
        "passes, and θ with its factors to every worker; no rows are."
    )


def streams(results: dict[str, Any]) -> str:
    names = {
        "srgp": "`OnlineGP`",
        "gpytorch": "GPyTorch, exact GP, `get_fantasy_model`",
        "gpflow": "GPflow SGPR, fitted again every 100 rows",
        "river": "river, Bayesian linear regression on the same features",
    }
    rows = [
        [
            names[r["method"]],
            "all rows" if r["method"] == "gpytorch" else str(r["M"]),
            f"{r['predict_us']:,.0f} ({r['predict_99_us']:,.0f})",
            f"{r['update_us']:,.0f} ({r['update_99_us']:,.0f})",
            f"{r['mean_update_us']:,.0f}",
            f"{r['rmse']:.4f}",
            f"{r['nlpd']:.3f}",
            f"{r['rows']:,}",
        ]
        for r in results["streams"]
    ]
    heads = ["method", "M", "predict, µs (99 %)", "update, µs (99 %)", "mean update, µs", "RMSE",
             "NLPD", "rows"]  # fmt: skip
    return (
        f"`python -m benchmarks.streams` ({where(results)}): one row at a time, "
        f"D = {results['D']}, all from the same kernel and noise, which GPflow alone goes on to "
        f"optimise; errors are of the same {results['common']} rows; river's times include its "
        f"features.\n\n{table(heads, rows)}\n\n{_endless(results)}"
    )


def _endless(results: dict[str, Any]) -> str:
    """Memory along many updates, and the rounding errors of a window."""
    many, single, slid = (results[name] for name in ("memory", "memory_single", "window"))
    worst = ", ".join(f"{max(r[name] for r in slid):.0e} ({name})" for name in "Abc")
    return (
        f"{many[-1]['rows']:,.0f} updates of a filter (M = 50, in one compiled loop) took "
        f"{many[-1]['seconds']:.0f} s; resident memory was {many[0]['MB']:.0f} MB after the first "
        f"tenth and {many[-1]['MB']:.0f} MB after the last. {single[-1]['rows']:,} rows by "
        f"`OnlineGP.learn_one` (M = 50) took {single[-1]['seconds']:.0f} s, with "
        f"{single[0]['MB']:.0f} MB and {single[-1]['MB']:.0f} MB. A `SlidingWindow` of 1000 rows "
        f"(M = 10) over {slid[-1]['steps']:,} steps of one row, looked at {len(slid)} times, was "
        f"never further from fresh sums than {worst}, relative to their largest entry."
    )
