"""Segments and turns of a warp, against going through its lanes by the definition."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.cost.symbolic.evaluation import ColumnProgram
from loopwright.cost.symbolic.symbols import Graph
from loopwright.cost.symbolic.warps import sectors, wavefronts
from tests.covering import examples

POWERS = [1, 2, 4, 8, 16, 32, 64]
DIGIT = st.tuples(
    st.integers(0, 40).map(lambda n: 4 * n), st.sampled_from(POWERS), st.integers(1, 40)
)
DIGITS = st.lists(DIGIT, max_size=3)
WIDTHS = st.sampled_from([4, 8, 16])


def addresses(threads: int, digits: list[tuple[int, int, int]]) -> list[int]:
    """Bytes at which the threads of the first warp begin."""
    lanes = range(min(threads, 32))
    return [sum(s * (lane // run % n) for s, run, n in digits) for lane in lanes]


def touched_segments(threads: int, width: int, digits: Any) -> int:
    first = addresses(threads, digits)
    return len({(a + b) // 32 for a in first for b in range(width)})


def turns_of_banks(threads: int, width: int, digits: Any) -> int:
    """A warp goes in as many parts as a thread has words; a bank serves a word a turn."""
    first = addresses(threads, digits)
    size = 32 * 4 // width
    turns = 0
    for at in range(0, len(first), size):
        words: dict[int, set[int]] = defaultdict(set)
        for a in first[at : at + size]:
            for byte in range(0, width, 4):
                word = (a + byte) // 4
                words[word % 32].add(word)
        turns += max(map(len, words.values()))
    return turns


@given(st.integers(1, 64), WIDTHS, DIGITS)
@settings(max_examples=examples(100, 300), deadline=None)
def test_segments_are_those_of_all_bytes_of_all_lanes(
    threads: int, width: int, digits: list[tuple[int, int, int]]
) -> None:
    assert sectors(32, 32, threads, width, digits) == touched_segments(threads, width, digits)


@given(st.integers(1, 64), WIDTHS, DIGITS)
@settings(max_examples=examples(100, 300), deadline=None)
def test_turns_are_those_of_the_bank_with_most_words(
    threads: int, width: int, digits: list[tuple[int, int, int]]
) -> None:
    assert wavefronts(32, threads, width, digits) == turns_of_banks(threads, width, digits)


@pytest.mark.parametrize(
    ("digits", "width", "segments", "turns"),
    [
        ([(4, 1, 32)], 4, 4, 1),  # side by side
        ([(16, 1, 32)], 16, 16, 4),  # side by side, in vectors
        ([(128, 1, 32)], 4, 32, 32),  # down a column of 32 floats: one bank
        ([(132, 1, 32)], 4, 32, 1),  # the same with a gap in each row
        ([], 4, 1, 1),  # all threads the same element
        ([(8, 1, 32)], 4, 8, 2),  # every second element
        ([(4, 1, 16), (0, 16, 2)], 4, 2, 1),  # two rows of threads read the same
    ],
)
def test_known_patterns(digits: Any, width: int, segments: int, turns: int) -> None:
    assert sectors(32, 32, 256, width, digits) == segments
    assert wavefronts(32, 256, width, digits) == turns


def test_columns_are_what_each_candidate_gives() -> None:
    rng = np.random.default_rng(0)
    values = [rng.integers(1, 65, 500).tolist() for _ in range(4)]
    graph = Graph()
    threads, stride, run, count = (graph.leaf(k, 0, v) for k, v in enumerate(values))

    def of(threads: Any, stride: Any, run: Any, count: Any) -> list[Any]:
        digits = [(stride * 4, run, count), (512, run * count, 3)]
        return [sectors(32, 32, threads, 16, digits), wavefronts(32, threads, 4, digits)]

    program = ColumnProgram(of(threads, stride, run, count), (False, False))
    out = np.empty((500, 2), np.float32)
    program.evaluate([np.array(values[k], float) for k, _ in program.leaves], out)
    assert out.tolist() == [of(*row) for row in zip(*values, strict=True)]


def test_descriptions_that_no_number_can_hold_are_told_apart() -> None:
    graph = Graph()
    rng = np.random.default_rng(1)
    values = [rng.integers(1, 1 << 30, 300).tolist() for _ in range(5)]
    leaves = [graph.leaf(k, 0, v) for k, v in enumerate(values)]

    def of(*strides: Any) -> Any:
        return sectors(32, 32, 64, 4, [(s, 1 << k, 2) for k, s in enumerate(strides)])

    program = ColumnProgram([of(*leaves)], (False,))
    out = np.empty((300, 1), np.float32)
    program.evaluate([np.array(values[k], float) for k, _ in program.leaves], out)
    assert out[:, 0].tolist() == [of(*row) for row in zip(*values, strict=True)]
