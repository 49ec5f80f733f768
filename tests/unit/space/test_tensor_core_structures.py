"""Products on tensor cores, and what the defaults of large shapes take of a CUDA device."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import loopwright as lw
from loopwright import ops, te
from loopwright.codegen.gpu import nvrtc
from loopwright.codegen.gpu.cuda import write_cuda
from loopwright.codegen.gpu.split import split_host_device
from loopwright.ir.interp.interpreter import interpret
from loopwright.space import structures
from loopwright.te import Tensor
from tests.covering import examples
from tests.unit.space.expressions import Make, placeholder, product
from tests.unit.space.on_devices import arrays_of, halves, lowered

NVRTC = importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings")
needs_nvrtc = pytest.mark.skipif(not NVRTC, reason=f"NVRTC is not here: {nvrtc.INSTALL}")


LARGE: dict[str, Make] = {
    "large product": product(1024, 1024, 1024),
    "large softmax": lambda: softmax_of(4096, 1000),
    "large product of halves": lambda: halves(1024, 1024, 1024, False),
}


def softmax_of(rows: int, columns: int) -> list[Tensor]:
    X = placeholder(rows, columns, name="X")
    return [X, ops.softmax_compute(X)[0]]


@needs_nvrtc
@pytest.mark.parametrize("name", ["large product", "large softmax", "large product of halves"])
def test_defaults_of_large_shapes_fit_the_registers(name: str) -> None:
    args = LARGE[name]()
    with lw.Target("cuda -arch=sm_80"):
        structure = structures(args[-1], args)[0]
    f = lowered(structure, structure.config_space.default_index)
    split = split_host_device(f, "cuda")
    have = nvrtc.resources(nvrtc.compile_cubin(write_cuda(split).text, "main", "sm_80").log)
    for kernel in split.kernels:
        taken = have[kernel.name]
        assert (taken.spill_bytes, taken.local_bytes) == (0, 0)
        assert taken.registers is not None
        assert taken.registers * kernel.thread_count <= 65536


@pytest.mark.parametrize(
    ("trans_b", "dtype"),
    [
        (False, "float16"),
        # What they change is in the layouts of fragments: transposed operands are tested in
        # `tests/unit/lowering/test_tensor_cores.py`, bfloat16 in
        # `tests/unit/ops/test_tensor_core.py`.
        *(
            pytest.param(*x, marks=pytest.mark.slow)
            for x in [(True, "float16"), (False, "bfloat16"), (True, "bfloat16")]
        ),
    ],
)
def test_products_of_halves_go_to_tensor_cores(trans_b: bool, dtype: str) -> None:
    args = halves(17, 24, 32, trans_b, dtype)
    with lw.Target("cuda -arch=sm_80"):
        first, second, *_ = structures(args[-1], args)
    assert first.name == "fragments on tensor cores"
    assert second.name.startswith("tiles in shared memory")
    space = first.config_space
    inputs = arrays_of(args)[:-1]
    wanted = inputs[0].astype("float32") @ (inputs[1].T if trans_b else inputs[1]).astype("float32")
    for index in {space.default_index, *space.sample_ints(examples(1, 2), 0)}:
        arrays = arrays_of(args)
        f = lowered(first, index)
        assert "mma" in str(f)
        interpret(f, arrays, thread_order=1, races=True)
        np.testing.assert_array_equal(arrays[-1], wanted)


def names_of(args: list[Tensor], target: str) -> list[str]:
    with lw.Target(target):
        return [s.name for s in structures(args[-1], args)]


def test_what_tensor_cores_cannot_do_is_tiled() -> None:
    tensor_cores = "fragments on tensor cores"
    assert tensor_cores in names_of(halves(32, 32, 32, False), "cuda -arch=sm_80")
    assert tensor_cores not in names_of(halves(32, 32, 32, False), "cuda -arch=sm_75")
    assert tensor_cores not in names_of(halves(32, 32, 32, False), "opencl")
    assert tensor_cores not in names_of(halves(32, 32, 24, False), "cuda -arch=sm_80")
    assert tensor_cores not in names_of(product(32, 32, 32)(), "cuda -arch=sm_80")
    A, B, C = halves(32, 32, 32, False)
    D = te.compute((32, 32), lambda i, j: C[i, j] + 1, name="D")
    assert tensor_cores not in names_of([A, B, D], "cuda -arch=sm_80")


def test_rounded_floats_go_to_tensor_cores() -> None:
    A, B, q = placeholder(32, 16), placeholder(16, 32, name="B"), te.reduce_axis((0, 16), name="k")
    r = te.intrinsics.round_tf32
    C = te.compute((32, 32), lambda i, j: te.sum(r(A[i, q]) * r(B[q, j]), axis=q), name="C")
    assert names_of([A, B, C], "cuda -arch=sm_80")[0] == "fragments on tensor cores"
