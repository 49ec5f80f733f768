"""What both languages for devices write: indices, vectors, registers, barriers, and what they mean.

The numeric tests compare the interpreter with an OpenCL device; the text of CUDA differs from that
of OpenCL in words alone.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import te
from loopwright.codegen.gpu.barriers import with_unconditional_barriers
from loopwright.codegen.gpu.cuda import write_cuda
from loopwright.codegen.gpu.opencl import write_opencl
from loopwright.codegen.gpu.split import split_host_device
from loopwright.codegen.gpu.vectors import one_choice
from loopwright.driver.device_plan import device_code
from loopwright.errors import CodegenError
from loopwright.ir.affine import to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Call, Expr, Select, Unary, Var, as_expr, cast, const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Allocate, Barrier, For, Func, If, Let, Stmt, Store, seq
from loopwright.lowering import lower
from loopwright.schedule import create_schedule
from tests.opencl_runner import run_opencl, why_not
from tests.unit.lowering import gpu_programs

needs_opencl = pytest.mark.skipif(bool(why_not()), reason=why_not() or "an OpenCL device is here")


def opencl(f: Func) -> str:
    return write_opencl(split_host_device(f, "opencl"))


def cuda(f: Func) -> str:
    return write_cuda(split_host_device(f, "cuda")).text


def same_as_interpreted(
    f: Func, arrays: Sequence[np.ndarray[Any, Any]], sizes: dict[str, int] | None = None
) -> list[np.ndarray[Any, Any]]:
    """What a device computes, which must be what the interpreter does, to the bit."""
    program = split_host_device(f, "opencl")
    code = device_code(program, write_opencl(program).encode())
    got = run_opencl(code.to_bytes(), arrays, sizes)
    want = [a.copy() for a in arrays]
    interpret(f, want, sizes)
    for g, w in zip(got, want, strict=True):
        if g.dtype.name == "bfloat16":  # of which NumPy does not know that NaN is NaN
            g, w = g.astype("float32"), w.astype("float32")
        np.testing.assert_array_equal(g, w)
    return got


# ------------------------------------------------------------------ values


def threads(n: int, body: Stmt, var: Var) -> For:
    return For(var, n, "thread", body, tag="threadIdx.x")


def binary_kernel(dtype: str, operations: Sequence[str], n: int) -> Func:
    """All operations on all elements of two arrays, a row each."""
    a, b = Buffer("a", (n,), dtype), Buffer("b", (n,), dtype)
    out = Buffer("out", (len(operations) + 1, n), dtype)
    i = Var("i")
    x, y = Load(a, (i,), dtype), Load(b, (i,), dtype)
    stores = [
        Store(out, (as_expr(k), i), Binary(op, x, y, dtype)) for k, op in enumerate(operations)
    ]
    stores.append(Store(out, (as_expr(len(operations)), i), Unary("-", x, dtype)))
    return Func("f", (a, b, out), (False, False, True), threads(n, seq(*stores), i))


@needs_opencl
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integers_wrap_and_division_by_zero_is_zero(dtype: str) -> None:
    info = np.iinfo(dtype)
    values = [info.min, info.min + 1, -7 if info.min else 7, 0, 1, 3, info.max - 1, info.max]
    x = np.array([a for a in values for _ in values], dtype)
    y = np.array(values * len(values), dtype)
    operations = ["+", "-", "*", "//", "%", "tdiv", "tmod", "<<", ">>", "min", "max"]
    f = binary_kernel(dtype, operations, len(x))
    same_as_interpreted(f, [x, y, np.zeros((len(operations) + 1, len(x)), dtype)])


@needs_opencl
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_round_as_everywhere(dtype: str) -> None:
    a, b = Buffer("a", (16,), dtype), Buffer("b", (16,), dtype)
    out = Buffer("out", (5, 16), dtype)
    i = Var("i")
    x, y = Load(a, (i,), dtype), Load(b, (i,), dtype)
    values: list[Expr] = [
        Binary("/", x, y, dtype),
        Binary("max", x, y, dtype),
        Call("sqrt", (x,), dtype),
        Select(Binary("<", x, y, "bool"), x, const(float("-inf"), dtype), dtype),
        Call("floor", (Binary("*", x, y, dtype),), dtype),
    ]
    body = seq(*(Store(out, (as_expr(k), i), v) for k, v in enumerate(values)))
    f = Func("f", (a, b, out), (False, False, True), threads(16, body, i))
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 3.5, -2.25]
    x_, y_ = (np.array(v).astype(b.dtype) for v in (special * 2, special[::-1] * 2))
    if dtype == "bfloat16":
        import ml_dtypes

        x_, y_ = x_.astype(ml_dtypes.bfloat16), y_.astype(ml_dtypes.bfloat16)
    same_as_interpreted(f, [x_, y_, np.zeros((5, 16), x_.dtype)])


@needs_opencl
def test_math_functions_are_those_of_every_target() -> None:
    """To the bit as compiled for CPUs: one definition serves all."""
    a = te.placeholder((64,), name="a")
    functions = (te.exp, te.tanh, te.log, te.sin, te.erf, te.sigmoid)
    outs = [
        te.compute((64,), lambda i, f=f: f(a[i]), name=f"o{k}") for k, f in enumerate(functions)
    ]
    x = np.linspace(0.01, 9, 64).astype("float32")
    s = create_schedule(outs)
    for o in outs:
        s[o].bind(o.op.axis[0], te.thread_axis("threadIdx.x"))
    f = lower(s, [a, *outs])
    program = split_host_device(f, "opencl")
    code = device_code(program, write_opencl(program).encode())
    got = run_opencl(code.to_bytes(), [x, *(np.zeros(64, "float32") for _ in outs)])
    from loopwright.driver import build

    plain = create_schedule(outs)
    want = [x, *(np.zeros(64, "float32") for _ in outs)]
    build(plain, [a, *outs], "llvm -num-threads=1")(*want)
    for g, w in zip(got[1:], want[1:], strict=True):
        np.testing.assert_array_equal(g, w)


# ------------------------------------------------------------------ sizes


def symbolic() -> tuple[Func, te.Tensor]:
    """Two kernels and a loop that no thread runs, over rows whose number is not known."""
    n = te.var("n")
    a = te.placeholder((n, 5), name="A")
    t = te.compute((n, 5), lambda i, j: a[i, j] * 2.0, name="T")
    u = te.compute((n, 5), lambda i, j: t[i, j] - 3.0, name="U")
    b = te.compute((n, 5), lambda i, j: u[i, j] + t[n - 1 - i, j], name="B")
    s = create_schedule(b)
    for stage in (t, b):
        io, ii = s[stage].split(s[stage].op.axis[0], factor=32)
        s[stage].bind(io, te.thread_axis("blockIdx.x"))
        s[stage].bind(ii, te.thread_axis("threadIdx.x"))
    return lower(s, [a, b]), a


@needs_opencl
@pytest.mark.parametrize("n", [1, 32, 71])
def test_one_code_serves_every_size(n: int) -> None:
    f, _ = symbolic()
    x = np.arange(n * 5, dtype="float32").reshape(n, 5)
    same_as_interpreted(f, [x, np.zeros_like(x)], {"n": n})


# ------------------------------------------------------------------ indices


def test_indices_are_of_32_bits_where_these_suffice() -> None:
    f = lower(*_args(gpu_programs.tiled_matmul()))
    assert "long" not in opencl(f)
    assert "long" not in cuda(f)


def _args(case: Any) -> tuple[Any, Any]:
    return case.s, case.args


def wide_copy(rows: int, columns: int) -> Func:
    a = te.placeholder((rows, columns), "uint8", name="A")
    b = te.compute((rows, columns), lambda i, j: a[i, j], name="B")
    s = create_schedule(b)
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    return lower(s, [a, b])


def test_offsets_of_large_buffers_are_of_64_bits() -> None:
    f = wide_copy(70000, 70000)
    assert "A[(long)blockIdx_x * 70000 + (long)j]" in opencl(f)
    assert "A[(long long)blockIdx_x * 70000 + (long long)j]" in cuda(f)
    assert "A[blockIdx_x * 10 + j]" in opencl(wide_copy(70000, 10))


@needs_opencl
def test_arithmetic_that_leaves_32_bits_is_done_in_64() -> None:
    """Products of narrow numbers, quotients of wide ones, and what is wide only in between."""
    out = Buffer("out", (6, 64), "int64")
    i = Var("i")
    x = cast(i, "int64")
    wide = x * 70000 * 70000
    values = [
        wide,
        wide // 1000 % 77,
        -wide - 5,
        (x * 2147483647 + 2147483647) // 2147483647,
        cast(i, "int64") + 2147483647,
        (x - 32) * 100000007 // 11,
    ]
    v = Var("v", "int64")
    stores = [Store(out, (as_expr(k), i), e) for k, e in enumerate(values[:-1])]
    last = Let(v, values[-1], Store(out, (as_expr(5), i), v * 1))
    f = Func("f", (out,), (True,), threads(64, seq(*stores, last), i))
    (got,) = same_as_interpreted(f, [np.zeros((6, 64), "int64")])
    assert got[0, 63] == 63 * 70000**2


# ------------------------------------------------------------------ vectors


def vector_func(n: int, at: Any, guard: Any = None, columns: int = 64) -> Func:
    """``B[t, lanes] = A[t, at(lanes)] * 2 + B[t, lanes]`` for some lanes of each thread."""
    a, b = Buffer("A", (8, columns), "float32"), Buffer("B", (8, columns), "float32")
    t, o, lane = Var("t"), Var("o"), Var("lane")
    j = o * n + lane
    value = Load(a, (t, at(j)), "float32") * 2.0 + Load(b, (t, j), "float32")
    body: Stmt = Store(b, (t, j), value)
    body = If(guard(o, lane), body) if guard else body
    loop = For(o, 4, "serial", For(lane, n, "vectorized", body))
    return Func("f", (a, b), (False, True), threads(8, loop, t))


def arrays(columns: int = 64) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.integers(-9, 9, (8, columns)).astype("float32") for _ in range(2)]


@needs_opencl
@pytest.mark.parametrize(
    ("n", "at", "guard", "loads", "stores"),
    [
        (4, lambda j: j, None, 2, 1),
        (2, lambda j: j + 3, None, 2, 1),
        (4, lambda j: as_expr(63) - j, None, 1, 1),
        (4, lambda j: j, lambda o, lane: o < 3, 2, 1),
        (4, lambda j: j, lambda o, lane: o + lane < 4, 0, 0),
        (4, lambda j: j, lambda o, lane: o * 4 + lane < 12, 2, 1),
        (4, lambda j: j, lambda o, lane: o * 4 + lane < 11, 0, 0),
        (4, lambda j: j, lambda o, lane: te.all(o * 4 + lane > 3, o * 4 + lane <= 11), 2, 1),
        (4, lambda j: j, lambda o, lane: o * 4 + lane >= 4, 2, 1),
        (4, lambda j: j, lambda o, lane: o * 4 - lane < 4, 0, 0),
        (3, lambda j: j, None, 0, 0),
    ],
)
def test_neighbouring_lanes_are_vectors(
    n: int, at: Any, guard: Any, loads: int, stores: int
) -> None:
    f = vector_func(n, at, guard)
    text = opencl(f)
    assert (len(re.findall("= vload", text)), len(re.findall("vstore", text))) == (loads, stores)
    same_as_interpreted(f, arrays())


def test_vectors_of_cuda_are_aligned() -> None:
    """An offset of 3, or rows of 62, would put vectors between multiples of their size."""
    assert cuda(vector_func(2, lambda j: j + 3)).count("(const lw_vector") == 1
    assert cuda(vector_func(2, lambda j: j + 2)).count("(const lw_vector") == 2
    assert "(const lw_vector" not in cuda(vector_func(4, lambda j: j, columns=62))


def test_what_a_condition_guards_is_not_loaded_before_it() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: te.if_then_else(i < 61, a[i], 0.0), name="B")
    s = create_schedule(b)
    t, lane = s[b].split(b.op.axis[0], factor=4)
    s[b].bind(t, te.thread_axis("threadIdx.x"))
    s[b].vectorize(lane)
    text = opencl(lower(s, [a, b]))
    assert "vload" not in text
    assert "vstore4" in text


@given(
    op=st.sampled_from(["<", "<=", ">", ">=", "=="]),
    lanes=st.sampled_from([2, 4, 8]),
    factor=st.integers(-9, 9),
    offset=st.integers(-20, 20),
    bound=st.integers(-20, 20),
    sign=st.sampled_from([1, -1]),
)
def test_lanes_that_are_said_to_agree_do(
    op: str, lanes: int, factor: int, offset: int, bound: int, sign: int
) -> None:
    """Against every lane of every iteration."""
    i, lane, a = Var("i"), Var("lane"), Buffer("A", (64,), "float32")
    cond = Binary(op, i * factor + lane * sign + offset, as_expr(bound), "bool")
    loop = For(lane, lanes, "vectorized", If(cond, Store(a, (lane,), as_expr(1.0))))
    ranges = {i: (0, 7), lane: (0, lanes - 1)}
    choice = one_choice(loop, lambda e: to_affine(e, {}, ranges))
    if choice is None:
        return
    holds = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[op]
    for k in range(8):
        values = [holds(k * factor + lane * sign + offset, bound) for lane in range(lanes)]
        assert len(set(values)) == 1


def test_a_condition_that_all_lanes_share_is_asked_once() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: te.if_then_else(i < 60, a[i], 0.0), name="B")
    s = create_schedule(b)
    t, lane = s[b].split(b.op.axis[0], factor=4)
    s[b].bind(t, te.thread_axis("threadIdx.x"))
    s[b].vectorize(lane)
    f = lower(s, [a, b])
    text = opencl(f)
    assert (len(re.findall("= vload4", text)), len(re.findall("vstore4", text))) == (1, 2)
    assert "(const lw_vector<float, 4> *)" in cuda(f)


def test_a_lane_that_reads_what_another_writes_is_no_vector() -> None:
    a = Buffer("A", (64,), "float32")
    lane, t = Var("lane"), Var("t")
    j = t * 4 + lane
    body = Store(a, (j,), Load(a, (as_expr(63) - j,), "float32"))
    f = Func("f", (a,), (True,), threads(8, For(lane, 4, "vectorized", body), t))
    assert "vload" not in opencl(f)
    assert "vstore" not in opencl(f)


# ------------------------------------------------------------------ registers and barriers


def test_loops_over_registers_are_unrolled() -> None:
    text = cuda(lower(*_args(gpu_programs.tiled_matmul())))
    lines = text.splitlines()
    for k, line in enumerate(lines):
        variable = re.match(r"\s*for \(int (\w+) =", line)
        if variable and re.search(rf"_local\[[^\]]*\b{variable[1]}\b", "\n".join(lines[k:])):
            unrolled = lines[k - 1].strip() == "#pragma unroll"
            assert unrolled or variable[1] in ("ax0_ax1_0_0",), line


def test_a_buffer_of_a_thread_has_a_known_size() -> None:
    f, _ = symbolic()
    n = f.sizes[0]
    t, i = Buffer("T", (n,), "float32", "local"), Var("t")
    body = Allocate(t, Store(t, (i,), as_expr(0.0)))
    with pytest.raises(CodegenError, match="the size of 'T', a buffer of each thread, depends on"):
        opencl(Func("f", (), (), threads(4, body, i), (n,)))


def test_conditions_move_inside_of_barriers() -> None:
    s, t, i = Buffer("S", (8,), "float32", "shared"), Var("t"), Var("i")
    write, read = Store(s, (t,), as_expr(1.0)), Store(s, (i,), as_expr(2.0))
    guarded = If(i < 3, seq(write, write, Barrier("shared"), For(Var("k"), 2, "serial", read)))
    out = with_unconditional_barriers(For(i, 4, "serial", guarded))
    assert str(out).split("\n") == [
        "for i in range(4):",
        "  if i < 3:",
        "    S[t] = 1.0",
        "    S[t] = 1.0",
        "  barrier(shared)",
        "  if i < 3:",
        "    for k in range(2):",
        "      S[i] = 2.0",
    ]
    plain = If(i < 3, write)
    assert with_unconditional_barriers(plain) == plain


@needs_opencl
def test_barriers_under_conditions_inside_of_two_loops_end() -> None:
    """PoCL 3.1 never ended on these."""
    a, b = Buffer("A", (3, 4), "float32"), Buffer("B", (3, 4), "float32")
    s = Buffer("S", (4,), "float32", "shared")
    t, i, j = Var("t"), Var("i"), Var("j")
    row = j * 2 + i
    inner = seq(
        Barrier("shared"),
        If(
            row < 3,
            seq(
                Store(s, (t,), Load(a, (row, t), "float32")),
                Barrier("shared"),
                Store(b, (row, t), Load(s, (as_expr(3) - t,), "float32")),
            ),
        ),
    )
    body = For(i, 2, "serial", For(j, 2, "serial", inner))
    f = Func("f", (a, b), (False, True), Allocate(s, threads(4, body, t)))
    same_as_interpreted(f, [np.arange(12, dtype="float32").reshape(3, 4), np.zeros((3, 4), "f4")])
