"""How good automatic spaces are as spaces, and whether each of their points builds and is right.

    python -m benchmarks.spaces_quality [--cases TEXT] [--part 1/3] [--sample 32] [--trials 32]
    python -m benchmarks.spaces_quality --build 20000 [--cases TEXT] [--part 1/3]

For the workloads of the other benchmarks and the expressions without a template: structures and
points; time to derive the structures, to a first ranking of 2 000 points, and from there to the
default, which is the best of more; and of a random sample, measured, the speed of the median as a
share of the best, and the share of points within 90 % of the best. The best is that of a short
search and of the sample.

With --build random points are lowered, built, run and compared with NumPy, in a pool of processes;
what fails or is wrong is named, so that the same command finds it again.

Both end after --seconds. The same command then goes on, by what is in its file; --show prints what
there is.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.spaces_quality.points import Journal, Pool, drawn, summary
from benchmarks.spaces_quality.quality import quality, quality_table, verdicts, warm_up
from benchmarks.spaces_quality.subjects import Subject, subjects
from loopwright.env import machine, usable_cpus


def main() -> int:
    """Measure or build, then print the table or the summary; 1 when a point failed or is wrong."""
    options = _options()
    console = Console(width=150)
    chosen = [s for s in _part(options.part) if options.cases in s.name]
    end = time.monotonic() + (0.0 if options.show else options.seconds)
    if options.build:
        return _build(options, [s.name for s in chosen], end, console)
    return _quality(options, chosen, end, console)


def _quality(options: Any, chosen: Sequence[Subject], end: float, console: Console) -> int:
    path = Path(options.out or "spaces_quality.json")
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {row["what"] for row in rows}
    warm_up()
    for subject in (s for s in chosen if s.name not in known):
        if time.monotonic() >= end:
            break
        rows.append(quality(subject, options.sample, options.trials, options.threads, options.seed))
        console.print(json.dumps(rows[-1]), markup=False)
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    if rows:
        console.print(quality_table(rows))
        console.print("\n".join(verdicts(rows)), markup=False)
    return 1 if any(row.get("failed") for row in rows) else 0


def _build(options: Any, names: list[str], end: float, console: Console) -> int:
    journal = Journal(options.out or "spaces_points.jsonl")
    done = journal.read()
    known = {c.chunk for c in done}
    todo = (c for c in drawn(names, options.build, options.seed) if c not in known)
    for checked in Pool(options.processes).run(todo, end):
        journal.add(checked)
        done.append(checked)
        for fault in checked.faults:
            console.print(f"{fault.what} #{fault.index}: {fault.text}", markup=False)
    console.print("\n".join(summary(done)), markup=False)
    return 1 if any(c.faults for c in done) else 0


def _part(text: str) -> list[Subject]:
    first, _, count = text.partition("/")
    return subjects()[int(first) - 1 :: int(count)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spaces_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", default="", help="only workloads whose name holds this text")
    parser.add_argument("--part", default="1/1", help="every n-th workload, such as 1/3 [all]")
    parser.add_argument("--sample", type=int, default=32, help="points to measure; 0: none [32]")
    parser.add_argument("--trials", type=int, default=32, help="of the search beside them [32]")
    parser.add_argument("--build", type=int, default=0, metavar="N", help="check N points instead")
    parser.add_argument("--processes", type=int, default=len(usable_cpus()), help="with --build")
    parser.add_argument("--threads", type=int, default=len(usable_cpus()), help="of kernels")
    parser.add_argument("--seed", type=int, default=0, help="of the points")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after")
    parser.add_argument("--show", action="store_true", help="print what the file holds, no more")
    parser.add_argument("--out", default="", help="spaces_quality.json, or spaces_points.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
