"""Equality by structure: renaming changes nothing, anything else does."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from fuzzing.fuzz import example
from loopwright import te
from loopwright.errors import UsageError
from loopwright.ir import structural_equal, structural_hash
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Const, Expr, Var, as_expr
from loopwright.ir.node import Node
from loopwright.ir.stmt import (
    Allocate,
    CallPacked,
    For,
    Func,
    Let,
    Seq,
    SplitFunc,
    Stmt,
    Store,
    seq,
)
from loopwright.lowering import lower_ids
from loopwright.schedule.schedule import replay
from loopwright.te.dag import Dag


def chain(names: str = "ABC", factor: float = 2.0, size: int = 8) -> Func:
    """Two stages with a loop each, under other names of everything."""
    a, b, c = names
    A = te.placeholder((size,), name=a)
    B = te.compute((size,), lambda x: A[x] * factor, name=b)
    C = te.compute((size,), lambda x: B[x] + A[x], name=c)
    s = te.create_schedule(C.op)
    s[B].split(B.op.axis[0], factor=4)
    return lw.lower(s, [A, C])


def test_names_do_not_count() -> None:
    one, two = chain(), chain("XYZ")
    assert str(one) != str(two)
    assert structural_equal(one, two)
    assert structural_hash(one) == structural_hash(two)


@pytest.mark.parametrize("other", [chain(factor=3.0), chain(size=16)])
def test_numbers_and_extents_count(other: Func) -> None:
    assert not structural_equal(chain(), other)
    assert structural_hash(chain()) != structural_hash(other)


def test_steps_count() -> None:
    A = te.placeholder((8, 8), name="A")
    B = te.compute((8, 8), lambda i, j: A[i, j] + 1, name="B")
    s = te.create_schedule(B.op)
    plain = lw.lower(s, [A, B])
    s[B].reorder(*reversed(B.op.axis))
    swapped = lw.lower(s, [A, B])
    assert not structural_equal(plain, swapped)
    s[B].parallel(B.op.axis[1])
    assert not structural_equal(swapped, lw.lower(s, [A, B]))


def loop(body: Any, name: str = "i", extent: int = 4) -> For:
    v = Var(name)
    return For(v, extent, "serial", body(v))


def test_free_variables_and_buffers_are_themselves_unless_mapped() -> None:
    x, y, z = Var("x"), Var("x"), Var("z", "int64")
    assert structural_equal(x * 2 + x, x * 2 + x)
    assert not structural_equal(x * 2 + x, y * 2 + y)
    assert structural_equal(x * 2 + x, y * 2 + y, map_free_vars=True)
    assert not structural_equal(x * 2 + x, x * 2 + y, map_free_vars=True)
    assert not structural_equal(x + y, x + x, map_free_vars=True)
    assert not structural_equal(x, z, map_free_vars=True)
    assert structural_hash(x + 1, True) == structural_hash(y + 1, True)
    a, b, c = (Buffer("a", (4,), d) for d in ("float32", "float32", "int8"))
    at = (as_expr(0),)
    stores: list[Stmt] = [Store(t, at, as_expr(0, t.dtype)) for t in (a, b, c)]
    assert not structural_equal(stores[0], stores[1])
    assert structural_equal(stores[0], stores[1], map_free_vars=True)
    assert not structural_equal(stores[0], stores[2], map_free_vars=True)


def test_a_definition_ends_with_its_scope() -> None:
    """Behind its loop a variable is free; it does not become that of another loop."""
    b, outer = Buffer("b", (4,), "int32"), Var("i")

    def put(v: Expr) -> Stmt:
        return Store(b, (v,), as_expr(0))

    one = For(outer, 4, "serial", put(outer))
    assert structural_equal(seq(one, put(outer)), seq(loop(put), put(outer)))
    other = Var("i")
    assert not structural_equal(seq(one, put(outer)), seq(loop(put), put(other)))


def test_which_of_two_loops_is_meant_counts() -> None:
    b = Buffer("b", (4, 4), "int32")
    one = loop(lambda i: loop(lambda j: Store(b, (i, j), as_expr(0))))
    two = loop(lambda i: loop(lambda j: Store(b, (i, j), as_expr(0)), "q"), "p")
    swapped = loop(lambda i: loop(lambda j: Store(b, (j, i), as_expr(0))))
    assert structural_equal(one, two)
    assert not structural_equal(one, swapped)


def test_lets_and_allocations_are_definitions() -> None:
    out = Buffer("out", (1,), "int32")

    def program(name: str, scale: int) -> Stmt:
        t, v = Buffer(name, (1,), "int32", "local"), Var(name)
        at = (as_expr(0),)
        body = Store(out, at, Load(t, at, "int32") + v)
        return Allocate(t, Let(v, as_expr(scale), Seq((Store(t, at, v), body))))

    assert structural_equal(program("a", 1), program("b", 1))
    assert not structural_equal(program("a", 1), program("a", 2))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (Const(1, "int32"), Const(1, "int64")),
        (Const(0.0, "float32"), Const(-0.0, "float32")),
        (Const(True, "bool"), Const(1, "int32")),
        (CallPacked("a", ()), CallPacked("b", ())),
        (CallPacked("a", ("1",)), CallPacked("a", (as_expr(1),))),
        (CallPacked("a", ("x", "y")), CallPacked("a", ("x y",))),
        (Seq(()), Seq((Seq(()),))),
    ],
    ids=str,
)
def test_what_differs_in_kind(a: Any, b: Any) -> None:
    assert not structural_equal(a, b)
    assert structural_equal(a, a)
    assert structural_hash(a) != structural_hash(b)


def test_nan_is_equal_to_itself() -> None:
    assert structural_equal(Const(float("nan"), "float32"), Const(float("nan"), "float32"))


def matmul(names: str = "ABkC", reducer: Any = te.sum) -> te.Tensor:
    A = te.placeholder((4, 8), name=names[0])
    B = te.placeholder((8, 4), name=names[1])
    k = te.reduce_axis((0, 8), name=names[2])
    return te.compute((4, 4), lambda i, j: reducer(A[i, k] * B[k, j], axis=k), name=names[3])


def test_dags_are_equal_whatever_their_names() -> None:
    one, two, other = (
        te.Dag.from_ops([t.op])[0] for t in (matmul(), matmul("XYrZ"), matmul(reducer=te.max))
    )
    assert structural_equal(one, two)
    assert structural_hash(one) == structural_hash(two)
    assert not structural_equal(one, other)
    assert one.hash == two.hash
    assert one.hash != other.hash


def test_reductions_define_their_axes_and_combiners() -> None:
    def body(name: str, op: Any) -> Expr:
        A = te.placeholder((8,), name="A")
        k = te.reduce_axis((0, 8), name=name)
        dag, _ = te.Dag.from_ops([te.compute((1,), lambda i: op(A[k], axis=k), name="B").op])
        found = dag.ops[1].body
        assert found is not None
        return found

    assert structural_equal(body("k", te.sum), body("r", te.sum))
    assert not structural_equal(body("k", te.sum), body("k", te.max))


def test_size_variables_are_definitions_of_a_function() -> None:
    def symbolic(name: str) -> Func:
        n = te.size_var(name)
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i] + n, name="B")
        return lw.lower(te.create_schedule(B.op), [A, B])

    assert structural_equal(symbolic("n"), symbolic("m"))
    assert not structural_equal(symbolic("n"), chain())


HASH = """
from loopwright import te, ir
import loopwright as lw
A = te.placeholder((8,), name="{0}")
B = te.compute((8,), lambda i: A[i] * 2.0, name="{0}{0}")
print(ir.structural_hash(lw.lower(te.create_schedule(B.op), [A, B])))
"""


def test_the_hash_is_the_same_in_every_process() -> None:
    run = [
        subprocess.run([sys.executable, "-c", HASH.format(n)], capture_output=True, check=True)
        for n in ("a", "b")
    ]
    assert run[0].stdout == run[1].stdout != b""


def renamed(f: Func) -> Func:
    """The function with another object, of another name, for each variable and buffer."""
    variables: dict[Var, Var] = {}
    buffers: dict[Buffer, Buffer] = {}

    def buffer(b: Buffer) -> Buffer:
        if b not in buffers:
            shape = tuple(n if isinstance(n, int) else go(n) for n in b.shape)
            buffers[b] = Buffer(f"other_{b.name}", shape, b.dtype, b.scope, b.strides)
        return buffers[b]

    def go(x: Any) -> Any:
        if isinstance(x, Var):
            return variables.setdefault(x, Var(f"other_{x.name}", x.dtype))
        if isinstance(x, Buffer):
            return buffer(x)
        if isinstance(x, tuple):
            return tuple(map(go, x))
        return type(x)(*(go(getattr(x, n)) for n in x._fields)) if isinstance(x, Node) else x

    again: Func = go(f)
    return again


def constants(f: Func) -> list[Const]:
    """Literals of a function, in order."""
    found: list[Const] = []

    def visit(n: Node) -> None:
        if isinstance(n, Const):
            found.append(n)
        for c in n.children():
            visit(c)

    visit(f.body)
    return found


def with_other_constant(f: Func, which: int) -> Func:
    """The function with one literal more or less by one."""
    left = [which]

    def go(n: Any) -> Any:
        if isinstance(n, Const):
            left[0] -= 1
            changed = not n.value if n.dtype == "bool" else n.value + (1 if n.value < 1 else -1)
            return Const(changed, n.dtype) if left[0] == -1 else n
        return n.map_children(go)

    return f.with_body(go(f.body))


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    """Renamed they are equal, with another number somewhere they are not."""
    case, _, _ = example(seed)
    try:
        f = lower_ids(replay(Dag.from_json(case.dag), case.trace), case.arg_ids, "main")
    except lw.LoopwrightError:
        pytest.skip("the schedule is refused")
    if isinstance(f, SplitFunc):  # of which the whole is looked at, as one function
        f = Func(f.name, f.params, f.outputs, f.body, f.sizes)
    again = renamed(f)
    assert again != f
    assert structural_equal(f, again)
    assert structural_hash(f) == structural_hash(again)
    found = constants(f)
    for which in range(0, len(found), 1 + len(found) // 5):
        other = with_other_constant(again, which)
        assert not structural_equal(f, other)
        assert structural_hash(f) != structural_hash(other)


def test_what_has_no_structure() -> None:
    with pytest.raises(UsageError, match="a list has no structure"):
        structural_equal([1], [1])
    with pytest.raises(UsageError, match="a ndarray has no structure"):
        structural_hash(np.zeros(1))
