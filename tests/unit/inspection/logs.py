"""Logs that hold records of tasks, as tuning writes them but without measuring."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from loopwright.measure.candidate import Candidate, describe
from loopwright.records import Checked, Log, Record, Store, environment, load
from loopwright.task import Task


def record_of(task: Task, index: int, trial: int, times: tuple[float, ...] = (1e-3,)) -> Record:
    """A record of one configuration, as if it had been measured."""
    schedule, _ = task.instantiate(index)
    return Record(
        *(task.alias, task.name, list(task.args), task.target.canonical),
        task.config_space.get(index).values,
        times,
        dag=schedule.dag.hash,
        trace=schedule.trace_json(),
        run="a1b2c3",
        trial=trial,
        env=environment(),
        checked=Checked.YES,
    )


def write(path: Path, tasks: Iterable[Task], each: int = 1, seed: int = 0) -> Log:
    """A log with some random configurations of each task, and their expressions."""
    rng = random.Random(seed)
    with Store(path) as store:
        for task in tasks:
            points = task.config_space.sample_ints(64, rng)
            legal = [i for i in points if _legal(task, i)][:each]
            schedule, args = task.instantiate(legal[0])
            store.expression(
                describe(task, Candidate(schedule.dag, [], schedule.arg_ids(args), "main"), 0)
            )
            for trial, index in enumerate(legal):
                store.append(record_of(task, index, trial))
    return load(path)


def _legal(task: Task, index: int) -> bool:
    from loopwright.errors import LoopwrightError

    try:
        schedule, _ = task.instantiate(index)
        schedule.validate()
    except LoopwrightError:
        return False
    return True
