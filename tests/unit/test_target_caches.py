"""Sizes of the data caches, read from a folder laid out as Linux has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright.cost.analytical import AnalyticalModel
from loopwright.cost.features import Extractor
from loopwright.errors import TargetError
from loopwright.target.hardware import DEFAULTS, Caches, host_caches, read_caches


def _write(folder: Path, index: int, **values: object) -> None:
    (folder / f"index{index}").mkdir()
    for name, value in values.items():
        (folder / f"index{index}" / name).write_text(f"{value}\n")


def test_data_caches_are_read_and_instructions_left_out(tmp_path: Path) -> None:
    _write(tmp_path, 0, level=1, type="Data", size="48K", coherency_line_size=128)
    _write(tmp_path, 1, level=1, type="Instruction", size="64K", coherency_line_size=128)
    _write(tmp_path, 2, level=2, type="Unified", size="2M", coherency_line_size=128)
    _write(tmp_path, 3, level=3, type="Unified", size="32768K", coherency_line_size=128)
    found = read_caches(tmp_path)
    assert found.sizes == (48 << 10, 2 << 20, 32 << 20)
    assert found.line == 128


def test_without_a_third_level_it_is_the_second(tmp_path: Path) -> None:
    _write(tmp_path, 0, level=1, type="Data", size="32K", coherency_line_size=64)
    _write(tmp_path, 1, level=2, type="Unified", size="512K", coherency_line_size=64)
    assert read_caches(tmp_path).sizes == (32 << 10, 512 << 10, 512 << 10)


def test_defaults_where_nothing_is_said_or_nonsense(tmp_path: Path) -> None:
    _write(tmp_path, 0, level="one", type="Data", size="32K", coherency_line_size=64)
    assert read_caches(tmp_path).sizes == tuple(DEFAULTS.values())
    assert read_caches(tmp_path / "none").line == 64


def test_the_hosts_caches_grow_outwards() -> None:
    found = host_caches()
    assert 0 < found.l1 <= found.l2 <= found.l3


def test_a_target_may_say_other_caches():
    host = host_caches()
    target = lw.Target("llvm", l1_cache_bytes=16 << 10, cache_line_bytes=128)
    assert target.hardware.caches == Caches(16 << 10, host.l2, host.l3, 128)
    # Levels above one that grew are no smaller than that.
    large = lw.Target("llvm -l2-cache-bytes=999999999999").hardware.caches
    assert large == Caches(host.l1, 999999999999, 999999999999, host.line)
    assert lw.Target("llvm", l3_cache_bytes=0).hardware.caches == host
    assert "l1_cache_bytes" not in lw.Target("llvm").canonical


def test_what_a_target_says_survives_its_forms():
    target = lw.Target("llvm -l1-cache-bytes=4096 -num-threads=3")
    assert lw.Target.from_canonical(target.canonical).hardware == target.hardware
    assert lw.Target(str(target)) == target
    assert target.hardware.num_cores == 3
    assert target.hardware.cache_line_bytes == host_caches().line


def test_vectors_and_devices_are_told_too():
    narrow = lw.Target("llvm -mcpu=skylake-avx512 -prefer-vector-width=256").hardware
    assert (narrow.vector_unit_bytes, narrow.warp_size) == (32, 0)
    device = lw.Target("cuda -arch=sm_90 -max-threads-per-block=256 -thread-warp-size=16").hardware
    assert (device.max_threads_per_block, device.warp_size) == (256, 16)
    assert device.max_shared_memory_per_block > 0
    assert device.caches == Caches(0, 0, 0, 0)


@pytest.mark.parametrize("option", ["l1_cache_bytes", "cache_line_bytes"])
def test_a_size_is_a_number(option):
    with pytest.raises(TargetError, match=f"{option}: expected a number"):
        lw.Target("llvm", **{option: "32K"})


def test_the_analytical_model_and_features_follow_them():
    def task(l1):
        target = lw.Target("llvm", l1_cache_bytes=l1, num_threads=1)
        return lw.create_task("matmul", (256, 256, 256), target)

    digits = np.zeros((1, 5), np.int64)
    small, large = task(1 << 10), task(1 << 24)
    slow, fast = (AnalyticalModel(t).predict(digits)[0] for t in (small, large))
    assert slow < fast
    rows = [Extractor(t).rows(digits).values[0] for t in (small, large)]
    column = Extractor(small).names.index("main.traffic_l1")
    assert rows[0][column] > rows[1][column]
