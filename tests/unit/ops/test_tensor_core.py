"""matmul_tensor_core: its space on the interpreter, cubins of large products, refusals."""

from __future__ import annotations

import importlib.util
import re
from functools import partial
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy learns bfloat16 from it)
import numpy as np
import pytest

import loopwright as lw
from loopwright.codegen.gpu import nvrtc
from loopwright.codegen.gpu.cuda import write_cuda
from loopwright.codegen.gpu.split import split_host_device
from loopwright.errors import TaskError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from tests.covering import covering
from tests.unit.lowering.tensor_core_programs import nearest_tf32

CUDA = lw.Target("cuda -arch=sm_80")
NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
night = partial(pytest.param, marks=pytest.mark.slow)
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason=f"NVRTC is not here: {nvrtc.INSTALL}")


def check(s: Any, args: Any, reference: Any) -> None:
    f = lower(s, args)
    verify_gpu_limits(f, limits_of(CUDA.options), s)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-3, 4, t.shape).astype(t.dtype) for t in args[:2]]
    out = np.full(args[2].shape, np.nan, "float32")
    interpret(f, [*inputs, out], thread_order=1, races=True)
    np.testing.assert_array_equal(out, reference(*inputs))


@pytest.mark.parametrize(
    "given",
    [
        # The interpreter takes seconds for several blocks, and what it runs is the same.
        night((32, 32, 32)),
        night((64, 32, 48)),
        (33, 16, 16, True),
        (16, 24, 32, True, "bfloat16"),
        night((32, 32, 32, False, "tf32")),
        night((64, 32, 48, False, "tf32")),
        (33, 20, 24, True, "tf32"),
    ],
    ids=str,
)
def test_the_default(given: tuple[Any, ...]) -> None:
    task = lw.create_task("matmul_tensor_core", given, CUDA)
    s, args = task.instantiate(task.config_space.default_index)
    check(s, args, task.reference)


@pytest.mark.parametrize(
    "values",
    [
        night({"tile": [16, 32], "warps": [1, 1], "step": 16, "stages": 5}),
        {"tile": [16, 16], "warps": [2, 2], "step": 32, "stages": 2},
    ],
    ids=str,
)
def test_other_configurations(values: dict[str, Any]) -> None:
    """Tiles that overrun the shape, one warp and many."""
    task = lw.create_task("matmul_tensor_core", (32, 24, 32), CUDA)
    s, args = task.instantiate(values)
    check(s, args, task.reference)


@pytest.mark.parametrize("trans_b", [False, True])
def test_tf32_rounds_its_operands(trans_b: bool) -> None:
    """Its results are those of rounded operands, and so are those that it is compared with."""
    task = lw.create_task("matmul_tensor_core", (32, 32, 32, trans_b, "tf32"), CUDA)
    s, args = task.instantiate(task.config_space.default_index)
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=t.shape).astype("float32") for t in args[:2])
    out = np.full((32, 32), np.nan, "float32")
    interpret(lower(s, args), [a, b, out])
    y = b.T if trans_b else b
    want = nearest_tf32(a) @ nearest_tf32(y)
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    assert np.abs(out - a @ y).max() > 1e-3
    assert task.reference is not None
    np.testing.assert_array_equal(task.reference(a, b), want)
    assert task.flop == 2 * 32**3


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("step", [8, 16, 32])
def test_lanes_load_tf32_from_different_banks(trans_b: bool, step: int) -> None:
    """Lanes 4 g + t load element t of line g; a bank has every 32nd element."""
    task = lw.create_task("matmul_tensor_core", (64, 64, 64, trans_b, "tf32"), CUDA)
    values = {"tile": [32, 64], "warps": [1, 1], "step": step, "stages": 2}
    text = str(lower(*task.instantiate(values)))
    for name, transposed in (("A", True), ("B", trans_b)):
        strides = re.search(rf"{name}\.shared\.dyn = .*strides=\[\d+, (\d+), 1\]", text)
        assert strides is not None
        row = int(strides[1])
        line, element = (row, 1) if transposed else (1, row)
        banks = {(g * line + t * element) % 32 for g in range(8) for t in range(4)}
        assert len(banks) == 32, (name, row)


def test_a_plain_product_of_float32_is_not_rounded() -> None:
    task = lw.create_task("matmul", (64, 64, 64), CUDA)
    text = str(lower(*task.instantiate(task.config_space.default_index)))
    assert "mma" not in text
    assert "reinterpret" not in text


def test_other_precisions() -> None:
    with CUDA, pytest.raises(TaskError, match="dtype is float16, bfloat16, tf32, got 'float32'"):
        lw.ops.matmul_tensor_core(32, 32, 32, dtype="float32")


@needs_nvrtc
@pytest.mark.parametrize(
    ("trans_b", "dtype"), covering([False, True], ["float16", "tf32"], strength=1)
)
def test_a_large_product_fits(trans_b: bool, dtype: str) -> None:
    task = lw.create_task("matmul_tensor_core", (4096, 4096, 4096, trans_b, dtype), CUDA)
    s, args = task.instantiate(task.config_space.default_index)
    f = lower(s, args)
    verify_gpu_limits(f, limits_of(CUDA.options), s)
    made = write_cuda(split_host_device(f, "cuda"))
    for arch in ("sm_80", "sm_90"):
        have = nvrtc.resources(nvrtc.compile_cubin(made.text, "main", arch).log)["main_kernel0"]
        assert (have.spill_bytes, have.local_bytes) == (0, 0)


@pytest.mark.parametrize(
    "given",
    [
        (16, 20, 16),
        (16, 16, 24),
        (8, 16, 16),
        (16, 18, 8, False, "tf32"),
        (16, 16, 12, True, "tf32"),
    ],
)
def test_shapes_that_cannot_be(given: tuple[Any, ...]) -> None:
    with CUDA, pytest.raises(TaskError, match="takes M from 16 on, N from 16 on in"):
        lw.ops.matmul_tensor_core(*given)


def test_architectures_without_the_instruction() -> None:
    with lw.Target("cuda -arch=sm_75"), pytest.raises(TaskError, match="needs sm_80 or later, and"):
        lw.ops.matmul_tensor_core(16, 16, 16)


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_other_targets(target: str) -> None:
    with lw.Target(target), pytest.raises(TaskError, match="is for targets cuda, and the target"):
        lw.ops.matmul_tensor_core(16, 16, 16)
