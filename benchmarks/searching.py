"""How soon a tuning run gets somewhere: from the command line to shares of the machine's peak.

Each run is the command `loopwright tune` in a process and a folder of its own, so that imports, the
reference answer and the first builds count. The log says when each trial ended; the peak is
measured before and after the run, with as many threads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.workloads import CASES, Case
from loopwright import records
from loopwright.cli.workload import find_workload
from loopwright.runtime.peak import fma_peak

#: Share of the peak that TVM 0.27's MetaSchedule reached after 256 trials on its machine, and the
#: share that is asked for besides.
GOALS = {
    "matmul_1024": (0.45, 0.80),
    "conv2d_64_56_3x3": (0.39, 0.80),
    "dense_bias_relu_128x3072x768": (0.24, 0.80),
}
#: Share of the run's own best that counts as near.
NEAR = 0.95


@dataclass(frozen=True)
class Step:
    """One trial of a run.

    Attributes:
        number: of the trial; 0 is the default configuration.
        after: seconds from the start of the command to its end.
        share: speed as a share of the peak.
    """

    number: int
    after: float
    share: float


def searching_rows(
    seeds: int, trials: int, threads: int, tuner: str | None = None
) -> list[dict[str, Any]]:
    """Tune each workload with each seed from the command line.

    Args:
        seeds: how many, from 0.
        trials: valid trials of a run.
        threads: threads of the kernels.
        tuner: its name; None for the default one.

    Returns:
        A row a run: seconds and trials to each goal, once as it is and once without trial 0, the
        default configuration; None where the goal was not reached.
    """
    cases = {case.name: case for case in CASES}
    return [
        _run(cases[name], goals, seed, trials, threads, tuner)
        for name, goals in GOALS.items()
        for seed in range(seeds)
    ]


def _run(
    case: Case, goals: Sequence[float], seed: int, trials: int, threads: int, tuner: str | None
) -> dict[str, Any]:
    before = fma_peak(threads)
    flop = find_workload(case.op, list(case.params), "llvm", threads).task.flop
    command = [sys.executable, "-m", "loopwright", "tune", case.op, *case.params]
    command += ["--threads", str(threads), "--trials", str(trials), "--seed", str(seed)]
    command += [] if tuner is None else ["--tuner", tuner]
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.jsonl")
        start = time.time()
        done = subprocess.run([*command, "--log", log], capture_output=True, text=True, check=False)
        wall = time.time() - start
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        found = records.load(log).records
    peak = (before + fma_peak(threads)) / 2
    steps = [
        Step(r.trial, r.ts - start, flop / r.median / peak)
        for r in found
        if r.valid and not r.dropped and r.median and not r.phase
    ]
    best = max(step.share for step in steps)
    searched = [step for step in steps if step.number > 0]
    wanted = {f"{goal:.0%}": goal for goal in goals} | {"near": NEAR * best}
    measured = [r for r in found if not r.phase]
    return {
        "what": case.name,
        "seed": seed,
        "threads": threads,
        "trials": len(measured),
        "seconds": wall,
        "per_minute": len(measured) / wall * 60,
        "peak_gflops": peak / 1e9,
        "first_share": steps[0].share,
        "best_share": best,
        "reached": {name: first(steps, share) for name, share in wanted.items()},
        "reached_without_default": {name: first(searched, share) for name, share in wanted.items()},
        "summary": done.stdout,
    }


def first(steps: Iterable[Step], share: float) -> tuple[int, float] | None:
    """Number of the first trial that reached a share, and seconds until then; None: none did."""
    return next(((s.number, s.after) for s in steps if s.share >= share), None)
