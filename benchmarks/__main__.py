"""Run all benchmarks: ``python -m benchmarks [--quick] [--out FILE]``."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.compiling import compile_rows
from benchmarks.tuning import tuning_row
from loopwright.env import machine, usable_cpus

#: Operator, parameters, trials.
TUNED = (
    ("matmul", ["M=512", "N=512", "K=512"], 200),
    ("matmul", ["M=1024", "N=1024", "K=1024"], 200),
    ("conv2d", ["N=1", "C=64", "H=56", "W=56", "O=64", "KH=3", "KW=3", "pad=1"], 200),
    ("dense", ["M=128", "N=3072", "K=768"], 100),
)


def main() -> None:
    """Print the tables and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples, few trials")
    parser.add_argument("--out", default="bench.json", help="where the JSON goes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tuner")
    options = parser.parse_args()
    console = Console(width=110)
    compiling = compile_rows(4 if options.quick else 20)
    console.print(_compile_table(compiling))
    threads = len(usable_cpus())
    tuning = []
    for name, params, trials in TUNED:
        row = tuning_row(name, params, 8 if options.quick else trials, threads, options.seed)
        tuning.append(row)
        console.print(f"tuned {row['what']}: {row['trials']} trials in {row['seconds']:.1f} s")
    console.print(_tuning_table(tuning, threads))
    result = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "compiling": compiling,
        "tuning": tuning,
    }
    Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"wrote {options.out}")


def _compile_table(rows: list[dict[str, Any]]) -> Table:
    table = Table("", "median", "lowest", "highest", "budget", title="compiling (milliseconds)")
    for r in rows:
        cells = [r["median_s"], r["low_s"], r["high_s"], r["budget_s"]]
        table.add_row(r["what"], *(f"{x * 1e3:.1f}" for x in cells))
    return table


def _tuning_table(rows: list[dict[str, Any]], threads: int) -> Table:
    table = Table(
        "", "trials", "failed", "per minute", "GFLOP/s", "spread", "NumPy", "peak", "of peak",
        title=f"random search, {threads} thread(s), default options",
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
