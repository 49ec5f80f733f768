"""matmul_tensor_core: its space on the interpreter, cubins of large products, refusals."""

from __future__ import annotations

import importlib.util
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

CUDA = lw.Target("cuda -arch=sm_80")
NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
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
    [(32, 32, 32), (64, 32, 48), (33, 16, 16, True), (16, 24, 32, True, "bfloat16")],
    ids=str,
)
def test_the_default(given: tuple[Any, ...]) -> None:
    task = lw.create_task("matmul_tensor_core", given, CUDA)
    s, args = task.instantiate(task.config_space.default_index)
    check(s, args, task.reference)


def test_other_configurations() -> None:
    """Tiles that overrun the shape, one warp and many."""
    task = lw.create_task("matmul_tensor_core", (32, 24, 32), CUDA)
    wanted = [
        {"tile": [16, 32], "warps": [1, 1], "step": 16, "stages": 5},
        {"tile": [16, 16], "warps": [2, 2], "step": 32, "stages": 2},
    ]
    for values in wanted:
        s, args = task.instantiate(values)
        check(s, args, task.reference)


@needs_nvrtc
@pytest.mark.parametrize("trans_b", [False, True])
def test_a_large_product_fits(trans_b: bool) -> None:
    task = lw.create_task("matmul_tensor_core", (4096, 4096, 4096, trans_b), CUDA)
    s, args = task.instantiate(task.config_space.default_index)
    f = lower(s, args)
    verify_gpu_limits(f, limits_of(CUDA.options), s)
    made = write_cuda(split_host_device(f, "cuda"))
    for arch in ("sm_80", "sm_90"):
        have = nvrtc.resources(nvrtc.compile_cubin(made.text, "main", arch).log)["main_kernel0"]
        assert (have.spill_bytes, have.local_bytes) == (0, 0)


@pytest.mark.parametrize("shape", [(16, 20, 16), (16, 16, 24), (8, 16, 16)])
def test_shapes_that_cannot_be(shape: tuple[int, int, int]) -> None:
    with CUDA, pytest.raises(TaskError, match="takes M from 16 on, N from 16 on in"):
        lw.ops.matmul_tensor_core(*shape)


def test_architectures_without_the_instruction() -> None:
    with lw.Target("cuda -arch=sm_75"), pytest.raises(TaskError, match="needs sm_80 or later, and"):
        lw.ops.matmul_tensor_core(16, 16, 16)


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_other_targets(target: str) -> None:
    with lw.Target(target), pytest.raises(TaskError, match="is for targets cuda, and the target"):
        lw.ops.matmul_tensor_core(16, 16, 16)
