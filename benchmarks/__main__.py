"""Measure the project: compiling, kernels beside other libraries, tuning, scoring candidates, and
shapes that nobody tuned for."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.compiling import compile_rows
from benchmarks.kernels import kernel_row
from benchmarks.scoring import scoring_rows
from benchmarks.searching import searching_rows
from benchmarks.sweep import QUICK_ROUNDS, chosen_shapes, sweep_rows, tables
from benchmarks.torch_side import installed
from benchmarks.tuning import tuning_row
from benchmarks.workloads import CASES, MORE_CASES, Case
from loopwright.env import machine, usable_cpus

PARTS = ("compiling", "scoring", "kernels", "tuning", "searching", "sweep")
#: Operator, parameters, trials.
TUNED = (
    ("matmul", ["M=512", "N=512", "K=512"], 200),
    ("conv2d", ["N=1", "C=64", "H=56", "W=56", "O=64", "KH=3", "KW=3", "pad=1"], 100),
)


def main() -> None:
    """Print the tables and write the JSON."""
    options = _options()
    console = Console(width=150)
    found: dict[str, list[dict[str, Any]]] = {}
    if "compiling" in options.parts:
        found["compiling"] = compile_rows(4 if options.quick else 20)
        console.print(_compile_table(found["compiling"]))
    if "scoring" in options.parts:
        found["scoring"] = scoring_rows(0.3 if options.quick else 2.0)
        console.print(_scoring_table(found["scoring"]))
    if "kernels" in options.parts:
        found["kernels"] = _kernels(options, console)
    if "tuning" in options.parts:
        found["tuning"] = _tuning(options, console)
    if "searching" in options.parts:
        found["searching"] = _searching(options, console)
    if "sweep" in options.parts:
        found["sweep"] = _sweep(options, console)
    result = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        **found,
    }
    Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"wrote {options.out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} [all]")
    parser.add_argument("--quick", action="store_true", help="few samples, few trials")
    parser.add_argument("--cases", default="", help="only kernels whose name holds this text")
    parser.add_argument("--threads", type=int, help="only kernels with so many threads")
    parser.add_argument("--trials", type=int, help="trials of random search for every kernel")
    parser.add_argument("--out", default="bench.json", help="where the JSON goes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tuner")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each search [3]")
    parser.add_argument("--tuner", help="tuner of the searches [that of the command line]")
    options = parser.parse_args()
    options.parts = options.parts or list(PARTS)
    unknown = [p for p in options.parts if p not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; choose from {', '.join(PARTS)}")
    return options


def _kernels(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    rows = []
    cases = [c for c in (*CASES, *MORE_CASES) if options.cases in c.name]
    for threads in [options.threads] if options.threads else sorted({1, len(usable_cpus())}):
        mine = []
        for case in cases:
            trials = 8 if options.quick else case.trials
            trials = trials if options.trials is None else options.trials
            mine.append(kernel_row(case, threads, trials, options.seed))
            share, seconds = mine[-1]["ours_share"], mine[-1]["tuning_s"]
            console.print(
                f"{case.name}, {threads} thread(s): {share:.0%}, found in {seconds:.1f} s"
            )
        console.print(_kernel_table(mine, cases, threads))
        rows += mine
    if not installed():
        console.print("PyTorch is not installed: no comparison with it")
    return rows


def _tuning(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    threads = len(usable_cpus())
    rows = []
    for name, params, trials in TUNED:
        rows.append(tuning_row(name, params, 8 if options.quick else trials, threads, options.seed))
    console.print(_tuning_table(rows, threads))
    for row in rows:
        console.print(_time_table(row))
    return rows


def _sweep(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """The quick form of `benchmarks.sweep`."""
    shapes = chosen_shapes(True, options.seed, None)
    rows = sweep_rows(shapes, QUICK_ROUNDS, options.threads or len(usable_cpus()), console.print)
    for table in tables(rows):
        console.print(table)
    return rows


def _searching(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    threads = options.threads or len(usable_cpus())
    seeds, trials = (1, 16) if options.quick else (options.seeds, options.trials or 192)
    rows = searching_rows(seeds, trials, threads, options.tuner)
    for which, title in (
        ("reached", "searching"),
        ("reached_without_default", "searching, the default configuration not counted"),
    ):
        console.print(_searching_table(rows, which, f"{title}, {threads} thread(s)"))
    return rows


def _searching_table(rows: list[dict[str, Any]], which: str, title: str) -> Table:
    """Trials and seconds from the start of the command to each share of the peak."""
    table = Table(
        "", "seed", "trials", "seconds", "peak", "trial 0", "best", "TVM's", "at", "and", "at",
        "95 % of best at", title=title,
    )  # fmt: skip
    for r in rows:
        (tvm, first), (high, second), (_, near) = r[which].items()
        table.add_row(
            r["what"],
            str(r["seed"]),
            str(r["trials"]),
            f"{r['seconds']:.1f}",
            f"{r['peak_gflops']:.0f}",
            f"{r['first_share']:.0%}",
            f"{r['best_share']:.0%}",
            tvm,
            _when(first),
            high,
            _when(second),
            _when(near),
        )
    return table


def _when(found: tuple[int, float] | None) -> str:
    return "never" if found is None else f"trial {found[0]}, {found[1]:.1f} s"


def _time_table(row: dict[str, Any]) -> Table:
    """Where the time of a trial goes: milliseconds of it, and the share of the run's seconds."""
    table = Table("", "ms a trial", "of the run", title=f"where the time goes: {row['what']}")
    timing = {"whole": row["seconds"], **row["timing"]}
    for name, seconds in sorted(timing.items(), key=lambda item: -item[1]):
        each = seconds / row["trials"] * 1e3
        table.add_row(name, f"{each:.1f}", f"{seconds / row['seconds']:.0%}")
    return table


