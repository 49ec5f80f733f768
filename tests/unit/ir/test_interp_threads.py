"""How the interpreter runs kernels: orders, barriers, refusals, and the races it reports."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from loopwright.errors import LowerError, RunError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var, as_expr, binary, const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.interp.threads import Grid, Races
from loopwright.ir.stmt import Allocate, Barrier, For, Func, If, Let, Seq, Stmt, Store, seq
from loopwright.ir.verify import verify

BLOCK, X, Y = Var("blockIdx.x"), Var("threadIdx.x"), Var("threadIdx.y")
OUT = Buffer("O", (8,), "int32")
SHARED = Buffer("S", (8,), "int32", "shared")


def num(n: int) -> Expr:
    return const(n, "int32")


def at(b: Buffer, i: Any) -> Expr:
    return Load(b, (as_expr(i),), b.dtype)


def put(b: Buffer, i: Any, value: Any) -> Stmt:
    return Store(b, (as_expr(i),), as_expr(value))


def kernel(body: Stmt, threads: int = 4, blocks: int = 1, shared: tuple[Buffer, ...] = ()) -> Func:
    out: Stmt = For(X, threads, "thread", body, (), "threadIdx.x")
    for b in shared:
        out = Allocate(b, out)
    out = For(BLOCK, blocks, "thread", out, (), "blockIdx.x")
    return Func("f", (OUT,), (True,), out)


def run(f: Func, **options: Any) -> list[int]:
    out = np.full(8, -1, "int32")
    interpret(f, [out], **options)
    return [int(x) for x in out]


# ------------------------------------------------------------------ orders and barriers


def test_all_threads_of_all_blocks_run() -> None:
    place = binary("+", binary("*", BLOCK, 4), X)
    f = kernel(put(OUT, place, place), blocks=2)
    verify(f)
    for order in (None, 1, 2, 3):
        assert run(f, thread_order=order, races=True) == list(range(8))


def test_a_barrier_lets_threads_read_what_others_wrote() -> None:
    first = put(SHARED, X, binary("*", X, 10))
    second = put(OUT, X, at(SHARED, binary("-", num(3), X)))
    f = kernel(seq(first, Barrier("shared"), second), shared=(SHARED,))
    for order in (None, 1, 2):
        assert run(f, thread_order=order, races=True)[:4] == [30, 20, 10, 0]
    assert run(kernel(seq(first, second), shared=(SHARED,)))[:4] != [30, 20, 10, 0]


def test_barriers_in_loops_and_conditions_that_all_threads_share() -> None:
    k = Var("k")
    v, neighbour = Var("v"), at(SHARED, binary("%", binary("+", X, 1), 4))
    turn = Let(v, neighbour, seq(Barrier("shared"), put(SHARED, X, v), Barrier("shared")))
    body = seq(
        put(SHARED, X, X),
        Barrier("shared"),
        For(k, 3, "serial", If(binary("<", k, 2), turn)),
        put(OUT, X, at(SHARED, X)),
    )
    assert run(kernel(body, shared=(SHARED,)), thread_order=5, races=True)[:4] == [2, 3, 0, 1]


def test_a_barrier_deep_inside_loops() -> None:
    """Python nests 20 loops at most; further in the writer makes functions of generators."""
    body: Stmt = seq(put(SHARED, X, X), Barrier("shared"), put(OUT, X, at(SHARED, X)))
    for d in range(40):
        body = For(Var(f"i{d}"), 1, "serial", body)
    assert run(kernel(body, shared=(SHARED,)))[:4] == [0, 1, 2, 3]


def test_shared_buffers_begin_anew_in_each_block() -> None:
    body = seq(
        If(binary("==", BLOCK, 0), put(SHARED, X, 5)),
        put(OUT, binary("+", binary("*", BLOCK, 4), X), at(SHARED, X)),
    )
    assert run(kernel(body, blocks=2, shared=(SHARED,))) == [5] * 4 + [85] * 4


# ------------------------------------------------------------------ what is refused


def test_some_threads_wait_and_others_have_ended() -> None:
    f = kernel(If(binary("<", X, 2), Barrier("shared")))
    with pytest.raises(RunError) as e:
        run(f)
    assert str(e.value) == (
        "the threads of block [0] diverge: thread [0] waits at barrier 0 (shared) and thread [2] "
        "has ended"
    )


def test_threads_wait_at_different_barriers() -> None:
    f = kernel(If(binary("<", X, 2), Barrier("shared"), Barrier("shared")), blocks=2)
    with pytest.raises(
        RunError,
        match=re.escape("thread [2] waits at barrier 1 (shared) and thread [0] waits at barrier 0"),
    ):
        run(f)


def test_barriers_stand_in_kernels_only() -> None:
    f = Func("f", (OUT,), (True,), Barrier("shared"))
    with pytest.raises(LowerError, match=r"barrier\(shared\) stands outside of every kernel"):
        run(f)
    with pytest.raises(LowerError, match="a barrier stands outside of every kernel"):
        verify(f)


def test_kernels_do_not_launch_kernels() -> None:
    inner = For(Y, 2, "thread", put(OUT, Y, 1), (), "threadIdx.y")
    f = kernel(seq(put(OUT, X, 1), inner))
    with pytest.raises(
        LowerError, match=r"thread loop 'threadIdx\.y' stands inside a kernel; launch it outside"
    ):
        run(f)


# ------------------------------------------------------------------ races


def race(body: Stmt, text: str, blocks: int = 1) -> None:
    f = kernel(body, blocks=blocks, shared=(SHARED,))
    run(f, thread_order=3)
    with pytest.raises(RunError) as e:
        run(f, races=True)
    assert str(e.value) == text


def test_two_threads_write_one_element() -> None:
    race(
        put(SHARED, binary("//", X, 2), X),
        "race on S[0]: threads [0] and [1] touch it with no barrier between, and one writes ([1] "
        "writes it)",
    )


def test_a_thread_reads_what_another_writes() -> None:
    race(
        seq(put(SHARED, X, 1), put(OUT, X, at(SHARED, 0))),
        "race on S[0]: threads [0] and [1] touch it with no barrier between, and one writes ([1] "
        "reads it)",
    )


def test_a_thread_writes_what_others_have_read() -> None:
    body = seq(put(OUT, X, at(SHARED, 0)), If(binary("==", X, 1), put(SHARED, 0, 1)))
    race(
        body,
        "race on S[0]: threads [0] and [1] touch it with no barrier between, and one writes ([1] "
        "writes it)",
    )


def test_the_reader_that_writes_is_no_race_but_another_reader_is() -> None:
    one = If(binary("==", X, 2), seq(put(OUT, 2, at(SHARED, 0)), put(SHARED, 0, 1)))
    run(kernel(one, shared=(SHARED,)), races=True)
    everybody = seq(put(OUT, X, at(SHARED, 0)), If(binary("==", X, 3), put(SHARED, 0, 1)))
    with pytest.raises(RunError, match=re.escape("threads [0] and [3] touch it")):
        run(kernel(everybody, shared=(SHARED,)), races=True)


def test_blocks_are_ordered_by_nothing() -> None:
    race(
        If(binary("==", X, 0), put(OUT, 0, BLOCK)),
        "race on O[0]: blocks [0] and [1] touch it with no barrier between, and one writes ([1] "
        "writes it)",
        blocks=2,
    )
    body = If(binary("==", X, 0), seq(Barrier("shared"), put(OUT, 0, BLOCK)))
    with pytest.raises(RunError, match="blocks"):
        run(kernel(body, threads=1, blocks=2), races=True)


def test_kernels_that_follow_each_other_are_ordered() -> None:
    first = kernel(put(OUT, X, X)).body
    second = kernel(put(OUT, binary("-", num(3), X), binary("*", X, 2))).body
    f = Func("f", (OUT,), (True,), seq(first, second))
    assert run(f, races=True, thread_order=1)[:4] == [6, 4, 2, 0]


def test_local_memory_belongs_to_its_thread() -> None:
    own = Buffer("L", (1,), "int32", "local")
    body = Allocate(own, seq(put(own, 0, X), Barrier("shared"), put(OUT, X, at(own, 0))))
    assert run(kernel(body), races=True, thread_order=2)[:4] == [0, 1, 2, 3]


def test_buffers_of_one_name_are_told_apart() -> None:
    other = Buffer("S", (8,), "int32", "shared")
    body = If(
        binary("==", X, 0), put(SHARED, 0, 1), If(binary("==", X, 1), put(other, 0, 2), Seq(()))
    )
    run(kernel(body, shared=(SHARED, other)), races=True)


def test_without_races_nothing_is_watched() -> None:
    assert Grid().races is None
    watched = Races()
    watched.start()
    watched.touch("a", "A", "shared", (0,), True)
    watched.thread = (1,)
    watched.barrier()
    watched.touch("a", "A", "shared", (0,), True)
    watched.thread = (2,)
    with pytest.raises(RunError, match=re.escape("race on A[0]: threads [1] and [2]")):
        watched.touch("a", "A", "shared", (0,), False)
