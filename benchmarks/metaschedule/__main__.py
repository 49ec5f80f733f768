"""Automatic spaces beside TVM's MetaSchedule, on expressions written once for both.

    python -m benchmarks.metaschedule --tvm PYTHON [--cases TEXT] [--part 1/3] [--trials 64]
                                      [--tvm-trials 64] [--try] [--out F.json]

--tvm names an interpreter whose environment has apache-tvm 0.27 (with apache-tvm-ffi 0.1.14, numpy,
xgboost-cpu, psutil, cloudpickle, tornado, scipy). Each expression is tuned by both, one after the
other, with the wall time of each search; then both kernels take turns in one run, and are compared
with NumPy in float64. A search of MetaSchedule takes minutes. --try only tunes a small product, to
see that everything works. The JSON is written after each, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view as windows
from rich.console import Console
from rich.table import Table

import loopwright as lw
from benchmarks.automatic import geomean
from benchmarks.expressions.measuring import error_of
from benchmarks.expressions.peers import Peer, PeerError
from benchmarks.expressions.sides import numpy_calls
from benchmarks.expressions.sides.side import sample
from benchmarks.findings import Findings
from benchmarks.metaschedule.definitions import CASES, TRIAL_CASE, tensors
from loopwright import te
from loopwright.env import usable_cpus
from loopwright.runtime import pinned
from loopwright.tuner import DEFAULT_TUNER, find_tuner

#: Rounds in which both kernels take turns.
ROUNDS = 9
#: Seconds that a search of MetaSchedule may take.
PATIENCE_S = 1800.0
#: What is asked: times its speed, and share of its wall time.
FASTER, WALL = 1.5, 0.2
#: Largest error relative to the largest element of the answer.
TOLERANCE = 1e-4
_SIDE = Path(__file__).with_name("side.py")

Array = npt.NDArray[Any]


def row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tune one expression with both, and let both kernels take turns.

    Args:
        name: of the case.
        options: of the command line.
    """
    args = tensors(te, name)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.static_shape, "float32") for t in args[:-1]]
    found: dict[str, Any] = {"what": name}
    begin = time.perf_counter()
    task = lw.create_task(args, target=f"llvm -num-threads={options.threads}")
    summary = find_tuner(DEFAULT_TUNER)(task, seed=options.seed).tune(n_trial=options.trials)
    found["ours_wall_s"] = time.perf_counter() - begin
    assert summary.best_config is not None, "a run without a result raises"
    found["structure"] = str(summary.best_config)
    f = lw.build(*task.instantiate(summary.best_config), task.target, name="f").get_function("f")
    shape = args[-1].static_shape
    arrays = [lw.nd.array(x) for x in (*inputs, np.zeros(shape, "float32"))]
    f(*arrays)
    right = RIGHT[CASES[name][0]](*(x.astype("float64") for x in inputs))
    found["ours_error"] = error_of(arrays[-1].numpy(), right)
    target = {"kind": "llvm", "mcpu": task.target.options["mcpu"], "num-cores": options.threads}
    with (
        Peer("tvm", options.tvm, options.threads, PATIENCE_S, _SIDE) as peer,
        tempfile.TemporaryDirectory() as folder,
    ):
        said = peer.ask(
            "tune", name=name, trials=options.tvm_trials, target=target, seed=options.seed
        )
        found |= {"tvm_wall_s": said["seconds"], "tvm_records": said["records"]}
        if said["problem"]:
            return {**found, "failed": said["problem"]}
        stored, answer = f"{folder}/inputs.npz", f"{folder}/answer.npy"
        np.savez(stored, *inputs, np.zeros(shape, "float32"))
        peer.ask("open", inputs=stored, answer=answer)
        found["tvm_error"] = error_of(np.load(answer), right)
        found["seconds"] = _in_turns(lambda: sample(lambda: f(*arrays)), peer, options.threads)
    return found


