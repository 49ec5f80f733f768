"""The templates for GPUs: their default and random points of their spaces, without a GPU.

The interpreter runs kernels thread by thread and looks for races; the limits of the target are
checked on what was lowered.
"""

from __future__ import annotations

import re
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import ops, te
from loopwright.errors import LowerError, TaskError
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Allocate, Func
from loopwright.ir.visitor import nodes
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.ops.gpu import schedule_for_gpu
from loopwright.space.rules.common_gpu import LaunchLimits
from loopwright.space.rules.contraction_gpu import tiles_of
from tests import opencl_runner
from tests.covering import examples

Case = tuple[str, tuple[object, ...]]
SMALL: list[Case] = [
    ("matmul", (37, 53, 13)),
    ("matmul", (16, 32, 8, True, False)),
    ("matmul", (13, 37, 11, True, True)),
    ("matmul", (1, 50, 3)),
    ("matmul", (17, 16, 64, False, True)),
    ("matmul", (9, 21, 10, False, True, "int8")),
    ("matmul", (20, 24, 16, False, False, "float16")),
    ("batch_matmul", (3, 13, 17, 11)),
    ("batch_matmul", (2, 16, 8, 12, True, True)),
    ("dense", (13, 37, 11)),
    ("dense", (1, 50, 40)),
    ("dense", (7, 24, 16, False, False, "float32", "KN")),
    ("conv2d", (1, 3, 8, 9, 5, 3, 3, 1, 1)),
    ("conv2d", (2, 4, 9, 7, 17, 3, 2, 2, (1, 0))),
    ("conv2d", (1, 1, 1, 1, 1, 1, 1, 1, 0)),
    ("conv2d", (1, 4, 9, 10, 21, 3, 3, 2, 1, "float32", 1, 1, "NHWC")),
    ("conv2d", (1, 6, 8, 8, 10, 3, 3, 1, 1, "float32", 1, 2, "NCHW")),
    ("conv2d", (1, 6, 8, 8, 20, 3, 3, 1, 1, "float32", (1, 2), 2, "NHWC")),
    ("conv2d", (1, 8, 5, 5, 8, 3, 3, 1, 1, "int8", 1, 8, "NCHW")),
    ("depthwise_conv2d", (1, 3, 8, 9, 3, 3, 1, 1)),
    ("depthwise_conv2d", (1, 19, 5, 6, 3, 3, 1, 1, "float32", 1, "NHWC")),
    ("pool2d", (1, 3, 12, 10, 3, 3, 2, 1, "avg")),
    ("pool2d", (1, 2, 9, 9, 2, 3, (2, 3), 0, "max", False, "int32")),
    ("pool2d", (1, 3, 7, 7, 7, 7, 1, 0, "avg")),
    ("reduce", (5, 37)),
    ("reduce", (1, 1)),
    ("reduce", (40, 70, "sum", 0)),
    ("reduce", (64, 48, "max")),
    ("reduce", (30, 21, "sum", 1, "int8")),
    ("softmax", (5, 37)),
    ("softmax", (3, 64)),
    ("softmax", (1, 1)),
    ("softmax", (2, 13, "float16")),
    ("layer_norm", (5, 37)),
    ("layer_norm", (4, 96)),
    ("elementwise", (9, 37)),
    ("elementwise", (4, 64, "exp,scale,sigmoid,mul")),
    ("elementwise", (5, 33, "shift,relu,add", "int16")),
    ("transpose", (37, 21)),
    ("transpose", (64, 40)),
    ("transpose", (1, 5)),
    ("matmul_int8", (13, 37, 11)),
]
LARGE: list[Case] = [
    ("matmul", (1024, 1024, 1024)),
    ("matmul", (1009, 1013, 1019, False, False, "float16")),
    ("batch_matmul", (65, 128, 128, 64)),
    ("batch_matmul", (70000, 4, 8, 8)),
    ("dense", (128, 1000, 512)),
    ("conv2d", (32, 64, 56, 56, 64, 3, 3, 1, 1)),
    ("conv2d", (1, 256, 14, 14, 256, 3, 3, 1, 1, "float32", 1, 1, "NHWC")),
    ("conv2d", (1, 3, 224, 224, 64, 7, 7, 2, 3)),
    ("conv2d", (8, 128, 28, 28, 128, 3, 3, 1, 1, "float32", 1, 32)),
    ("depthwise_conv2d", (1, 64, 56, 56, 3, 3, 1, 1)),
    ("pool2d", (1, 64, 56, 56, 2, 2, 2)),
    ("reduce", (4096, 4096)),
    ("reduce", (4096, 4096, "sum", 0)),
    ("reduce", (1, 1 << 24)),
    ("softmax", (4096, 4096)),
    ("softmax", (8, 1 << 20)),
    ("softmax", (16, 50000)),
    ("layer_norm", (8192, 1024)),
    ("elementwise", (4096, 4096)),
    ("transpose", (4096, 4096)),
    ("matmul_int8", (512, 512, 512)),
]
TOLERANCE = {"float32": 2e-5, "float16": 2e-3}
#: A device of few threads and little memory, whose defaults must fit as well.
NARROW = "opencl -max-threads-per-block=64 -max-shared-memory-per-block=4096"


