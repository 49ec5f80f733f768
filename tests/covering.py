"""Parameters of a test that are a product: a covering set for every change, the rest by night."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest


def examples(by_day: int, by_night: int = 0) -> int:
    """Number of random examples: ``LOOPWRIGHT_FUZZ_EXAMPLES``, which `make nightly` sets, or
    ``by_night`` in its place, where that would be too few or too many."""
    asked = int(os.environ.get("LOOPWRIGHT_FUZZ_EXAMPLES", "0"))
    return by_night or asked if asked else by_day


def covering(*axes: Iterable[Any], strength: int = 2) -> list[Any]:
    """The product of the axes, of which what a covering set does not need is `slow`.

    Any ``strength`` axes meet in all combinations of their values in the tests that are left; 1
    asks for each value once. The set is chosen greedily (Cohen et al., The AETG system, 1997): of
    equals the case whose values were used least, then the first, so that it is the same each time.
    """
    columns = [list(axis) for axis in axes]
    cases = list(product(*(range(len(column)) for column in columns)))
    groups = list(combinations(range(len(columns)), min(strength, len(columns))))
    met = {case: {(group, *(case[n] for n in group)) for group in groups} for case in cases}
    missing = set[tuple[Any, ...]]().union(*met.values())
    kept, uses = set(), Counter[tuple[int, int]]()

    def gain(case: tuple[int, ...]) -> tuple[int, int]:
        return len(met[case] & missing), -sum(uses[place] for place in enumerate(case))

    while missing:
        best = max(cases, key=gain)
        kept.add(best)
        uses.update(enumerate(best))
        missing -= met[best]
    return [
        pytest.param(
            *(column[n] for column, n in zip(columns, case, strict=True)),
            marks=() if case in kept else pytest.mark.slow,
        )
        for case in cases
    ]
