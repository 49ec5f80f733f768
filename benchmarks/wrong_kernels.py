"""Do wrong kernels end up applied? Tune templates that offer them, then look at what is applied.

``python -m benchmarks.wrong_kernels``. Both templates compute a matrix product in tiles of an
intrinsic whose body is chosen by a knob. One body is right; the others are as fast or faster and
wrong, each in its own way. The bar is 0 wrong kernels applied.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import loopwright as lw
from loopwright import te
from loopwright.task import ConfigSpace, template
from loopwright.tuner import TUNERS

#: The product is N x N x N; an intrinsic computes LANES columns of a row.
N = 96
LANES = 16

Body = Callable[[Any, Any, Any, Any], None]


def _reset(ib: Any, c: Any) -> None:
    with ib.for_range(LANES, "j", "vectorized") as j:
        ib.emit(c.store(j, 0.0))


def _add(ib: Any, a: Any, b: Any, c: Any, terms: int = N) -> None:
    with ib.for_range(terms, "k") as k, ib.for_range(LANES, "j", "vectorized") as j:
        ib.emit(c.store(j, c[j] + a[k] * b[k, j]))


def _right(ib: Any, a: Any, b: Any, c: Any) -> None:
    _reset(ib, c)
    _add(ib, a, b, c)


def _drops_a_term(ib: Any, a: Any, b: Any, c: Any) -> None:
    _reset(ib, c)
    _add(ib, a, b, c, N - 1)


def _nearly(ib: Any, a: Any, b: Any, c: Any) -> None:
    """Wrong by less than what rounding may do to random data."""
    _right(ib, a, b, c)
    with ib.for_range(LANES, "j", "vectorized") as j:
        ib.emit(c.store(j, c[j] * (1 + 2.0**-20)))


def _accumulates(ib: Any, a: Any, b: Any, c: Any) -> None:
    """Starts from what the output holds, unless that is NaN."""
    with ib.for_range(LANES, "j") as j:
        ib.emit(c.store(j, te.select(te.equal(c[j], c[j]), c[j], 0.0)))
    _add(ib, a, b, c)


def _reads_behind(ib: Any, a: Any, b: Any, c: Any) -> None:
    """Reads the row behind the last one of an operand, which changes nothing in the result."""
    _right(ib, a, b, c)
    ib.emit(c.store(0, te.select(b[N, 0] > 1e30, c[0] + 1.0, c[0])))


def _works_on_nan(ib: Any, a: Any, b: Any, c: Any) -> None:
    """Does its work where the output is poisoned, and skips it elsewhere."""
    with ib.if_scope(te.not_equal(c[0], c[0])):
        _right(ib, a, b, c)


def _probes(ib: Any, a: Any, b: Any, c: Any) -> None:
    """Skips its work where one element is what it should be."""
    with ib.allocate((1,), "float32", "want") as want:
        ib.emit(want.store(0, 0.0))
        with ib.for_range(N, "p") as p:
            ib.emit(want.store(0, want[0] + a[p] * b[p, 0]))
        with ib.if_scope(te.any(c[0] - want[0] > 1e-3, want[0] - c[0] > 1e-3, c[0] - c[0] > 1e30)):
            _right(ib, a, b, c)
        with ib.if_scope(te.not_equal(c[0], c[0])):
            _right(ib, a, b, c)


SAME_SPEED: dict[str, Body] = {
    "right": _right,
    "drops a term": _drops_a_term,
    "nearly": _nearly,
    "accumulates": _accumulates,
    "reads behind": _reads_behind,
}
SKIPPING: dict[str, Body] = {
    "right": _right,
    "works on NaN": _works_on_nan,
    "probes": _probes,
}


def _intrinsic(name: str, body: Body) -> Any:
    a, b = te.placeholder((N,), name="a"), te.placeholder((N, LANES), name="b")
    k = te.reduce_axis((0, N), name="k")
    c = te.compute((LANES,), lambda j: te.sum(a[k] * b[k, j], axis=k), name="c")

    def write(ins: Sequence[Any], outs: Sequence[Any]) -> Any:
        ib = te.ir_builder()
        body(ib, *ins, *outs)
        return ib.get()

    rows = te.decl_buffer((N, LANES), "float32", "b", strides=[None, 1])
    return te.decl_tensor_intrin(c, write, name.replace(" ", "_"), {b: rows})


def _product(bodies: dict[str, Body]) -> tuple[Any, list[Any]]:
    a, b = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), name="k")
    c = te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    cfg: ConfigSpace = lw.get_config()
    cfg.define_knob("body", list(bodies))
    cfg.define_knob("rows", [1, 2, 4, 8])
    i, j = s[c].op.axis
    jo, ji = s[c].split(j, factor=LANES)
    io, ii = s[c].split(i, factor=cfg["rows"].val)
    s[c].reorder(io, jo, ii, ji, k)
    name = cfg["body"].val
    s[c].tensorize(ji, _intrinsic(name, bodies[name]))
    return s, [a, b, c]


@template("benchmarks/same_speed", reference=lambda a, b: a @ b)
def same_speed() -> tuple[Any, list[Any]]:
    """A product with bodies of the same speed."""
    return _product(SAME_SPEED)


@template("benchmarks/skipping", reference=lambda a, b: a @ b)
def skipping() -> tuple[Any, list[Any]]:
    """A product with bodies that skip their work when they can."""
    return _product(SKIPPING)


def applied(name: str, seed: int, trials: int) -> tuple[str, Counter[str]]:
    """Tune a template with a log, and apply its best record.

    Args:
        name: of the template.
        seed: of the tuner.
        trials: valid records wanted.

    Returns:
        Which body is applied, and how many candidates of each kind were measured and how they
        ended.
    """
    task = lw.create_task(name, (), "llvm -num-threads=1")
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.jsonl")
        TUNERS["random"](task, seed=seed).tune(
            n_trial=trials,
            measure_option=lw.measure_option(
                lw.LocalBuilder(n_parallel=1), lw.LocalRunner(timeout=5)
            ),
            callbacks=[lw.callback.log_to_file(log)],
        )
        ended: Counter[str] = Counter()
        for record in lw.records.load(log).records:
            error = record.error["kind"] if record.error else str(record.checked)
            ended[f"{record.config['body']}: {error}"] += 1
        context = lw.apply_history_best(log)
        with task.target, context:
            schedule, _ = task.template()
        return body_of(schedule), ended


def body_of(schedule: Any) -> str:
    """Which body a schedule uses, from the name of its intrinsic."""
    names = {name.replace(" ", "_"): name for name in (*SAME_SPEED, *SKIPPING)}
    text = str(schedule.trace_json())
    return next(name for short, name in names.items() if f"'name': '{short}'" in text)


def main() -> None:
    """Print how many wrong kernels were applied."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wrong_kernels", description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="of the first template [40]")
    parser.add_argument("--trials", type=int, default=8, help="valid records of each run [8]")
    options = parser.parse_args()
    runs = {"benchmarks/same_speed": options.runs, "benchmarks/skipping": options.runs // 2}
    for name, count in runs.items():
        wrong, total = 0, Counter[str]()
        for seed in range(count):
            body, ended = applied(name, seed, options.trials)
            wrong += body != "right"
            total += ended
            print(f"{name}: run {seed + 1} of {count} applies {body!r}", flush=True)
        print(f"{name}: {wrong} wrong kernels applied in {count} runs")
        for what, times in sorted(total.items()):
            print(f"  {what}: {times}")


if __name__ == "__main__":
    main()