def _compile_table(rows: list[dict[str, Any]]) -> Table:
    table = Table("", "median", "lowest", "highest", "budget", title="compiling (milliseconds)")
    for r in rows:
        cells = [r["median_s"], r["low_s"], r["high_s"], r["budget_s"]]
        table.add_row(r["what"], *(f"{x * 1e3:.1f}" for x in cells))
    return table


def _scoring_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "", "trees", "features", "trees alone", "both", "analytical", "all", "bar (both)",
        title="candidates a second and core",
    )  # fmt: skip
    for r in rows:
        names = ("features", "model", "both", "offset", "all", "bar")
        table.add_row(r["what"], str(r["trees"]), *(f"{r[f'{n}_per_s']:,.0f}" for n in names))
    return table


def _kernel_table(rows: list[dict[str, Any]], cases: list[Case], threads: int) -> Table:
    """Speeds with their spread over the rounds, and shares of the limit measured in between."""
    table = Table(
        "", "unit", "ours", "NumPy", "PyTorch", "limit", "ours of limit", "TVM of its limit",
        "build ms", title=f"kernels, {threads} thread(s)",
    )  # fmt: skip
    for r, case in zip(rows, cases, strict=True):
        compute = case.bound == "compute"
        tvm = case.tvm_share if threads > 1 else None
        table.add_row(
            case.name,
            "GFLOP/s" if compute else "GB/s",
            *(_speed(r, side) for side in ("ours", "numpy", "torch")),
            f"{r['limit'] / 1e9:.1f}",
            f"{r['ours_share']:.0%}",
            "-" if tvm is None else f"{tvm:.0%}",
            f"{r['build_s'] * 1e3:.0f}",
        )
    return table


def _speed(row: dict[str, Any], side: str) -> str:
    if f"{side}_s" not in row:
        return "-"
    return f"{row['work'] / row[f'{side}_s'] / 1e9:.1f} ({row[f'{side}_spread']:.0%})"


def _tuning_table(rows: list[dict[str, Any]], threads: int) -> Table:
    table = Table(
        "", "trials", "failed", "per minute", "GFLOP/s", "spread", "NumPy", "peak", "of peak",
        title=f"tuning, {threads} thread(s), default tuner and options",
    )  # fmt: skip
    for r in rows:
        numpy = "-" if r["numpy_gflops"] is None else f"{r['numpy_gflops']:.1f}"
        table.add_row(
            r["what"],
            str(r["trials"]),
            str(r["failed"]),
            f"{r['trials_per_minute']:.0f}",
            f"{r['gflops']:.1f}",
            f"{r['spread']:.0%}",
            numpy,
            f"{r['peak_gflops']:.1f}",
            f"{r['share_of_peak']:.1%}",
        )
    return table


if __name__ == "__main__":
    main()
