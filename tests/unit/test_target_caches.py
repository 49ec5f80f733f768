"""Sizes of the data caches, read from a folder laid out as Linux has it."""

from __future__ import annotations

from pathlib import Path

from loopwright.target.caches import DEFAULTS, host_caches, read_caches


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
