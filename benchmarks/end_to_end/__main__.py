"""Whole models end to end, tuned and untuned, beside ONNX Runtime, PyTorch eager and compiled.

    python -m benchmarks.end_to_end export FOLDER [MODEL...] [--batch 8]
    python -m benchmarks.end_to_end tune FOLDER [MODEL...] --minutes 10
    python -m benchmarks.end_to_end time FOLDER [MODEL...] [--threads 1] [--sides TEXT,TEXT]
    python -m benchmarks.end_to_end start FOLDER [MODEL...]
    python -m benchmarks.end_to_end report FOLDER

It needs torch, torchvision, onnx, onnxscript and onnxruntime beside this package; weights are
drawn, none are fetched. Each verb writes what it found into the folder, model by model. ``export``
and ``time`` pass over what is there, ``tune`` goes on with the log. ``time`` compares outputs
first, then lets all sides take turns: its ratio is how many times as fast we are as the fastest
other side, with an interval of 95 %. ``start`` runs each side in a process of its own: seconds
until a first run ended, and its memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import loopwright as lw
from benchmarks.end_to_end.files import Subject, results, subjects
from benchmarks.end_to_end.sides import EAGER, OTHERS, OURS, RUNTIME, TUNED, UNTUNED
from benchmarks.end_to_end.timing import alone, default_sides, in_its_own_process, save, timed
from loopwright.errors import LoopwrightError
from loopwright.graph.registry import MAX_ERROR
from loopwright.lowering.context import PassContext

#: Sides whose start is looked at.
_STARTED = (UNTUNED, TUNED, RUNTIME, EAGER)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; 1 where a side's output is wrong, or an argument is."""
    options = _options(argv)
    try:
        chosen = subjects(options.folder, options.models, options.batch)
        return _VERBS[options.verb](chosen, options)
    except LoopwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _export(chosen: list[Subject], options: argparse.Namespace) -> int:
    for subject in chosen:
        subject.export()
        print(f"{subject.onnx}: {subject.onnx.stat().st_size >> 20} MB", flush=True)
    return 0


def _tune(chosen: list[Subject], options: argparse.Namespace) -> int:
    for subject in chosen:
        subject.export()
        with PassContext(config={"max_error": MAX_ERROR}):
            summary = lw.tune(
                lw.graph.from_onnx(str(subject.onnx)),
                f"llvm -num-threads={options.threads}",
                log=subject.log,
                timeout=60 * options.minutes,
                seed=options.seed,
            )
        print(
            f"{subject.name}: {len(summary.rows)} tasks, {summary.trials} trials, expected latency "
            f"{1e3 * summary.latency:.2f} ms",
            flush=True,
        )
    return 0


def _time(chosen: list[Subject], options: argparse.Namespace) -> int:
    wrong = False
    for subject in chosen:
        path = subject.result(options.threads)
        if path.exists():
            continue
        subject.export()
        names = options.sides or default_sides(subject.log.exists())
        row = timed(subject, names, options.threads, options.seconds)
        path.write_text(json.dumps(row, indent=1) + "\n")
        wrong = wrong or bool(row["wrong"])
        print(_line(row), flush=True)
    return int(wrong)


def _start(chosen: list[Subject], options: argparse.Namespace) -> int:
    for subject in chosen:
        subject.export()
        names = [n for n in options.sides or _STARTED if n != TUNED or subject.log.exists()]
        for name in names:
            if name in OURS:
                save(subject, name, options.threads)
            found = in_its_own_process(subject, name, options.threads)
            print(
                f"{subject.name}, {name}: ready after {found['ready_s']:.2f} s (the process took "
                f"{found['process_s']:.2f} s), at most {found['most_mb']:.0f} MB",
                flush=True,
            )
    return 0


def _alone(chosen: list[Subject], options: argparse.Namespace) -> int:
    (subject,), (side,) = chosen, options.sides
    print(json.dumps(alone(subject, side, options.threads)))
    return 0


def _report(chosen: list[Subject], options: argparse.Namespace) -> int:
    rows = results(options.folder)
    if rows:
        Console(width=150).print(_table(rows))
    for side in OURS:
        found = [r["ratios"][side][0] for r in rows if side in r["ratios"]]
        if found:
            mean = float(np.exp(np.mean(np.log(found))))
            print(f"{side}: geomean {mean:.2f} of {len(found)}, least {min(found):.2f}")
    return 0


def _line(row: dict[str, Any]) -> str:
    times = ", ".join(f"{n} {np.median(t):.2f} ms" for n, t in row["ms"].items())
    wrong = f"; WRONG: {', '.join(row['wrong'])}" if row["wrong"] else ""
    return f"{row['model']} (batch {row['batch']}, {row['threads']} threads): {times}{wrong}"


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table("", "batch", "threads", *OURS, *OTHERS, title="ms (times the best other)")
    for row in rows:
        cells = []
        for name in (*OURS, *OTHERS):
            cell = f"{np.median(row['ms'][name]):.2f}" if name in row["ms"] else "-"
            ratio, *interval = row["ratios"].get(name, [None])
            if ratio is not None:
                cell += f" ({ratio:.2f}" + "".join(f" {x:.2f}" for x in interval) + ")"
            cells.append(cell)
        table.add_row(row["model"], str(row["batch"]), str(row["threads"]), *cells)
    return table


_VERBS = {
    "export": _export,
    "tune": _tune,
    "time": _time,
    "start": _start,
    "alone": _alone,
    "report": _report,
}


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.end_to_end",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", choices=_VERBS)
    parser.add_argument("folder", type=Path, help="where all files are")
    parser.add_argument("models", nargs="*", help="[all]")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10.0, help="of tuning each model [10]")
    parser.add_argument("--seconds", type=float, default=20.0, help="of taking turns [20]")
    parser.add_argument("--seed", type=int, default=0, help="of the tuner")
    parser.add_argument(
        "--sides",
        type=lambda text: text.split(","),
        help=f"of: {', '.join((*OURS, *OTHERS))} [all; what is tuned where there is a log]",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
