"""Programs that would become too much code are refused before anything is written out."""

from __future__ import annotations

import pytest

from loopwright import te
from loopwright.driver import build_func
from loopwright.errors import LowerError, ScheduleError, UsageError
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var
from loopwright.ir.stmt import For, Func, Store
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.schedule import Schedule
from loopwright.schedule.bounds.inlining import MAX_INLINED


def plus_one(n: int) -> tuple[Schedule, list[te.Tensor]]:
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    return te.create_schedule(B.op), [A, B]


def refusal(s: Schedule, args: list[te.Tensor]) -> str:
    with pytest.raises((LowerError, ScheduleError)) as error:
        lower(s, args)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("explicit", [True, False])
def test_a_pragma_cannot_unroll_a_milliard_times(explicit: bool) -> None:
    s, args = plus_one(10**9)
    (i,) = s[args[1]].op.axis
    s[args[1]].pragma(i, "auto_unroll_max_step", 10**12)
    s[args[1]].pragma(i, "unroll_explicit", explicit)
    text = refusal(s, args)
    assert "would be written out to more than 262144 nodes" in text
    assert "the unrolled loop 'i' of 1000000000" in text
    assert "PassContext(config={'code_limit': ...})" in text


def test_neither_can_the_context() -> None:
    s, args = plus_one(10**9)
    with PassContext(config={"unroll_max_step": 10**12}):
        assert "the unrolled loop 'i' of 1000000000" in refusal(s, args)


def test_nor_virtual_threads() -> None:
    s, args = plus_one(10**9)
    s[args[1]].bind(s[args[1]].op.axis[0], "vthread")
    assert "the unrolled loop 'i' of 1000000000" in refusal(s, args)


def test_copies_of_nested_loops_are_multiplied() -> None:
    A = te.placeholder((64, 64, 16), name="A")
    B = te.compute((64, 64, 16), lambda i, j, k: A[i, j, k] + 1.0, name="B")
    s = te.create_schedule(B.op)
    i, _, k = s[B].op.axis
    s[B].vectorize(k)
    s[B].pragma(i, "auto_unroll_max_step", 4096)
    # 64 * 64 copies of the loop over k, with a store in it, are 12 nodes each.
    with PassContext(config={"code_limit": 64 * 64 * 13}):
        lower(s, [A, B])
    with PassContext(config={"code_limit": 64 * 64 * 12}):
        assert "by the unrolled loop 'i' of 64" in refusal(s, [A, B])


def test_the_limit_is_a_setting() -> None:
    s, args = plus_one(1000)
    s[args[1]].unroll(s[args[1]].op.axis[0])
    lower(s, args)
    with PassContext(config={"code_limit": 100}) as context:
        assert "more than 100 nodes" in refusal(s, args)
        assert PassContext.from_json(context.to_json()).config == {"code_limit": 100}
    with pytest.raises(UsageError, match="code_limit"):
        PassContext(config={"code_limit": -1})


@pytest.mark.parametrize("kind", ["unrolled", "vectorized"])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_functions_that_nobody_lowered(kind: str, target: str) -> None:
    b, i = Buffer("B", (10**9,), "float32"), Var("i")
    value = te.const(1.0)
    f = Func("f", (b,), (True,), For(i, 10**9, kind, Store(b, (i,), value)))  # type: ignore[arg-type]
    with pytest.raises(LowerError, match=f"by the {kind} loop 'i' of 1000000000"):
        build_func(f, target)


def test_a_buffer_that_no_machine_has() -> None:
    A = te.placeholder((64, 64), name="A")
    B = te.compute((64, 64), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((64, 64), lambda i, j: B[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    s[B].storage_align(B.op.axis[0], 10**13, 0)
    assert "the buffer 'B' of 'main' would take 2560000000000000 bytes" in refusal(s, [A, C])


def test_inlining_on_threads_cannot_double_without_end() -> None:
    # The index is made of the index twice; a stage at root would run on no thread.
    A = te.placeholder((8,), name="A")
    stages = [A]
    for k in range(40):
        x = stages[-1]
        stages.append(te.compute((8,), lambda i: x[(i + i * 3) % 8], name=f"B{k}"))  # noqa: B023
    s = te.create_schedule(stages[-1].op)
    for b in stages[1:-1]:
        s[b].compute_inline()
    s[stages[-1]].bind(stages[-1].op.axis[0], te.thread_axis("threadIdx.x"))
    text = refusal(s, [A, stages[-1]])
    assert text.startswith("compute_inline (step ")
    assert f"would have more than {MAX_INLINED} nodes" in text
