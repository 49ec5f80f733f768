"""``python -m loopwright.testing.fuzz``: random schedules, as many as wanted, each told by a seed.

Prints how many schedules and compiled runs there were, and for a failure its seed, the error, and
the shortest trace found that still fails, with the program it belongs to.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from loopwright.testing.differential import Case, Checker, case_of, runs_here
from loopwright.testing.random_kernel import kernel_example
from loopwright.testing.random_program import random_program
from loopwright.testing.random_schedule import random_schedule
from loopwright.testing.random_values import Draw

TARGETS = (
    "llvm -num-threads=1",
    "llvm -num-threads=2",
    "llvm -num-threads=1 -prefer-vector-width=256",
    "llvm -num-threads=1 -mcpu=x86-64",
    "llvm -num-threads=1 -prefer-vector-width=128",
    "llvm -num-threads=2 -mcpu=x86-64-v3",
    "llvm -num-threads=1 -loop-vectorize=true -loop-unroll=true",
    "c -num-threads=1",
    "c -num-threads=2",
    "c -num-threads=1 -prefer-vector-width=256 -opt-level=3",
)


def targets_of(d: Draw) -> list[str]:
    """The first two targets, and sometimes another."""
    return [*TARGETS[:2], *([d.pick(TARGETS[2:])] if d.chance(35) else [])]


def example(seed: int) -> tuple[Case, list[str], Any]:
    """The case, the targets and the drawn schedule of a seed."""
    d = Draw.random(random.Random(seed))
    program = random_program(d)
    made = random_schedule(d, program.dag, max_moves=20)
    return case_of(program, made.trace), targets_of(d), made


def without(trace: list[list[Any]], k: int) -> list[list[Any]]:
    """A trace without step ``k`` and without all that uses what it made; ids are renumbered."""
    gone = {k}
    for t in range(k + 1, len(trace)):
        used = {int(n) for x in _words(trace[t]) for n in re.findall(r"^s?(\d+)(?:\.\d)?$", x)}
        if used & gone:
            gone.add(t)
    number = {t: i for i, t in enumerate(t for t in range(len(trace)) if t not in gone)}

    def renamed(x: Any) -> Any:
        if isinstance(x, list):
            return [renamed(v) for v in x]
        found = re.fullmatch(r"(s?)(\d+)((?:\.\d)?)", x) if isinstance(x, str) else None
        return f"{found[1]}{number[int(found[2])]}{found[3]}" if found else x

    return [[s[0], *(renamed(v) for v in s[1:])] for t, s in enumerate(trace) if t in number]


def _words(x: Any) -> list[str]:
    if isinstance(x, list):
        return [w for v in x for w in _words(v)]
    return [x] if isinstance(x, str) else []


def shortest(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Drop steps as long as the case still fails."""
    k = len(case.trace) - 1
    while k >= 0:
        smaller = replace(case, trace=without(case.trace, k))
        if fails(smaller):
            case = smaller
        k = min(k, len(case.trace)) - 1
    return case


def main(argv: Sequence[str] | None = None) -> int:
    """Run the examples; returns 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m loopwright.testing.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=1000, help="number of examples")
    parser.add_argument("--kernels", action="store_true", help="bind loops to GPU threads")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--target", action="append", help="run on this target only (repeatable)")
    options = parser.parse_args(argv)
    for target in options.target or TARGETS:
        if not runs_here(target):
            print(f"not run: {target} (no such CPU or no C compiler here)")
    checker = Checker()
    done: Counter[str] = Counter()
    applied: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        case, targets, made = (kernel_example if options.kernels else example)(seed)
        targets = options.target or targets
        applied.update(made.applied)
        refused.update(made.refused)
        try:
            done[checker.check(case, targets)] += 1
        except Exception as error:
            done["failed"] += 1
            _report(checker, seed, case, targets, error)
            if not options.keep_going:
                break
    checker.close()
    print(f"{sum(done.values())} schedules in {time.monotonic() - began:.0f} s: {dict(done)}")
    print(f"steps applied: {dict(applied.most_common())}")
    print(f"steps refused: {dict(refused.most_common())}")
    print(f"compiled runs: {checker.runs}")
    return 1 if done["failed"] else 0


def _report(checker: Checker, seed: int, case: Case, targets: list[str], error: Exception) -> None:
    def fails(c: Case) -> bool:
        try:
            checker.check(c, targets)
        except Exception as e:
            return type(e) is type(error)
        return False

    print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}")
    small = shortest(case, fails)
    try:
        checker.check(small, targets)
    except Exception as e:
        print(f"smallest: {type(e).__name__}: {e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
