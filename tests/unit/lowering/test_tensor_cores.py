"""Products on tensor cores: interpreted against NumPy in any order of threads, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy learns bfloat16 from it)
import numpy as np
import pytest

from loopwright import te
from loopwright.errors import LoopwrightError, LowerError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.lowering.context import PassContext
from loopwright.lowering.gpu_limits import GpuLimits, verify_gpu_limits
from loopwright.schedule import replay
from tests.unit.lowering.programs import Case
from tests.unit.lowering.tensor_core_programs import lanes_of, product, tensor_core_matmul


def check(case: Case, **context: Any) -> str:
    """Results of small integers are exact; races are looked for."""
    with PassContext(**context):
        f = lower(case.s, case.args)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, t.shape).astype(t.dtype) for t in case.args[:2]]
    out = np.full(case.args[2].shape, np.nan, "float32")
    interpret(f, [*inputs, out], thread_order=1, races=True)
    np.testing.assert_array_equal(out, case.reference(*inputs))
    return str(f)


def test_a_product(golden: Any) -> None:
    golden(check(tensor_core_matmul()))


@pytest.mark.parametrize("level", [0, 3])
def test_levels_of_passes(level: int) -> None:
    check(tensor_core_matmul(), opt_level=level)


def test_registers_count_and_what_lanes_exchange_does_not() -> None:
    """A lane has 16 sums, and 8 and 16 elements of the operands."""
    case = tensor_core_matmul()
    f = lower(case.s, case.args)
    verify_gpu_limits(f, GpuLimits(max_local_memory_per_thread=16 * 4 + 8 * 2 + 16 * 2))
    with pytest.raises(LowerError, match="local memory of a thread takes 112 bytes"):
        verify_gpu_limits(f, GpuLimits(max_local_memory_per_thread=111))


def test_the_nest_before_its_passes() -> None:
    """Fragments are memory of warps there."""
    case = tensor_core_matmul()
    f = lower(case.s, case.args, simple_mode=True)
    assert "C.warp = alloc(float32[8, 4, 1, 4, 2, 2], warp)" in str(f)


@pytest.mark.parametrize(
    "options",
    [
        {"k": 48, "warps": (2, 2), "stages": 3, "scope": "shared.dyn"},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in [
                {"ldmatrix": False, "transposed": True},
                {"dtype": "tf32", "transposed": True, "pad": 4},
                {"dtype": "bfloat16"},
                {"transposed": True},
                {"ldmatrix": False},
                {"m": 64, "n": 32, "k": 48, "warps": (2, 2), "stages": 3, "scope": "shared.dyn"},
                {"k": 64, "block": (32, 32, 32), "stages": 2},
                {"m": 40, "n": 23},
                {"dtype": "tf32"},
                {"dtype": "tf32", "m": 64, "k": 48, "warps": (2, 2), "stages": 3,
                 "scope": "shared.dyn"},
                {"dtype": "tf32", "m": 40, "n": 23, "k": 48, "warps": (1, 1)},
            ]
        ),
    ],
    ids=str,
)  # fmt: skip
def test_products(options: dict[str, Any]) -> None:
    check(tensor_core_matmul(**options))


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_tf32_are_those_of_rounded_operands(transposed: bool) -> None:
    case = tensor_core_matmul(dtype="tf32", transposed=transposed)
    f = lower(case.s, case.args)
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-2, 2, t.shape).astype("float32") for t in case.args[:2])
    out = np.full(case.args[2].shape, np.nan, "float32")
    interpret(f, [a, b, out])
    np.testing.assert_allclose(out, case.reference(a, b), rtol=1e-5, atol=1e-5)
    full = a @ (b.T if transposed else b)
    assert 1e-3 < np.abs(out - full).max() < 32 * 4 * 2.0**-10


def test_a_nest_of_float32_is_none_of_tf32() -> None:
    """Who wants operands rounded says so in the expression."""
    s, a, b, c = product(16, 8, 8, "float32")
    s[c].tensorize(c.op.axis[0], te.intrinsics.mma_m16n8k8())
    with pytest.raises(LoopwrightError, match="is not intrinsic 'mma_m16n8k8_tf32'"):
        lower(s, [a, b, c])


def test_registers_of_lanes_are_those_of_the_warp() -> None:
    """The pass changes no result: without it, lanes share the memory of their warp."""
    text = check(tensor_core_matmul(), disabled_pass=["LowerWarpMemory"])
    assert "C.warp = alloc(float32[8, 4, 1, 4, 2, 2], warp)" in text


def test_fragments_of_the_next_step_are_loaded_ahead() -> None:
    """Registers have places in turn as shared memory has."""
    case = tensor_core_matmul(block=(32, 32, 32))
    for name in ("A.shared.warp", "B.shared.warp"):
        fragment = next(t for t in case.s.stages if t.op.name == name)
        fragment.double_buffer()
    assert "A.shared.warp = alloc(float16[2, 1, 1, 2, 2, 2], local)" in check(case)


def test_replay_and_text() -> None:
    case = tensor_core_matmul()
    again = replay(case.s.dag, case.s.trace_json())
    assert again.trace_json() == case.s.trace_json()
    ids = case.s.arg_ids(case.args)
    from loopwright.lowering.pipeline import lower_ids

    assert str(lower_ids(again, ids)) == str(lower(case.s, case.args))
    text = case.s.as_python()
    assert "te.intrinsics.mma_m16n8k16('float16', False)" in text
    assert "te.intrinsics.ldmatrix_x4('b', 'float16')" in text
    names: dict[str, Any] = {"te": te}
    exec(text, names)
    s, *args = product(32, 32, 32)
    names["schedule"](s, *args)
    assert s.trace_json() == case.s.trace_json()
    text = tensor_core_matmul(dtype="tf32", transposed=True, pad=4).s.as_python()
    assert "te.intrinsics.mma_m16n8k8(True)" in text


# ------------------------------------------------------------------ refusals


def refused(change: Callable[..., None], **options: Any) -> str:
    case = tensor_core_matmul(**options)
    stages = {t.op.name: t for t in case.s.stages}

    def lowered() -> None:
        change(case.s, stages)
        lower(case.s, case.args)

    with pytest.raises(LoopwrightError) as e:
        lowered()
    return str(e.value)


def test_another_layout() -> None:
    def change(s: Any, stages: Any) -> None:
        stages["C.warp"].transform_layout(lambda i, j: (i % 8, j % 4, i // 8, j // 4))

    text = refused(change)
    assert "operand 'c': the layout of 'C.warp', (i0 % 8, i1 % 4, i0 // 8, i1 // 4)" in text
    assert text.endswith("call transform_layout with te.intrinsics.fragment_layout")


def test_rows_that_are_not_aligned() -> None:
    text = refused(lambda s, stages: None, pad=4)
    assert "the rows of 'B.shared' are [36, 1] elements apart, and must begin at multiples" in text


def test_fragments_in_other_memory() -> None:
    text = refused(lambda s, stages: stages["A.shared.warp"].set_scope("local"))
    assert "its result lies in their registers; compute the stage inside a kernel, with" in text


def test_tiles_from_global_memory() -> None:
    text = refused(lambda s, stages: stages["A.shared"].set_scope("warp"))
    assert "cannot be bound to threadIdx.z: the buffer of 'A.shared' is that of one warp" in text
    s, a, b, c = product(16, 32, 16)
    w = s.cache_read(a, "warp", [c])
    io, _ = s[c].split(c.op.axis[0], factor=16)
    lanes_of(s, c, s[c].split(c.op.axis[1], factor=4), [])
    s[w].compute_at(s[c], io)
    s[w].transform_layout(te.intrinsics.fragment_layout("a"))
    s[w].tensorize(s[w].op.axis[0], te.intrinsics.ldmatrix_x4("a"))
    with pytest.raises(LoopwrightError) as e:
        lower(s, [a, b, c])
    assert "must lie in shared or shared.dyn memory, and 'A' is global; cache_read" in str(e.value)


def test_tiles_that_do_not_fit() -> None:
    case = tensor_core_matmul(k=40)
    with pytest.raises(LoopwrightError, match="lanes of a warp run it for whole tiles only"):
        lower(case.s, case.args)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_other_dtypes(dtype: str) -> None:
    with pytest.raises(LoopwrightError, match="the operands are float16 or bfloat16, got"):
        te.intrinsics.mma_m16n8k16(dtype)
    with pytest.raises(LoopwrightError, match="the operands are float16 or bfloat16, got"):
        te.intrinsics.ldmatrix_x4("a", dtype)


def test_other_operands() -> None:
    with pytest.raises(LoopwrightError, match="ldmatrix_x4: unknown operand 'c'; use a, b, b_nk"):
        te.intrinsics.ldmatrix_x4("c")
    with pytest.raises(LoopwrightError, match="fragment_layout: unknown operand 'd'"):
        te.intrinsics.fragment_layout("d")  # type: ignore[arg-type]
    with pytest.raises(LoopwrightError, match="bfloat16 or tf32, got 'float32'"):
        te.intrinsics.fragment_layout("a", "float32")
    with pytest.raises(LoopwrightError, match="round_tf32: it is for float32, got float16"):
        te.intrinsics.round_tf32(te.placeholder((1,), "float16")[0])


def copied(bind: bool, threads: int = 32) -> Case:
    """A tile that passes through the registers of a warp."""
    a = te.placeholder((16, 8), name="A")
    c = te.compute((16, 8), lambda i, j: a[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    w = s.cache_read(a, "warp", [c])
    s[c].env_threads([te.thread_axis((0, threads), "threadIdx.x")])
    f = s[c].fuse(*c.op.axis)
    fo, fi = s[c].split(f, factor=8)
    s[w].compute_at(s[c], fo)
    if bind:
        s[w].bind(s[w].op.axis[1], te.thread_axis("threadIdx.x"))
    assert fi in s[c].leaf_iter_vars
    return Case(s, [a, c], lambda x: x * 2)


def test_kernels_without_warps() -> None:
    case = copied(True, 16)
    with pytest.raises(LoopwrightError) as e:
        lower(case.s, case.args)
    text = str(e.value)
    assert "'A.warp' is spread over the lanes of a warp, which are the threads of" in text
    assert "32 of them; the kernel around it has a threadIdx.x of 16;" in text


def test_registers_of_other_lanes() -> None:
    case = copied(False)
    with pytest.raises(
        LowerError, match=r"'A\.warp' is spread over the lanes of a warp, and a thr"
    ):
        lower(case.s, case.args)


def test_virtual_threads_around_a_warp() -> None:
    case = tensor_core_matmul()
    io = next(x for x in case.s[case.args[2]].leaf_iter_vars if x.name.startswith("j.1.1.0"))
    case.s[case.args[2]].bind(io, te.thread_axis("vthread"))
    with pytest.raises(LoopwrightError, match="its kernel has virtual threads; unroll them"):
        lower(case.s, case.args)


def test_loops_of_a_warp_stage_on_other_axes() -> None:
    s, a, _b, c = product(32, 32, 32)
    w = s.cache_read(a, "warp", [c])
    i, j = c.op.axis
    io, ii = s[c].split(i, factor=16)
    lanes_of(s, c, s[c].split(j, factor=4), [])
    s[c].bind(io, te.thread_axis("threadIdx.y"))
    s[w].compute_at(s[c], c.op.reduce_axis[0])
    s[w].bind(s[w].op.axis[0], te.thread_axis("threadIdx.y"))
    assert ii in s[c].leaf_iter_vars
    with pytest.raises(LoopwrightError, match=r"the buffer of 'A\.warp' is that of one warp"):
        lower(s, [a, _b, c])


def test_an_intrinsic_of_warps_outside_of_kernels() -> None:
    s, a, b, c = product(16, 8, 16)
    s[c].tensorize(c.op.axis[0], te.intrinsics.mma_m16n8k16())
    with pytest.raises(LoopwrightError, match="the lanes of a warp run the intrinsic, and its res"):
        lower(s, [a, b, c])
