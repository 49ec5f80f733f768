from __future__ import annotations

import numpy as np

from loopwright.inspection.schedules import applies_here
from loopwright.inspection.ties import ties_of
from loopwright.ops import WORKLOADS
from loopwright.records import Record, environment
from loopwright.records.ranking import playoffs
from loopwright.task import create_task
from tests.unit.records.reports.made_logs import record

VERDICT = {"outcome": "faster", "gain": 0.1, "margin": 0.01, "rounds": 20, "default": ""}


def finalist(trial, times, **fields):
    return record(trial, times=tuple(times), phase="playoff", ts=2e9, **fields)


def test_candidates_of_one_playoff_are_compared_in_pairs():
    # A drift of 30 % hits all alike, and hides nothing in pairs.
    drift = np.linspace(1.0, 1.3, 12)
    noise = np.random.default_rng(0).normal(1.0, 0.001, (3, 12))
    winner = finalist(1, 1e-3 * drift * noise[0], verdict=VERDICT)
    near = finalist(2, 1.001e-3 * drift * noise[1])
    slower = finalist(3, 1.02e-3 * drift * noise[2])
    (tie,) = ties_of(winner, [slower, near, winner])
    assert (tie.record, tie.paired) == (near, True)
    assert tie.low <= 1.0 <= tie.high < 1.01
    # Measured at different times, the drift is noise, and all are ties.
    apart = [finalist(2, near.times, run="r2"), finalist(3, slower.times, run="r3"), winner]
    assert [tie.paired for tie in ties_of(winner, apart)] == [False, False]


def test_what_is_clearly_slower_or_has_one_window_is_no_tie():
    winner = record(0, times=(1.0, 1.01, 0.99, 1.0, 1.0))
    others = [record(1, times=(2.0, 2.01, 1.99, 2.0, 2.0)), record(2, 1.0), record(3, None)]
    assert ties_of(winner, [winner, *others]) == []
    twin = record(4, times=(1.0, 1.02, 0.99, 1.0, 1.01))
    assert [tie.record for tie in ties_of(winner, [winner, *others, twin])] == [twin]


def test_ties_of_one_that_is_far_from_the_best_are_those_near_it():
    """Not those among the best, of which none is near."""
    trials = [
        record(n, times=tuple((1.0 + n) * s for s in (1, 1.01, 0.99, 1, 1))) for n in range(80)
    ]
    twin = record(99, times=tuple(71.0 * s for s in (1, 1.005, 0.99, 1, 1)))
    assert [tie.record for tie in ties_of(trials[70], [*trials, twin])] == [twin]
    assert ties_of(trials[0], [*trials, twin]) == []


def test_a_playoff_ends_with_its_verdict():
    times = [1.0] * 3
    # Equal code has the verdict, too.
    first = [finalist(n, times, verdict=VERDICT if n else None) for n in (0, 1, 8)]
    second = [finalist(2, times), finalist(3, times, verdict=VERDICT)]
    other = [finalist(4, times, run="r2")]
    found = playoffs([first[0], other[0], *first[1:], record(9), *second])
    assert [found[r.id] for r in (*first, *second, *other)] == [
        *(("r1", 0), ("r1", 0), ("r1", 0), ("r1", 1), ("r1", 1), ("r2", 0))
    ]
    assert record(9).id not in found


def own_record(task, index, seconds, **fields):
    schedule, _ = task.instantiate(index)
    return Record(
        *(task.alias, task.name, list(task.args), task.target.canonical),
        **{
            "config": task.config_space.get(index).values,
            "times": (seconds,),
            "dag": schedule.dag.hash,
            "trace": schedule.trace_json(),
            "env": environment(),
            **fields,
        },
    )


def test_a_record_is_applied_by_the_rule_of_apply_history_best():
    task = create_task(WORKLOADS["matmul"].template, (16, 16, 16, False, False, "float32"), "llvm")
    slow, fast = own_record(task, 1, 2e-3), own_record(task, 2, 1e-3)
    found = applies_here(fast, [slow, fast])
    assert (found.applied, found.known, found.differs) == (True, True, ())
    beaten = applies_here(slow, [slow, fast])
    assert (beaten.applied, beaten.reason) == (False, f"record {fast.id} goes before it")
    dropped = applies_here(own_record(task, 1, 1e-3, dropped=True), [])
    assert dropped.reason == "dropped by racing"
    other = own_record(task, 3, 1e-4, env={**environment(), "cpu": "Another"})
    found = applies_here(other, [fast, other])
    assert not found.applied
    assert [difference.field for difference in found.differs] == ["CPU"]
    tie = {**VERDICT, "outcome": "tie", "gain": 0.0, "default": slow.candidate}
    judged = own_record(task, 2, 1e-3, verdict=tie)
    found = applies_here(judged, [slow, judged])
    assert (found.applied, found.reason[:29]) == (False, "the default is built instead:")


def test_a_record_of_an_unknown_template_is_judged_by_itself():
    found = applies_here(record(0, 1e-3, env=environment(), target={"kind": "llvm"}), [])
    assert found.applied
    assert not found.known or "not known here" not in found.reason
    found = applies_here(record(0, 1e-3, target={"kind": "quantum"}), [])
    assert (found.applied, found.known) == (False, False)
    assert found.reason.startswith("its target cannot be used here: ")
