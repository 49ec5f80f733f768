"""Random kernels: run by the interpreter in three orders of threads, with every race looked for.

``LOOPWRIGHT_FUZZ_EXAMPLES`` sets the number of examples; ``python -m fuzzing.fuzz
--kind threads`` runs longer and makes a failure smaller.
"""

from __future__ import annotations

from collections import Counter

import pytest

from fuzzing import fuzz
from fuzzing.differential import Checker
from loopwright.errors import ScheduleError
from loopwright.lowering import lower_ids
from loopwright.lowering.context import PassContext
from loopwright.schedule.schedule import replay
from loopwright.te.dag import Dag
from tests.covering import examples
from tests.property import mistakes

#: How many of them are checked and searched for planted mistakes.
SEEDS = examples(50)


@pytest.fixture(scope="module")
def drawn() -> list[fuzz.Example]:
    """The examples of the first seeds, drawn before any mistake is planted."""
    return [fuzz.examples(seed, "threads") for seed in range(max(SEEDS, 50))]


@pytest.mark.parametrize("seeds", [18, pytest.param(SEEDS, marks=pytest.mark.slow)])
def test_kernels_of_fixed_seeds(checker: Checker, drawn: list[fuzz.Example], seeds: int) -> None:
    run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
    for seed in range(seeds):
        run.check(seed, "threads", drawn[seed])
    assert not run.failures, run.summary()
    assert run.ends["threads", "ran"] > 4 * run.ends["threads", "refused"]
    assert {"bind", "env_threads", "compute_at", "cache_read", "set_scope"} <= set(run.applied)
    assert min(run.applied["env_threads"], run.applied["set_store_predicate"]) >= 3


def test_what_random_kernels_are_made_of(drawn: list[fuzz.Example]) -> None:
    """Most examples are kernels of several threads, and every part of the machinery occurs."""
    found: Counter[str] = Counter()
    for (case,), _, schedule in drawn[:50]:
        found["set_store_predicate"] += "set_store_predicate" in schedule.applied
        s = replay(Dag.from_json(case.dag), case.trace)
        try:
            text = str(lower_ids(s, case.arg_ids))
        except ScheduleError:
            found["refused"] += 1
            continue
        for part in (
            "in thread(", "barrier(", "shared)", ".row[", "env_threads of", "half", "unrolled",
            "blockIdx.y", "blockIdx.z", "threadIdx.z", "if threadIdx",
        ):  # fmt: skip
            found[part] += part in text
    assert found["in thread("] > 33
    assert found["refused"] < 9
    for part, n in found.items():
        assert n >= 4, (part, found)
    assert len(found) == 13


def _first_failure(checker: Checker, drawn: list[fuzz.Example]) -> str:
    for (case,), _, _ in drawn[:SEEDS]:
        try:
            checker.check(case, [])
        except Exception as error:
            return str(error)
    return ""


@pytest.mark.parametrize("mistake", list(mistakes.THREADS))
def test_a_planted_mistake_is_noticed(
    fresh_checker: Checker,
    drawn: list[fuzz.Example],
    monkeypatch: pytest.MonkeyPatch,
    mistake: str,
) -> None:
    mistakes.plant(mistake, monkeypatch)
    assert _first_failure(fresh_checker, drawn) != ""


def test_without_barriers_races_are_found(
    fresh_checker: Checker, drawn: list[fuzz.Example]
) -> None:
    with PassContext(disabled_pass=["ThreadSync"]):
        assert "race on " in _first_failure(fresh_checker, drawn)
