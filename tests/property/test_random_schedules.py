"""Random schedules of random programs: every execution path gives what NumPy gives.

For each: the interpreter, compiled code for one and two threads and sometimes for another CPU or
vector width, all against a reference that knows nothing of schedules; integers and exact floats to
the bit. Memory around the arrays is forbidden or watched, outputs are poisoned, inputs must not
change, and the trace goes through JSON and Python source. ``LOOPWRIGHT_FUZZ_EXAMPLES`` sets the
number of examples, and that of the seeds that the slow tests search; ``python -m fuzzing.fuzz``
runs longer and makes a failure smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzzing import fuzz
from fuzzing.differential import Checker, case_of
from fuzzing.random.program import programs
from fuzzing.random.schedule import schedules
from loopwright.errors import LoopwrightError
from loopwright.ir import affine
from loopwright.lowering import lower_ids
from loopwright.schedule import replay
from loopwright.schedule.steps import Step
from loopwright.te.dag import Dag
from loopwright.testing.target_contract import runs_here
from tests.covering import examples
from tests.property import mistakes

#: What only kernels draw, in `test_random_kernels`.
FOR_KERNELS = {"env_threads", "set_store_predicate"}

#: Consecutive seeds that a slow test searches.
COUNT = examples(200)
#: Of the first 200 seeds some that together apply each primitive three times, chosen greedily, and
#: those that show the planted mistakes first.
SEEDS = (
    0, 1, 2, 8, 9, 10, 11, 13, 15, 18, 21, 23, 35, 39, 40, 41, 48, 52, 87, 107, 119,
    133, 162, 197,
)  # fmt: skip


@settings(
    max_examples=examples(10),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_all_paths_of_a_schedule_agree(checker: Checker, data: st.DataObject) -> None:
    program = data.draw(programs(), label="program")
    made = data.draw(schedules(program.dag), label="schedule")
    extra = data.draw(st.sampled_from(fuzz.TARGETS[2:]), label="third target")
    checker.check(case_of(program, made.trace), [*fuzz.TARGETS[:2], extra])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SEEDS, id="chosen"),
        pytest.param(range(COUNT), id="first", marks=pytest.mark.slow),
    ],
)
def drawn(request: pytest.FixtureRequest) -> list[fuzz.Example]:
    """Examples that are drawn before any mistake is planted.

    `SEEDS` were chosen because they show the mistakes; the first seeds tell how strong a random
    search is.
    """
    return [fuzz.examples(seed, "cpu") for seed in request.param]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(SEEDS, id="chosen"),
        pytest.param(range(COUNT), id="first", marks=pytest.mark.slow),
        pytest.param(range(10_000, 10_000 + COUNT), id="others", marks=pytest.mark.slow),
    ],
)
def test_schedules_of_fixed_seeds(checker: Checker, seeds: Sequence[int]) -> None:
    """Hypothesis prefers small examples; these are deep ones. Most of their steps are legal.

    The first seeds apply each primitive at least 3 times, and every target has its turn.
    """
    run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
    count = len(seeds)
    for seed in seeds:
        run.check(seed, "cpu", fuzz.examples(seed, "cpu"))
    assert not run.failures, run.summary()
    assert run.ends["cpu", "ran"] > 0.8 * count
    assert run.applied.total() > 6 * count
    assert run.applied.total() > run.refused.total()
    assert set(run.applied) == set(Step.registry) - FOR_KERNELS
    assert seeds[0] >= 10_000 or min(run.applied.values()) >= 3, run.summary()
    assert run.runs["interpreter"] >= run.ends["cpu", "ran"]
    assert min(run.runs["llvm -num-threads=1"], run.runs["llvm -num-threads=2"]) > count // 5
    for part in ("-mcpu=x86-64", "-prefer-vector-width", "-loop-vectorize", "c -num-threads"):
        here = [x for x in fuzz.TARGETS if part in x and runs_here(x)]
        assert not here or sum(run.runs[x] for x in here), run.summary()


# ---------------------------------------------------------------- what the search can see


def _complaint(checker: Checker, drawn: list[fuzz.Example]) -> str:
    """The first complaint about one of the examples, or ''."""
    for (case,), targets, _ in drawn:
        try:
            checker.check(case, targets)
        except (AssertionError, LoopwrightError) as error:
            return f"{error}"
    return ""


@pytest.mark.parametrize(
    "mistake",
    # By day those of splits, loads and layouts: each compiles all examples anew, and of masks, NaN
    # and tiles other tests tell.
    [
        pytest.param(m, marks=pytest.mark.slow if n in {2, 3, 5} else ())
        for n, m in enumerate(mistakes.CPU)
    ],
)
def test_a_planted_mistake_is_noticed(
    fresh_checker: Checker,
    drawn: list[fuzz.Example],
    monkeypatch: pytest.MonkeyPatch,
    mistake: str,
) -> None:
    mistakes.plant(mistake, monkeypatch)
    assert _complaint(fresh_checker, drawn) != ""


@pytest.mark.parametrize(
    "kind", ["cpu", *(pytest.param(k, marks=pytest.mark.slow) for k in ("sizes", "threads"))]
)
def test_schedules_whose_indices_leave_narrow_integers(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops as long as 2^31 cannot be run here, so int32 is taken to hold six bits."""
    monkeypatch.setattr(affine, "NARROW", 1 << 5)
    wide = 0
    with closing(Checker()) as checker:
        run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
        for seed in range(20_000, 20_008):
            example = fuzz.examples(seed, kind)
            run.check(seed, kind, example)
            wide += any("int64(" in text for text in _texts(example))
    assert not run.failures, run.summary()
    assert wide > 1


def _texts(example: fuzz.Example) -> list[str]:
    """The lowered programs of an example, as far as they are legal."""
    texts = []
    for case in example[0]:
        with suppress(LoopwrightError):
            s = replay(Dag.from_json(case.dag), case.trace)
            texts.append(str(lower_ids(s, case.arg_ids)))
    return texts
