"""Builds that check every access: what an error says, and that right programs run as ever."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import RunError
from loopwright.lowering import lower
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.schedule import Schedule, create_schedule
from loopwright.testing.target_contract import runs_here

CHECKED = {"instrument_bound_checkers": True}
SPECS = ["llvm -num-threads=1", "llvm -num-threads=2", "interp", "c -num-threads=2"]
TARGETS = [t for t in SPECS if runs_here(t)]


def gather() -> tuple[Schedule, list[te.Tensor]]:
    a, p = te.placeholder((8,), name="A"), te.placeholder((4, 6), "int32", name="P")
    b = te.compute((4, 6), lambda i, j: a[p[i, j]] * 2.0, name="B")
    return create_schedule(b), [a, p, b]


def build(s: Schedule, args: list[te.Tensor], spec: str = TARGETS[0], **more: Any) -> Any:
    with lw.PassContext(config={"tir.instrument_bound_checkers": True}, **more):
        return lw.build(s, args, spec)


def arrays() -> list[np.ndarray[Any, Any]]:
    p = np.arange(24, dtype="int32").reshape(4, 6) % 8
    return [np.arange(8, dtype="float32"), p, np.zeros((4, 6), "float32")]


def mark(s: Schedule, b: te.Tensor, kind: str) -> None:
    """A nest of this kind; the parallel one is one of vectors, too."""
    i, j = b.op.axis
    if kind == "parallel":
        s[b].parallel(i)
        s[b].vectorize(j)
    elif kind != "serial":
        getattr(s[b], kind)(j)


def refill(outputs: list[np.ndarray[Any, Any]]) -> None:
    """Leave nothing of a call before, lest a call that writes nothing seems right."""
    for a in outputs:
        a.fill(np.nan)


KINDS = ("serial", "vectorize", "unroll", "parallel")


@pytest.mark.parametrize("spec", TARGETS)
def test_an_index_from_data(spec: str) -> None:
    """In a nest of each kind, all of them in one function: an index past either end, or any."""
    a = te.placeholder((8,), name="A")
    places = [te.placeholder((4, 6), "int32", name=f"P{kind}") for kind in KINDS]
    outs = [te.compute((4, 6), lambda i, j, p=p: a[p[i, j]] * 2.0, name="B") for p in places]
    s = create_schedule(outs)
    for b, kind in zip(outs, KINDS, strict=True):
        mark(s, b, kind)
    f = build(s, [a, *places, *outs], spec)
    x, p, out = arrays()
    for n, kind in enumerate(KINDS):
        at, got = [p.copy() for _ in KINDS], [out.copy() for _ in KINDS]
        for bad in (8, -1, 2**31 - 1, -(2**31)):
            at[n][2, 3] = bad
            text = rf"access outside A: index \[{bad}\], shape \[8\] \(load at i = 2, j = 3\)"
            for _ in range(2):  # the record is free again after each
                refill(got)
                with pytest.raises(RunError) as error:
                    f(x, *at, *got)
                assert re.search(text, f"{error.value}"), f"{kind}, {bad}: {error.value}"
            at[n][2, 3] = 0
            refill(got)
            f(x, *at, *got)
            for b, i in zip(got, at, strict=True):
                np.testing.assert_array_equal(b, x[i] * 2, err_msg=f"{kind}, {bad}")


def test_the_message_names_the_function() -> None:
    f = build(*gather())
    a, p, out = arrays()
    p[0, 0] = 99
    with pytest.raises(RunError, match=r"^main: access outside A"):
        f(a, p, out)


def test_many_threads_fail_at_once() -> None:
    s, args = gather()
    mark(s, args[2], "parallel")
    f = build(s, args, "llvm -num-threads=2")
    a, p, out = arrays()
    p[:] = 77
    for _ in range(50):
        with pytest.raises(RunError, match=r"index \[77\], shape \[8\] \(load at i = [0-3], j = 0"):
            f(a, p, out)


def test_calls_that_fail_at_once() -> None:
    f = build(*gather())
    a, p, _ = arrays()
    p[:] = 77
    said: list[str] = []

    def call() -> None:
        for _ in range(50):
            try:
                f(a, p, np.zeros((4, 6), "float32"))
            except RunError as error:
                said.append(str(error))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(said) == 150
    assert all("access outside A" in x or "a check failed" in x for x in said)


@pytest.mark.parametrize("spec", TARGETS)
def test_a_guard_guards_its_checks(spec: str) -> None:
    """Padding: the element outside is not read, so it is no error; an index out of reach is."""
    a, p = te.placeholder((8,), name="A"), te.placeholder((10,), "int32", name="P")

    def body(i: Any) -> Any:
        inside = te.all(i >= 1, i < 9)
        return te.if_then_else(inside, a[p[i]], 0.0)

    b = te.compute((10,), body, name="B")
    s = create_schedule(b)
    s[b].vectorize(b.op.axis[0])
    f = build(s, [a, p, b], spec)
    x, at, out = np.arange(8, dtype="float32"), np.full(10, 99, "int32"), np.ones(10, "float32")
    at[1:9] = np.arange(8)
    f(x, at, out)
    np.testing.assert_array_equal(out, [0, *range(8), 0])
    at[4] = 8
    with pytest.raises(RunError, match=r"index \[8\], shape \[8\] \(load at i = 4\)"):
        f(x, at, out)


def test_indices_of_indices_are_checked_first() -> None:
    a, p = te.placeholder((8,), name="A"), te.placeholder((4,), "int32", name="P")
    q = te.placeholder((4,), "int64", name="Q")
    b = te.compute((4,), lambda i: a[p[q[i]]], name="B")
    f = build(create_schedule(b), [a, p, q, b])
    x, out = np.zeros(8, "float32"), np.zeros(4, "float32")
    with pytest.raises(RunError, match=r"access outside P: index \[1099511627776\], shape \[4\]"):
        f(x, np.zeros(4, "int32"), np.array([0, 1 << 40, 0, 0]), out)


def test_a_store_that_a_broken_pass_moves() -> None:
    """Indices of a schedule are right by construction; a user's pass can spoil them."""
    from loopwright.ir.expr import binary
    from loopwright.ir.stmt import Func, Store

    def shifted(f: Func) -> Func:
        def go(n: Any) -> Any:
            if isinstance(n, Store):
                return Store(n.buffer, tuple(binary("+", i, 1) for i in n.indices), n.value)
            return n.map_children(go)

        return f.with_body(go(f.body))

    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i], name="B")
    with lw.PassContext(config={**CHECKED, "add_lower_pass": [(2, shifted)]}):
        f = lw.build(create_schedule(b), [a, b])
    with pytest.raises(
        RunError, match=r"access outside B: index \[8\], shape \[8\] \(store at i = 7"
    ):
        f(np.zeros(8, "float32"), np.zeros(8, "float32"))


