"""Shapes that nobody tuned for, untuned, beside NumPy and PyTorch.

    python -m benchmarks.sweep [--quick] [--seed 0] [--count 80] [--kinds TEXT] [--shapes TEXT]

Two kernels of each shape, neither of them tuned, take turns with the libraries: what a build of
tensors alone gives (the automatic default), and the default schedule of the operator. All sides are
called from Python, on arrays that are there already: ours bound, NumPy with ``out=``. Printed are
medians of the ratios of a round, and how far the middle half of them reaches; a shape that reads
each byte for few operations has its share of the rate at which a kernel of our own reads as much.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import loopwright as lw
from benchmarks.sweep_shapes import SHAPES, Shape, random_products
from benchmarks.sweep_side import NumpySide, knows
from benchmarks.torch_side import TorchSide, installed
from loopwright import dtypes
from loopwright.cli.numpy_process import NumpyProcess
from loopwright.cli.workload import WorkloadSubject, find_workload
from loopwright.env import machine, usable_cpus
from loopwright.runtime import pinned
from loopwright.space.tasks import AutomaticTask

#: Rounds in which all sides take turns, seconds of calls in each, and before them.
ROUNDS, WINDOW_S, WARM_UP_S = 5, 0.01, 0.01
#: Operations for each byte below which reading is what takes the time, where there is much to read.
READING, MUCH = 4, 1 << 20
#: Every so many-th fixed shape, so many random ones, and so many rounds: the quick form.
QUICK, QUICK_COUNT, QUICK_ROUNDS = 4, 12, 3
#: What a shape should reach beside the best of the others, and what is far from it.
BAR, FAR = 1.0, 0.9

Call = Callable[[], object]


def sweep_rows(
    shapes: Sequence[Shape], rounds: int, threads: int, say: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Measure shapes one after the other.

    Args:
        shapes: the workloads.
        rounds: in which the sides take turns.
        threads: of every side.
        say: is given a line for each shape.

    Returns:
        A row for each: seconds of each side by round, the ratios of each kernel of ours to the best
        other side, and which configuration the automatic default is.
    """
    rows = []
    with _Libraries(threads) as libraries:
        for shape in shapes:
            rows.append(_row(shape, libraries, rounds, threads))
            say(_line(rows[-1]))
    return rows


class _Libraries:
    """NumPy, and PyTorch where it is installed: processes that go from one shape to the next."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._kinds: dict[str, type[NumpyProcess]] = {"numpy": NumpySide}
        if installed():
            self._kinds["torch"] = TorchSide
        self._running: dict[str, NumpyProcess] = {}
        self._stack = ExitStack()

    def __enter__(self) -> _Libraries:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def prepared(
        self, workload: WorkloadSubject, tensors: Sequence[Any]
    ) -> dict[str, Callable[[], float | None]]:
        """What takes a sample of each library that computes a workload."""
        inputs = [(t.shape, t.dtype) for t in tensors[:-1]]
        found = {}
        for name, kind in self._kinds.items():
            if name == "numpy" and not knows(workload):
                continue
            found[name] = self._side(name, kind, workload, inputs).sample
        return found

    def _side(
        self, name: str, kind: type[NumpyProcess], workload: WorkloadSubject, inputs: Any
    ) -> NumpyProcess:
        side = self._running.get(name)
        if side is not None and not side.problem:
            side.prepare(workload, inputs)
            return side
        self._running[name] = self._stack.enter_context(kind(workload, inputs, self._threads))
        return self._running[name]


def _row(shape: Shape, libraries: _Libraries, rounds: int, threads: int) -> dict[str, Any]:
    workload = find_workload(shape.op, list(shape.params), "llvm", threads)
    template = workload.task
    schedule, tensors = template.instantiate(template.fallback())
    begin = time.perf_counter()
    # The expression that the operator's schedule has, weights packed by a stage of their own
    # included, is what both compute.
    given = template.program.args if isinstance(template, AutomaticTask) else tensors
    automatic = lw.create_task(list(given), target=template.target)
    config = automatic.config(automatic.config_space.default_index)
    chosen, args = automatic.instantiate(config)
    chosen_s = time.perf_counter() - begin
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(t.static_shape).astype(t.dtype) for t in tensors]
    ours: dict[str, Any] = {
        "automatic": lw.build(chosen, args, template.target).bind(*arrays),
        "operator": lw.build(schedule, tensors, template.target).bind(*arrays),
    }
    if max(MUCH, template.flop / READING) < _bytes(tensors):
        ours["reading"] = _reading(arrays, template.target)
    samples: dict[str, Callable[[], float | None]] = {k: _sampler(c) for k, c in ours.items()}
    samples |= libraries.prepared(workload, tensors)
    seconds: dict[str, list[float]] = {name: [] for name in samples}
    # A library's process is made outside of this: it would keep to the one CPU of this thread.
    with pinned(threads):
        for turn in range(rounds):
            for name in sorted(samples, reverse=turn % 2 == 1):
                taken = samples[name]()
                if taken is not None:
                    seconds[name].append(taken)
    return {
        "shape": shape.name,
        "kind": shape.kind,
        "flop": template.flop,
        "bytes": _bytes(tensors),
        "chosen_s": chosen_s,
        "config": dict(config.values),
        "seconds": seconds,
        "ratios": {k: _ratios(seconds, k) for k in ("automatic", "operator")},
    }


def _bytes(tensors: Sequence[Any]) -> int:
    return sum(prod(t.static_shape) * dtypes.nbytes(t.dtype) for t in tensors)


def _reading(arrays: Sequence[Any], target: Any) -> Call:
    """A kernel that reads the largest of some arrays once: sums of its rows."""
    largest = max(arrays, key=lambda a: int(a.nbytes))
    rows = largest.reshape(-1, 4096) if largest.size % 4096 == 0 else largest.reshape(1, -1)
    X = lw.te.placeholder(rows.shape, name="X")
    Y = lw.ops.reduce_compute(X, "sum", axis=1)
    call: Call = lw.build([X, Y], target).bind(rows, np.empty(Y.static_shape, np.float32))
    return call


def _sampler(call: Call) -> Callable[[], float]:
    """What takes a sample of a call of ours: seconds of one, called again and again."""

    def sample() -> float:
        warm = time.perf_counter() + WARM_UP_S
        once = _timed(call, 1)
        while time.perf_counter() < warm:
            once = _timed(call, 1)
        number = max(1, round(WINDOW_S / once))
        return _timed(call, number) / number

    return sample


def _timed(call: Call, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return time.perf_counter() - start


def _ratios(seconds: dict[str, list[float]], ours: str) -> list[float]:
    """The best other side's time over ours, round by round; empty where there is no other one."""
    others = [seconds[name] for name in ("numpy", "torch") if seconds.get(name)]
    if not others:
        return []
    best = min(others, key=statistics.median)
    return [b / a for a, b in zip(seconds[ours], best, strict=True)]


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def ratio(row: dict[str, Any], side: str) -> float:
    """The median ratio of a kernel of ours in a row; NaN where there is nothing to compare with."""
    return _middle(row["ratios"][side])


