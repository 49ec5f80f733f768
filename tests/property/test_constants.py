"""Random programs, some of whose inputs are constants: what is computed is what it was without.

Hypothesis draws the program, which inputs are constants, and the schedule. The interpreter runs the
whole and each part by itself, compiled code as well; NumPy, which knows nothing of schedules and of
constants, says what is right.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing.differential import Checker, case_of, interpreted_parts
from fuzzing.fuzz import symbolic_cases
from fuzzing.random.expr import Draw
from fuzzing.random.program import mark_constants, programs, random_program
from fuzzing.random.schedule import random_schedule, schedules
from loopwright.errors import ScheduleError
from loopwright.ir.stmt import SplitFunc
from tests.covering import examples

TARGETS = ["llvm -num-threads=1"]


@settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_constants_change_no_result(checker: Checker, data: st.DataObject) -> None:
    program = data.draw(programs(), label="program")
    many = len(program.tensors)
    chosen = data.draw(st.lists(st.booleans(), min_size=many, max_size=many), label="constants")
    mark_constants(program, chosen)
    made = data.draw(schedules(program.dag), label="schedule")
    checker.check(case_of(program, made.trace), TARGETS)


@pytest.mark.parametrize("seeds", [16, pytest.param(120, marks=pytest.mark.slow)])
def test_both_parts_of_programs_of_fixed_seeds_agree_with_the_whole(
    checker: Checker, seeds: int
) -> None:
    """Most of these have a part that constants determine, which Hypothesis finds seldom."""
    split = 0
    for seed in range(seeds):
        d = Draw.random(random.Random(seed))
        program = random_program(d)
        mark_constants(program, [d.chance(70) for _ in program.tensors])
        case = case_of(program, random_schedule(d, program.dag, 6).trace)
        try:
            prepared = checker.prepare(case)
        except ScheduleError:
            continue
        if isinstance(prepared.f, SplitFunc):
            split += 1
            checker._compare(prepared, interpreted_parts(prepared.f, case))
            checker.check(case, TARGETS if seed % 5 == 0 else [])
    assert split >= seeds // 4


@pytest.mark.parametrize("seeds", [16, pytest.param(400, marks=pytest.mark.slow)])
def test_both_parts_of_programs_of_any_size_agree_with_the_whole(
    checker: Checker, seeds: int
) -> None:
    """What depends on constants alone is computed once for all sizes."""
    split = 0
    for seed in range(seeds):
        d = Draw.random(random.Random(seed))
        program = random_program(d)
        mark_constants(program, [d.chance(70) for _ in program.tensors])
        cases = symbolic_cases(d, case_of(program, random_schedule(d, program.dag, 6).trace))
        for case in cases:
            try:
                prepared = checker.prepare(case)
            except ScheduleError:
                break
            if isinstance(prepared.f, SplitFunc):
                split += 1
                checker._compare(prepared, interpreted_parts(prepared.f, case))
                checker.check(case, TARGETS if seed % 3 == 0 else [])
    assert split >= seeds // 4
