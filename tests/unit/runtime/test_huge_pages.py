"""Memory in huge pages: where it begins, what it holds, and when it goes back."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from loopwright.runtime.arrays import host as huge_pages
from loopwright.runtime.arrays.host import HUGE_PAGE, Arena, aligned_bytes

NEEDS_THEM = pytest.mark.skipif(not huge_pages.AVAILABLE, reason="only Linux has huge pages")


@NEEDS_THEM
@pytest.mark.parametrize("nbytes", [1, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 5])
def test_memory_begins_with_a_huge_page_and_is_zero(nbytes: int) -> None:
    found = huge_pages.huge_pages(nbytes)
    assert found.nbytes == nbytes
    assert found.ctypes.data % HUGE_PAGE == 0
    assert not found.any()
    found[:] = 7
    assert (found == 7).all()


@NEEDS_THEM
def test_what_the_system_refuses_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="no memory for"):
        huge_pages.huge_pages(1 << 62)


@pytest.mark.parametrize("nbytes", [1, HUGE_PAGE - 1, HUGE_PAGE, 2 * HUGE_PAGE + 1])
def test_aligned_bytes_are_aligned_whatever_pages_they_are_in(nbytes: int) -> None:
    found = aligned_bytes(nbytes)
    assert found.nbytes == nbytes
    assert found.ctypes.data % 64 == 0
    found[:] = 1


@pytest.mark.parametrize("available", [True, False])
def test_an_arena_copies_arrays_that_do_not_touch(
    available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "AVAILABLE", available and huge_pages.AVAILABLE)
    monkeypatch.setattr(huge_pages, "_CHUNK", 2 * HUGE_PAGE)
    rng, arena = np.random.default_rng(0), Arena()
    shapes = [(), (0, 3), (1,), (1000, 7), (3, 5, 2), (1 << 18,), (9 << 17,), (2,)]
    given = [np.asarray(rng.standard_normal(s).astype("float32")) for s in shapes]
    given.append(np.asfortranarray(rng.standard_normal((30, 40))))
    copies = [arena.copy_of(x) for x in given]
    for copy, x in zip(copies, given, strict=True):
        assert (copy.shape, copy.dtype) == (x.shape, x.dtype)
        assert copy.flags.c_contiguous
        assert not copy.size or copy.ctypes.data % 64 == 0
    for copy in copies:  # each is written without harm to the others
        before = copy.copy()
        copy[...] = 0
        for other, x in zip(copies, given, strict=True):
            assert other is copy or np.array_equal(other, x)
        copy[...] = before


@NEEDS_THEM
def test_an_array_that_nearly_fills_its_huge_pages_is_not_copied() -> None:
    arena = Arena()
    for nbytes, stays in ((8, False), (HUGE_PAGE + 64, False), (4 * HUGE_PAGE, True)):
        own = huge_pages.aligned_bytes(nbytes).view("float32")
        own[-1] = nbytes
        kept = arena.kept(own)
        assert (kept is own) == stays
        np.testing.assert_array_equal(kept, own)
    foreign = np.ones(HUGE_PAGE)
    assert not np.shares_memory(arena.kept(foreign), foreign)


@NEEDS_THEM
def test_an_arena_goes_with_the_last_of_its_arrays() -> None:
    arena = Arena()
    first, second = arena.copy_of(np.ones(4)), arena.copy_of(np.ones(4))
    root = first
    while isinstance(root.base, np.ndarray):
        root = root.base
    alive = weakref.ref(root)
    del root, arena, first
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(second, 1)
    del second
    gc.collect()
    assert alive() is None
