"""Distinct programs a minute, in this tree and in a checkout of a commit, turn by turn.

``python -m benchmarks.throughput --base 8de60b9`` tunes matmul 512^3 and conv2d 64x56x56 with the
default tuner in both trees alternately, and prints for each turn the distinct programs a minute and
the 90th percentile of how far windows lie from the median of their trial. Programs are told apart
by this tree for both sides: the traces of a log are lowered here. The final re-measuring is left
out. With ``--base HEAD`` and ``--turns 1 --tuners random grid ga xgb`` it says how many of each
tuner's proposals are duplicates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.replay import ROOT, checkout
from loopwright import driver
from loopwright.cli.workload import find_workload

SPACES = {
    "matmul": ["M=512", "N=512", "K=512"],
    "conv2d": ["N=1", "C=64", "H=56", "W=56", "O=64", "KH=3", "KW=3", "pad=1"],
    "softmax": ["M=1024", "N=1024"],
}
THREADS = 2
#: Run in the tree that ``PYTHONPATH`` names: tunes, and prints the seconds without the playoff.
_SIDE = """
import json, sys, time
import loopwright as lw
from loopwright.cli.workload import find_workload
from loopwright.tuner import TUNERS
op, params, threads, tuner, trials, seed, log = json.loads(sys.argv[1])
task = find_workload(op, params, "llvm", threads).task
start = time.perf_counter()
summary = TUNERS[tuner](task, seed=seed).tune(
    n_trial=trials, callbacks=[lw.callback.log_to_file(log)],
    measure_option=lw.measure_option(lw.LocalBuilder(), lw.LocalRunner()))
spent = time.perf_counter() - start
print(json.dumps([spent - summary.timing.get("playoff", 0.0) - summary.timing.get("wait", 0.0)]))
"""


@dataclass(frozen=True)
class Turn:
    """One run of one side.

    Attributes:
        proposals: trials and duplicates.
        programs: distinct programs among those that ran.
        seconds: of the run, without the playoff and waiting for the device.
        spread: 90th percentile of the distance of a window from the median of its trial.
    """

    proposals: int
    programs: int
    seconds: float
    spread: float

    @property
    def pace(self) -> float:
        """Distinct programs a minute."""
        return self.programs / self.seconds * 60


def turn(tree: Path, op: str, tuner: str, trials: int, seed: int) -> Turn:
    """Tune once in a tree, whose bytecode is kept as it is for who installs the package."""
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.jsonl")
        given = json.dumps([op, SPACES[op], THREADS, tuner, trials, seed, log])
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        found = subprocess.run(
            [sys.executable, "-P", "-c", _SIDE, given],
            env={**environment, "PYTHONPATH": str(tree)},
            cwd=tree,
            check=True,
            stdout=subprocess.PIPE,
        )
        records = [r for r in lw.records.load(log) if not r.phase]
    (seconds,) = json.loads(found.stdout.splitlines()[-1])
    windows = [
        abs(t / r.median - 1) for r in records if r.median and len(r.times) > 1 for t in r.times
    ]
    spread = float(np.quantile(windows, 0.9)) if windows else 0.0
    return Turn(len(records), len(programs_of(op, records)), seconds, spread)


def programs_of(op: str, records: Sequence[Any]) -> set[str]:
    """Keys of the programs of records that have a time, by this tree."""
    task = find_workload(op, SPACES[op], "llvm", THREADS).task
    s, tensors = task.instantiate(task.config_space.default_index)
    keys = set()
    for record in records:
        if record.valid:
            program = driver.lower_trace(s.dag, record.trace, s.arg_ids(tensors), "main", {})
            keys.add(driver.program_key(program.func, task.target, {}))
    return keys


def compare(base: Path, op: str, tuner: str, trials: int, turns: int) -> list[str]:
    """Lines about the turns of both sides, and the ratio of their paces."""
    lines, ratios = [], []
    for seed in range(turns):
        sides = {"base": base, "here": ROOT}
        order = list(sides) if seed % 2 == 0 else list(sides)[::-1]
        found = {name: turn(sides[name], op, tuner, trials, seed) for name in order}
        ratios.append(found["here"].pace / found["base"].pace)
        for name, one in found.items():
            lines.append(
                f"{op} {tuner} seed {seed} {name}: {one.proposals} proposals, "
                f"{one.programs} programs, {one.pace:.0f} a minute, windows p90 {one.spread:.2%}"
            )
    return [
        *lines,
        f"{op} {tuner}: here / base = {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f})",
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--base", default="HEAD", help="the commit to compare with (default HEAD)")
    parser.add_argument("--spaces", nargs="*", choices=list(SPACES), default=["matmul", "conv2d"])
    parser.add_argument("--tuners", nargs="*", default=["xgb"], help="default xgb")
    parser.add_argument("--trials", type=int, default=200, help="trials of a turn (default 200)")
    parser.add_argument("--turns", type=int, default=3, help="turns of each side (default 3)")
    options = parser.parse_args(argv)
    with checkout(options.base) as base:
        for op in options.spaces:
            for tuner in options.tuners:
                for line in compare(base, op, tuner, options.trials, options.turns):
                    print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
