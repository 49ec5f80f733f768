"""Observation of a run from outside: the state of its growing log, and the log's writers."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from loopwright.errors import RecordError
from loopwright.inspection.speed import speed_text, time_text, work_of
from loopwright.records import (
    Checked,
    Json,
    Log,
    News,
    Place,
    PlayoffReader,
    Ranking,
    Record,
    check_is_log,
    fields_of,
    is_of_playoff,
    load,
    raw_lines,
    read_line,
    task_text,
)

#: The pace is that of so many seconds before the last trial.
_PACE_S = 120.0


@dataclass(frozen=True)
class TaskStatus:
    name: str  # the task as a call of its template
    trials: int  # measured ones that have a time
    failed: int  # failed trials
    best_s: float | None  # seconds of the best so far; None before there is one
    best_trial: int  # number of its trial
    best_checked: bool  # whether its answer was checked
    #: seconds of the default configuration, trial 0 of a run; None where not known
    default_s: float | None
    flop: int  # operations of a call; 0 where not known

    @property
    def speed(self) -> str:
        return "-" if self.best_s is None else speed_text(self.best_s, self.flop)


@dataclass(frozen=True)
class Status:
    path: Path  # the log
    exists: bool
    tasks: tuple[TaskStatus, ...] = ()  # in the order in which they appeared
    latest: int | None = None  # position of the task of the last trial; None before the first
    records: int = 0  # lines that hold a measurement
    skipped: int = 0  # lines that were not understood
    failures: Mapping[str, int] = field(default_factory=dict)  # failed trials, by kind
    per_minute: float | None = None  # trials per minute before the last one; None before the second
    event: str = ""  # last line of the log in words; empty before the first
    event_ts: float = 0.0  # its time, seconds since the epoch
    done: int = 0  # trials that count for the limit of the run
    limit: int | None = None  # number of trials of the run; None where it names none
    #: seconds until then at this pace, or until its time is up; None where not known
    eta_s: float | None = None


class _Line(NamedTuple):
    task: str
    candidate: str
    median: float | None
    usable: bool
    wrong: bool
    failed_again: bool
    checked: Checked
    phase: str
    same_as: str
    trial: int
    run: str
    ts: float
    error: Mapping[str, str] | None
    dag: str
    times: tuple[float, ...]
    verdict: Mapping[str, Json] | None


class _Task:
    def __init__(self, first: Record) -> None:
        self.name = task_text(first.op, first.args)
        #: Items are candidate, seconds, and number of the trial.
        self.ranking: Ranking[tuple[str, float, int]] = Ranking()
        self.playoffs: PlayoffReader[_Line] = PlayoffReader()
        self.trials = self.failed = 0
        self.default_s: float | None = None
        self.flop = 0
        self.dag = ""

    def rank(self, line: _Line) -> None:
        if line.wrong or line.failed_again:
            self.ranking.refute(line.candidate)
            return
        if line.usable and not line.same_as:
            # Measurements of a playoff are ranked once its winner is known.
            placed: list[tuple[_Line, Place | None]] = [(line, None)]
            if is_of_playoff(line.phase, line.verdict):
                columns = (line.candidate, line.run, line.times, line.verdict, line.ts)
                placed = [*self.playoffs.add(line, *columns)]
            for one, place in placed:
                if one.median is not None:
                    item = (one.candidate, one.median, one.trial)
                    self.ranking.add(one.candidate, item, one.median, one.ts, place)
            # AutoTVM numbers no trials and names no run: there every record would be trial 0.
            if line.trial == 0 and line.run:
                self.default_s = line.median
        if line.checked is Checked.YES:
            self.ranking.vouch(line.candidate)

    def status(self) -> TaskStatus:
        best = self.ranking.best
        return TaskStatus(
            self.name,
            self.trials,
            self.failed,
            None if best is None else best.item[1],
            0 if best is None else best.item[2],
            best is not None and self.ranking.is_checked(best.item[0]),
            self.default_s,
            self.flop,
        )


@dataclass(frozen=True)
class _Run:
    resumed: int
    n_trial: int | None
    timeout: float | None
    ts: float
    tasks: int

    @classmethod
    def of(cls, header: Mapping[str, Json]) -> _Run:
        def count(name: str) -> int | None:
            value = header.get(name)
            return value if type(value) is int and value >= 0 else None

        def seconds(name: str) -> float | None:
            value = header.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return None
            return float(value)

        return cls(
            count("resumed") or 0,
            count("n_trial"),
            seconds("timeout"),
            seconds("ts") or 0.0,
            count("tasks") or 1,
        )

    def is_together_with(self, other: _Run) -> bool:
        """Whether two headers are of one command that tunes several tasks."""
        return self.tasks > 1 and (self.tasks, self.n_trial) == (other.tasks, other.n_trial)


class Watcher:
    """Collects the news of a `loopwright.records.Follower` into the state of the run.

    Example:
        >>> from pathlib import Path
        >>> from loopwright.inspection.watch import Watcher
        >>> from loopwright.records import Follower
        >>> watcher = Watcher(Path("matmul.jsonl"))
        >>> watcher.take(Follower("matmul.jsonl").look())
        >>> print(watcher.status().records > 6)
        True
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget(False)

    def _forget(self, exists: bool) -> None:
        self._exists = exists
        self._dags = Log(self.path)
        self._tasks: dict[str, _Task] = {}
        self._latest: str | None = None
        self._records = self._skipped = 0
        self._failures: Counter[str] = Counter()
        self._event, self._event_ts = "", 0.0
        self._pace: deque[float] = deque()
        self._runs: dict[str, _Run] = {}
        self._last_run: _Run | None = None
        self._valid: Counter[str] = Counter()

    def take(self, news: News) -> None:
        """Take in the news of a look; `RecordError` for a malformed index that another made."""
        if news.restarted:
            self._forget(news.exists)
        self._exists = news.exists
        self._dags.dags.update(news.log.dags)
        self._skipped += len(news.log.skipped)
        for header in news.log.headers:
            self._last_run = self._runs[str(header.get("run", ""))] = _Run.of(header)
            self._event, self._event_ts = "a run began", max(self._event_ts, self._last_run.ts)
        records = news.log.records
        if not records:
            return
        self._records += len(records)
        columns = fields_of(records, *_Line._fields)
        for record, line in zip(records, map(_Line._make, zip(*columns, strict=True)), strict=True):
            self._take_record(record, line)
        last = records[-1]
        self._latest = last.task
        self._event, self._event_ts = _in_words(last), last.ts

    def status(self, now: float | None = None) -> Status:
        done, limit, eta = self._limits(time.time() if now is None else now)
        return Status(
            self.path,
            self._exists,
            tuple(task.status() for task in self._tasks.values()),
            None if self._latest is None else list(self._tasks).index(self._latest),
            self._records,
            self._skipped,
            dict(self._failures.most_common()),
            self._per_minute(),
            self._event,
            self._event_ts,
            done,
            limit,
            eta,
        )

    def _take_record(self, record: Record, line: _Line) -> None:
        task = self._tasks.get(line.task)
        if task is None:
            task = self._tasks[line.task] = _Task(record)
        if line.dag and not task.dag:
            work = work_of(self._dags, record)
            task.dag, task.flop = record.dag, 0 if work is None else work.flop
        task.rank(line)
        if line.phase or line.same_as:
            return  # no trial of the search
        self._pace.append(line.ts)
        while self._pace[-1] - self._pace[0] > _PACE_S and len(self._pace) > 2:
            self._pace.popleft()
        if line.error is None:
            task.trials += 1
            self._valid[line.run] += 1
            return
        task.failed += 1
        self._failures[line.error.get("kind", "unknown")] += 1

    def _per_minute(self) -> float | None:
        spent = self._pace[-1] - self._pace[0] if len(self._pace) > 1 else 0.0
        return (len(self._pace) - 1) / spent * 60.0 if spent > 0 else None

    def _limits(self, now: float) -> tuple[int, int | None, float | None]:
        """Trials that count for the last run, its number of trials, and seconds until its end."""
        last = self._last_run
        if last is None:
            return sum(self._valid.values()), None, None
        runs = [(n, run) for n, run in self._runs.items() if run is last]
        if last.tasks > 1:
            runs = [(n, run) for n, run in self._runs.items() if last.is_together_with(run)]
            runs = runs[-last.tasks :]
        done = sum(run.resumed + self._valid[name] for name, run in runs)
        pace, left = self._per_minute(), []
        if last.n_trial is not None and pace:
            left.append(max(0, last.n_trial - done) / pace * 60.0)
        if last.timeout is not None:
            left.append(max(0.0, runs[0][1].ts + last.timeout - now))
        return done, last.n_trial, min(left, default=None)


