"""Which CPUs threads get: from machines that tests describe."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.errors import UsageError
from loopwright.runtime import pool as affinity
from loopwright.runtime.pool import Cpu, cpu_order, mode_named, places, topology

# Two packages of two cores of two CPUs each, numbered as Linux does: the siblings come last.
SERVER = [Cpu(n, (n // 2) % 2, n % 2, 3000) for n in range(8)]
PHONE = [Cpu(n, 0, n, 2800 if n in (4, 5) else 1800) for n in range(6)]

MACHINES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from([1000, 2000, 3000])),
    min_size=1,
    max_size=12,
).map(lambda rows: [Cpu(n, *row) for n, row in enumerate(rows)])


def core(cpu: Cpu) -> tuple[int, int]:
    return cpu.package, cpu.core


def test_orders_of_a_server() -> None:
    assert [core(cpu) for cpu in SERVER[:4]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert cpu_order("compact", SERVER, None) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert cpu_order("spread", SERVER, None) == [0, 2, 1, 3, 4, 6, 5, 7]
    assert cpu_order("spread", SERVER, [6, 4, 1]) == [4, 6, 1]
    assert cpu_order("big", SERVER, None) == list(range(8))


def test_orders_of_a_phone() -> None:
    assert cpu_order("big", PHONE, None) == [4, 5]
    assert cpu_order("little", PHONE, None) == [0, 1, 2, 3]
    assert cpu_order("big", PHONE, [1, 0]) == [0, 1]
    assert cpu_order("one_per_thread", PHONE, [5, 0]) == [5, 0]


@given(MACHINES)
def test_spread_shares_no_core_before_it_must_and_compact_leaves_none_half_used(
    machine: list[Cpu],
) -> None:
    cpus = {cpu.number: cpu for cpu in machine}
    cores = {core(cpu) for cpu in machine}
    spread, compact = (cpu_order(mode, machine, None) for mode in ("spread", "compact"))
    assert sorted(spread) == sorted(compact) == sorted(cpus)
    assert {core(cpus[n]) for n in spread[: len(cores)]} == cores
    packages = {cpu.package for cpu in machine}
    assert {cpus[n].package for n in spread[: len(packages)]} == packages
    in_order = [core(cpus[n]) for n in compact]
    assert in_order == sorted(in_order)
    big, little = (cpu_order(mode, machine, None) for mode in ("big", "little"))
    clocks = [cpu.max_khz for cpu in machine]
    assert {cpus[n].max_khz for n in big} == {max(clocks)}
    assert {cpus[n].max_khz for n in little} == {min(clocks)}
    assert len(big) == clocks.count(max(clocks))


def test_places_of_threads() -> None:
    assert places("compact", [3, 1], 3) == (frozenset({3}), frozenset({1}), frozenset({3}))
    assert places("shared", [3, 1], 2) == (frozenset({1, 3}), frozenset({1, 3}))


def test_what_the_system_says_is_read(tmp_path: Path) -> None:
    for number, (package, core_id) in enumerate([(0, 7), (1, 7)]):
        folder = tmp_path / f"cpu{number}"
        (folder / "topology").mkdir(parents=True)
        (folder / "topology" / "physical_package_id").write_text(f"{package}\n")
        (folder / "topology" / "core_id").write_text(f"{core_id}\n")
    (tmp_path / "cpu0" / "cpufreq").mkdir()
    (tmp_path / "cpu0" / "cpufreq" / "cpuinfo_max_freq").write_text("2800000\n")
    assert topology([0, 1, 5], tmp_path) == [
        Cpu(0, 0, 7, 2800000),
        Cpu(1, 1, 7, 0),
        Cpu(5, 0, 5, 0),
    ]


def test_modes_by_name_and_by_tvms_code() -> None:
    assert [mode_named(code) for code in (1, -1, -2, -3)] == list(affinity.TVM_CODES.values())
    assert all(mode_named(name) == name for name in affinity.MODES)
    for bad in ("sprawl", 0, 2, True, None):
        with pytest.raises(UsageError, match=r"no affinity mode .*; it is one of none"):
            mode_named(bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"did you mean 'spread'\?"):
        mode_named("sprea")


@pytest.mark.parametrize(
    ("mode", "listed", "message"),
    [
        ("shared", None, "'shared' needs a list of CPUs"),
        ("one_per_thread", None, "needs a list of CPUs"),
        ("compact", [], "list of CPUs is empty"),
        ("spread", [0, 9], "CPU 9 may not be used here; those that may: 0, 1, 2, 3, 4, 5"),
        ("shared", [0, True], "CPU True may not be used"),
        ("shared", [1, 1], "names one twice"),
    ],
)
def test_lists_that_cannot_be(mode: str, listed: list[int] | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cpu_order(mode, PHONE, listed)
