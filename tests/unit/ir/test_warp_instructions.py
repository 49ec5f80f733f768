"""Instructions of a warp, lane by lane: layouts of PTX, what they compute, lanes that stay away."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy learns bfloat16 from it)
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import LowerError, RunError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var, as_expr, binary
from loopwright.ir.instructions import (
    FRAGMENT_A,
    FRAGMENT_A_TF32,
    FRAGMENT_B,
    FRAGMENT_B_TF32,
    FRAGMENT_B_TF32_TRANSPOSED,
    FRAGMENT_B_TRANSPOSED,
    FRAGMENT_C,
    INSTRUCTIONS,
    Fragment,
    round_tf32,
)
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Allocate, Barrier, For, Func, If, IntrinsicCall, Stmt, Store, seq
from loopwright.ir.verify import verify
from tests.unit.lowering.tensor_core_programs import nearest_tf32

X, Y = Var("threadIdx.x"), Var("threadIdx.y")
Array = np.ndarray[Any, Any]

# The tables of "Parallel Thread Execution ISA", section "Matrix fragments for mma.m16n8k16 with
# floating point type": element i of lane's fragment, as row and column.


def a_of_ptx(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 if i in (0, 1, 4, 5) else lane // 4 + 8
    return row, lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)


def b_of_ptx(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane // 4


def b_nk_of_ptx(lane: int, i: int) -> tuple[int, int]:
    return b_of_ptx(lane, i)[::-1]


def c_of_ptx(lane: int, i: int) -> tuple[int, int]:
    return (lane // 4 if i < 2 else lane // 4 + 8), lane % 4 * 2 + (i & 1)


# Section "Matrix fragments for mma.m16n8k8", .tf32.


def a_of_tf32(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i in (1, 3) else 0), lane % 4 + (4 if i in (2, 3) else 0)


def b_of_tf32(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + (4 if i == 1 else 0), lane // 4


def b_nk_of_tf32(lane: int, i: int) -> tuple[int, int]:
    return b_of_tf32(lane, i)[::-1]


TABLES = [
    (FRAGMENT_A, a_of_ptx, (16, 16)),
    (FRAGMENT_B, b_of_ptx, (16, 8)),
    (FRAGMENT_B_TRANSPOSED, b_nk_of_ptx, (8, 16)),
    (FRAGMENT_C, c_of_ptx, (16, 8)),
    (FRAGMENT_A_TF32, a_of_tf32, (16, 8)),
    (FRAGMENT_B_TF32, b_of_tf32, (8, 8)),
    (FRAGMENT_B_TF32_TRANSPOSED, b_nk_of_tf32, (8, 8)),
]


def place(fragment: Fragment, at: Sequence[int]) -> tuple[int, int]:
    """The lane that holds an element, and in which register."""
    (w, x, _), (v, y, n) = fragment.lane
    lane = at[w] // x % 8 * n + at[v] // y % n
    register = 0
    for which, div, mod in fragment.registers:
        register = register * mod + at[which] // div % mod
    return lane, register


@pytest.mark.parametrize(("fragment", "of_ptx", "tile"), TABLES)
def test_layouts_are_the_tables_of_ptx(fragment: Fragment, of_ptx: Any, tile: Any) -> None:
    registers = tile[0] * tile[1] // 32
    want = {of_ptx(lane, i): (lane, i) for lane in range(32) for i in range(registers)}
    assert len(want) == tile[0] * tile[1]
    for at, where in want.items():
        assert place(fragment, at) == where


# ------------------------------------------------------------------ what they compute


def spread(b: Buffer, fragment: Fragment) -> Stmt:
    """A lane takes its registers of a global tile: ``P[lane, register]`` are given flat."""
    count = int(np.prod([n for _, _, n in fragment.registers]))
    r = Var("r")
    source = Buffer(f"{b.name}.flat", (32, count), b.dtype)
    at = _registers(r, fragment)
    value = Load(source, (X, r), b.dtype)
    return For(r, count, "serial", Store(b, (*lanes(X), *at), value))


def lanes(x: Expr) -> tuple[Expr, Expr]:
    return binary("//", x, 4), binary("%", x, 4)


def _registers(r: Expr, fragment: Fragment) -> tuple[Expr, ...]:
    out: list[Expr] = []
    for _, _, n in reversed(fragment.registers):
        out.insert(0, binary("%", r, n))
        r = binary("//", r, n)
    return tuple(out)


def flat(values: Array, fragment: Fragment) -> Array:
    """The registers of all lanes for a tile."""
    out = np.zeros((32, values.size // 32), values.dtype)
    for at in np.ndindex(*values.shape):
        out[place(fragment, at)] = values[at]
    return out


def run_mma(name: str, inputs: list[Array], wrap: Any = lambda s: s, **options: Any) -> Array:
    """The accumulators, as lanes and registers, after one mma of registers that are given."""
    want = INSTRUCTIONS[name]
    buffers = []
    for x in want.operands:
        assert x.fragment is not None
        shape = tuple(n for _, _, n in x.fragment.registers)
        buffers.append(Buffer(x.name, (8, 4, *shape), x.dtype, "warp"))
    loads = [Load(b, (as_expr(0),) * len(b.shape), b.dtype) for b in buffers]
    assert want.lanes is not None
    call = IntrinsicCall(name, tuple(loads), want.lanes(loads, X))
    given, body = [], []
    for b, x in zip(buffers, want.operands, strict=True):
        assert x.fragment is not None
        s = spread(b, x.fragment)
        assert isinstance(s, For)
        assert isinstance(s.body, Store)
        assert isinstance(s.body.value, Load)
        given.append(s.body.value.buffer)
        body.append(s)
    out = Buffer("out", (32, 4), "float32")
    r = Var("r")
    fragment = want.operands[0].fragment
    assert fragment is not None
    value = Load(buffers[0], (*lanes(X), *_registers(r, fragment)), "float32")
    store = For(r, 4, "serial", Store(out, (X, r), value))
    inner: Stmt = seq(*body, wrap(call), store)
    for b in buffers:
        inner = Allocate(b, inner)
    f = Func("f", (*given, out), (False, False, False, True),
             For(X, 32, "thread", inner, (), "threadIdx.x"))  # fmt: skip
    verify(f)
    result = np.full((32, 4), np.nan, "float32")
    registers = [
        flat(x, o.fragment) for x, o in zip(inputs, want.operands, strict=True) if o.fragment
    ]
    interpret(f, [*registers, result], **options)
    return result


MMAS = [name for name in INSTRUCTIONS if name.startswith("mma")]


@pytest.mark.parametrize("name", MMAS)
def test_an_mma_is_the_product_of_its_tiles(name: str) -> None:
    rng = np.random.default_rng(4)
    c, a, b = (rng.integers(-4, 5, x.shape).astype(x.dtype) for x in INSTRUCTIONS[name].operands)
    got = run_mma(name, [c, a, b], thread_order=3, races=True)
    y = b.T if name.endswith("nk") else b
    want = c + a.astype("float32") @ y.astype("float32")
    np.testing.assert_array_equal(got, flat(want, FRAGMENT_C))


def rounded(x: Array) -> Array:
    """What `round_tf32` makes of some values, by the interpreter."""
    source, out = (Buffer(name, x.shape, "float32") for name in "xy")
    i = Var("i")
    store = Store(out, (i,), round_tf32(Load(source, (i,), "float32")))
    f = Func("f", (source, out), (False, True), For(i, len(x), "serial", store))
    y = np.zeros_like(x)
    interpret(f, [x, y])
    return y


#: Bits of floats whose rounding is special: ties, carries into the exponent, denormals, overflow.
SPECIAL = [
    0, 1, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFFFF, 0x7FF000, 0x7FEFFF, 0x800000, 0x3F800FFF,
    0x3F801000, 0x3F803000, 0x3FFFF000, 0x7F7FEFFF, 0x7F7FF000, 0x7F7FFFFF, 0x7F800000,
]  # fmt: skip


@given(st.lists(st.integers(0, 0x7F800000), max_size=8), st.booleans())
def test_tf32_is_the_nearest_value(bits: list[int], negative: bool) -> None:
    sign = np.float32(-1 if negative else 1)
    x = sign * np.array([*bits, *SPECIAL], "uint32").view("float32")
    got = rounded(x)
    np.testing.assert_array_equal(got.view("uint32"), nearest_tf32(x).view("uint32"))
    assert not (got.view("uint32") & 0x1FFF).any()


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_no_bits_of_a_nan_become_a_number(bits: int) -> None:
    assert np.isnan(rounded(np.array([bits], "uint32").view("float32")))


@pytest.mark.parametrize("name", [x for x in MMAS if "tf32" in x])
def test_an_mma_of_tf32_rounds_its_operands(name: str) -> None:
    """Products of two values of tf32 are exact, and the interpreter sums them in order of k."""
    rng = np.random.default_rng(5)
    c, a, b = (rng.normal(size=x.shape).astype("float32") for x in INSTRUCTIONS[name].operands)
    got = run_mma(name, [c, a, b], thread_order=2, races=True)
    x, y = nearest_tf32(a), nearest_tf32(b.T if name.endswith("nk") else b)
    want = c
    for k in range(8):
        want = want + x[:, k : k + 1] * y[k]
    np.testing.assert_array_equal(got, flat(want, FRAGMENT_C))


@pytest.mark.parametrize("name", [x for x in INSTRUCTIONS if x.startswith("ldmatrix")])
def test_ldmatrix_puts_elements_where_an_mma_wants_them(name: str) -> None:
    """The values are numbers of elements; operand ``b`` is two tiles beside each other."""
    want = INSTRUCTIONS[name]
    fragment = want.operands[0].fragment
    assert fragment is not None
    assert want.lanes is not None
    registers = tuple(n for _, _, n in fragment.registers)
    f = Buffer("F", (8, 4, *registers), want.operands[0].dtype, "warp")
    s = Buffer("S", (16, 16), f.dtype)
    out = Buffer("out", (32, 8), f.dtype)
    loads = [Load(b, (as_expr(0),) * len(b.shape), b.dtype) for b in (f, s)]
    r = Var("r")
    value = Load(f, (*lanes(X), *_registers(r, fragment)), f.dtype)
    call = IntrinsicCall(name, tuple(loads), want.lanes(loads, X))
    body = Allocate(f, seq(call, For(r, 8, "serial", Store(out, (X, r), value))))
    func = Func("f", (s, out), (False, True), For(X, 32, "thread", body, (), "threadIdx.x"))
    verify(func)
    given = np.arange(256).reshape(16, 16).astype(f.dtype)
    got = np.zeros((32, 8), given.dtype)
    interpret(func, [given, got], thread_order=1, races=True)
    tables = {"a": a_of_ptx, "b": b_nk_of_ptx, "b_trans": b_of_ptx}
    of_ptx = tables[name.removeprefix("ldmatrix_x4_").rpartition("_")[0]]
    for lane in range(32):
        for i in range(8):
            half = i // 4 * 8 if of_ptx is not a_of_ptx else 0
            row, column = of_ptx(lane, i if of_ptx is a_of_ptx else i % 4)
            # The second tile of B has the next eight columns of B, rows of its transpose.
            at = (row + half, column) if of_ptx is b_nk_of_ptx else (row, column + half)
            assert got[lane, i] == given[at], (lane, i)


# ------------------------------------------------------------------ lanes that stay away


def zeros() -> list[Array]:
    return [np.zeros(x.shape, x.dtype) for x in INSTRUCTIONS[MMAS[0]].operands]


def test_a_lane_that_stays_away_is_noticed() -> None:
    def some(call: Stmt) -> Stmt:
        return If(binary("<", X, 31), call)

    with pytest.raises(
        RunError,
        match=re.escape("the threads of block [] diverge: thread ") + r"\[\d+\] waits at barrier 0 "
        r"\(warp\) and thread \[31\] has ended",
    ):
        run_mma(MMAS[0], zeros(), some)


def test_lanes_that_wait_at_two_places_are_noticed() -> None:
    def apart(call: Stmt) -> Stmt:
        return If(binary("<", X, 16), call, Barrier("warp"))

    with pytest.raises(RunError, match=r"waits at barrier 2 \(warp\) and thread .* barrier 0"):
        run_mma(MMAS[0], zeros(), apart)


def test_a_register_that_nobody_wrote_is_noticed() -> None:
    c, a, b = zeros()
    a[3, 5] = np.nan  # as what is not initialised is
    got = run_mma(MMAS[0], [c, a, b])
    want = np.zeros((16, 8), "float32")
    want[3] = np.nan
    np.testing.assert_array_equal(got, flat(want, FRAGMENT_C))


def warps(body: Stmt, rows: int = 2, columns: int = 32) -> Func:
    out = Buffer("out", (rows, columns), "int32")
    inner = For(X, columns, "thread", body, (), "threadIdx.x")
    return Func("f", (out,), (True,), For(Y, rows, "thread", inner, (), "threadIdx.y"))


def turned(barrier: bool) -> Func:
    """Every lane stores what its neighbour wrote into the memory of their warp."""
    seen = Buffer("seen", (8, 4), "int32", "warp")
    f = warps(Barrier("warp"))
    neighbour = binary("%", binary("+", X, 1), 32)
    mine = Store(seen, lanes(X), binary("+", binary("*", Y, 100), X))
    take = Store(f.params[0], (Y, X), Load(seen, lanes(neighbour), "int32"))
    body = seq(mine, *([Barrier("warp")] if barrier else []), take)
    inner = For(X, 32, "thread", Allocate(seen, body), (), "threadIdx.x")
    return f.with_body(For(Y, 2, "thread", inner, (), "threadIdx.y"))


def test_warps_have_memory_of_their_own() -> None:
    for order in (None, 1, 2):
        out = np.zeros((2, 32), "int32")
        interpret(turned(True), [out], thread_order=order, races=True)
        want = np.roll(np.arange(32), -1)
        np.testing.assert_array_equal(out, [want, want + 100])


def test_lanes_race_without_a_barrier() -> None:
    with pytest.raises(RunError, match=r"race on seen\[0, 1\]: threads"):
        interpret(turned(False), [np.zeros((2, 32), "int32")], races=True)


def test_a_barrier_of_a_warp_does_not_order_the_block() -> None:
    shared = Buffer("S", (1,), "int32", "shared")
    one = (as_expr(0),)
    first = If(binary("==", X, 0), Store(shared, one, as_expr(1)))
    f = warps(Barrier("warp"), 1)
    read = Store(f.params[0], (Y, X), Load(shared, one, "int32"))
    inner = For(X, 32, "thread", seq(first, Barrier("warp"), read), (), "threadIdx.x")
    f = f.with_body(Allocate(shared, For(Y, 1, "thread", inner, (), "threadIdx.y")))
    with pytest.raises(RunError, match=r"race on S\[0\]"):
        interpret(f, [np.zeros((1, 32), "int32")], races=True)


@pytest.mark.parametrize("columns", [8, 64])
def test_warps_need_32_lanes(columns: int) -> None:
    f = warps(Barrier("warp"), 2, columns)
    with pytest.raises(LowerError, match=r"needs a kernel whose threadIdx\.x has 32 threads"):
        interpret(f, [np.zeros((2, columns), "int32")])