def _in_turns(ours: Callable[[], float], peer: Peer, threads: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {"ours": [], "tvm": []}
    with pinned(threads):
        for _ in range(ROUNDS):
            seconds["tvm"].append(peer.ask("sample"))
            seconds["ours"].append(ours())
    return seconds


def _dense_bias_relu(x: Array, w: Array, b: Array) -> Array:
    return np.maximum(x @ w + b, 0)


def _conv2d(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    return np.einsum("cyxrq,bcrq->byx", windows(padded, (3, 3), (1, 2)), w, optimize=True)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


#: What the expressions are in NumPy.
RIGHT: dict[str, Callable[..., Array]] = {
    "matmul": np.matmul,
    "batch_matmul": np.matmul,
    "dense_bias_relu": _dense_bias_relu,
    "conv2d": _conv2d,
    "conv3d": numpy_calls.conv3d,
    "softmax": _softmax,
    "min_plus": numpy_calls.min_plus,
    "distances": numpy_calls.distances,
}


def medians(found: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of a call of ours and of TVM's."""
    return statistics.median(found["seconds"]["ours"]), statistics.median(found["seconds"]["tvm"])


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Times of both, and of both searches, beside the bars."""
    out = Table(
        "", "ours us", "TVM us", "faster", "ours s", "TVM s", "share", "spread", "wrong",
        title=f"beside MetaSchedule (bar: {FASTER} x in {WALL:g} of its wall time)",
    )  # fmt: skip
    faster, shares = [], []
    for r in rows:
        ours, theirs = medians(r)
        faster.append(theirs / ours)
        shares.append(r["ours_wall_s"] / r["tvm_wall_s"])
        spread = (max(r["seconds"]["ours"]) - min(r["seconds"]["ours"])) / ours
        wrong = [who for who in ("ours", "tvm") if not r[f"{who}_error"] <= TOLERANCE]
        out.add_row(
            r["what"], f"{ours * 1e6:.0f}", f"{theirs * 1e6:.0f}", f"{faster[-1]:.2f}",
            f"{r['ours_wall_s']:.0f}", f"{r['tvm_wall_s']:.0f}", f"{shares[-1]:.2f}",
            f"{spread:.0%}", " ".join(wrong),
        )  # fmt: skip
    if rows:
        out.add_row("geomean", "", "", f"{geomean(faster):.2f}", "", "", f"{geomean(shares):.2f}")
    return out


def main() -> None:
    """Print a line after each expression, then the table."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its builders end with TVM's process
    console = Console(width=150)
    made_with = {"trials": options.trials, "tvm_trials": options.tvm_trials}
    findings = Findings(Path(options.out), {**made_with, "threads": options.threads})
    first, _, count = options.part.partition("/")
    names = [name for name in CASES if name != TRIAL_CASE][int(first) - 1 :: int(count)]
    names = [TRIAL_CASE] if options.try_it else [n for n in names if options.cases in n]
    for name in names:
        if findings.has(name):
            continue
        try:
            findings.add(row(name, options))
        except PeerError as error:
            findings.add({"what": name, "failed": str(error)})
        console.print(findings.rows[-1])
    rows = [r for r in findings.rows if r["what"] in names and "failed" not in r]
    console.print(table(rows))
    console.print(f"failed: {[r['what'] for r in findings.rows if 'failed' in r]}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metaschedule", description=__doc__)
    parser.add_argument("--tvm", required=True, metavar="PYTHON", help="interpreter with TVM")
    parser.add_argument("--cases", default="", help="only expressions whose name holds this text")
    parser.add_argument("--part", default="1/1", help="every n-th expression, such as 1/3 [all]")
    parser.add_argument("--trials", type=int, default=64, help="of ours [64]")
    parser.add_argument("--tvm-trials", type=int, default=64, help="of MetaSchedule [64]")
    parser.add_argument("--threads", type=int, default=len(usable_cpus()), help="[all CPUs]")
    parser.add_argument("--seed", type=int, default=0, help="of both searches")
    parser.add_argument("--try", dest="try_it", action="store_true", help="a small product alone")
    parser.add_argument("--out", default="metaschedule.json", help="where the JSON goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
