"""The peak kernels do the work that they are paid for."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import UsageError
from loopwright.runtime import bandwidth, fma_peak, peak
from loopwright.runtime.artifacts.manifest import ArgSpec
from loopwright.target import host_unit


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
    rates = [kernel.rate(units) for units in (200, 400, 800)]
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
