"""Expressions without a template beside NumPy, PyTorch and compiled PyTorch.

    python -m benchmarks.expressions [--cases TEXT] [--part 1/3] [--trials 64] [--out F.json]
                                     [--torch PYTHON]

Each expression is computed by its automatic default (no trial), by its best after some trials, and
by the libraries, in turns of one run; every answer is compared with NumPy's in float64. The JSON is
written after each, and what it holds is not measured again: a run that was stopped goes on.
PyTorch may be in an environment of its own, whose interpreter --torch names; its compiler keeps
kernels where TORCHINDUCTOR_CACHE_DIR says, so that --prepare, which times nothing, can have it
compile them before.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.expressions.cases import EXPRESSIONS, Expression, part_of
from benchmarks.expressions.measuring import medians, prepared, row
from benchmarks.expressions.peers import Peer, PeerError
from benchmarks.expressions.report import speedup, table, verdicts
from benchmarks.findings import Findings
from benchmarks.torch_side import installed
from loopwright.env import usable_cpus
from loopwright.errors import LoopwrightError


def main() -> None:
    """Print a line after each expression, then the table."""
    options = _options()
    console = Console(width=200)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [e for e in options.part if options.cases in e.name]
    with ExitStack() as stack:
        if options.prepare:
            _prepare(chosen, options, console, stack)
            return
        rows = _measure(chosen, options, console, stack)
    well = [r for r in rows if "failed" not in r]
    if well:
        console.print(table(well))
        console.print("\n".join(verdicts(well)), markup=False)
    console.print(f"failed: {[r['what'] for r in rows if 'failed' in r]}", markup=False)


def _prepare(
    chosen: Sequence[Expression], options: argparse.Namespace, console: Console, stack: ExitStack
) -> None:
    """Have the libraries call every expression once."""
    peers: list[Peer] = []
    for e in chosen:
        peers = _alive(peers, options, stack)
        errors, problems = prepared(e, peers)
        worst = {way: f"{error:.0e}" for way, error in errors.items()}
        console.print(f"{e.name}: errors {worst} problems {problems}", markup=False)


def _measure(
    chosen: Sequence[Expression], options: argparse.Namespace, console: Console, stack: ExitStack
) -> list[dict[str, Any]]:
    """The rows of the expressions, those of a former run among them."""
    findings = Findings(Path(options.out), {"trials": options.trials, "threads": options.threads})
    peers: list[Peer] = []
    for e in chosen:
        if options.again or not findings.has(e.name):
            peers = _alive(peers, options, stack)
            findings.add(_row(e, peers, options, console))
            console.print(_line(findings.rows[-1]), markup=False)
    names = {e.name for e in chosen}
    return [r for r in findings.rows if r["what"] in names]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.expressions", description=__doc__)
    parser.add_argument("--cases", default="", help="only expressions whose name holds this text")
    parser.add_argument("--part", type=_part, default=list(EXPRESSIONS), help="such as 1/3 [all]")
    parser.add_argument("--trials", type=int, default=64, help="of the search; 0: none [64]")
    parser.add_argument("--threads", type=int, default=len(usable_cpus()), help="[all CPUs]")
    parser.add_argument("--seed", type=int, default=0, help="of the tuner")
    parser.add_argument("--torch", default=sys.executable, help="an interpreter with PyTorch")
    parser.add_argument("--prepare", action="store_true", help="only call the libraries once")
    parser.add_argument("--again", action="store_true", help="measure what the JSON holds, too")
    parser.add_argument("--out", default="expressions.json", help="where the JSON goes")
    return parser.parse_args()


def _part(text: str) -> list[Expression]:
    try:
        return part_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _alive(peers: list[Peer], options: argparse.Namespace, stack: ExitStack) -> list[Peer]:
    """The libraries' processes, started again where one has ended."""
    wanted = {"numpy": sys.executable}
    if options.torch != sys.executable or installed():
        wanted["torch"] = options.torch
    found = []
    for library, python in wanted.items():
        known = [p for p in peers if p.library == library and p.alive]
        found += known or [stack.enter_context(Peer(library, python, options.threads))]
    return found


def _row(
    e: Expression, peers: list[Peer], options: argparse.Namespace, console: Console
) -> dict[str, Any]:
    """A row; of an expression that cannot be computed, why: the others go on."""
    begin = time.perf_counter()
    try:
        found = row(e, peers, options.trials, options.threads, options.seed)
    except (LoopwrightError, PeerError) as error:
        console.print(traceback.format_exc(), markup=False)
        found = {"what": e.name, "failed": f"{type(error).__name__}: {error}"}
    return {**found, "wall_s": time.perf_counter() - begin}


def _line(found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"{found['what']}: {found['failed']}"
    taken = ", ".join(f"{way} {s * 1e6:.0f} us" for way, s in medians(found).items())
    faster = {way: speedup(found, way) for way in ("default", "tuned")}
    text = ", ".join(f"{way} {x:.2f} x" for way, x in faster.items() if x is not None)
    wrong = f"; WRONG {found['wrong']}" if found["wrong"] else ""
    problems = f"; {found['problems']}" if found["problems"] else ""
    return f"{found['what']}: {taken}: {text} ({found['wall_s']:.0f} s){wrong}{problems}"


if __name__ == "__main__":
    main()
