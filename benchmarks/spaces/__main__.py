"""``python -m benchmarks.spaces measure matmul``: measure a space from scratch, or go on with it.

Stop it whenever you like; the same command goes on. The phases can be run one by one, so that only
those that time something need a quiet machine.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.spaces import measuring, path_of
from benchmarks.spaces.ledger import Ledger
from benchmarks.spaces.templates import SPACES
from loopwright.measure.space_file import load_space

PHASES = ("build", "time", "finals", "pack")
#: Passes over all points, finalists, and rounds in which they take turns.
PASSES, FINALISTS, ROUNDS = 3, 50, 15


def main() -> int:
    """Run the phases that were asked for."""
    options = _options()
    if options.verb == "show":
        return _show(options.name)
    task = SPACES[options.name].task("llvm -num_threads=1")
    phases = PHASES if options.verb == "measure" else (options.verb,)
    with Ledger(measuring.folder(options.name)) as ledger:
        if not _measured(task, ledger, phases, options):
            _say("the time is up; the same command goes on")
            return 1
        if "pack" in phases:
            measuring.packed(task, ledger).save(path_of(options.name))
            return _show(options.name)
    return 0


def _measured(task: Any, ledger: Ledger, phases: Sequence[str], options: Any) -> bool:
    """Run the phases that measure; False when the time was up before the end."""
    if "build" in phases:
        measuring.build_all(task, ledger, _say)
    timer = measuring.Timer(task, ledger, _say)
    if "time" in phases and not timer.passes(options.passes, options.seconds):
        return False
    if "finals" in phases:
        timer.finals(FINALISTS, ROUNDS)
    return True


def _show(name: str) -> int:
    space = load_space(path_of(name))
    ranking = space.ranking()
    best = ranking[0][0]
    near = {share: sum(s <= best / share for s, _ in ranking) for share in (0.95, 0.99)}
    failed = sum(p.error is not None for p in space.points.values())
    dropped = sum(p.dropped for p in space.points.values())
    print(
        f"{name}: {len(space.points)} points, {failed} failed, {dropped} dropped; "
        f"best {best * 1e3:.4f} ms at {ranking[0][1]}; within 95 % {near[0.95]} "
        f"({near[0.95] / len(space.points):.2%}), within 99 % {near[0.99]}; "
        f"{path_of(name).stat().st_size} bytes"
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spaces", description=__doc__)
    parser.add_argument("verb", choices=("measure", *PHASES, "show"))
    parser.add_argument("name", choices=tuple(SPACES))
    parser.add_argument("--passes", type=int, default=PASSES, help=f"default {PASSES}")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop timing after so many"
    )
    return parser.parse_args()


def _say(text: str) -> None:
    now = datetime.datetime.now().strftime("%H:%M:%S")
    print(f"{now} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
