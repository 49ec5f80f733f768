"""Differences of two records, decision by decision, and of two logs or machines, by task."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.presenting import counted
from loopwright.records.line import Json, canonical_json
from loopwright.records.provenance import device_of
from loopwright.records.query import measured, verdict_on
from loopwright.records.ranking import ranked
from loopwright.records.record import Record
from loopwright.records.reports.knobs import ABSENT, value_text
from loopwright.records.reports.setups import Setup, by_setup, hardware_names, task_text
from loopwright.records.verdict import Verdict

#: Windows of each side without which there is no interval: with three or four the bootstrap of
#: medians holds the truth in nine cases of ten only.
FEWEST_WINDOWS = 5
_RESAMPLES = 2000
_CONFIDENCE = 0.95
#: Parts of ``env`` that decide a time.
_MACHINE = {"cpu": "CPU", "isa": "instruction set", "cores": "cores", "governor": "governor"}
#: Parts of the device in ``env`` that decide a time.
_DEVICE = {"name": "device", "arch": "architecture", "processors": "processors", "driver": "driver"}


@dataclass(frozen=True)
class Difference:
    """A property in which two records differ; ``one`` and ``other`` are its values as text."""

    what: str  # such as ``"knob tile_i"`` or ``"threads"``
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.what}: {self.one} -> {self.other}"


@dataclass(frozen=True)
class Ratio:
    """Time of one kernel divided by that of another."""

    value: float  # ratio of the medians: 2.0 where the other takes twice as long
    #: Lower end of the 95 % interval; None where there are too few windows for one.
    low: float | None
    high: float | None  # upper end of it
    windows: tuple[int, int]  # number of timed windows of the two

    @property
    def same(self) -> bool | None:
        """Whether the interval holds 1; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= 1.0 <= self.high

    @property
    def why_no_interval(self) -> str:
        """The reason why there is no interval; empty where there is one."""
        few = counted(min(self.windows), "window")
        return "" if self.low is not None else f"{few}, no interval"


@dataclass(frozen=True)
class Side:
    setup: Setup
    name: str  # the task in words
    record: Record | None  # the best record; None where none may be best
    trials: int  # number of trials of the setup
    verdict: Verdict | None  # the best against the default; None: not known


@dataclass(frozen=True)
class TaskComparison:
    task: str  # the task in words
    one: Side | None  # None where this side does not have the task
    other: Side | None  # None where this side does not have the task
    #: Time of the best of the other by that of the one; None where one has no best record.
    ratio: Ratio | None
    #: Differences of the conditions and the best records; empty where a side is missing.
    differences: tuple[Difference, ...]


def record_differences(one: Record, other: Record) -> list[Difference]:
    """Differences of two records in everything that decides a time: task, expression, target,
    threads, machine, compiler, and every decision of the schedule.

    Example:
        >>> from loopwright.records.reports.differences import record_differences
        >>> one, other = lw.records.load("matmul.jsonl").records[:2]
        >>> print(record_differences(one, one), len(record_differences(one, other)) > 0)
        [] True
    """
    pairs: list[tuple[str, Json, Json]] = [
        ("task", task_text(one.op, one.args), task_text(other.op, other.args)),
        ("tensor expression", one.dag, other.dag),
    ]
    for name in dict.fromkeys([*one.target, *other.target]):
        pairs.append((f"target {name}", one.target.get(name), other.target.get(name)))
    pairs.append(("threads", one.threads or None, other.threads or None))
    pairs += [(words, one.env.get(n), other.env.get(n)) for n, words in _MACHINE.items()]
    then, now = device_of(one.env), device_of(other.env)
    pairs += [(words, then.get(n), now.get(n)) for n, words in _DEVICE.items()]
    pairs.append(("compiler", one.build or None, other.build or None))
    # What a record does not say is not a difference that is known.
    stated = [pair for pair in pairs if pair[1] is not None and pair[2] is not None]
    differences = [_difference(what, a, b) for what, a, b in stated if a != b]
    differences = [d for d in differences if d.what != "target num_threads"]  # said by the threads
    return differences + _decisions(one, other)


def _decisions(one: Record, other: Record) -> list[Difference]:
    """The knobs in which two records differ; else the first step of their schedules that does."""
    names = dict.fromkeys([*one.config, *other.config])
    differences = [
        Difference(
            f"knob {name}",
            value_text(one.config[name]) if name in one.config else ABSENT,
            value_text(other.config[name]) if name in other.config else ABSENT,
        )
        for name in names
        if name not in one.config
        or name not in other.config
        or value_text(one.config[name]) != value_text(other.config[name])
    ]
    if differences or not one.trace or not other.trace:
        return differences
    steps = [[canonical_json(step) for step in record.trace] for record in (one, other)]
    if steps[0] == steps[1]:
        return []
    longest = max(map(len, steps))
    padded = [[*trace, *["no step"] * (longest - len(trace))] for trace in steps]
    at = next(i for i in range(longest) if padded[0][i] != padded[1][i])
    return [Difference(f"schedule from step {at} on", padded[0][at], padded[1][at])]


