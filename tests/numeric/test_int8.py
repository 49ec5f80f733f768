"""Products of bytes summed in int32: right up to the limits, with widening loads in vector code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.codegen.llvm.compiler import compile_func
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target
from loopwright.testing.target_contract import runs_here
from tests.kernels import build

M, N = 4, 32


def matmul(left: str, right: str, vector: bool) -> tuple[Schedule, list[Any]]:
    A, B = te.placeholder((M, N), left, name="A"), te.placeholder((N, N), right, name="B")
    k = te.reduce_axis(N, "k")

    def product(i: Any, j: Any) -> Any:
        return te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k)

    C = te.compute((M, N), product, name="C")
    s = create_schedule(C)
    i, j = C.op.axis
    if vector:
        jo, ji = s[C].split(j, 16)
        s[C].reorder(i, jo, k, ji)
        s[C].vectorize(ji)
    return s, [A, B, C]


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    ("left", "right"), [("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8")]
)
def test_matmul_of_bytes(left: str, right: str, vector: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, (rows, N), d, endpoint=True)
        for rows, d in ((M, left), (N, right))
    )
    a[0], b[:, 0] = np.iinfo(left).min, np.iinfo(right).min
    a[1], b[:, 1] = np.iinfo(left).max, np.iinfo(right).max
    want = a.astype("int32") @ b.astype("int32")
    s, args = matmul(left, right, vector)
    got = np.zeros((M, N), "int32")
    interpret(lower(s, args), [a, b, got])
    np.testing.assert_array_equal(got, want)
    for target in ("llvm -num-threads=1", "llvm -num-threads=1 -mcpu=x86-64"):
        if runs_here(target):
            got = np.zeros((M, N), "int32")
            build(s, args, target=target)(a, b, got)
            np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(not runs_here("llvm -mcpu=x86-64"), reason="x86 only")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("dtype", "load"), [("int8", "vpmovsxb"), ("uint8", "vpmovzxb")])
def test_vector_code_widens_what_it_loads(dtype: str, load: str, cpu: str) -> None:
    s, args = matmul(dtype, dtype, True)
    target = Target(f"llvm -num-threads=1 -mcpu={cpu}")
    words = compile_func(lower(s, args), target).source("asm").split()
    assert any(w.startswith(load) for w in words)
    assert not any(w.startswith("vpinsr") for w in words), "no lane is loaded by itself"