def test_nothing_is_checked_unless_asked(golden: Any) -> None:
    s, args = gather()
    assert "check" not in str(lower(s, args))
    assert "lw_checks" not in lw.build(s, args).get_source("ll")
    with lw.PassContext(config=CHECKED):
        assert "InstrumentBoundCheckers" in lw.transform.pass_order()[3]
        golden(str(lower(s, args)))
    with lw.PassContext(config=CHECKED, disabled_pass=["InstrumentBoundCheckers"]):
        assert "check" not in str(lower(s, args))
    with lw.PassContext(0, required_pass=["InstrumentBoundCheckers"]):
        assert "check" in str(lower(s, args))


def test_a_saved_program_keeps_its_messages(tmp_path: Any) -> None:
    f = build(*gather())
    f.artifact.save(tmp_path / "f.o")
    again = lw.runtime.Module(Artifact.load(tmp_path / "f.o"))
    a, p, out = arrays()
    p[3, 5] = -7
    with pytest.raises(RunError, match=r"index \[-7\], shape \[8\] \(load at i = 3, j = 5\)"):
        again(a, p, out)


def test_timing_reports_the_error_too() -> None:
    f = build(*gather())
    a, p, out = arrays()
    p[1, 1] = 1000
    with pytest.raises(RunError, match=r"access outside A: index \[1000\]"):
        f.time_evaluator(f.entry_name, lw.cpu(0), number=1, repeat=1)(a, p, out)
