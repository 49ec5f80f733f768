"""The benchmark of allocators does what it says; its figures are no matter of tests."""

from __future__ import annotations

from benchmarks.allocators import Way, replay, rows, sequence
from loopwright.runtime import cpu


def test_a_sequence_holds_so_many_blocks_and_gives_all_back() -> None:
    work = sequence(500, 16, 4096, 0)
    assert work == sequence(500, 16, 4096, 0)
    assert all(256 <= nbytes <= 4096 for nbytes, _ in work)
    held: set[int] = set()
    most, taken = 0, 0

    def take(nbytes: int) -> int:
        nonlocal most, taken
        taken += 1
        held.add(taken)
        most = max(most, len(held))
        return taken

    written: list[int] = []
    way = Way(take, held.remove, written.append, lambda: None)
    assert replay(way, work, True) > 0
    assert (most, taken, held) == (16, 500, set())
    assert written == list(range(1, 501))


def test_each_way_has_a_figure() -> None:
    found = rows([cpu(0)], operations=200, live=8, largest=1024, rounds=1, seed=0)
    assert [(r["device"], r["written"]) for r in found] == [("cpu(0)", False), ("cpu(0)", True)]
    for row in found:
        assert row["plain_ratio"] == 1
        assert min(row[name] for name in ("plain", "naive", "pooled", "pooled_ratio")) > 0
