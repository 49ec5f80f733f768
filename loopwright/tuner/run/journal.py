"""The memory of a run: every trial of one task, in rounds.

The loop writes here first and tells the tuner after; telling the rounds again in order brings a
fresh tuner to where the last one stood.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import TYPE_CHECKING

from loopwright import records
from loopwright.env import surroundings
from loopwright.errors import InstantiationError, InternalError, RecordError
from loopwright.measure import ErrorKind, MeasureResult
from loopwright.records import (
    Conditions,
    Expression,
    Json,
    Outcome,
    Place,
    Record,
    Reuse,
    Verdict,
    canonical_json,
    places,
    verdict_of,
    without_collector,
)
from loopwright.runtime import facts_here
from loopwright.transform import PassContext
from loopwright.tuner.run.recorded import SHARED, RecordedPoints, results_of
from loopwright.tuner.run.state import Trial, point

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity, Task


#: Number of the best of another compiler or machine that are measured again.
REMEASURED = 8
#: Phase of records of trials that were measured again since the machine had changed.
DRIFT = "drift"


class Journal:
    path: str | None = None

    def __init__(self, task: Task) -> None:
        self.task = task
        #: In the order in which they were measured, none twice.
        self.trials: list[Trial] = []
        #: Further measurements of trials, by index, in the order in which they were made, each with
        #: its place in its playoff, if it is of one.
        self.later: list[tuple[int, MeasureResult, Place | None]] = []
        #: Measurements that a drift of the machine made necessary, by the round that they are of.
        self.drift: dict[int, list[tuple[ConfigEntity, MeasureResult]]] = {}
        #: Comparison of the winner of a playoff with the default, by its index.
        self.verdicts: dict[int, Verdict] = {}
        #: Configurations that were among the best elsewhere, see `remeasured`.
        self.remeasure: list[ConfigEntity] = []
        #: Results of other versions of the compiler by the hash of their object code, for a
        #: measurer that runs no code twice.
        self.by_code: dict[str, MeasureResult] = {}
        #: Results that may train a model and never count.
        self.elsewhere: list[tuple[ConfigEntity, MeasureResult]] = []
        #: Records of other shapes of the template, measured on this hardware, that the log held
        #: before the first record of this task; they may train a model. Later ones are left out, so
        #: that a run that is taken up again learns from the same ones.
        self.relatives: list[tuple[Record, MeasureResult]] = []
        #: Tensor expressions of relatives by their hash.
        self.expressions: dict[str, list[Expression]] = {}
        #: Lines about findings in the log.
        self.notes: list[str] = []
        self._seen: set[int] = set()

    def rounds(self) -> list[tuple[int, list[Trial]]]:
        rounds: dict[int, list[Trial]] = {}
        for trial in self.trials:
            rounds.setdefault(trial.round, []).append(trial)
        return [(r, sorted(rounds[r], key=lambda t: t.number)) for r in sorted(rounds)]

    def add(self, trial: Trial) -> None:
        index = trial.index
        if index in self._seen:
            return
        self._seen.add(index)
        self.trials.append(trial)

    def remeasured(self, number: int) -> list[ConfigEntity]:
        """Configurations among the best elsewhere to be measured by round ``number``: few, but many
        where the code of those few is the same, so that nothing is run."""
        first = self.remeasure[:REMEASURED]
        rerun = {t.index for t in self.trials if t.result.times_of and t.round < number}
        return self.remeasure if all(point(c) in rerun for c in first) else first

    def add_again(
        self,
        trial: Trial,
        result: MeasureResult,
        phase: str,
        verdict: Verdict | None = None,
        default: int | None = None,
        place: Place | None = None,
    ) -> None:
        """Keep a further measurement of a trial, for the reason ``phase``; the winner of a playoff
        has a verdict against the default, which was kept before, or is this trial."""
        self.later.append((trial.index, result, place))
        if phase == DRIFT:
            self.drift.setdefault(trial.round, []).append((trial.config, result))
        if verdict is not None:
            self.verdicts[trial.index] = verdict

    def header(self, data: Mapping[str, Json]) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            self.close()
        except RecordError:
            # An error on its way out says more than that the log cannot be synced after it.
            if kind is None:
                raise


#: Number of the best of elsewhere that are built again while the compiler makes the same code.
_REBUILT = 64


class LogJournal(Journal):
    """Trials of one task, kept in a log on disk, which is created when it does not exist.

    ``devices`` are those that are measured on, see `LocalRunner`; None: the hardware is not known.
    """

    def __init__(self, task: Task, path: str, run: str, devices: str | None = None) -> None:
        super().__init__(task)
        self.path = path
        self.run = run
        device = None if devices is None else facts_here(task.target.kind, devices)
        self._env = records.environment(device) | surroundings()
        self._target = task.target.canonical
        self._passes = PassContext.current().to_json()
        self._build = records.build_hash(self._target, self._passes)
        self._now = Conditions(
            task=task.alias,
            expression=task.key,
            space=task.config_space.space_hashes,
            build=self._build,
            hardware=records.hardware(self._env, self._target),
            threads=records.threads(self._target, self._env),
            target=self._target,
        )
        self._points = RecordedPoints(task.config_space)
        self._candidates: dict[int, str] = {}
        # Opened before it is read: a log that cannot be written is found before anything is lost.
        existed = os.path.exists(path) and os.path.getsize(path) > 0
        self._store = records.Store(path)
        self._expressions: set[str] = set()
        self._ids: dict[str, str] = {}  # of the records that were measured themselves, by program
        if existed:
            with without_collector():
                self._read(records.load(path))

    def add(self, trial: Trial) -> None:
        record = self._record(trial, trial.result)
        self._store.append(record)
        if record.program and not record.same_as:
            self._ids.setdefault(record.program, record.id)
        super().add(trial)

    def add_again(
        self,
        trial: Trial,
        result: MeasureResult,
        phase: str,
        verdict: Verdict | None = None,
        default: int | None = None,
        place: Place | None = None,
    ) -> None:
        record = self._record(trial, replace(result, times_of=""), phase=phase)
        self._candidates[trial.index] = record.candidate
        if verdict is not None:
            if default is not None and verdict.outcome is not Outcome.NOT_COMPARED:
                verdict = replace(verdict, default=self._candidates[default])
            record = replace(record, verdict=verdict.to_json())
        self._store.append(record)
        super().add_again(trial, result, phase, verdict, default, place)

    def _same_as(self, result: MeasureResult) -> str:
        if result.same_as and result.same_as not in self._ids:
            raise InternalError(
                f"a result shares the samples of the program {result.same_as}, of which the log "
                "has no record"
            )
        return self._ids[result.same_as] if result.same_as else ""

    def header(self, data: Mapping[str, Json]) -> None:
        run = {"run": self.run, "ts": time.time(), "task": self.task.alias}
        passes = {"passes": self._passes} if self._passes else {}
        self._store.header({**run, **passes, **data})

    def sync(self) -> None:
        self._store.sync()

    def close(self) -> None:
        try:
            self._store.sync()
        finally:
            self._store.close()

    def _record(self, trial: Trial, result: MeasureResult, phase: str = "") -> Record:
        task, error = self.task, result.error
        dag, trace, expression = _schedule(task, trial.config, result)
        if expression is not None:
            self._write_expression(expression)
        finite = result.max_error is not None and math.isfinite(result.max_error)
        shared = {name: getattr(result, name) for name in SHARED}
        shared |= {
            "times": tuple(result.times),
            "ts": result.ts or time.time(),
            "max_error": result.max_error if finite else None,
        }
        return Record(
            **shared,
            task=task.alias,
            op=task.name,
            args=list(task.args),
            dag=dag,
            target=self._target,
            config=trial.config.values,
            trace=trace,
            error=None if error is None else {"kind": error.kind, "text": error.text},
            space=task.config_space.hash_of(trial.config),
            build=self._build,
            run=self.run,
            round=trial.round,
            trial=trial.number,
            seed=trial.seed,
            env=self._env,
            phase=phase,
            program=result.program,
            same_as=self._same_as(result),
        )

    def _write_expression(self, expression: Expression) -> None:
        if expression.identity in self._expressions:
            return
        self._expressions.add(expression.identity)
        try:
            expression.to_line()
        except RecordError as exc:
            self.notes.append(f"the log does not keep the expression of {self.task}: {exc}")
            return
        self._store.expression(expression)

    def _read(self, log: records.Log) -> None:
        self._expressions = {e.identity for there in log.dags.values() for e in there}
        if complaint := log.complaint():
            self.notes.append(complaint)
        groups: dict[Reuse, list[Record]] = {reuse: [] for reuse in Reuse}
        reuses = records.reuses_of(log.records, self._now)
        self._rename(log.records, reuses)
        for record, reuse in zip(log, reuses, strict=True):
            groups[reuse].append(record)
        before = reuses.index(Reuse.AS_TRIAL) if Reuse.AS_TRIAL in reuses else len(reuses)
        self.expressions = log.dags
        names = ("op", "args", "task", "dag", "phase", "threads", "target", "hardware")
        past = log.records[:before]
        related = list(compress(past, records.once_for_equal(self._is_relative, past, names)))
        self.relatives = list(zip(related, results_of(related), strict=True))
        unknown = self._take(groups[Reuse.AS_TRIAL])
        self._load_foreign(groups[Reuse.FOR_TRAINING])
        self._explain(groups, unknown)

    def _rename(self, past: Sequence[Record], reuses: list[Reuse]) -> None:
        """Let records of the same program under another name count as under this one. Equal knobs
        do not make equal schedules, so each trace is compared with the schedule made here."""
        names = ("task", "dag", "threads", "target", "space", "build", "hardware")
        renamed = records.once_for_equal(self._under_another_name, past, names)
        for row, reuse in enumerate(renamed):
            if reuse in (Reuse.AS_TRIAL, Reuse.FOR_TRAINING) and self._makes(past[row]):
                reuses[row] = reuse

    def _under_another_name(self, record: Record) -> Reuse:
        if record.task == self.task.alias:
            return Reuse.NOT_AT_ALL
        return records.reuse_of(record, replace(self._now, task=record.task))

    def _makes(self, record: Record) -> bool:
        (config,) = self._configs([record])
        if config is None or record.dag != self.task.dag_hash or not record.trace:
            return False
        try:
            schedule, _ = self.task.instantiate(config)
        except InstantiationError:
            return False
        same = schedule.dag.hash == record.dag
        return same and canonical_json(schedule.trace_json()) == canonical_json(record.trace)

    def _is_relative(self, record: Record) -> bool:
        """Whether a record may teach a model of this task: of another shape of the template or
        workload, or of the same expression, under the conditions of now."""
        if record.phase or record.task == self.task.alias:
            return False
        # Tensors that were given without a function share one name, and have no arguments.
        named = record.op == self.task.name and (record.args or not self.task.automatic)
        if not named and record.dag != self.task.dag_hash:
            return False
        conditions = replace(self._now, task=record.task, space=record.space, build=record.build)
        return records.reuse_of(record, conditions) is Reuse.AS_TRIAL

    def _take(self, past: Sequence[Record]) -> int:
        """Take in records that are trials; returns the number of points that the space lacks."""
        configs = self._configs(past)
        names = ("trial", "round", "seed", "phase", "program", "same_as", "id")
        columns = records.fields_of(past, *names)
        rows = zip(past, configs, results_of(past), *columns, strict=True)
        played = places(past)
        numbers: set[int] = set()
        highest = -1
        for row, (record, config, result, *fields) in enumerate(rows):
            number, round_, seed, phase, program, same_as, id_ = fields
            if config is None:
                continue
            trial = Trial(number, round_, seed, config, result)
            if phase:
                verdict = verdict_of(record.verdict)
                super().add_again(trial, result, phase, verdict, place=played.get(row))
                continue
            if number in numbers:  # of a run under another name, which has counted its own
                trial = replace(trial, number=highest + 1)
            numbers.add(trial.number)
            highest = max(highest, trial.number)
            super().add(trial)
            if program and not same_as:
                self._ids.setdefault(program, id_)
        return configs.count(None)

    def _load_foreign(self, past: list[Record]) -> None:
        pairs = zip(self._configs(past), results_of(past), strict=True)
        self.elsewhere = [(config, result) for config, result in pairs if config is not None]
        best = filter(None, self._configs(records.ranked(past)))
        self.remeasure = list({point(c): c for c in best}.values())[:_REBUILT]
        same = records.by_code(past, self._now)
        # All at once: one by one, 100 000 records take three seconds.
        results = zip(same.items(), results_of(list(same.values())), strict=True)
        # Where samples were shared, the record that they are from is none of this run's trials.
        self.by_code = {
            code: replace(result, times_of=r.id, same_as="") for (code, r), result in results
        }

    def _configs(self, past: Sequence[Record]) -> list[ConfigEntity | None]:
        (configs,) = records.fields_of(past, "config")
        return self._points.find_all(configs)

    def _explain(self, groups: Mapping[Reuse, list[Record]], unknown: int) -> None:
        count = Counter({reuse: len(group) for reuse, group in groups.items()})
        if unknown:
            self.notes.append(f"{unknown} records name a configuration that this space lacks")
        if count[Reuse.FOR_TRAINING]:
            best = min(REMEASURED, len(self.remeasure))
            unless = ", unless their code is the same" if self.by_code else ""
            self.notes.append(
                f"{count[Reuse.FOR_TRAINING]} records are of another compiler version, pass "
                f"context or machine: the best {best} are measured again{unless}"
            )
        if count[Reuse.TRACE_ONLY]:
            self.notes.append(
                f"{count[Reuse.TRACE_ONLY]} records are of another search space of this task "
                "and do not count"
            )
        (others,) = records.fields_of(groups[Reuse.NOT_AT_ALL], "task")
        if other := others.count(self.task.alias):
            self.notes.append(
                f"{other} records of this task are for another target or number of threads "
                "and do not count"
            )
        ops = (records.fields_of(group, "op")[0] for group in groups.values())
        templates = Counter(chain.from_iterable(ops))
        if templates and self.task.name not in templates:
            names = ", ".join(repr(name)[1:-1][:40] for name, _ in templates.most_common(3))
            self.notes.append(
                f"the {templates.total()} records in the log are of other templates ({names}) and "
                "are not used"
            )


def _schedule(
    task: Task, config: ConfigEntity, result: MeasureResult
) -> tuple[str, list[Json], Expression | None]:
    """Expression hash and trace of a configuration, and the expression where known; nothing where
    the template refused it. For a measurer that does not give them the template runs again."""
    if result.dag:
        return result.dag, json.loads(result.trace), result.expression
    if result.error is not None and result.error.kind == ErrorKind.INSTANTIATION:
        return "", [], None
    schedule, _ = task.instantiate(config)
    return schedule.dag.hash, schedule.trace_json(), None


def open_journal(
    task: Task, path: str | None, run: str, kept: Journal | None, devices: str | None = None
) -> Journal:
    """The log at ``path``, or without one the journal of a former call."""
    if path is None:
        return kept or Journal(task)
    if not path:
        raise RecordError("the log's path is empty; name a file")
    return LogJournal(task, path, run, devices)
