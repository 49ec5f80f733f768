"""What is fetched in shares: golden nests, and lines that are compared with those read next."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import te
from loopwright.ir.buffer import Load
from loopwright.ir.expr import Binary, Cast, Const, Expr, Var
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Prefetch, Seq, Stmt, Store
from loopwright.ir.visitor import nodes
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.schedule import Schedule, create_schedule
from tests.covering import examples

#: Elements of a line, of float32; the name of the packed copy.
LINE, PACKED = 16, "B.global"
#: Values of loops and definitions.
Env = dict[Var, int]
#: What touches a buffer, and where: at which element, counted from the first one.
Event = tuple[str, str, int]


def product(
    m: int, n: int, terms: int, tile: tuple[int, int], task: int = 1, offset: int | None = 1
) -> tuple[Schedule, list[te.Tensor]]:
    """``A @ B`` in panels of a packed B, one after the other, with some tiles of rows in a task;
    the panel ``offset`` later is fetched, None: without the primitive."""
    a = te.placeholder((m, terms), name="A")
    b = te.placeholder((terms, n), name="B")
    k = te.reduce_axis((0, terms), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    acc = s.cache_write(c, "local")
    rows, width = tile
    i, j = s[c].op.axis
    jo, ji = s[c].split(j, factor=width)
    io, ii = s[c].split(i, factor=rows)
    io, im = s[c].split(io, factor=task)
    s[c].reorder(jo, io, im, ii, ji)
    loop = s[c].fuse(jo, io)
    s[acc].compute_at(s[c], im)
    packed = s.cache_read(b, "global", [acc])
    s[packed].transform_layout(lambda r, x: (x // width, r, x % width))
    (r,) = s[acc].op.reduce_axis
    s[acc].reorder(r, *s[acc].op.axis)
    if offset is not None:
        s[acc].prefetch_next(packed, r, c, loop, offset)
    return s, [a, b, c]


def checked(s: Schedule, args: list[te.Tensor]) -> Func:
    """The program, which computes the product still."""
    with PassContext(3, config={"verify": True}):
        f = lower(s, args)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, t.shape).astype("float32") for t in args[:2])
    c = np.full(args[2].shape, np.nan, "float32")
    interpret(f, [a, b, c])
    np.testing.assert_array_equal(c, a @ b)
    return f


def test_the_next_panel_while_rows_of_one_are_computed(golden: Any) -> None:
    s, args = product(8, 32, 24, (2, 16))
    golden(str(checked(s, args)))


def test_a_loop_of_the_stage_itself(golden: Any) -> None:
    a = te.placeholder((6, 64), name="A")
    b = te.compute((6, 64), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    jo, ji = s[b].split(b.op.axis[1], factor=8)
    s[b].vectorize(ji)
    s[b].prefetch_next(a, jo, b, b.op.axis[0], 2)
    golden(str(lower(s, [a, b])))


def test_what_does_not_move_with_the_loop_is_not_fetched() -> None:
    a = te.placeholder((4, 16), name="A")
    v = te.placeholder((16,), name="V")
    b = te.compute((4, 16), lambda i, j: a[i, j] * v[j], name="B")
    s = create_schedule(b)
    s[b].prefetch_next(v, b.op.axis[1], b, b.op.axis[0])
    assert "prefetch" not in str(lower(s, [a, v, b]))


def test_nothing_is_fetched_where_parts_have_no_constant_extent() -> None:
    """How long a panel is read follows from the rows, which are known only when it runs."""
    n = te.size_var("n")
    a, b = te.placeholder((n, 24), name="A"), te.placeholder((24, 32), name="B")
    k = te.reduce_axis((0, 24), name="k")
    c = te.compute((n, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c)
    jo, ji = s[c].split(c.op.axis[1], factor=16)
    s[c].reorder(jo, c.op.axis[0], k, ji)
    s[c].prefetch_next(b, k, c, s[c].fuse(jo, c.op.axis[0]))
    assert "prefetch" not in str(lower(s, [a, b, c]))


def test_a_dimension_read_up_to_a_size_is_fetched_whole() -> None:
    """Seed 770093 of the fuzz: the shape of the tensor is known, and not what is read of it."""
    n = te.size_var("n")
    a = te.placeholder((2, 3, 8), name="A")
    b = te.compute((2, 3, n), lambda i, j, k: te.if_then_else(k < 8, a[i, j, k], 1.0), name="B")
    s = create_schedule(b)
    s[b].prefetch_next(a, b.op.axis[1], b, b.op.axis[0])
    f = lower(s, [a, b])
    assert "prefetch" in str(f)
    rows, out = np.arange(48, dtype="float32").reshape(2, 3, 8), np.zeros((2, 3, 11), "float32")
    interpret(f, [rows, out], {"n": 11})
    want = np.pad(rows, ((0, 0), (0, 0), (0, 3)), constant_values=1)
    np.testing.assert_array_equal(out, want)


def test_nothing_is_fetched_with_an_offset_of_nothing() -> None:
    fetching, plain, none = (
        str(lower(*product(8, 32, 24, (2, 16), offset=offset))) for offset in (1, None, 0)
    )
    assert plain == none
    assert "prefetch" not in plain
    assert "prefetch" in fetching


# ---------------------------------------------------------------- lines


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "<": operator.lt,
}


def events(f: Func) -> Iterator[Event]:
    """What a program touches, in order, by loops that are run one iteration at a time."""
    yield from _events(f.body, {})


def _events(s: Stmt, env: Env) -> Iterator[Event]:
    match s:
        case For(var=var, extent=n, body=body):
            for i in range(_value(n, env)):
                yield from _events(body, {**env, var: i})
        case Let(var=var, value=value, body=body):
            loads = list(_loads(value, env))
            yield from loads
            # An element that is loaded once is no index.
            yield from _events(body, {**env, var: 0 if loads else _value(value, env)})
        case Seq(stmts=stmts):
            for one in stmts:
                yield from _events(one, env)
        case Allocate(body=body):
            yield from _events(body, env)
        case Prefetch(buffer=b, indices=at):
            yield "prefetch", b.name, _element(b.extents, at, env)
        case Store(value=value):
            yield from _loads(value, env)
        case If(cond=cond, then=then):
            if _value(cond, env):
                yield from _events(then, env)
        case _:
            raise AssertionError(f"a statement that this program has not: {type(s).__name__}")


def _loads(e: Expr, env: Env) -> Iterator[Event]:
    for x in nodes(e):
        if isinstance(x, Load):
            yield "load", x.buffer.name, _element(x.buffer.extents, x.indices, env)


def _element(shape: tuple[int, ...], at: tuple[Expr, ...], env: Env) -> int:
    """The number of an element, which may lie outside."""
    element = 0
    for n, index in zip(shape, at, strict=True):
        element = element * n + _value(index, env)
    return element


def _value(e: Expr | int, env: Env) -> int:
    match e:
        case int():
            return e
        case Const(value=v):
            return int(v)
        case Var():
            return env[e]
        case Cast(a=a):
            return _value(a, env)
        case Binary(op=op, a=a, b=b):
            return int(_OPERATIONS[op](_value(a, env), _value(b, env)))
    raise AssertionError(f"an expression that this program has not: {e!r}")


def fetched(f: Func, size: int) -> dict[int, Counter[int]]:
    """For each panel, what is fetched of the packed copy while it is read, as elements of the panel
    after it."""
    found: dict[int, Counter[int]] = {}
    waiting: list[int] = []
    for what, buffer, element in events(f):
        if what == "prefetch":
            waiting.append(element)
        elif buffer == PACKED:
            # What is fetched stands in front of what is read in the same iteration.
            panel = element // size
            counter = found.setdefault(panel, Counter())
            counter.update(e - (panel + 1) * size for e in waiting)
            waiting = []
    return found


Shape = tuple[int, int, int, tuple[int, int], int]


def shapes(most: int, panels: int, terms: int) -> st.SearchStrategy[Shape]:
    """Tasks or rows, at most ``most``; panels; terms; a tile; and row tiles of a task."""
    return st.tuples(
        st.integers(1, most),
        st.integers(2, panels),
        st.integers(1, terms),
        st.tuples(st.integers(1, 3), st.sampled_from([4, 16, 24])),
        st.integers(1, 3),
    )


def lines_are_fetched_evenly(shape: Shape) -> None:
    """While a panel is read, each line of the next one is fetched, and none much more often than
    another. Where there are more lines than iterations, some beyond the panel may be, too."""
    tasks, panels, terms, tile, task = shape
    rows, width = tile
    s, args = product(tasks * task * rows, panels * width, terms, tile, task)
    size = terms * width
    lines, iterations = -(-size // LINE), tasks * task * terms
    found = fetched(checked(s, args), size)
    assert set(found) == set(range(panels))
    for counter in found.values():
        assert all(element % LINE == 0 for element in counter)
        counts = [counter[LINE * n] for n in range(lines)]
        assert min(counts) >= 1
        assert max(counts) - min(counts) <= 1
        beyond = sum(counter.values()) - sum(counts)
        assert beyond < iterations if iterations < lines else beyond == 0


@settings(max_examples=examples(10))
@given(shapes(3, 3, 24))
def test_all_lines_of_the_next_panel_are_fetched_evenly(shape: Shape) -> None:
    lines_are_fetched_evenly(shape)


@pytest.mark.slow
@given(shapes(4, 4, 40))
def test_all_lines_of_larger_panels_are_fetched_evenly(shape: Shape) -> None:
    lines_are_fetched_evenly(shape)


def nothing_else_is_fetched(shape: Shape) -> None:
    m, panels, terms, tile, task = shape
    s, args = product(m, panels * tile[1], terms, tile, task)
    size = terms * tile[1]
    iterations = -(-m // (tile[0] * task)) * task * terms
    lines = -(-size // LINE)
    most = max(lines, -(-lines // iterations) * iterations)
    for counter in fetched(checked(s, args), size).values():
        assert counter.keys() <= {LINE * n for n in range(most)}


@settings(max_examples=examples(10))
@given(shapes(13, 3, 24))
def test_with_rows_left_over_nothing_else_is_fetched(shape: Shape) -> None:
    nothing_else_is_fetched(shape)


@pytest.mark.slow
@given(shapes(13, 4, 40))
def test_with_rows_left_over_nothing_else_of_larger_panels_is_fetched(shape: Shape) -> None:
    nothing_else_is_fetched(shape)
