"""Random schedules of random programs: every way to run them gives what NumPy gives.

For each: the interpreter, compiled code for one and two threads and sometimes for another CPU or
vector width, all against a reference that knows nothing of schedules; integers and exact floats to
the bit. Memory around the arrays is forbidden or watched, outputs are poisoned, inputs must not
change, and the trace goes through JSON and Python source. ``LOOPWRIGHT_FUZZ_EXAMPLES`` sets the
number of examples; ``python -m loopwright.testing.fuzz`` runs longer and makes a failure smaller.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright.codegen.llvm.memory import Memory
from loopwright.codegen.llvm.ops import Operations
from loopwright.errors import LoopwrightError
from loopwright.lowering.nest import element_order as placing
from loopwright.lowering.nest import partition, values
from loopwright.schedule.bounds import infer as bounds
from loopwright.schedule.steps import Step
from loopwright.testing import fuzz
from loopwright.testing.differential import Checker, case_of
from loopwright.testing.random.program import programs
from loopwright.testing.random.schedule import schedules
from loopwright.testing.random.values import Draw

#: What only kernels draw, in `test_random_kernels`.
FOR_KERNELS = {"env_threads", "set_store_predicate"}

EXAMPLES = int(os.environ.get("LOOPWRIGHT_FUZZ_EXAMPLES", "0"))


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    checker = Checker()
    yield checker
    checker.close()


@settings(
    max_examples=EXAMPLES or 200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_all_ways_to_run_a_schedule_agree(checker: Checker, data: st.DataObject) -> None:
    program = data.draw(programs(), label="program")
    made = data.draw(schedules(program.dag), label="schedule")
    extra = data.draw(st.sampled_from(fuzz.TARGETS[2:]), label="third target")
    checker.check(case_of(program, made.trace), [*fuzz.TARGETS[:2], extra])


@pytest.mark.parametrize("first", [0, 10_000])
def test_schedules_of_fixed_seeds(checker: Checker, first: int) -> None:
    """Hypothesis prefers small examples; these are deep ones. Most of their steps are legal."""
    run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
    count = EXAMPLES or 200
    for seed in range(first, first + count):
        run.run(seed, "cpu")
    assert not run.failures, run.summary()
    assert run.ends["cpu", "ran"] > 0.8 * count
    assert run.applied.total() > 6 * count
    assert run.applied.total() > run.refused.total()
    assert set(run.applied) == set(Step.registry) - FOR_KERNELS


# ---------------------------------------------------------------- what the search can see


def _found(checker: Checker, seeds: int = 250) -> str:
    """The first complaint about a schedule of the first seeds, or ''."""
    for seed in range(seeds):
        case, targets, _ = fuzz.example(seed)
        try:
            checker.check(case, targets)
        except (AssertionError, LoopwrightError) as error:
            return f"{error}"
    return ""


def _no_guard(*_: Any) -> None:
    return None


def _unmasked(self: Memory, *args: Any, _plain: Any = Memory.load) -> Any:
    mask, self.w.mask = self.w.mask, None
    value = _plain(self, *args)
    self.w.mask = mask
    return value


def _careless_max(self: Operations, op: str, a: Any, b: Any) -> Any:
    return self.select(self.compare(">" if op == "max" else "<", a, b), a, b)


def _no_digit(i: Any, div: int, mod: Any, _: Any, _plain: Any = placing._digit) -> Any:
    return _plain(i, div, None, _)


PLANTED = {
    "a split that over-runs is not guarded": (bounds, "_guard", _no_guard),
    "an over-running lane reads what it likes": (values.Values, "_load_guard", lambda *_: []),
    "a masked load reads all lanes": (Memory, "load", _unmasked),
    "max and min forget NaN": (Operations, "_min_max", _careless_max),
    "a layout forgets a modulus": (placing, "_digit", _no_digit),
    "an over-running tile counts as whole": (partition.Partition, "_holds_inside", lambda *_: []),
}


@pytest.mark.parametrize("mistake", list(PLANTED))
def test_a_planted_mistake_is_noticed(
    checker: Checker, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    owner, name, broken = PLANTED[mistake]
    monkeypatch.setattr(owner, name, broken)
    assert _found(checker) != ""


def test_an_example_is_told_by_its_seed() -> None:
    (first, targets, _), (second, same, _) = fuzz.example(77), fuzz.example(77)
    assert (first.dag, first.trace, targets) == (second.dag, second.trace, same)
    assert Draw(lambda lo, hi: hi).pick("abc") == "c"
