"""How long the compiler itself takes: import, lowering, building."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.workloads import CASES, MORE_CASES, Case
from loopwright.cli.workload import find_workload
from loopwright.driver import compile_schedule
from loopwright.lowering import lower_ids
from loopwright.schedule import replay


def sample(f: Callable[[], object], n: int) -> list[float]:
    """Seconds of ``n`` calls, after one that does not count."""
    f()
    out = []
    for _ in range(n):
        start = time.perf_counter()
        f()
        out.append(time.perf_counter() - start)
    return out


def import_seconds(n: int) -> list[float]:
    """Seconds of ``import loopwright`` with its public names, each in a fresh process.

    Bytecode is cached, as it is for everybody who installs the package.
    """
    code = (
        "import time; t = time.perf_counter(); import loopwright as lw; "
        "lw.te, lw.create_schedule, lw.lower; print(time.perf_counter() - t)"
    )
    command = [sys.executable, "-c", code]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    runs = [subprocess.run(command, capture_output=True, check=True, env=env) for _ in range(n + 1)]
    return [float(run.stdout) for run in runs[1:]]


def compile_rows(n: int) -> list[dict[str, Any]]:
    """Rows of the table: what, seconds (median, spread), budget."""
    rows = [_row("import loopwright", import_seconds(max(3, n // 4)), 0.25)]
    for case in (*CASES, *MORE_CASES):
        s, ids, target = _scheduled(case)
        trace, dag = s.trace_json(), s.dag
        lower = sample(lambda d=dag, t=trace, i=ids: lower_ids(replay(d, t), i), n)  # type: ignore[misc]
        rows.append(_row(f"replay and lower {case.name}", lower, 0.005))
        build = sample(
            lambda d=dag, t=trace, i=ids, g=target: compile_schedule(replay(d, t), i, g, "f"), n
        )  # type: ignore[misc]
        rows.append(_row(f"replay, lower and build {case.name}", build, 0.060))
    return rows


def _scheduled(case: Case) -> tuple[Any, list[Any], Any]:
    """The default schedule of a workload."""
    task = find_workload(case.op, case.params, "llvm").task
    space = task.config_space
    s, tensors = task.instantiate(space.get(space.default_index))
    return s, s.arg_ids(tensors), task.target


def _row(what: str, samples: list[float], budget: float) -> dict[str, Any]:
    ordered = sorted(samples)
    return {
        "what": what,
        "median_s": statistics.median(ordered),
        "low_s": ordered[0],
        "high_s": ordered[-1],
        "budget_s": budget,
    }
