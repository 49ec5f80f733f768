"""The peak kernels do the work that they are paid for."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import UsageError
from loopwright.runtime import Device, bandwidth, fma_peak, peak
from loopwright.runtime.artifacts.manifest import ArgSpec
from loopwright.target import Roof, Target, host_unit, roof_of


def test_the_fma_kernel_runs_every_turn() -> None:
    # x -> x / 2 + 1 converges to 2: only many turns from 1 * m, 2 * m, ... get there.
    seed, out = np.array([0.5, 1.0], np.float32), np.zeros(1024, np.float32)
    args = [ArgSpec("work", (1,), "int64", False), ArgSpec("seed", (2,), "float32", False)]
    module = peak.kernel_module("fma", [*args, ArgSpec("out", (1024,), "float32", True)], 2)
    module(np.array([40]), seed, out)
    accumulators = peak.shape_of(host_unit())[1]
    assert (out[:40] == 2 * accumulators).all()
    assert not out[40:].any()


def test_time_grows_with_the_work() -> None:
    kernel = peak.fma_kernel(1, host_unit())
    # The best of some runs: other work of the machine makes single ones many times slower.
    rates = [max(kernel.rate(units) for _ in range(20)) for units in (100, 200, 400)]
    # Work that LLVM had removed would take no time, and rates would grow with the units.
    assert max(rates) < 3 * min(rates)


def test_peaks_are_positive_and_cached_per_number_of_threads() -> None:
    assert fma_peak(1, seconds=0.01) > 1e8
    assert fma_peak(2, seconds=0.01) > 1e8
    assert peak.fma_kernel(1, host_unit()) is peak.fma_kernel(1, host_unit())
    with pytest.raises(UsageError, match="num_threads"):
        fma_peak(5000)


def test_bandwidth_moves_the_bytes() -> None:
    assert bandwidth(1, seconds=0.001, nbytes=1 << 20) > 1e7
    args = [ArgSpec("work", (1,), "int64", False)]
    args += [ArgSpec(name, (1 << 15,), "float32", name == "a") for name in ("b", "c", "a")]
    b, c, a = (np.full(1 << 15, x, np.float32) for x in (1, 2, 0))
    peak.kernel_module("triad", args, 2)(np.array([2]), b, c, a)
    assert (a == 7).all()


@pytest.mark.parametrize(("cache", "megabytes"), [(1, 32), (16, 64), (1024, 512)])
def test_bandwidth_takes_arrays_beyond_the_last_cache(cache, megabytes, monkeypatch) -> None:
    asked = []

    def full(size):
        asked.append(4 * size)
        raise MemoryError

    monkeypatch.setattr(Device, "cache_sizes", property(lambda self: {"L1d": 1, "L3": cache << 20}))
    monkeypatch.setattr(peak, "empty", full)
    with pytest.raises(MemoryError):
        bandwidth(1)
    assert asked == [megabytes << 20]


def of_words(seed, step):
    """The sum of the accumulators of a kernel of int32 after all its turns, one lane."""
    x, y = (int(v) for v in seed.view(np.int32))
    a = np.arange(1, peak.shape_of(host_unit())[1] + 1)
    for _ in range(peak._TURNS):
        a = step(a, x, y).astype(np.int32).astype(np.int64)  # wraps around
    return a.sum().astype(np.int32)


def shorts(words):
    """The lower and the upper half of each word."""
    return np.array(words, np.int32).reshape(-1, 1).view(np.int16).astype(np.int64).T


def dot_of_bytes(a, x, y):
    unsigned, signed = np.int32(x).reshape(1).view(np.uint8), np.int32(y).reshape(1).view(np.int8)
    return a + unsigned.astype(np.int64) @ signed.astype(np.int64)


def products_of_pairs(a, x, y):
    low, high = shorts(a)
    return low * shorts(x)[0] + high * shorts(x)[1] + y


@pytest.mark.parametrize(
    ("instruction", "step"), [("vpdpbusd", dot_of_bytes), ("vpmaddwd", products_of_pairs)]
)
def test_the_kernels_of_whole_numbers_run_every_turn(instruction, step) -> None:
    target = Target("llvm")
    lanes = target.dot_lanes["int32"]
    if not lanes or (instruction == "vpdpbusd" and target.has_dots_by_pairs):
        pytest.skip("this CPU has no such instruction")
    seed = np.array([0x01FE7F83, 0x0280FF7D], np.int32).view(np.float32)
    out = np.zeros(1024, np.float32)
    args = [ArgSpec("work", (1,), "int64", False), ArgSpec("seed", (2,), "float32", False)]
    roof = Roof(host_unit(), instruction, lanes)
    module = peak.kernel_module("fma", [*args, ArgSpec("out", (1024,), "float32", True)], 2, roof)
    module(np.array([3]), seed, out)
    assert (out[:3].view(np.int32) == of_words(seed, step)).all()
    assert not out[3:].any()


def test_the_kernel_of_float64_runs_every_turn() -> None:
    seed, out = np.array([0.5, 1.0], np.float32), np.zeros(1024, np.float32)
    args = [ArgSpec("work", (1,), "int64", False), ArgSpec("seed", (2,), "float32", False)]
    roof = Roof(host_unit(), "fma64", host_unit().nbytes // 8)
    module = peak.kernel_module("fma", [*args, ArgSpec("out", (1024,), "float32", True)], 2, roof)
    module(np.array([3]), seed, out)
    assert (out[:3] == 2 * peak.shape_of(host_unit())[1]).all()


def test_halves_are_multiplied_by_their_instruction_where_there_is_one() -> None:
    target = Target("llvm")
    roof = roof_of(target, "bfloat16")
    if roof.instruction != "vdpbf16ps":
        assert roof == roof_of(target, "float32")
        return
    seed, out = np.array([0x3F803F00, 0x3F804000], np.int32).view(np.float32), np.zeros(1024, "f4")
    args = [ArgSpec("work", (1,), "int64", False), ArgSpec("seed", (2,), "float32", False)]
    module = peak.kernel_module("fma", [*args, ArgSpec("out", (1024,), "float32", True)], 2, roof)
    module(np.array([1]), seed, out)
    count = peak.shape_of(host_unit())[1]  # 0.5 * 2 + 1 * 1 in each turn
    start = float(seed[0]) * count * (count + 1) / 2
    assert out[0] == pytest.approx(start + 2.0 * peak._TURNS * count, rel=1e-5)


@pytest.mark.parametrize(
    ("target", "arithmetic", "name", "flop"),
    [
        ("llvm -mcpu=x86-64-v4", "float32", "FMA peak (AVX-512)", 32),
        ("llvm -mcpu=x86-64-v4", "float64", "float64 FMA peak (AVX-512)", 16),
        ("llvm -mcpu=x86-64-v4", "int8", "int8 peak (AVX-512, VPMADDWD)", 64),
        ("llvm -mcpu=x86-64-v3", "int8", "int8 peak (AVX2, VPMADDWD)", 32),
        ("llvm -mcpu=alderlake", "int8", "int8 peak (AVX2, VPDPBUSD)", 64),
        ("llvm -mcpu=znver4", "int8", "int8 peak (AVX-512, VPDPBUSD)", 128),
        ("llvm -mcpu=znver4 -mattr=-avx512vnni", "int8", "int8 peak (AVX-512, VPMADDWD)", 64),
        ("llvm -mcpu=znver4", "bfloat16", "bfloat16 peak (AVX-512, VDPBF16PS)", 64),
        ("llvm -mcpu=x86-64-v3", "bfloat16", "FMA peak (AVX2)", 16),
        ("llvm -mcpu=x86-64", "float64", "float64 peak (SSE2, no FMA)", 4),
    ],
)
def test_the_roof_is_that_of_the_instruction(target, arithmetic, name, flop) -> None:
    roof = roof_of(Target(target), arithmetic)
    assert (roof.name, roof.flop) == (name, flop)


@pytest.mark.parametrize(
    ("target", "arithmetic"),
    [("llvm -mcpu=x86-64", "int8"), ("llvm", "float16"), ("llvm", ""), ("interp", "float32")],
)
def test_no_roof_is_known(target, arithmetic) -> None:
    assert roof_of(Target(target), arithmetic) is None