def _in_words(record: Record) -> str:
    what = f"{record.phase} of trial {record.trial}" if record.phase else f"trial {record.trial}"
    if record.error is not None:
        text = " ".join(str(record.error.get("text", "")).split())
        return f"{what} failed: {record.error.get('kind', '')}: {text}"[:200]
    if record.median is None:
        return f"{what}: no time"
    dropped = ", dropped: clearly slower than the best" if record.dropped else ""
    return f"{what}: {time_text(record.median)}{dropped}"


#: Folder in which Linux shows processes. A run holds the lock of its log only while it writes a
#: line: the lock tells nothing, and asking for it would disturb the writer.
PROC = Path("/proc")


class Writers(NamedTuple):
    pids: tuple[int, ...]  # ascending
    known: bool  # False where the system does not tell
    hidden: bool  # whether processes, perhaps a writer among them, hide their files from this user


def writers_of(path: str | os.PathLike[str], proc: Path = PROC) -> Writers:
    """Find the processes of this machine, by ``proc``, that have a file open for writing."""
    try:
        wanted = os.stat(path)
        processes = [entry for entry in os.listdir(proc) if entry.isdigit()]
    except OSError:
        return Writers((), False, False)
    pids, hidden = [], False
    for pid in processes:
        try:
            if _writes(proc / pid, wanted):
                pids.append(int(pid))
        except PermissionError:
            hidden = True
        except OSError:
            continue  # it has ended in the meantime
    return Writers(tuple(sorted(pids)), bool(processes), hidden)


def _writes(process: Path, wanted: os.stat_result) -> bool:
    """Whether a process has a file open for writing; `OSError` if it hides that, or ended."""
    for fd in os.listdir(process / "fd"):
        try:
            if not os.path.samestat(os.stat(process / "fd" / fd), wanted):
                continue
            lines = (process / "fdinfo" / fd).read_text().splitlines()
        except FileNotFoundError:
            continue  # closed in the meantime, or no file that has a name
        flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
        if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
            return True
    return False


def check_may_grow(path: str | os.PathLike[str]) -> None:
    """Refuse what is no log, by a `RecordError`; missing or empty, it may still become one."""
    if not os.path.exists(path):
        return
    if not os.path.isfile(path) and not os.path.isdir(path):
        raise RecordError(f"{str(path)!r} is no regular file; name a log")
    foreign = False
    for raw in raw_lines(path):
        try:
            if read_line(raw) is not None:
                return
        except RecordError:
            foreign = True
    if foreign:
        check_is_log(load(path))