#: Transposed operands, a layout with strides, columns: by day, too.
ALSO: list[tuple[Case, str]] = [
    (("matmul", (13, 37, 11, True, True)), "cuda"),
    (("conv2d", (1, 4, 9, 10, 21, 3, 3, 2, 1, "float32", 1, 1, "NHWC")), "opencl"),
    (("reduce", (40, 70, "sum", 0)), "cuda"),
]


def some(cases: list[Case], targets: list[str]) -> list[Any]:
    """Pairs of both; by day `ALSO`, and the first case of each operator on targets in turn."""
    first = list({name: (name, args) for name, args in reversed(cases)}.values())[::-1]
    kept = [*zip(first, cycle(targets)), *ALSO]
    return [
        pytest.param(*pair, marks=() if pair in kept else pytest.mark.slow)
        for pair in product(cases, targets)
    ]


def test_every_operator_is_here() -> None:
    for cases in (SMALL, LARGE):
        assert {name for name, _ in cases} == set(ops.WORKLOADS)


def lowered(task: lw.Task, index: int) -> tuple[Func, list[te.Tensor]]:
    """What a configuration becomes, checked against the limits of the task's target."""
    s, tensors = task.instantiate(index)
    f = lw.lower(s, tensors)
    verify_gpu_limits(f, limits_of(task.target.options), s)
    assert "blockIdx.x" in str(f)
    assert "threadIdx" in str(f)
    return f, tensors


def arrays_of(tensors: list[te.Tensor]) -> list[np.ndarray]:
    """Values for the inputs; the output is poisoned."""
    rng = np.random.default_rng(0)
    arrays = [
        (rng.standard_normal(t.static_shape) * (1 if t.dtype.startswith("float") else 5)).astype(
            t.dtype
        )
        for t in tensors
    ]
    arrays[-1][...] = np.nan if arrays[-1].dtype.kind == "f" else 77
    return arrays


def assert_right(task: lw.Task, index: int, got: np.ndarray, inputs: list[np.ndarray]) -> None:
    wanted = task.reference(*inputs)
    scale = max(1.0, float(np.abs(wanted.astype("float64")).max()))
    worst = float(np.abs(got.astype("float64") - wanted.astype("float64")).max())
    text = f"{task} {task.config_space.get(index)}"
    assert worst <= TOLERANCE.get(str(got.dtype), 0) * scale, text


@pytest.mark.parametrize(("case", "target"), some(SMALL, ["opencl", "cuda"]), ids=str)
def test_defaults_and_random_points_are_right(case: Case, target: str) -> None:
    task = lw.create_task(*case, target)
    space = task.config_space
    drawn = space.sample_ints(examples(1, 2), rng=len(space))
    for index in [space.default_index] if target == "opencl" else drawn:
        f, tensors = lowered(task, index)
        arrays = arrays_of(tensors)
        interpret(f, arrays, thread_order=1, races=True)
        assert_right(task, index, arrays[-1], arrays[:-1])


@pytest.mark.parametrize(("case", "target"), some(LARGE, ["opencl", "cuda", NARROW]), ids=str)
def test_points_of_large_shapes_are_within_the_limits(case: Case, target: str) -> None:
    task = lw.create_task(*case, target)
    space = task.config_space
    assert space.is_valid(space.default_index)
    for index in [space.default_index, *space.sample_ints(examples(1, 3), rng=0)]:
        lowered(task, index)


