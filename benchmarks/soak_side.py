"""One side of the soak: tunes a template whose candidates fail in every way, and says each trial.

``python -m benchmarks.soak_side LOG --trials N`` prints ``trial NUMBER`` for what it has recorded,
one line each, after each round. `benchmarks.soak` starts it, disturbs it, and looks at what it
leaves.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import loopwright as lw
from loopwright import te
from loopwright.measure import MeasureOption
from loopwright.task import template
from loopwright.tuner import TUNERS, log_to_file

#: The product is N x N x N; a faulty intrinsic computes LANES columns of a row.
N, LANES = 96, 16
#: Seconds that a build and a run may take: what hangs costs so much.
BUILD_S, RUN_S = 3.0, 1.0
_DIVISORS = [n for n in range(1, N + 1) if N % n == 0]
#: Configurations of the space: three tiles, an order, and two flags.
SPACE = len(_DIVISORS) ** 3 * 12
_ORDERS = ["ijk", "ikj", "kij"]


def _out_of_range(ib: Any, c: Any, k: int) -> None:
    """Touches memory that belongs to nobody."""
    ib.emit(c.store((1 << 36) + k, 1.0))


def _just_outside(ib: Any, c: Any, k: int) -> None:
    """Writes one element past the end of its operand."""
    ib.emit(c.store(LANES * N * N + k % 8, 1.0))


def _endless(ib: Any, c: Any, k: int) -> None:
    """Runs for years."""
    with ib.for_range((1 << 29) + k, "a"), ib.for_range(1 << 29, "b"):
        ib.emit(c.store(0, c[0] * 0.5 + 1.0))


def _wrong(ib: Any, c: Any, k: int) -> None:
    """Computes another number."""
    ib.emit(c.store(0, c[0] + 1.0 + k))


def _hasty(ib: Any, c: Any, k: int) -> None:
    """Faster than any right kernel, for `_faulty` leaves out most terms: it would be the best."""


def _greedy(ib: Any, c: Any, k: int) -> None:
    """Asks for more memory than there is."""
    with ib.allocate(((1 << 38) + k,), "float32", "much") as much:
        ib.emit(much.store(0, c[0]))
        ib.emit(c.store(0, much[0]))


#: Faults of kernels, by name: what the body of the intrinsic does after its work.
FAULTY: dict[str, Callable[[Any, Any, int], None]] = {
    "out of range": _out_of_range,
    "just outside": _just_outside,
    "endless": _endless,
    "wrong": _wrong,
    "hasty": _hasty,
    "greedy": _greedy,
}
#: Faults of templates.
TEMPLATES = ("raises", "exits", "sleeps", "huge")
#: How many candidates of a thousand have each fault.
SHARES = {
    "out of range": 30,
    "just outside": 30,
    "endless": 10,
    "wrong": 40,
    "hasty": 20,
    "greedy": 20,
    "raises": 30,
    "exits": 20,
    "sleeps": 5,
    "huge": 20,
}


def fault_of(number: int) -> str:
    """Which fault the candidate with a number has; empty for none."""
    place = (number * 2_654_435_761 + 999) % 1000
    for name, share in SHARES.items():
        if place < share:
            return name
        place -= share
    return ""


def _faulty(name: str, k: int) -> Any:
    """An intrinsic that computes its part of the product and then does something else."""
    a, b = te.placeholder((N,), name="a"), te.placeholder((N, LANES), name="b")
    r = te.reduce_axis((0, N), name="r")
    c = te.compute((LANES,), lambda j: te.sum(a[r] * b[r, j], axis=r), name="c")

    def write(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder()
        (left, right), (out,) = ins, outs
        with ib.for_range(LANES, "j") as j:
            ib.emit(out.store(j, 0.0))
        terms = k % 8 if name == "hasty" else N
        with ib.for_range(terms, "r") as x, ib.for_range(LANES, "j") as j:
            ib.emit(out.store(j, out[j] + left[x] * right[x, j]))
        FAULTY[name](ib, out, k)
        return ib.get()

    rows = te.decl_buffer((N, LANES), "float32", "b", strides=[None, 1])
    return te.decl_tensor_intrin(c, write, f"fault_{k}", {b: rows})


@template("benchmarks/soak", reference=lambda a, b: a @ b)
def soak() -> tuple[Any, list[Any]]:
    """A product some of whose candidates fail."""
    a, b = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    r = te.reduce_axis((0, N), name="r")
    c = te.compute((N, N), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    cfg = lw.get_config()
    for name in ("rows", "columns", "terms"):
        cfg.define_knob(name, _DIVISORS)
    cfg.define_knob("order", _ORDERS)
    cfg.define_knob("vector", [0, 1])
    cfg.define_knob("unroll", [0, 1])
    rows, columns, terms = (_DIVISORS.index(cfg[n].val) for n in ("rows", "columns", "terms"))
    order = _ORDERS.index(cfg["order"].val)
    # Every configuration is another program, so each has a number of its own.
    k = (rows * len(_DIVISORS) + columns) * len(_DIVISORS) + terms
    k = k * 12 + order * 4 + cfg["vector"].val * 2 + cfg["unroll"].val
    fault = fault_of(k)
    if fault in TEMPLATES:
        _misbehave(fault, k)
    (i, j), (x,) = s[c].op.axis, s[c].op.reduce_axis
    if fault in FAULTY:
        _, ji = s[c].split(j, factor=LANES)
        s[c].tensorize(ji, _faulty(fault, k))
        return s, [a, b, c]
    io, ii = s[c].split(i, factor=cfg["rows"].val)
    jo, ji = s[c].split(j, factor=cfg["columns"].val)
    xo, xi = s[c].split(x, factor=cfg["terms"].val)
    inner = {"i": ii, "j": ji, "k": xi}
    s[c].reorder(io, jo, xo, *(inner[letter] for letter in cfg["order"].val))
    if cfg["vector"].val:
        s[c].vectorize(ji)
    if cfg["unroll"].val and cfg["rows"].val * cfg["terms"].val <= 64:
        s[c].unroll(ii)
    if fault == "huge":
        s[c].pragma(io, "auto_unroll_max_step", 1 << 30)
        s[c].unroll(xo)
    return s, [a, b, c]


def _misbehave(fault: str, k: int) -> None:
    if fault == "raises":
        raise ValueError(f"candidate {k} raises")
    if fault == "exits":
        sys.exit(k % 128)
    while fault == "sleeps":
        time.sleep(0.01)


def measuring() -> MeasureOption:
    """How both are measured."""
    return lw.measure_option(
        lw.LocalBuilder(timeout=BUILD_S, n_parallel=2), lw.LocalRunner(timeout=RUN_S)
    )


def _say(tuner: Any, inputs: Any, results: Any) -> None:
    for one, result in zip(inputs, results, strict=True):
        if not result.same_as:
            print(f"trial {one.trial}", flush=True)


def main() -> None:
    """Tune, and say what was recorded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak_side", description=__doc__)
    parser.add_argument("log")
    parser.add_argument("--trials", type=int, required=True, help="valid trials of the log")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    task = lw.create_task("benchmarks/soak", (), "llvm -num-threads=1")
    print(f"space {len(task.config_space)}", flush=True)
    summary = TUNERS["random"](task, seed=options.seed).tune(
        n_trial=options.trials,
        measure_option=measuring(),
        callbacks=[log_to_file(options.log), _say],
    )
    print(f"done {summary.stopped} {summary.trials}", flush=True)


if __name__ == "__main__":
    main()
