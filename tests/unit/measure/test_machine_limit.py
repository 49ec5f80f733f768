"""What a kernel of the CPU is held against: the instruction that it computes with, or moving."""

from __future__ import annotations

import pytest

from loopwright import runtime, te
from loopwright.measure import machine_limit
from loopwright.measure.machine_limit import arithmetic_of, limit_of, moving
from loopwright.target import Target, roof_of


def product(data: str, kernel: str, result: str, *, scaled: bool = False):
    A = te.placeholder((8, 16), data, name="A")
    B = te.placeholder((16, 8), kernel, name="B")
    k = te.reduce_axis((0, 16), name="k")

    def term(i, j):
        a, b = A[i, k], B[k, j]
        return te.sum(a.astype(result) * b.astype(result) if data != result else a * b, axis=k)

    C = te.compute((8, 8), term, name="C")
    if scaled:
        C = te.compute((8, 8), lambda i, j: C[i, j].astype("float32") * 0.5, name="D")
    return te.create_schedule(C.op).dag


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("float32", "float32", "float32"), "float32"),
        (("float64", "float64", "float64"), "float64"),
        (("uint8", "int8", "int32"), "int8"),
        (("int8", "int8", "int32"), "int8"),
        (("bfloat16", "bfloat16", "float32"), "bfloat16"),
        (("float16", "float16", "float32"), "float32"),
        (("float16", "float16", "float16"), ""),
        (("int32", "int32", "int32"), ""),
        (("int16", "int16", "int32"), "int16"),
    ],
)
def test_what_an_expression_multiplies(types, expected):
    assert arithmetic_of(product(*types)) == expected


def test_scaling_what_was_summed_up_changes_nothing():
    assert arithmetic_of(product("int8", "int8", "int32", scaled=True)) == "int8"


@pytest.fixture
def caches(monkeypatch):
    sizes = {"L1d": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
    monkeypatch.setattr(runtime.Device, "cache_sizes", property(lambda self: sizes))
    monkeypatch.setattr(machine_limit, "_bandwidth", lambda threads, nbytes: 1e10)
    monkeypatch.setattr(machine_limit, "_peak", lambda threads, roof: 1e11)
    return sizes


def test_arguments_move_through_the_cache_that_holds_them(caches):
    assert moving(1 << 20, 1) is None
    assert moving(3 << 20, 2).name == "cache bandwidth"
    assert moving(2 << 20, 2) is None  # each core holds its half
    assert moving(64 << 20, 1).name == "memory bandwidth"
    assert not moving(64 << 20, 1).each_round
    caches.clear()
    assert moving(64 << 20, 1) is None


def test_the_limit_is_that_at_which_a_call_takes_longer(caches):
    roof = roof_of(Target("llvm -mcpu=x86-64-v3"), "float32")
    long, moved = 10**9, 3 << 20  # 10 ms of arithmetic, 0.3 ms of moving
    assert limit_of(moved, long, 1, roof).name == "FMA peak (AVX2)"
    assert limit_of(moved, 10**6, 1, roof).name == "cache bandwidth"
    assert limit_of(1 << 10, 10**6, 1, roof).each_round
    # Where no roof of the instruction is known, no share is said.
    assert limit_of(1 << 10, long, 1, None) is None
    assert limit_of(moved, long, 1, None).name == "cache bandwidth"
    assert limit_of(1 << 10, 0, 1, roof) is None