def _difference(what: str, one: Json, other: Json) -> Difference:
    if isinstance(one, list) and isinstance(other, list):
        # Of the features of a CPU only those that differ.
        apart = [x for x in one if x not in other], [x for x in other if x not in one]
        texts = [" ".join(map(str, values)) or "none of these" for values in apart]
    else:
        texts = [v if isinstance(v, str) and v else value_text(v) for v in (one, other)]
    return Difference(what, *texts)


def time_ratio(one: Record, other: Record, seed: int = 0) -> Ratio | None:
    """Time of the other by that of the one, with an interval where there are enough windows.

    The interval is that of the percentile bootstrap of the ratio of medians (Efron, Tibshirani, "An
    introduction to the bootstrap", chapter 13). It covers what varies between the windows of one
    measurement, but not changes of the machine between the two measurements. None where one failed.

    Example:
        >>> from loopwright.records.reports.differences import time_ratio
        >>> one, other = lw.records.load("matmul.jsonl").records[:2]
        >>> print(time_ratio(one, other).value == other.median / one.median)
        True
    """
    if not one.valid or not other.valid:
        return None
    value = statistics.median(other.times) / statistics.median(one.times)
    windows = (len(one.times), len(other.times))
    if min(windows) < FEWEST_WINDOWS:
        return Ratio(value, None, None, windows)
    return Ratio(value, *ratio_interval(one.times, other.times, seed), windows)


def ratio_interval(
    one: Sequence[float], other: Sequence[float], seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of the ratio of two kernels' times, see `time_ratio`, from seconds per
    window, at least `FEWEST_WINDOWS` of each.
    """
    rng = np.random.default_rng(seed)
    medians = [
        np.median(rng.choice(np.asarray(times), (_RESAMPLES, len(times))), axis=1)
        for times in (one, other)
    ]
    edge = (1.0 - _CONFIDENCE) / 2.0
    low, high = np.quantile(medians[1] / medians[0], (edge, 1.0 - edge))
    return float(low), float(high)


def compare_logs(one: Iterable[Record], other: Iterable[Record]) -> list[TaskComparison]:
    """Two logs, task by task: the best record of each, and what only one of them has.

    Setups are paired where task, hardware and threads are equal; of the rest, where task and
    threads are; of the rest, where the task is. A setup with several possible partners stays
    unpaired, since it is not known which is meant. The tasks of both come first, those of each
    kind of pairs in the order of ``one``; then those of only one.

    Example:
        >>> from loopwright.records.reports.differences import compare_logs
        >>> records = lw.records.load("matmul.jsonl").records
        >>> [both] = compare_logs(records, records)
        >>> print(both.task, both.ratio.value)
        matmul(64, 64, 64, False, False, float32) 1.0
    """
    mine = [_side(setup, group) for setup, group in by_setup(one).items()]
    theirs = [_side(setup, group) for setup, group in by_setup(other).items()]
    pairs: list[tuple[Side | None, Side | None]] = []
    keys: tuple[Callable[[Setup], Hashable], ...] = (
        lambda setup: setup,
        lambda setup: (setup.task, setup.threads),
        lambda setup: setup.task,
    )
    for key in keys:
        matched = _paired(mine, theirs, key)
        pairs += matched
        mine = [side for side in mine if all(side is not pair[0] for pair in matched)]
        theirs = [side for side in theirs if all(side is not pair[1] for pair in matched)]
    pairs += [(side, None) for side in mine]
    pairs += [(None, side) for side in theirs]
    return [_comparison(*pair) for pair in pairs]


def _paired(
    mine: Sequence[Side], theirs: Sequence[Side], key: Callable[[Setup], Hashable]
) -> list[tuple[Side, Side]]:
    """Pairs of sides that are the only ones with their key on both sides."""
    groups: dict[Hashable, tuple[list[Side], list[Side]]] = {}
    for at, sides in enumerate((mine, theirs)):
        for side in sides:
            groups.setdefault(key(side.setup), ([], []))[at].append(side)
    return [(a[0], b[0]) for a, b in groups.values() if len(a) == len(b) == 1]


def machines(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each machine; where all are of one machine, those of each number of threads.

    They go by the name of the machine, see `hardware_names`, or by words such as ``2 threads``, in
    order of first appearance.

    Example:
        >>> from loopwright.records.reports.differences import machines
        >>> print(len(machines(lw.records.load("matmul.jsonl").records)))
        1
    """
    groups = by_setup(records)
    names = hardware_names(setup.hardware for setup in groups)
    by_name: dict[str, list[Record]] = {}
    for setup, group in groups.items():
        count = f"{setup.threads or '?'} thread{'s' * (setup.threads != 1)}"
        name = names[setup.hardware] if len(names) > 1 else count
        by_name.setdefault(name, []).extend(group)
    return by_name


def _side(setup: Setup, records: Sequence[Record]) -> Side:
    best = next(iter(ranked(records, 1)), None)
    name = task_text(records[0].op, records[0].args)
    verdict = None if best is None else verdict_on(best, records)
    return Side(setup, name, best, len(measured(records, again=False)), verdict)


def _comparison(one: Side | None, other: Side | None) -> TaskComparison:
    name = next(side.name for side in (one, other) if side is not None)
    if one is None or other is None or one.record is None or other.record is None:
        return TaskComparison(name, one, other, None, ())
    ratio = time_ratio(one.record, other.record)
    differences = tuple(record_differences(one.record, other.record))
    return TaskComparison(name, one, other, ratio, differences)
