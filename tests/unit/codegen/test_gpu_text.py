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

from loopwright import dtypes, te
from loopwright.codegen.gpu.cuda import write_cuda
from loopwright.codegen.gpu.opencl import write_opencl
from loopwright.codegen.gpu.split import split_host_device, with_unconditional_barriers
from loopwright.codegen.gpu.writer import one_choice
from loopwright.codegen.manifests import device_code
from loopwright.driver import build
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
    for p, g, w in zip(f.params, got, want, strict=True):
        if g.dtype.name == "bfloat16":  # of which NumPy does not know that NaN is NaN
            g, w = g.astype("float32"), w.astype("float32")
        np.testing.assert_array_equal(g, w, err_msg=p.name)
    return got


# ------------------------------------------------------------------ values


def threads(n: int, body: Stmt, var: Var) -> For:
    return For(var, n, "thread", body, tag="threadIdx.x")


INTEGERS = ("int8", "int32", "int64", "uint8")
OPERATIONS = ("+", "-", "*", "//", "%", "tdiv", "tmod", "<<", ">>", "min", "max")


@needs_opencl
def test_integers_wrap_and_division_by_zero_is_zero() -> None:
    """All operations on all pairs of some values, a row each; one kernel for all types."""
    i, n = Var("i"), 64
    buffers, stores, arrays = [], [], []
    for dtype in INTEGERS:
        info = np.iinfo(dtype)
        values = [info.min, info.min + 1, -7 if info.min else 7, 0, 1, 3, info.max - 1, info.max]
        a, b = Buffer(f"a_{dtype}", (n,), dtype), Buffer(f"b_{dtype}", (n,), dtype)
        out = Buffer(f"out_{dtype}", (len(OPERATIONS) + 1, n), dtype)
        x, y = Load(a, (i,), dtype), Load(b, (i,), dtype)
        results = [*(Binary(op, x, y, dtype) for op in OPERATIONS), Unary("-", x, dtype)]
        stores += [Store(out, (as_expr(k), i), value) for k, value in enumerate(results)]
        buffers += [a, b, out]
        arrays.append(np.array([v for v in values for _ in values], dtype))
        arrays.append(np.array(values * len(values), dtype))
        arrays.append(np.zeros((len(results), n), dtype))
    f = Func("f", tuple(buffers), (False, False, True) * 4, threads(n, seq(*stores), i))
    same_as_interpreted(f, arrays)


@needs_opencl
def test_floats_round_as_everywhere() -> None:
    """One kernel for all types."""
    i, special = Var("i"), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 3.5, -2.25]
    buffers, stores, arrays = [], [], []
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        a, b = Buffer(f"a_{dtype}", (16,), dtype), Buffer(f"b_{dtype}", (16,), dtype)
        out = Buffer(f"out_{dtype}", (5, 16), dtype)
        x, y = Load(a, (i,), dtype), Load(b, (i,), dtype)
        values: list[Expr] = [
            Binary("/", x, y, dtype),
            Binary("max", x, y, dtype),
            Call("sqrt", (x,), dtype),
            Select(Binary("<", x, y, "bool"), x, const(float("-inf"), dtype), dtype),
            Call("floor", (Binary("*", x, y, dtype),), dtype),
        ]
        stores += [Store(out, (as_expr(k), i), v) for k, v in enumerate(values)]
        buffers += [a, b, out]
        numpy_type = np.dtype(dtypes.check(dtype))
        arrays += [np.array(v).astype(numpy_type) for v in (special * 2, special[::-1] * 2)]
        arrays.append(np.zeros((5, 16), numpy_type))
    f = Func("f", tuple(buffers), (False, False, True) * 4, threads(16, seq(*stores), i))
    same_as_interpreted(f, arrays)


@needs_opencl
def test_math_functions_are_those_of_every_target() -> None:
    """To the bit as compiled for CPUs: one definition serves all."""
    functions = (te.exp, te.tanh, te.log, te.sin, te.erf, te.sigmoid)
    a, out = Buffer("a", (64,), "float32"), Buffer("out", (len(functions), 64), "float32")
    i = Var("i")
    x = Load(a, (i,), "float32")
    body = seq(*(Store(out, (as_expr(k), i), f(x)) for k, f in enumerate(functions)))
    values = np.linspace(0.01, 9, 64).astype("float32")
    kernel = Func("f", (a, out), (False, True), threads(64, body, i))
    program = split_host_device(kernel, "opencl")
    code = device_code(program, write_opencl(program).encode())
    _, got = run_opencl(code.to_bytes(), [values, np.zeros((len(functions), 64), "float32")])

    b = te.placeholder((64,), name="b")
    outs = [te.compute((64,), lambda j, f=f: f(b[j]), name=f.__name__) for f in functions]
    want = [np.zeros(64, "float32") for _ in functions]
    build(create_schedule(outs), [b, *outs], "llvm -num-threads=1")(values, *want)
    np.testing.assert_array_equal(got, want)


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


def vector_loop(t: Var, n: int, at: Any, guard: Any, a: Buffer, b: Buffer) -> For:
    """``b[t, lanes] = a[t, at(lanes)] * 2 + b[t, lanes]`` for some lanes of a thread."""
    o, lane = Var("o"), Var("lane")
    j = o * n + lane
    value = Load(a, (t, at(j)), "float32") * 2.0 + Load(b, (t, j), "float32")
    body: Stmt = Store(b, (t, j), value)
    body = If(guard(o, lane), body) if guard else body
    return For(o, 4, "serial", For(lane, n, "vectorized", body))


def vector_func(n: int, at: Any, guard: Any = None, columns: int = 64) -> Func:
    """Eight threads with such a loop each."""
    a, b = Buffer("A", (8, columns), "float32"), Buffer("B", (8, columns), "float32")
    t = Var("t")
    return Func("f", (a, b), (False, True), threads(8, vector_loop(t, n, at, guard, a, b), t))


#: Lanes, the index that is read, a condition, and how many vectors are loaded and stored for that.
VECTORS: list[tuple[int, Any, Any, int, int]] = [
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
]


def vectors_in(text: str) -> tuple[int, int]:
    """How many loads and stores of vectors there are."""
    return len(re.findall("= vload", text)), len(re.findall("vstore", text))


@pytest.mark.parametrize(("n", "at", "guard", "loads", "stores"), VECTORS)
def test_neighbouring_lanes_are_vectors(
    n: int, at: Any, guard: Any, loads: int, stores: int
) -> None:
    assert vectors_in(opencl(vector_func(n, at, guard))) == (loads, stores)


@needs_opencl
def test_vectors_hold_what_their_lanes_do() -> None:
    """All of them, one after the other in one kernel, each with arrays of its own."""
    t, rng = Var("t"), np.random.default_rng(0)
    buffers = [[Buffer(f"{x}{k}", (8, 64), "float32") for x in "AB"] for k in range(len(VECTORS))]
    loops = [vector_loop(t, *v[:3], *pair) for v, pair in zip(VECTORS, buffers, strict=True)]
    params = tuple(b for pair in buffers for b in pair)
    f = Func("f", params, (False, True) * len(loops), threads(8, seq(*loops), t))
    assert vectors_in(opencl(f)) == (sum(v[3] for v in VECTORS), sum(v[4] for v in VECTORS))
    same_as_interpreted(f, [rng.integers(-9, 9, (8, 64)).astype("float32") for _ in params])


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
