"""``--record ID`` and ``--trial N``: one record of a log in place of its best one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopwright.cli.workload import Workload, counted
from loopwright.errors import RecordError, UsageError

if TYPE_CHECKING:
    from loopwright.records import Log, Record
    from loopwright.task.rebuild import Rebuilt


def record_options(command: Callable[..., object]) -> Callable[..., object]:
    decorators = (
        click.option(
            "--record",
            metavar="ID",
            help="This record of the log: its id, the beginning of it, `best` or `default`.",
        ),
        click.option(
            "--trial", type=click.IntRange(0), metavar="N", help="The record of this trial instead."
        ),
        click.option(
            "--run",
            metavar="RUN",
            help="The run that had this trial, where the log has several; the beginning will do.",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def emit_option(command: Callable[..., object]) -> Callable[..., object]:
    return click.option(
        "--emit",
        type=click.Choice(["nest", "llvm", "c", "asm", "opencl", "cuda", "ptx", "hip"]),
        help="Print this: the loop nest, LLVM IR, C, assembly, OpenCL C, CUDA C++, PTX, or HIP.",
    )(command)


@dataclass(frozen=True)
class RecordName:
    """The values of --record, --trial and --run."""

    #: An id, the beginning of one, ``"best"`` or ``"default"``; None: not given.
    record: str | None
    trial: int | None
    #: The run of the trial.
    run: str | None

    @property
    def given(self) -> bool:
        return self.record is not None or self.trial is not None

    def check(self, history: Sequence[str]) -> None:
        """Refuse a record without its log, and a run without a record."""
        if self.given and not history:
            raise UsageError("--record and --trial are of a log: name it with --history")
        if self.run is not None and not self.given:
            raise UsageError("--run goes with --trial: it says which run's trial is meant")


def find(workload: Workload, logs: Sequence[Log], name: RecordName) -> tuple[Record, Rebuilt]:
    """The named record, rebuilt; another workload or number of threads is refused."""
    from loopwright.task.rebuild import rebuild

    log = _together(logs)
    record = _chosen(workload, log, name)
    _check_fit(workload, record)
    rebuilt = rebuild(log, record)
    _check_same(workload, record, rebuilt)
    return record, rebuilt


def _chosen(workload: Workload, log: Log, name: RecordName) -> Record:
    """The named record, preferably one of the workload."""
    from loopwright.inspection import choose
    from loopwright.inspection.choosing import WORDS
    from loopwright.records import fields_of

    (threads,) = fields_of(log.records, "threads")
    rows = zip(log.records, threads, strict=True)
    own = [(record, count) for record, count in rows if workload.task.is_of(record)]
    now = _threads(workload)
    fit = [record for record, count in own if count in (0, now)]
    for among in (fit, [record for record, _ in own]):
        try:
            return choose(log, name.record, trial=name.trial, run=name.run, among=among)
        except RecordError:
            continue  # the message is better where it tells what the log has of other workloads
    try:
        return choose(log, name.record, trial=name.trial, run=name.run)
    except RecordError as error:
        if name.record in WORDS:
            raise
        raise UsageError(str(error)) from error


def _together(logs: Sequence[Log]) -> Log:
    from loopwright.records import Log

    if len(logs) == 1:
        return logs[0]
    whole = Log(Path(", ".join(str(log.path) for log in logs)))
    for log in logs:
        whole.records += log.records
        whole.headers += log.headers
        whole.skipped += log.skipped
        for digest, expressions in log.dags.items():
            whole.dags.setdefault(digest, []).extend(expressions)
    return whole


def _check_fit(workload: Workload, record: Record) -> None:
    from loopwright.inspection.choosing import title

    if not workload.task.is_of(record):
        raise UsageError(
            f"record {record.id} is of {title(record)} for {record.kind or 'an unknown target'}, "
            f"not of {workload.task} for {workload.task.kind}; "
            "`loopwright records rerun` needs no workload"
        )
    now, then = _threads(workload), record.threads
    if then not in (0, now):
        raise UsageError(
            f"record {record.id} was measured with {counted(then)}, and this is for "
            f"{counted(now)}; add --threads {then}"
        )


def _threads(workload: Workload) -> int:
    """Number of threads of a kernel of the workload on this machine."""
    from loopwright.env import usable_cpus
    from loopwright.records import threads

    said = workload.threads or threads(workload.task.target.canonical, {})
    return said or len(usable_cpus())


def _check_same(workload: Workload, record: Record, rebuilt: Rebuilt) -> None:
    """Refuse a record whose template now computes something else."""
    task = workload.task
    made = rebuilt.schedule.dag.hash
    schedule, args = task.expression(made if made in task.dag_hashes else "")
    same = schedule.dag.hash == rebuilt.schedule.dag.hash
    if not same or schedule.arg_ids(args) != rebuilt.schedule.arg_ids(rebuilt.args):
        raise RecordError(
            f"record {record.id} computes {rebuilt.schedule.dag.hash}, and {task} is now "
            f"{schedule.dag.hash}: its template has changed; `loopwright records rerun` takes the "
            "expression from the log"
        )
