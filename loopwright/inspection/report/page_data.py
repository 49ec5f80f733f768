"""Data of a report page, which the page embeds as JSON and draws.

Times are seconds, speeds operations a second, shares from 0 to 1. Lists that belong together are
columns of equal length, which takes a third of the bytes of a list of objects.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, is_dataclass

from loopwright.inspection.log_statistics import Throughput, TimeSpent
from loopwright.records import Json

#: Version of the data; a page and its script are always of the same one.
VERSION = 1


@dataclass(frozen=True)
class Points:
    trial: tuple[int, ...]  # numbers from 1
    clock: tuple[float, ...]  # seconds of tuning after which each ended
    seconds: tuple[float | None, ...]  # of one call; None for a failure
    #: 0: may be best; 1: is never best (dropped by racing, or refuted later); 2: failure
    kind: tuple[int, ...]
    total: int  # number of trials before sampling


@dataclass(frozen=True)
class Steps:
    trial: tuple[int, ...]  # numbers from 1
    clock: tuple[float, ...]  # seconds of tuning after which each ended
    seconds: tuple[float, ...]  # median of its timed windows
    low: tuple[float, ...]  # fastest window
    high: tuple[float, ...]  # slowest window
    id: tuple[str, ...]  # of its record


@dataclass(frozen=True)
class CandidateRow:
    id: str  # of its record
    trial: int  # its number in its run
    seconds: float  # median of its timed windows
    #: of its windows, see `loopwright.records.reports.spread`; None for fewer than two
    spread: float | None
    checked: bool  # whether its answer was compared with the reference
    config: str  # its knobs in words
    #: differences from the default configuration, in words; None where there is no default
    changes: tuple[str, ...] | None
    of_default: float | None  # speed over that of the default; None where not known


@dataclass(frozen=True)
class FailureKind:
    kind: str
    count: int  # number of measurements
    share: float  # of all measurements, trials and further ones
    first: str  # id of the first record
    trial: int  # number of that trial
    text: str  # its error, in one line
    values: tuple[str, ...]  # values of knobs that go with it, in words


@dataclass(frozen=True)
class KnobValue:
    text: str
    count: int  # candidates that have it and a time
    low: float  # first quartile of their times
    middle: float  # their median time
    high: float  # third quartile of their times
    best: float  # the fastest of them


@dataclass(frozen=True)
class KnobDistribution:
    name: str
    #: of the variance of the logarithm of time that it explains; None where not known
    share: float | None
    values: tuple[KnobValue, ...]  # the fastest first by their median; of many the ends alone
    total: int  # number of its values


@dataclass(frozen=True)
class ParallelAxis:
    name: str  # the knob, or one place of its list
    values: tuple[str, ...]  # from the bottom
    at: tuple[int, ...]  # for each candidate, the position among these


@dataclass(frozen=True)
class Parallel:
    """Best candidates as lines through the knobs that vary among all trials."""

    seconds: tuple[float, ...]  # of each candidate, the best first
    id: tuple[str, ...]  # of its record
    axes: tuple[ParallelAxis, ...]  # the knobs; of many those with the fewest values among the best
    total: int  # number of these


@dataclass(frozen=True)
class Roofline:
    intensity: float  # operations for each byte of the arguments
    speed: float  # operations a second of the best
    default_speed: float | None  # that of the default; None where not known
    flops: float | None  # arithmetic limit, operations a second; None where the log holds none
    bandwidth: float | None  # memory limit, bytes a second; None where the log holds none
    source: str  # origin of the limits, or why there are none, as a sentence


@dataclass(frozen=True)
class Accuracy:
    trial: tuple[int, ...]  # trials before each prediction
    correlation: tuple[float, ...]  # Spearman's rank correlation of predicted and measured times
    count: tuple[int, ...]  # predicted trials
    trained_on: tuple[int, ...]  # trials that the model had learned from


@dataclass(frozen=True)
class Series:
    label: str  # difference from the others of its task
    log: int  # position of its log
    hardware: str  # empty when not known
    threads: int  # of the kernel; 0 when not known
    target: str  # target of the code
    trials: int  # trials that have a time
    failed: int  # trials that failed
    dropped: int  # trials that racing stopped early
    duplicates: int  # trials with the same program as another one, whose samples they share
    #: seconds of building and running its candidates, those of builders divided by their number
    spent: float
    flop: int  # operations of a call; 0 where the log does not tell
    best: CandidateRow | None  # the best by the one rule; None where nothing may be best
    #: the default configuration; None where it has no time, or is not known
    default: CandidateRow | None
    verdict: str  # comparison of the two, as a sentence; empty where the log does not tell
    outcome: str  # word of the verdict; empty where there is none
    #: share by which the best is faster than the default, by the verdict; None without one
    gain: float | None
    steps: Steps  # the curve
    points: Points  # the trials around it
    errors: tuple[FailureKind, ...]
    knobs: tuple[KnobDistribution, ...]  # effects, the strongest first; of many the first ones
    knobs_total: int  # number of varying knobs
    knobs_note: str  # method, or why there are no effects
    #: best candidates; None where there are fewer than two, or no knob varies
    parallel: Parallel | None
    roofline: Roofline | None  # None where the work of a call is not known
    roofline_note: str  # reason for None, else empty
    accuracy: Accuracy | None  # None where there is too little to learn from
    accuracy_note: str  # method, or why there is none
    top: tuple[CandidateRow, ...]  # best candidates
    #: ids of structures and what they stand for; empty where names are short enough for tables
    structures: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SeriesComparison:
    one: str  # label of the first
    other: str  # label of the other
    one_s: float  # seconds of its best
    other_s: float  # seconds of the best of the other
    text: str  # comparison with an interval, or the reason why there is none
    differences: tuple[str, ...]  # differences of the two best, in words


@dataclass(frozen=True)
class TaskPage:
    key: str
    name: str  # the task as a call of its template
    series: tuple[Series, ...]  # at least one
    comparisons: tuple[SeriesComparison, ...]  # of the first series with each of the others


@dataclass(frozen=True)
class LogPage:
    name: str  # short name of the log on the page
    path: str
    records: int  # lines that hold a measurement
    complaint: str  # parts that were not understood; empty when all was
    throughput: Throughput | None  # None where the log has no clock
    time: TimeSpent | None  # None where the log has no clock
    runs: tuple[dict[str, str], ...]  # facts of each run, by name
    runs_total: int  # number of runs; ``runs`` has the last ones
    #: versions, hardware and the like, by name: all values that occur
    facts: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class ModelKernel:
    name: str  # their computation, in words
    calls: int  # in a run of the model
    flop: int  # operations of a call; 0 where there are none to count
    way: str  # implementation of the best; empty where there is only one
    id: str  # of the record of the best; empty where there is none
    trials: int  # in the log
    seconds: float | None  # of a call of the best; None where there is none
    default: float | None  # of a call of its default configuration; None where not known


@dataclass(frozen=True)
class ModelPage:
    name: str
    kernels: tuple[ModelKernel, ...]  # tuned ones, the longest first
    #: Expected time of a run after each trial that lowered it, from the trial on with which every
    #: task has a time.
    steps: Steps
    trials: int  # of all its tasks
    spent: float  # seconds of tuning until the last of them


@dataclass(frozen=True)
class Page:
    made: int  # whole seconds since the epoch
    loopwright: str  # version that made it
    logs: tuple[LogPage, ...]
    tasks: tuple[TaskPage, ...]  # in order of first appearance
    tasks_total: int  # number of tasks; ``tasks`` has those with the most trials
    model: ModelPage | None = None  # a named model by the first log; None where none was named
    version: int = VERSION  # of this form

    def to_json(self) -> str:
        """JSON without blanks; numbers have five digits, which no picture exceeds."""
        return json.dumps(_short(self), separators=(",", ":"), allow_nan=False)


def _short(value: object) -> Json:
    """Value as JSON; floats have five digits, and non-finite ones become None."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(part) for part in value]
    if is_dataclass(value):
        return {name: _short(part) for name, part in vars(value).items()}
    return value
