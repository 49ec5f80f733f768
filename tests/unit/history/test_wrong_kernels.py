"""No wrong kernel is applied: a template that offers them is tuned, and its best record applied.

The template computes a matrix product in tiles of an intrinsic whose body is chosen by a knob. One
body is right; the others are as fast or faster and wrong, each in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import loopwright as lw
from loopwright import te
from loopwright.tuner import GridSearchTuner

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


BODIES: dict[str, Body] = {
    "drops a term": _drops_a_term,
    "nearly": _nearly,
    "accumulates": _accumulates,
    "reads behind": _reads_behind,
    "works on NaN": _works_on_nan,
    "probes": _probes,
    "right": _right,  # the last: what is slower than the best is not always checked
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
    # Approximate: what its body computes is not proved, so that the check has to find out.
    return te.decl_tensor_intrin(c, write, name.replace(" ", "_"), {b: rows}, approximate=True)


@lw.template("test/wrong_kernels", reference=lambda a, b: a @ b)
def product() -> tuple[Any, list[Any]]:
    a, b = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), name="k")
    c = te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    cfg = lw.get_config()
    cfg.define_knob("body", list(BODIES))
    i, j = s[c].op.axis
    jo, ji = s[c].split(j, factor=LANES)
    io, ii = s[c].split(i, factor=4)
    s[c].reorder(io, jo, ii, ji, k)
    name = cfg["body"].val
    s[c].tensorize(ji, _intrinsic(name, BODIES[name]))
    return s, [a, b, c]


def test_no_wrong_kernel_is_applied(tmp_path: Path) -> None:
    task = lw.create_task("test/wrong_kernels", (), "llvm -num-threads=1")
    assert len(task.config_space) == len(BODIES)
    log = tmp_path / "log.jsonl"
    GridSearchTuner(task).tune(
        n_trial=len(BODIES),
        measure_option=lw.measure_option(lw.LocalBuilder(n_parallel=1), lw.LocalRunner(timeout=5)),
        callbacks=[lw.callback.log_to_file(log)],
    )
    trials = {r.config["body"]: r for r in lw.records.load(log) if not r.phase}
    assert set(trials) == set(BODIES)
    kinds = {name: r.error["kind"] if r.error else r.checked.value for name, r in trials.items()}
    assert kinds == {name: "yes" if name == "right" else "WRONG_ANSWER" for name in BODIES}
    with task.target, lw.apply_history_best(log):
        schedule, _ = task.template()
    assert "'name': 'right'" in str(schedule.trace_json())