def reading(row: dict[str, Any]) -> float | None:
    """The share of the rate of reading that the automatic default reaches; None where that is not
    what takes the time."""
    taken = row["seconds"]
    if "reading" not in taken:
        return None
    return _middle([r / a for r, a in zip(taken["reading"], taken["automatic"], strict=True)])


def summary(rows: Sequence[dict[str, Any]], side: str) -> dict[str, float]:
    """Geometric mean, how many are far below, and how many were compared."""
    found = [ratio(r, side) for r in rows if r["ratios"][side]]
    if not found:
        return {"count": 0, "geomean": float("nan"), "below": 0, "far": 0}
    return {
        "count": len(found),
        "geomean": float(np.exp(np.mean(np.log(found)))),
        "below": sum(x < BAR for x in found),
        "far": sum(x < FAR for x in found),
    }


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"[{low:.2f}, {high:.2f}]"


def _line(row: dict[str, Any]) -> str:
    shares = [f"{k} {ratio(row, k):.2f} {_spread(v)}" for k, v in row["ratios"].items()]
    share = reading(row)
    shares += [] if share is None else [f"reading {share:.0%}"]
    micros = _middle(row["seconds"]["automatic"]) * 1e6
    rate = row["flop"] / micros / 1e3
    return f"{row['shape']}: {', '.join(shares)}; {micros:.1f} us, {rate:.0f} GFLOP/s"


def tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """Every shape that is slower than the best other side, and a summary by kind."""
    slow = Table("", "automatic", "spread", "operator", "of reading", "structure", title="below 1")
    for r in sorted(rows, key=lambda r: ratio(r, "automatic")):
        if not ratio(r, "automatic") < BAR:
            continue
        share = reading(r)
        cells = [f"{ratio(r, 'automatic'):.2f}", _spread(r["ratios"]["automatic"])]
        cells += [f"{ratio(r, 'operator'):.2f}", "" if share is None else f"{share:.0%}"]
        slow.add_row(r["shape"], *cells, str(r["config"].get("structure", "")))
    kinds = Table(
        *("", "shapes", "geomean", "below 1", f"below {FAR}", "operator"),
        title="the automatic default beside the best of NumPy and PyTorch",
    )
    fixed = [r for r in rows if r["kind"] != "random"]
    names = dict.fromkeys(r["kind"] for r in rows)
    parts = [(name, [r for r in rows if r["kind"] == name]) for name in names]
    for name, own in [*parts, ("all that is fixed", fixed)]:
        mine, theirs = summary(own, "automatic"), summary(own, "operator")
        cells = [f"{mine['count']}", f"{mine['geomean']:.2f}", f"{mine['below']}", f"{mine['far']}"]
        kinds.add_row(name, *cells, f"{theirs['geomean']:.2f}")
    return [slow, kinds]


def chosen_shapes(quick: bool, seed: int, count: int | None) -> list[Shape]:
    """The fixed shapes, or a part of them, and random products."""
    fixed = SHAPES[::QUICK] if quick else SHAPES
    wanted = (QUICK_COUNT if quick else 80) if count is None else count
    return [*fixed, *random_products(wanted, seed)]


def main() -> None:
    """Print a line for each shape, the tables, and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a part of the shapes, few rounds")
    parser.add_argument("--seed", type=int, default=0, help="of the random products [0]")
    parser.add_argument("--count", type=int, help="random products [80]")
    parser.add_argument("--kinds", default="", help="only shapes of kinds that hold this text")
    parser.add_argument("--shapes", default="", help="only shapes whose name holds this text")
    parser.add_argument("--threads", type=int, default=len(usable_cpus()), help="[all CPUs]")
    parser.add_argument("--out", default="sweep.json", help="where the JSON goes")
    options = parser.parse_args()
    shapes = [
        s
        for s in chosen_shapes(options.quick, options.seed, options.count)
        if options.kinds in s.kind and options.shapes in s.name
    ]
    console = Console(width=150)
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    begin = time.perf_counter()
    rows = sweep_rows(shapes, rounds, options.threads, console.print)
    for table in tables(rows):
        console.print(table)
    made = {"machine": machine(), "seed": options.seed, "rows": rows}
    Path(options.out).write_text(json.dumps(made, indent=1) + "\n")
    seconds = time.perf_counter() - begin
    console.print(f"{len(rows)} shapes in {seconds:.0f} s; wrote {options.out}")


if __name__ == "__main__":
    main()
