"""Random kernels: run by the interpreter in three orders of threads, with every race looked for.

``LOOPWRIGHT_FUZZ_EXAMPLES`` sets the number of examples; ``python -m loopwright.testing.fuzz
--kind threads`` runs longer and makes a failure smaller.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loopwright.errors import ScheduleError
from loopwright.lowering import lower_ids
from loopwright.lowering.context import PassContext
from loopwright.lowering.nest import cross_thread
from loopwright.lowering.passes.thread_sync import _Sync
from loopwright.schedule.bounds import infer as bounds
from loopwright.schedule.surface.schedule import replay
from loopwright.te.dag import Dag
from loopwright.testing import fuzz
from loopwright.testing.differential import Checker

EXAMPLES = int(os.environ.get("LOOPWRIGHT_FUZZ_EXAMPLES", "0"))


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    checker = Checker()
    yield checker
    checker.close()


def test_kernels_of_fixed_seeds(checker: Checker) -> None:
    run = fuzz.Fuzz(checker=checker, shrink_seconds=0)
    for seed in range(EXAMPLES or 80):
        run.run(seed, "threads")
    assert not run.failures, run.summary()
    assert run.ends["threads", "ran"] > 4 * run.ends["threads", "refused"]
    assert {"bind", "env_threads", "compute_at", "cache_read", "set_scope"} <= set(run.applied)


def test_what_random_kernels_are_made_of() -> None:
    """Most examples are kernels of several threads, and every part of the machinery occurs."""
    found: Counter[str] = Counter()
    for seed in range(120):
        (case,), _, made = fuzz.examples(seed, "threads")
        found["set_store_predicate"] += "set_store_predicate" in made.applied
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
    assert found["in thread("] > 80
    assert found["refused"] < 20
    for part, n in found.items():
        assert n >= 4, (part, found)
    assert len(found) == 13


def _first_failure(checker: Checker) -> str:
    for seed in range(80):
        (case,), targets, _ = fuzz.examples(seed, "threads")
        try:
            checker.check(case, targets)
        except Exception as error:
            return str(error)
    return ""


def _one_thread_stores(self: Any, *args: Any) -> Any:
    self.writer = []
    return _STORE(self, *args)


_STORE = cross_thread.CrossThread.store
PLANTED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "no barriers": (_Sync, "_conflict", lambda *_: False),
    "no threads left out": (bounds, "thread_limits", lambda *_: []),
    "all threads store a reduction": (cross_thread.CrossThread, "store", _one_thread_stores),
    "shared memory of one thread": (bounds, "fixed_variables", lambda sb: (sb.visible(-1), {})),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_noticed(
    checker: Checker, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    owner, name, broken = PLANTED[mistake]
    monkeypatch.setattr(owner, name, broken)
    assert _first_failure(checker) != ""


def test_without_barriers_races_are_found(checker: Checker) -> None:
    with PassContext(disabled_pass=["ThreadSync"]):
        assert "race on " in _first_failure(checker)