@pytest.mark.skipif(bool(opencl_runner.why_not()), reason=opencl_runner.why_not())
@pytest.mark.parametrize(
    ("name", "args"),
    [
        # Staged through shared memory, and more than one kernel; the compiler takes a second each.
        ("matmul", (37, 53, 13)),
        pytest.param(
            "conv2d",
            (1, 6, 8, 8, 20, 3, 3, 1, 1, "float32", (1, 2), 2, "NHWC"),
            marks=pytest.mark.slow,
        ),
        pytest.param("softmax", (5, 37), marks=pytest.mark.slow),
        ("reduce", (2, 20000)),
        pytest.param("transpose", (37, 21), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_defaults_run_on_opencl(name: str, args: tuple[object, ...]) -> None:
    from loopwright.codegen.backends import LoweredProgram, compile_opencl

    task = lw.create_task(name, args, "opencl")
    f, tensors = lowered(task, task.config_space.default_index)
    code = compile_opencl(LoweredProgram(f), task.target)
    arrays = arrays_of(tensors)
    *inputs, _ = arrays
    got = opencl_runner.run_opencl(code.objects, arrays)[-1]
    assert_right(task, task.config_space.default_index, got, inputs)


# ------------------------------------------------------------------ which rule, and what it makes


def rule_of(out: te.Tensor, target: str = "cuda") -> str:
    with lw.Target(target):
        return schedule_for_gpu(lw.ConfigSpace(), te.create_schedule(out.op), out)


def test_rules_are_chosen_by_access_maps() -> None:
    """No operator is named: these expressions have no template."""
    A, B = (te.placeholder((64, 48), name=n) for n in "AB")
    k = te.reduce_axis((0, 48), name="k")
    cheapest = te.compute((64, 64), lambda i, j: te.min(A[i, k] + B[j, k], axis=k), name="cheapest")
    assert rule_of(cheapest) == "contraction"
    total = te.compute((64,), lambda i: te.sum(A[i, k] * B[i, k], axis=k), name="total")
    assert rule_of(total) == "rows"
    r = te.reduce_axis((0, 3), name="r")
    blurred = te.compute((64, 40), lambda i, j: te.sum(A[i, j + r], axis=r), name="blurred")
    assert rule_of(blurred) == "window"
    assert rule_of(te.compute((48, 64), lambda i, j: A[j, i] + 1, name="turned")) == "transpose"
    assert rule_of(te.compute((64, 48), lambda i, j: A[i, j] + B[i, j], name="sum")) == "injective"
    both = te.compute((48, 48), lambda i, j: A[i, j] + A[j, i], name="both")
    assert rule_of(both) == "injective", "a tile of both reads would cover all of A"


def test_a_column_of_a_reduction_of_rows_goes_apart() -> None:
    """A sum over the rows of sums is no chain over one row, but has kernels of its own."""
    A = te.placeholder((40, 50), name="A")
    k, q = te.reduce_axis((0, 50), name="k"), te.reduce_axis((0, 40), name="q")
    rows = te.compute((40,), lambda i: te.sum(A[i, k], axis=k), name="rows")
    total = te.compute((1,), lambda i: te.sum(rows[q], axis=q), name="total")
    with lw.Target("opencl"):
        s = te.create_schedule(total.op)
        assert schedule_for_gpu(lw.ConfigSpace(), s, total) == "apart"
    f = lw.lower(s, [A, total])
    x, out = np.ones((40, 50), "float32"), np.zeros(1, "float32")
    interpret(f, [x, out], races=True)
    assert out == [2000]


def test_a_result_without_dimensions_is_refused() -> None:
    @lw.template("test/gpu_scalar")
    def scalar() -> tuple[lw.Schedule, list[te.Tensor]]:
        k = te.reduce_axis((0, 8), name="k")
        A = te.placeholder((8,), name="A")
        return ops.gpu.scheduled(te.compute((), lambda: te.sum(A[k], axis=k), name="T"), [A])

    with pytest.raises(TaskError, match=r"'T' has no dimension to bind to threads"):
        lw.create_task(scalar, (), "cuda")


def shared_bytes(f: Func) -> int:
    buffers = [n.buffer for n in nodes(f) if isinstance(n, Allocate)]
    return sum(b.nbytes for b in buffers if b.scope == "shared")


@pytest.mark.parametrize(
    "args",
    [
        pytest.param((256, 256, 256), marks=pytest.mark.slow),
        (200, 1000, 77, True, True),  # where nothing divides, most is padded
        pytest.param((48, 80, 30), marks=pytest.mark.slow),
    ],
)
def test_shared_memory_is_not_underestimated(args: tuple[object, ...]) -> None:
    """A space that took less for granted would hold points which the device refuses."""
    most = 16384
    task = lw.create_task("matmul", args, f"cuda -max-shared-memory-per-block={most}")
    taken = [shared_bytes(lowered(task, i)[0]) for i in task.config_space.sample_ints(40, rng=1)]
    assert max(taken) <= most
    assert max(taken) > most // 4, "the estimate is not so far off that nothing large is left"


def test_points_that_a_space_refuses_would_not_launch() -> None:
    """The filter is needed: what it refuses exceeds a limit, or is not worth a try."""
    task = lw.create_task("matmul", (512, 512, 512), NARROW)
    space, refused = task.config_space, 0
    for index in np.random.default_rng(0).integers(len(space), size=30).tolist():
        if space.is_valid(index):
            continue
        try:
            lowered(task, index)
        except (LowerError, lw.LoopwrightError):
            refused += 1
    assert refused > 10


def test_the_default_of_a_large_product_is_a_known_good_one() -> None:
    """Two by two vectors of four a thread, staged with vector loads, both operands side by side."""
    config = lw.create_task("matmul", (4096, 4096, 4096), "cuda").config_space
    default = config.get(config.default_index)
    assert default["tile_i"].size == (-1, 2, 16, 4)
    assert default["tile_j"].size == (-1, 2, 16, 4)
    assert default["fetch"].val
    assert default["vector"].val
    assert default["turn"].val


def test_what_the_knobs_of_a_contraction_do() -> None:
    task = lw.create_task("matmul", (64, 64, 64), "cuda")
    space = task.config_space
    tiles = {"tile_i": [-1, 1, 8, 4], "tile_j": [-1, 1, 8, 4], "split_k": [-1, 2, 8]}
    words = ("fetch", "vector", "turn", "pad", "double")
    plain = {**tiles, **dict.fromkeys(words, False)}
    text = {
        name: str(lowered(task, space.index_of({**plain, **change}))[0])
        for name, change in {
            "plain": {},
            "fetch": {"fetch": True},
            "turn": {"turn": True},
            "pad": {"pad": True},
            "double": {"double": True},
            "vector": {"turn": True, "vector": True},
        }.items()
    }
    assert "A.shared = alloc(float32[32, 16], shared)" in text["plain"]
    assert "vectorized" not in text["plain"]
    assert text["fetch"].count("vectorized(4)") == 2
    assert "A.shared = alloc(float32[16, 32], shared)" in text["turn"]
    assert "A.shared = alloc(float32[32, 16], shared, strides=[20, 1])" in text["pad"]
    assert "A.shared = alloc(float32[2, 32, 16], shared)" in text["double"]
    assert text["vector"].count("vectorized(4)") == 3


@pytest.mark.parametrize("length", [1, 2, 7, 13, 56, 64, 97, 1000, 1009])
def test_tiles_of_a_loop(length: int) -> None:
    tiles = tiles_of(length)
    assert (1, 1, 1) in tiles
    assert len(set(tiles)) == len(tiles)
    for virtual, threads, registers in tiles:
        tile = virtual * threads * registers
        assert tile <= length
        assert -(-length // tile) * tile <= 1.25 * length


def test_limits_come_from_the_target() -> None:
    with lw.Target("opencl -max-threads-per-block=128 -max-shared-memory-per-block=16384"):
        device = LaunchLimits.current()
    assert (device.threads, device.shared, device.vector_bytes) == (128, 16384, 16)
    assert device.lanes("float32") == 4
    assert device.lanes("float64") == 2
    with lw.Target("cuda -arch=sm_80"):
        assert LaunchLimits.current().shared == 166912


def test_long_rows_are_shared_by_blocks() -> None:
    task = lw.create_task("reduce", (1, 1 << 20), "cuda")
    f, _ = lowered(task, task.config_space.default_index)
    blocks = [int(n) for n in re.findall(r"blockIdx.x in thread\((\d+)\)", str(f))]
    parts = task.config_space.get(task.config_space.default_index)["parts"].val
    assert blocks == [parts], "the second kernel, which adds up the parts, is one block"


def test_a_tuner_asks_for_points_of_a_device() -> None:
    """Candidates of one structure share a derivation: sizes stay symbols in the rules."""
    task = lw.create_task("softmax", (64, 100), "opencl")
    points = lw.tuner.XGBTuner(task, seed=0).ask(8)
    assert len({p.index for p in points}) == 8


def test_a_stage_without_inputs_is_part_of_the_kernel() -> None:
    ramp = te.compute((50,), lambda i: i * 2, name="ramp")
    out = te.compute((50,), lambda i: ramp[i] + 1, name="out")
    with lw.Target("cuda"):
        s = te.create_schedule(out.op)
        assert schedule_for_gpu(lw.ConfigSpace(), s, out) == "injective"
    f = lw.lower(s, [out])
    got = np.zeros(50, "int32")
    interpret(f, [got], races=True)
    np.testing.assert_array_equal(got, np.arange(50) * 2 + 1)
    assert "ramp" not in str(f)
