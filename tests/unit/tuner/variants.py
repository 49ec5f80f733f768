"""The contract of tuners for further options of a tuner that keeps it in full with its defaults."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from loopwright.testing.tuner_contract import TunerContract

#: Tests of what options may change, for every change; all others run by night.
KEPT = (
    "test_told_points_are_never_proposed",
    "test_a_space_is_covered_exactly_once_and_then_exhausted",
    "test_one_seed_one_sequence",
    "test_failures_are_told_and_never_best",
    "test_tiny_spaces",
    "test_a_space_without_valid_points_ends",
)


#: Trials after which a run is cut off; 17, inside of its second round, stands for them.
CUTS = (0, 1, 5, 15, 16, 31, 32, 40)


def by_night(test: Any) -> Any:
    """A test of the slow tier, with the parameters of another."""

    @functools.wraps(test)
    def again(*args: Any, **named: Any) -> None:
        test(*args, **named)

    return pytest.mark.slow(again)


class VariantContract(TunerContract):
    """Subclass, and set ``tuner`` and ``options``."""

    @pytest.mark.parametrize("cut", [17, *(pytest.param(n, marks=pytest.mark.slow) for n in CUTS)])
    def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
        self, tmp_path: Path, whole: list[int], cut: int
    ) -> None:
        super().test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path, whole, cut)


for name, test in vars(TunerContract).items():
    if name.startswith("test_") and name not in (*KEPT, *vars(VariantContract)):
        setattr(VariantContract, name, by_night(test))
