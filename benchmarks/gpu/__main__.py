"""Kernels on a GPU beside cuBLAS, cuDNN and Triton, in pieces that can be broken off anywhere.

    python -m benchmarks.gpu build --out FOLDER --arch sm_90    no GPU is needed
    python -m benchmarks.gpu measure --from FOLDER --minutes 8  where the GPU is
    python -m benchmarks.gpu peers --from FOLDER --minutes 8    ours, cuBLAS, cuDNN, Triton in turns
    python -m benchmarks.gpu report --from FOLDER
    python -m benchmarks.gpu sanitize                           random kernels, compute-sanitizer

Each of the first three ends by itself when its minutes are over; the exit code is then 3, and the
same command goes on. With ``build --trials 150``, ``measure``, ``build --trials 300``, ``measure``
the second half is proposed by what was learnt from the first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.gpu.building import build
from benchmarks.gpu.cases import BY_NAME, chosen
from benchmarks.gpu.folder import Folder, Purpose, begin
from benchmarks.gpu.measuring import measure
from benchmarks.gpu.peers import peers
from benchmarks.gpu.report import NOTHING_MEANT, report
from benchmarks.gpu.sanitizing import sanitize
from loopwright.env import usable_cpus
from loopwright.errors import LoopwrightError
from loopwright.target import Target

#: Exit codes: an error, and not all done.
_ERROR, _UNFINISHED = 1, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        return _VERBS[options.verb](options)
    except LoopwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return _ERROR


def _ended(done: bool) -> int:
    """Say whether there is more to do; returns the exit code."""
    print("done" if done else "the time is over; run the same command again to go on")
    return 0 if done else _UNFINISHED


def _build(options: argparse.Namespace) -> int:
    target = f"cuda -arch={options.arch}" if options.device == "cuda" else options.device
    cases = chosen(options.task, options.device)
    purpose = Purpose(options.device, str(Target(target)), options.small, options.seed)
    done = build(
        begin(options.out, purpose),
        cases,
        options.trials,
        minutes=options.minutes,
        jobs=options.jobs,
        seconds=options.seconds,
    )
    return _ended(done)


def _measure(options: argparse.Namespace) -> int:
    folder = Folder(options.folder)
    _warn(folder)
    cases = chosen(options.task, folder.purpose.device)
    device = options.device or f"{folder.purpose.device}:0"
    done = measure(folder, cases, device, minutes=options.minutes, seconds=options.seconds)
    return _ended(done)


def _peers(options: argparse.Namespace) -> int:
    folder = Folder(options.folder)
    _warn(folder)
    cases = chosen(options.task, folder.purpose.device)
    device = options.device or f"{folder.purpose.device}:0"
    return _ended(peers(folder, cases, device, minutes=options.minutes))


def _report(options: argparse.Namespace) -> int:
    folder = Folder(options.folder)
    report(folder, chosen(options.task, folder.purpose.device), Console(width=170))
    return 0


def _sanitize(options: argparse.Namespace) -> int:
    return sanitize(options.count, options.seed, options.minutes)


def _warn(folder: Folder) -> None:
    if folder.purpose.device == "opencl":
        print(NOTHING_MEANT)


_VERBS = {
    "build": _build,
    "measure": _measure,
    "peers": _peers,
    "report": _report,
    "sanitize": _sanitize,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    made = {name: verbs.add_parser(name) for name in _VERBS}
    for name in ("build", "measure", "peers", "report"):
        made[name].add_argument(
            "--task", default="", help=f"only these, with commas: {', '.join(BY_NAME)}"
        )
    for name in ("measure", "peers", "report"):
        made[name].add_argument(
            "--from", dest="folder", type=Path, required=True, help="the folder"
        )
    for name in ("measure", "peers"):
        made[name].add_argument("--device", default="", help="such as cuda:1 [the first]")
        made[name].add_argument("--minutes", type=float, default=8.0, help="stop then [8]")
    _add_build_options(made["build"])
    made["measure"].add_argument(
        "--seconds", type=float, default=20.0, help="that one candidate may take [20]"
    )
    made["sanitize"].add_argument("--count", type=int, default=20, help="kernels [20]")
    made["sanitize"].add_argument("--seed", type=int, default=0, help="of the first kernel [0]")
    made["sanitize"].add_argument(
        "--minutes", type=float, default=2.0, help="that one tool may take [2]"
    )
    return parser


def _add_build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    parser.add_argument("--device", choices=("cuda", "opencl"), default="cuda", help="[cuda]")
    parser.add_argument("--arch", default="sm_90", help="architecture of CUDA [sm_90]")
    parser.add_argument("--trials", type=int, default=300, help="candidates of a task [300]")
    parser.add_argument("--small", action="store_true", help="sizes for trying the script out")
    parser.add_argument("--seed", type=int, default=0, help="of proposals and inputs [0]")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop then [8]")
    parser.add_argument("--seconds", type=float, default=60.0, help="for one candidate [60]")
    parser.add_argument("--jobs", type=int, default=len(usable_cpus()), help="processes [the CPUs]")


if __name__ == "__main__":
    sys.exit(main())
