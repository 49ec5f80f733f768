"""What a report page holds, as plain data: the page embeds it as JSON, and draws it.

Times are seconds, speeds operations a second, shares from 0 to 1. Lists that belong together are
columns of equal length, which takes a third of the bytes of a list of objects.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, is_dataclass

from loopwright.inspection.clock import Throughput, TimeSpent
from loopwright.records import Json

#: Version of the data; a page and its script are always of the same one.
VERSION = 1


@dataclass(frozen=True)
class Points:
    """Trials, or a sample of them, in the order of the log.

    Attributes:
        trial: which trial each is, from 1.
        clock: seconds of tuning after which it ended.
        seconds: of one call; None for a failure.
        kind: 0 for one that may be best, 1 for one that is never best (dropped by racing, or
            refuted later), 2 for a failure.
        total: how many there were before a sample was taken.
    """

    trial: tuple[int, ...]
    clock: tuple[float, ...]
    seconds: tuple[float | None, ...]
    kind: tuple[int, ...]
    total: int


@dataclass(frozen=True)
class Steps:
    """The trials that were better than all before.

    Attributes:
        trial: which trial each is, from 1.
        clock: seconds of tuning after which it ended.
        seconds: median of its timed windows.
        low: the fastest of these.
        high: the slowest.
        id: of its record.
    """

    trial: tuple[int, ...]
    clock: tuple[float, ...]
    seconds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    id: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """One measured candidate of a table.

    Attributes:
        id: of its record.
        trial: its number in its run.
        seconds: median of its timed windows.
        spread: of these, see `loopwright.records.reports.spread`; None for fewer than two.
        checked: whether its answer was compared with the reference.
        config: its knobs in words.
        changes: what differs from the default configuration, and what it is here, in words; None
            where there is no default to compare with.
        of_default: how many times as fast as the default it is; None where that is not known.
    """

    id: str
    trial: int
    seconds: float
    spread: float | None
    checked: bool
    config: str
    changes: tuple[str, ...] | None
    of_default: float | None


@dataclass(frozen=True)
class FailureKind:
    """One way in which trials failed.

    Attributes:
        kind: its name.
        count: how many measurements.
        share: of all measurements, trials and further ones.
        first: id of the first record.
        trial: the number of that trial.
        text: what its error says, in one line.
        values: values of knobs that go with it, in words.
    """

    kind: str
    count: int
    share: float
    first: str
    trial: int
    text: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class KnobValue:
    """One value of a knob.

    Attributes:
        text: the value.
        count: candidates that have it and a time.
        low: a quarter of them are faster than this.
        middle: their median time.
        high: a quarter of them are slower.
        best: the fastest of them.
    """

    text: str
    count: int
    low: float
    middle: float
    high: float
    best: float


@dataclass(frozen=True)
class KnobEffect:
    """What one knob does.

    Attributes:
        name: of the knob.
        share: of the variance of the logarithm of time that it explains; None where not known.
        values: its values, the fastest first by their median; of many the ends alone.
        total: how many values it has.
    """

    name: str
    share: float | None
    values: tuple[KnobValue, ...]
    total: int


@dataclass(frozen=True)
class Axis:
    """One axis of the parallel coordinates.

    Attributes:
        name: the knob, or one place of its list.
        values: what stands on it, from the bottom.
        at: for each candidate, the position among these.
    """

    name: str
    values: tuple[str, ...]
    at: tuple[int, ...]


@dataclass(frozen=True)
class Parallel:
    """The best candidates as lines through the knobs that vary among all trials.

    Attributes:
        seconds: of each candidate, the best first.
        id: of its record.
        axes: the knobs; of many those with the fewest values among the best.
        total: how many there are.
    """

    seconds: tuple[float, ...]
    id: tuple[str, ...]
    axes: tuple[Axis, ...]
    total: int


@dataclass(frozen=True)
class Roofline:
    """The best beside the limits of its machine; see `loopwright.inspection.roofline`.

    Attributes:
        intensity: operations for each byte of the arguments.
        speed: operations a second of the best.
        default_speed: that of the default; None where not known.
        flops: the arithmetic limit, operations a second; None where the log holds none.
        bandwidth: the memory limit, bytes a second; None where the log holds none.
        source: where the limits are from, or why there are none, as a sentence.
    """

    intensity: float
    speed: float
    default_speed: float | None
    flops: float | None
    bandwidth: float | None
    source: str


@dataclass(frozen=True)
class Accuracy:
    """How well trees would have predicted what was measured next.

    Attributes:
        trial: how many trials came before each prediction.
        correlation: Spearman's rank correlation of predicted and measured times.
        count: how many trials were predicted.
        trained_on: how many the model had learned from.
    """

    trial: tuple[int, ...]
    correlation: tuple[float, ...]
    count: tuple[int, ...]
    trained_on: tuple[int, ...]


@dataclass(frozen=True)
class Series:
    """One task on one machine in one log.

    Attributes:
        label: what tells it from the others of its task.
        log: position of its log.
        hardware: what it ran on; empty when not known.
        threads: of the kernel; 0 when not known.
        target: what code was made for.
        trials: trials that have a time.
        failed: trials that failed.
        dropped: trials that racing stopped early.
        duplicates: trials that turned out to be the program of another one, and share its samples.
        spent: seconds of building and running its candidates; builders that work at the same time
            are allowed for.
        flop: operations of a call; 0 where the log does not tell.
        best: the best by the one rule; None where nothing may be best.
        default: the default configuration; None where it has no time, or is not known.
        verdict: how the two compare, as a sentence; empty where the log does not tell.
        outcome: the word of the verdict; empty where there is none.
        gain: by which share the best is faster than the default, by the verdict; None without one.
        steps: the curve.
        points: the trials around it.
        errors: what failed.
        knobs: the effect of each, the strongest first; of many the first ones.
        knobs_total: how many knobs vary.
        knobs_note: how that was found, or why it was not.
        parallel: the best candidates; None where there are fewer than two, or no knob varies.
        roofline: None where the work of a call is not known.
        roofline_note: why there is none; empty where there is one.
        accuracy: None where there is too little to learn from.
        accuracy_note: how that was found, or why it was not.
        top: the best candidates.
    """

    label: str
    log: int
    hardware: str
    threads: int
    target: str
    trials: int
    failed: int
    dropped: int
    duplicates: int
    spent: float
    flop: int
    best: Candidate | None
    default: Candidate | None
    verdict: str
    outcome: str
    gain: float | None
    steps: Steps
    points: Points
    errors: tuple[FailureKind, ...]
    knobs: tuple[KnobEffect, ...]
    knobs_total: int
    knobs_note: str
    parallel: Parallel | None
    roofline: Roofline | None
    roofline_note: str
    accuracy: Accuracy | None
    accuracy_note: str
    top: tuple[Candidate, ...]


@dataclass(frozen=True)
class Comparison:
    """The first series of a task beside another one, in words.

    Attributes:
        one: label of the first.
        other: label of the other.
        one_s: seconds of its best.
        other_s: seconds of the best of the other.
        text: how they compare, with an interval or the reason why there is none.
        differences: what differs between the two best, in words.
    """

    one: str
    other: str
    one_s: float
    other_s: float
    text: str
    differences: tuple[str, ...]


@dataclass(frozen=True)
class TaskPage:
    """All there is of one task.

    Attributes:
        key: of the task.
        name: the task as a call of its template.
        series: at least one.
        comparisons: of the first series with each of the others.
    """

    key: str
    name: str
    series: tuple[Series, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class LogPage:
    """What is said of a log as a whole.

    Attributes:
        name: short name of the log on the page.
        path: where it was read from.
        records: lines that hold a measurement.
        complaint: what of it was not understood; empty when all was.
        throughput: trials in intervals of time; None where the log has no clock.
        time: where the time went; None where the log has no clock.
        runs: facts of each run, by name.
        runs_total: how many runs there are; ``runs`` has the last ones.
        facts: versions, hardware and the like, by name: all values that occur.
    """

    name: str
    path: str
    records: int
    complaint: str
    throughput: Throughput | None
    time: TimeSpent | None
    runs: tuple[dict[str, str], ...]
    runs_total: int
    facts: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class ModelKernel:
    """Kernels of a model that are one task.

    Attributes:
        name: what they compute, in words.
        calls: in a run of the model.
        flop: operations of a call; 0 where there are none to count.
        way: the implementation of the best; empty where there is one alone.
        id: of the record of the best; empty where there is none.
        trials: in the log.
        seconds: of a call of the best; None where there is none.
        default: of a call of its default configuration; None where that is not known.
    """

    name: str
    calls: int
    flop: int
    way: str
    id: str
    trials: int
    seconds: float | None
    default: float | None


@dataclass(frozen=True)
class ModelPage:
    """A model whose kernels a log holds.

    Attributes:
        name: of the model.
        kernels: those that are tuned, the longest first.
        steps: the expected time of a run after each trial that lowered it, from the trial on with
            which every task has a time.
        trials: of all its tasks.
        spent: seconds of tuning until the last of them.
    """

    name: str
    kernels: tuple[ModelKernel, ...]
    steps: Steps
    trials: int
    spent: float


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        made: when, whole seconds since the epoch.
        loopwright: the version that made it.
        logs: what it was made from.
        tasks: in order of first appearance.
        tasks_total: how many tasks there are; ``tasks`` has those with the most trials.
        model: what the first log says of a model that was named; None where none was.
        version: of this form.
    """

    made: int
    loopwright: str
    logs: tuple[LogPage, ...]
    tasks: tuple[TaskPage, ...]
    tasks_total: int
    model: ModelPage | None = None
    version: int = VERSION

    def to_json(self) -> str:
        """The page as JSON without blanks; numbers have five digits, which no picture exceeds."""
        return json.dumps(_short(self), separators=(",", ":"), allow_nan=False)


def _short(value: object) -> Json:
    """A value as JSON; floats have five digits, and those that are no numbers become None."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(part) for part in value]
    if is_dataclass(value):
        return {name: _short(part) for name, part in vars(value).items()}
    return value
