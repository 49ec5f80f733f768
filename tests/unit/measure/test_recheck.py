"""One candidate of a log is checked before it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.measure import ErrorKind, LocalBuilder, measure_option, recheck
from loopwright.records import Checked, Record
from loopwright.schedule import create_schedule
from loopwright.task import Task, template

N = 48


def doubled(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 2 * a


def computing(factor: float) -> tuple[Any, list[Any]]:
    a = te.placeholder((N,), "float32", name="a")
    b = te.compute((N,), lambda i: a[i] * te.const(factor, "float32"), name="b")
    return create_schedule(b.op), [a, b]


@template("test/doubled", reference=doubled)
def doubled_template() -> tuple[Any, list[Any]]:
    return computing(2.0)


OPTION = measure_option(LocalBuilder(n_parallel=1))


def recorded(task: Task) -> Record:
    """A record as AutoTVM's are: fast, and nobody compared its answer."""
    return Record(
        task.alias,
        task.name,
        list(task.args),
        task.target.canonical,
        {},
        (1e-9, 2e-9),
        checked=Checked.NO,
        check_reason="it is from before checks were noted",
        trial=7,
        program="p",
        code="c",
    )


@pytest.fixture
def task() -> Task:
    return Task("test/doubled", (), "llvm -num-threads=1")


def test_a_right_answer_is_noted_for_the_same_candidate(task: Task) -> None:
    record = recorded(task)
    found = recheck(task, record, computing(2.0), OPTION)
    assert (found.checked, found.check_reason, found.error) == (Checked.YES, "", None)
    assert found.max_error == 0.0
    assert (found.phase, found.candidate, found.trial) == ("check", record.candidate, 7)
    # It is no measurement: nothing of one is left over.
    assert (found.times, found.program, found.code, found.same_as) == ((), "", "", "")
    assert found.run != record.run
    assert Record.from_line(found.to_line()) == found


def test_a_wrong_answer_is_an_error(task: Task) -> None:
    found = recheck(task, recorded(task), computing(3.0), OPTION)
    assert (found.checked, found.check_reason) == (Checked.NO, "its answer is wrong")
    assert found.error is not None
    assert found.error["kind"] == ErrorKind.WRONG_ANSWER
    assert found.error["text"].startswith("b[")
    assert found.wrong


def test_what_cannot_be_built_says_so(task: Task) -> None:
    schedule, args = computing(2.0)
    found = recheck(task, recorded(task), (schedule, args[:1]), OPTION)
    assert found.checked is Checked.NO
    assert found.check_reason in ("it cannot be scheduled", "it cannot be built")
    assert found.error is not None
