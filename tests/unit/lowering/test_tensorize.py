"""tensorize: the nests that it makes, their results everywhere, and operands that lie otherwise."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuzzing.differential import Checker
from fuzzing.fuzz import example
from loopwright import te
from loopwright.driver import build
from loopwright.errors import ScheduleError, TensorError
from loopwright.ir.instructions import DOT_OPERANDS, DotProduct
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.schedule import Schedule
from loopwright.target import host_cpu
from loopwright.te.intrin_proof import why_not_harmless
from loopwright.te.intrinsics import call_of
from loopwright.testing.target_contract import runs_here
from tests.covering import covering
from tests.unit.lowering.int8_programs import inputs, packed_matmul, tile

TARGETS = ("llvm", "llvm -mcpu=x86-64-v3", "llvm -prefer-vector-width=256", "c", "interp")


def check(s: Schedule, args: list[te.Tensor], given: list[Any], want: Any, target: str) -> None:
    out = np.full(want.shape, 77, want.dtype)
    build(s, args, target, name="f")(*given, out)
    np.testing.assert_array_equal(out, want)


def gemv(
    rows: int, k: int, strides: Any = None, bodies: str = "all", dtype: str = "float32"
) -> te.TensorIntrin:
    """``y[i] = sum(a[i, k] * x[k])`` by a loop over vectors of rows."""
    a = te.placeholder((rows, k), dtype, name="a")
    x = te.placeholder((k,), dtype, name="x")
    r = te.reduce_axis((0, k), name="r")
    y = te.compute((rows,), lambda i: te.sum(a[i, r] * x[r], axis=r), name="y")

    def statements(ins: Any, outs: Any) -> Any:
        (ab, xb), (yb,) = ins, outs
        update, reset = te.ir_builder(), te.ir_builder()
        with update.for_range(k, "kk") as kk, update.for_range(rows, "row", "vectorized") as i:
            update.emit(yb.store(i, yb[i] + ab[i, kk] * xb[kk]))
        with reset.for_range(rows, "row", "vectorized") as i:
            reset.emit(yb.store(i, 0))
        whole = te.ir_builder()
        whole.emit(reset.get())
        whole.emit(update.get())
        if bodies == "body":
            return whole.get()
        return whole.get(), (None if bodies == "no reset" else reset.get()), update.get()

    binds = {} if strides is None else {a: te.decl_buffer((rows, k), dtype, "a", strides)}
    return te.decl_tensor_intrin(y.op, statements, name="gemv", binds=binds)


def mv(n: int, k: int) -> tuple[Schedule, list[te.Tensor]]:
    A = te.placeholder((n, k), name="A")
    X = te.placeholder((k,), name="X")
    r = te.reduce_axis((0, k), name="k")
    Y = te.compute((n,), lambda i: te.sum(A[i, r] * X[r], axis=r), name="Y")
    return te.create_schedule(Y.op), [A, X, Y]


def mv_inputs(args: list[te.Tensor]) -> tuple[list[Any], Any]:
    rng = np.random.default_rng(1)
    a, x = (rng.integers(-8, 8, t.shape).astype(np.float32) for t in args[:2])
    return [a, x], a @ x


def split_mv(n: int, k: int, rows: int, depth: int | None) -> tuple[Schedule, list[te.Tensor], Any]:
    s, args = mv(n, k)
    Y = args[-1]
    _, ii = s[Y].split(s[Y].op.axis[0], factor=rows)
    (r,) = s[Y].op.reduce_axis
    if depth is not None:
        ro, ri = s[Y].split(r, factor=depth)
        s[Y].reorder(ro, ii, ri)
    return s, args, ii


def test_a_register_tile_of_dot_products(golden: Any) -> None:
    s, args, _ = packed_matmul(8, 64, 32)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    golden(str(lower(s, args)))


def test_tails_keep_the_nest(golden: Any) -> None:
    s, args, _ = packed_matmul(4, 32, 30)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    golden(str(lower(s, args)))


@pytest.mark.parametrize(
    ("shape", "target"),
    covering([(8, 64, 32), (5, 40, 32), (8, 64, 30), (5, 16, 4), (3, 70, 9)], TARGETS, strength=1),
)
def test_dot_products_agree_everywhere(shape: tuple[int, int, int], target: str) -> None:
    s, args, _ = packed_matmul(*shape)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    check(s, args, *inputs(args), target)


@pytest.mark.parametrize("level", [0, 1, 3])
def test_every_level_of_passes_keeps_instructions(level: int) -> None:
    s, args, _ = packed_matmul(5, 40, 14)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    with PassContext(level, config={"verify": True}):
        assert "dot_16x4" in str(lower(s, args)) or level == 0
        for target in ("interp", "llvm", "c"):
            check(s, args, *inputs(args), target)


@pytest.mark.parametrize("lanes", [4, 8])
def test_shorter_dot_products(lanes: int) -> None:
    s, args, _ = packed_matmul(6, 2 * lanes, 12, lanes)
    acc, loop = tile(s, args[-1], 2, 2 * lanes, lanes)
    s[acc].tensorize(loop, te.intrinsics.dot_uint8_int8_int32(lanes))
    for target in TARGETS:
        check(s, args, *inputs(args), target)


@pytest.mark.isa("avx512vnni")
def test_the_instruction_is_used_where_the_cpu_has_it() -> None:
    s, args, _ = packed_matmul(8, 64, 32)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    count = {
        t: build(s, args, t, name="f").get_source("asm").count("vpdpbusd") for t in TARGETS[:3]
    }
    assert list(count.values()) == [8, 0, 16]


@pytest.mark.skipif("+avx512vnni" not in host_cpu()[1], reason="needs AVX-512 VNNI")
@pytest.mark.parametrize(
    ("option", "count"),
    [pytest.param("", 1, marks=pytest.mark.slow), ("-prefer-vector-width=256", 2)],
)
def test_the_instruction_in_c(option: str, count: int) -> None:
    if not runs_here("c"):
        pytest.skip("no C compiler")
    s, args, _ = packed_matmul(4, 32, 8)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    f = build(s, args, f"c {option}", name="f")
    assert f.get_source("c").count("_dpbusd_epi32(") == count
    assert "vpdpbusd" in f.get_source("asm")
    given, want = inputs(args)
    out = np.full(want.shape, 77, want.dtype)
    f(*given, out)
    np.testing.assert_array_equal(out, want)
    plain = build(s, args, "c -mcpu=x86-64-v3", name="f").get_source("c")
    assert "dpbusd" not in plain


def test_disable_vectorize_writes_the_plain_form() -> None:
    s, args, _ = packed_matmul(4, 32, 8)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    with PassContext(config={"tir.disable_vectorize": True}):
        assert "dot_16x4" not in str(lower(s, args))


def test_bound_checkers_watch_the_plain_form() -> None:
    s, args, _ = packed_matmul(4, 32, 8)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    with PassContext(config={"tir.instrument_bound_checkers": True}):
        text = str(lower(s, args))
        assert "dot_16x4" not in text
        assert "check" in text
        check(s, args, *inputs(args), "llvm")


# ---------------------------------------------------------------- body, reset, update


@pytest.mark.parametrize("bodies", ["all", "body"])
def test_the_whole_reduction_inside_is_the_body(bodies: str, golden: Any) -> None:
    s, args, ii = split_mv(16, 6, 8, None)
    s[args[-1]].tensorize(ii, gemv(8, 6, bodies=bodies))
    golden(str(lower(s, args)))
    for target in ("interp", "llvm", "c"):
        check(s, args, *mv_inputs(args), target)


@pytest.mark.parametrize("bodies", ["all", "no reset"])
def test_a_reduction_outside_takes_reset_and_update(bodies: str, golden: Any) -> None:
    s, args, ii = split_mv(16, 6, 8, 3)
    s[args[-1]].tensorize(ii, gemv(8, 3, strides=[None, 1], bodies=bodies))
    golden(str(lower(s, args)))
    for target in ("interp", "llvm", "c"):
        check(s, args, *mv_inputs(args), target)


@pytest.mark.parametrize("n", [16, 20, 7, 8])
def test_tails_of_rows_and_depth(n: int) -> None:
    for k in (3, 7, 12):
        s, args, ii = split_mv(n, k, 4, 3)
        s[args[-1]].tensorize(ii, gemv(4, 3, strides=[te.var("s"), 1]))
        for target in ("interp", "llvm", "c"):
            check(s, args, *mv_inputs(args), target)


def test_a_stage_that_starts_from_init_keeps_its_start() -> None:
    A = te.placeholder((8, 6), name="A")
    X = te.placeholder((6,), name="X")
    B = te.placeholder((8,), name="B")
    r = te.reduce_axis((0, 6), name="k")
    Y = te.compute((8,), lambda i: te.sum(A[i, r] * X[r], axis=r, init=B[i]), name="Y")
    s = te.create_schedule(Y.op)
    ro, ri = s[Y].split(r, factor=3)
    s[Y].reorder(ro, Y.op.axis[0], ri)
    s[Y].tensorize(Y.op.axis[0], gemv(8, 3, strides=[None, 1]))
    (a, x), product = mv_inputs([A, X, Y])
    b = np.arange(8, dtype=np.float32)
    check(s, [A, X, B, Y], [a, x, b], product + b, "llvm")


def test_an_intrinsic_without_reduction() -> None:
    a, b = (te.placeholder((4, 8), name=n) for n in "ab")
    c = te.compute((4, 8), lambda i, j: te.max(a[i, j] * b[i, j], 0.0), name="c")

    def statements(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder()
        rows, lanes = ib.for_range(4, "i", "unrolled"), ib.for_range(8, "j", "vectorized")
        with rows as i, lanes as j, ib.allocate((1,), "float32", "t") as t:
            ib.emit(t.store(0, ins[0][i, j] * ins[1][i, j]))
            ib.emit(outs[0].store((i, j), 0))
            with ib.if_scope(t[0] > 0.0):
                ib.emit(outs[0].store((i, j), t[0]))
        return ib.get()

    rows = {x: te.decl_buffer((4, 8), "float32", strides=[None, 1]) for x in (a, b, c)}
    intrin = te.decl_tensor_intrin(c.op, statements, "relu_mul", binds=rows)
    A, B = (te.placeholder((10, 24), name=n) for n in "AB")
    C = te.compute((10, 24), lambda i, j: te.max(B[i, j] * A[i, j], 0.0), name="C")
    s = te.create_schedule(C.op)
    _, _, ii, _ = s[C].tile(*C.op.axis, 4, 8)
    s[C].tensorize(ii, intrin)
    x, y = (np.random.default_rng(2).standard_normal((10, 24), np.float32) for _ in "AB")
    assert "t = alloc" in str(lower(s, [A, B, C]))
    for target in ("interp", "llvm", "c"):
        check(s, [A, B, C], [x, y], np.maximum(x * y, 0), target)


# ---------------------------------------------------------------- where operands lie otherwise


def refusal(s: Schedule, args: list[te.Tensor]) -> str:
    with pytest.raises(ScheduleError) as e:
        lower(s, args)
    return str(e.value)


def test_a_stride_that_differs() -> None:
    s, args, ii = split_mv(16, 6, 8, 3)
    s[args[-1]].tensorize(ii, gemv(8, 3))
    assert refusal(s, args) == (
        "tensorize (step 3): the nest inside loop 'Y.i.1' is not intrinsic 'gemv': operand 'a', "
        "dimension 0: the intrinsic wants a stride of 3, 'A' has 6 along 'i'; copy it to lie so "
        "(cache_read inside the loops around, transform_layout), or declare the operand with "
        "another stride (None: any)"
    )


def test_an_operand_that_moves_where_the_intrinsic_keeps_it() -> None:
    A, X = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="X")
    r = te.reduce_axis((0, 8), name="k")
    Y = te.compute((8,), lambda i: te.sum(A[i, r] * X[i, r], axis=r), name="Y")
    s = te.create_schedule(Y.op)
    s[Y].tensorize(Y.op.axis[0], gemv(8, 8))
    assert refusal(s, [A, X, Y]).endswith(
        "operand 'x' is the same along axis 'i' of the intrinsic; 'X' is read at steps of 8 along "
        "'i'; declare an intrinsic that reads it so"
    )


def test_elements_at_several_distances() -> None:
    s, args, _ = packed_matmul(4, 32, 8, lanes=8)
    acc, lanes = tile(s, args[-1], lanes=16)
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    assert "operand 'kernel': index 0 of 'W' is no sum of multiples of loops" in refusal(s, args)


def test_a_stride_known_only_when_the_program_runs() -> None:
    n = te.size_var("n")
    A = te.placeholder((8, n), name="A")
    C = te.compute((8, n), lambda i, j: A[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    a = te.placeholder((8,), name="a")
    c = te.compute((8,), lambda i: a[i] + 1.0, name="c")
    body = te.decl_tensor_intrin(
        c.op, lambda ins, outs: outs[0].store(0, ins[0][0]), "column", approximate=True
    )
    s[C].reorder(C.op.axis[1], C.op.axis[0])
    s[C].tensorize(C.op.axis[0], body)
    assert "wants a stride of 1, 'A' has one known only when the program runs along 'i'" in refusal(
        s, [A, C]
    )


# ---------------------------------------------------------------- in other processes


def test_a_users_intrinsic_travels_with_the_trace() -> None:
    s, args, ii = split_mv(20, 7, 4, 3)
    s[args[-1]].tensorize(ii, gemv(4, 3, strides=[None, 1]))
    data = {"dag": s.dag.to_json(), "trace": [x.to_json() for x in s.trace]}
    script = (
        "import json, sys\n"
        "from loopwright.schedule.schedule import replay\n"
        "from loopwright.te.dag import Dag\n"
        "from loopwright.lowering.pipeline import lower_ids\n"
        "d = json.load(sys.stdin)\n"
        "print(lower_ids(replay(Dag.from_json(d['dag']), d['trace']), [0, 1, 2]))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(data), capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(lower(s, args)).strip()


def test_an_intrinsic_of_ours_prints_as_its_call() -> None:
    s, args, _ = packed_matmul(8, 64, 32)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    scope: dict[str, Any] = {"te": te}
    text = s.as_python()
    assert "te.intrinsics.dot_uint8_int8_int32(16))" in text
    exec(text, scope)
    assert scope["schedule"](te.create_schedule(args[-1].op), *args).trace == s.trace


def test_a_trace_prints_as_python() -> None:
    s, args, ii = split_mv(20, 7, 4, 3)
    s[args[-1]].tensorize(ii, gemv(4, 3, strides=[None, 1]))
    scope: dict[str, Any] = {}
    exec(s.as_python(), scope)
    again = te.create_schedule(args[-1].op)
    scope["schedule"](again, *args)
    assert again.trace == s.trace
    assert hash(again.trace[-1]) == hash(s.trace[-1])
    assert str(lower(again, args)) == str(lower(s, args))


def test_interpreter_runs_the_plain_form() -> None:
    s, args, _ = packed_matmul(4, 32, 8)
    acc, lanes = tile(s, args[-1])
    s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
    given, want = inputs(args)
    out = np.zeros_like(want)
    interpret(lower(s, args), [*given, out])
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("seeds", [50, pytest.param(120, marks=pytest.mark.slow)])
def test_random_intrinsics_of_random_schedules(checker: Checker, seeds: int) -> None:
    ran = 0
    for seed in range(9000, 9000 + seeds):
        case, _, made = example(seed)
        if made.applied["tensorize"]:
            ran += checker.check(case, ["llvm -num-threads=1"]) == "ran"
    assert ran > seeds // 24


# ---------------------------------------------------------------- dot products of other types


@pytest.mark.parametrize(("operands", "target"), covering(DOT_OPERANDS, TARGETS, strength=1))
def test_dot_products_of_all_types_agree_everywhere(operands: tuple[str, str], target: str) -> None:
    dot = DotProduct(*operands, 16)
    group, result = dot.group, dot.result
    wide = np.float64 if result == "float32" else np.int64  # cut to int32, sums wrap
    A = te.placeholder((5, 3 * group - 1), operands[0], name="A")
    W = te.placeholder((3, 3, 16, group), operands[1], name="W")
    k = te.reduce_axis((0, 3 * group - 1), name="k")

    def element(i: Any, j: Any) -> Any:
        w = W[j // 16, k // group, j % 16, k % group]
        return te.sum(A[i, k].astype(result) * w.astype(result), axis=k)

    C = te.compute((5, 40), element, name="C")
    s = te.create_schedule(C.op)
    acc, lanes = tile(s, C, group=group)
    s[acc].tensorize(lanes, te.intrinsics.dot_products(*operands, 16))
    rng = np.random.default_rng(4)
    given = [_ends(rng, t) for t in (A, W)]
    kernel = given[1].astype(wide).transpose(1, 3, 0, 2).reshape(3 * group, 48)
    want = given[0].astype(wide) @ kernel[: 3 * group - 1, :40]
    check(s, [A, W, C], given, want.astype(result), target)


def _ends(rng: np.random.Generator, t: te.Tensor) -> Any:
    """The ends of an integer type, or small whole numbers, whose products are exact."""
    if t.dtype == "bfloat16":
        return rng.integers(-9, 10, t.shape).astype(ml_dtypes.bfloat16)
    limits = np.iinfo(t.dtype)
    return rng.choice([limits.min, limits.min + 1, limits.max], t.shape).astype(t.dtype)


@pytest.mark.parametrize("operands", DOT_OPERANDS)
def test_dot_products_print_as_their_call(operands: tuple[str, str]) -> None:
    intrin = te.intrinsics.dot_products(*operands, 8)
    call = call_of(intrin)
    assert call.startswith("te.intrinsics.dot_")
    assert eval(call, {"te": te}) == intrin
    assert why_not_harmless(intrin) == ""


def test_dot_products_that_there_are_not() -> None:
    for given in [("int8", "bfloat16", 16), ("uint8", "int8", 12), ("float16", "float16", 16)]:
        with pytest.raises(TensorError, match="lanes of uint8 by int8, int8 by uint8"):
            te.intrinsics.dot_products(*given)


@pytest.mark.isa("avx512bf16")
def test_the_instruction_for_bfloat16_is_used_where_the_cpu_has_it() -> None:
    A = te.placeholder((4, 8), "bfloat16", name="A")
    W = te.placeholder((1, 4, 16, 2), "bfloat16", name="W")
    k = te.reduce_axis((0, 8), name="k")

    def element(i: Any, j: Any) -> Any:
        w = W[j // 16, k // 2, j % 16, k % 2]
        return te.sum(A[i, k].astype("float32") * w.astype("float32"), axis=k)

    C = te.compute((4, 16), element, name="C")
    s = te.create_schedule(C.op)
    acc, lanes = tile(s, C, columns=16, group=2)
    s[acc].tensorize(lanes, te.intrinsics.dot_products("bfloat16", "bfloat16", 16))
    count = {
        t: build(s, [A, W, C], t, name="f").get_source("asm").count("vdpbf16ps")
        for t in TARGETS[:3]
    }
    assert list(count.values()) == [4, 0, 8]


# ---------------------------------------------------------------- padded reductions


def _packed_here(k: int, pads: tuple[float | None, float | None], types: tuple[str, str]) -> Any:
    """A product whose operands are copied into groups, with some padding."""
    dot = DotProduct(*types, 16)
    A, B = te.placeholder((4, k), types[0], name="A"), te.placeholder((k, 16), types[1], name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (4, 16),
        lambda i, j: te.sum(A[i, r].astype(dot.result) * B[r, j].astype(dot.result), axis=r),
        name="C",
    )
    s = te.create_schedule(C.op)
    acc, lanes = tile(s, C, columns=16, group=dot.group)
    data, kernel = s.cache_read(A, "global", [acc]), s.cache_read(B, "global", [acc])
    group = dot.group
    s[data].transform_layout(lambda i, k: (i, k // group, k % group), pad_value=pads[0])
    s[kernel].transform_layout(lambda k, j: (k // group, j, k % group), pad_value=pads[1])
    s[acc].tensorize(lanes, te.intrinsics.dot_products(*types, 16))
    return s, [A, B, C]


@pytest.mark.parametrize(
    ("k", "types", "pads"),
    covering(
        [8, 9, 11],
        [("uint8", "int8"), ("int8", "int8"), ("bfloat16", "bfloat16")],
        [(0, 0), (0, 1), (1, 0), (2, 1), (None, 0), (0, None)],
    ),
)
def test_a_reduction_is_filled_up_with_zeros_where_they_are_known(
    k: int, types: tuple[str, str], pads: tuple[float | None, float | None]
) -> None:
    s, args = _packed_here(k, pads, types)
    rng = np.random.default_rng(k)
    given = [_ends(rng, t) for t in args[:2]]
    want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    for target in ("llvm", "llvm -mcpu=x86-64-v3", "interp"):
        check(s, args, given, want.astype(args[-1].dtype), target)
    # Padding that was never written is no number; of floats both factors have to be zero.
    zeros = pads == (0, 0) or (types[0] != "bfloat16" and 0 in pads and None not in pads)
    whole = k % DotProduct(*types, 16).group == 0
    plain = f"{args[-1].dtype}(A.global" in str(lower(s, args))
    assert plain == (not whole and not zeros)


def _rows_of(rows: int) -> Any:
    return lambda i, k: (i // rows, i % rows, k)


def test_tiles_over_the_edge_run_whole_where_their_operands_are_padded() -> None:
    A, B = te.placeholder((7, 8), "uint8", name="A"), te.placeholder((8, 40), "int8", name="B")
    r = te.reduce_axis((0, 8), name="k")
    C = te.compute(
        (7, 40),
        lambda i, j: te.sum(A[i, r].astype("int32") * B[r, j].astype("int32"), axis=r),
        name="C",
    )
    for rows in (4, 8):
        s = te.create_schedule(C.op)
        acc, lanes = tile(s, C)
        data, kernel = s.cache_read(A, "global", [acc]), s.cache_read(B, "global", [acc])
        layout = _rows_of(rows)
        s[data].transform_layout(layout, pad_value=0)
        s[kernel].transform_layout(lambda k, j: (j // 32, k // 4, j % 32, k % 4), pad_value=0)
        s[acc].tensorize(lanes, te.intrinsics.dot_uint8_int8_int32(16))
        assert "int32(A.global" not in str(lower(s, [A, B, C]))
        given = [_ends(np.random.default_rng(0), t) for t in (A, B)]
        want = given[0].astype(np.int32) @ given[1].astype(np.int32)
        for target in ("llvm", "interp"):
            check(s, [A, B, C], given, want, target)
