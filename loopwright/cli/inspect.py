"""``loopwright inspect``: the kernels of a model, their share of its time, and their records."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from loopwright.cli import options as cli
from loopwright.cli.console import announce, echo
from loopwright.cli.model import ModelOptions, ModelSubject, find_model
from loopwright.cli.tables import TextColumn, table_lines
from loopwright.presenting import duration
from loopwright.records import Json

if TYPE_CHECKING:
    from loopwright.graph import KernelTasks, Planned
    from loopwright.history import ApplyHistoryBest, Choice


#: Runs of the model that are timed.
_RUNS = 10


@dataclass(frozen=True)
class KernelRow:
    name: str
    task: str  # the computation in words
    key: str  # of the task; kernels of equal keys are tuned once
    ops: tuple[str, ...]  # its operators
    calls: int  # in a run of the model
    flop: int  # operations of one call; 0 where there are none to count
    tuned: bool  # whether `loopwright tune` tunes it
    record: str  # id of the record that it is built from; empty for its default
    note: str  # further facts about that record, in words
    implementation: str  # of its operator; ``"definition"`` if there is only one
    seconds: float | None = None  # of all its calls in a run, the median; None without timing
    share: float | None = None  # of the time of a run, the median over the runs
    share_spread: float | None = None  # half the distance of the quartiles of the share
    by: str = ""  # the executor of a node without a kernel; empty for a kernel

    def to_json(self) -> dict[str, Json]:
        return {**self.__dict__, "ops": list(self.ops)}

    def origin(self, with_records: bool) -> str:
        from loopwright.graph import DEFINITION

        if self.by:
            return f"no kernel, {self.by}: {self.note}"
        if self.record:
            text = f"record {self.record}: {self.note}"
        elif self.note:
            text = f"default, {self.note}"
        elif not self.tuned:
            text = "default (is not tuned)"
        else:
            text = "default, no record" if with_records else "default"
        return text if self.implementation == DEFINITION else f"{self.implementation}, {text}"


@cli.verb("inspect")
def inspect_command(
    *,
    model: str = cli.argument(type=click.Path()),
    shapes: tuple[str, ...] = cli.argument(nargs=-1, metavar="[INPUT=SHAPE]..."),
    target: cli.TargetOptions,
    history: cli.HistoryOptions = cli.group(
        without=("allow_default",),
        history="A log of `loopwright tune`, or a folder of such *.jsonl: says which kernels have "
        "records, and builds these kernels from their records before timing. Several may be given.",
    ),
    options: ModelOptions = cli.group(without=("finalists",)),
    no_time: bool = cli.flag("--no-time", "Build and time nothing."),
    as_json: bool = cli.json_option(),
) -> None:
    """Show the operators of MODEL, an ONNX file, the kernels that they become, how often each is
    called, its share of the time of a run, and which kernels have records in a log (--history).

    INPUT=SHAPE, such as image=1x3x224x224, overrides what the model declares. Times are those of
    runs on random data, medians of ten; "+-" is half the distance of the quartiles of the share.
    Kernels that map elements one by one are not tuned. Nodes without a kernel are listed, too, with
    what computes them instead, and why. With --batch each batch is shown, one after the other;
    --json prints a line for each. With --layouts the model is shown in these layouts.
    """
    from loopwright.graph import (
        ModelBuilder,
        kernel_tasks,
        prepared,
        seconds_by_step,
        shares_by_step,
    )
    from loopwright.history import apply_history_best

    subject = find_model(model, shapes, target, options)
    applied = apply_history_best(list(history.history)) if history.history else None
    for number, one in enumerate(subject.each()):
        planned = prepared(one.module, one.layouts, one.target)
        with one.limits():
            tasks = kernel_tasks(planned, one.target)
        rows = _rows(planned, tasks, applied)
        if not no_time:  # longest first
            from loopwright.inspection import RunPlace

            built = ModelBuilder(one.target, applied).program(planned, tasks)
            with RunPlace.of_model(built).held(announce):
                samples = seconds_by_step(built, _RUNS)
            shares = shares_by_step(samples)
            rows = [_timed(row, samples[row.name], *shares[row.name]) for row in rows]
            rows.sort(key=lambda row: -(row.share or 0.0))
        if as_json:
            click.echo(json.dumps(_as_json(one, planned, rows)))
            continue
        lines = _text(one, planned, rows, with_records=applied is not None)
        echo("\n".join([*([""] if number else []), *lines]))


def _timed(row: KernelRow, samples: Sequence[float], share: float, spread: float) -> KernelRow:
    seconds = statistics.median(samples)
    return replace(row, seconds=seconds, share=share, share_spread=spread)


def _rows(
    planned: Planned, tasks: KernelTasks, applied: ApplyHistoryBest | None
) -> list[KernelRow]:
    from loopwright.graph import fastest, grouped
    from loopwright.tuner import flop_of

    by_key = {one.task.key: one for one in grouped(planned, tasks)}
    rows = []
    for name, candidates in tasks.items():
        one = by_key[fastest(candidates, applied).task.key]
        origin = _record(None if applied is None else applied.explain(one.task))
        task, calls, tuned = one.task, planned.calls[name], not one.is_simple
        facts = (str(task), task.key, one.ops, calls, flop_of(task), tuned, *origin)
        rows.append(KernelRow(name, *facts, one.implementation))
    for name, host in planned.hosts.items():
        facts = (host.span or host.name, "", (host.name,), 1, 0, False, "", host.reason)
        rows.append(KernelRow(name, *facts, "", by=host.by))
    return rows


def _record(choice: Choice | None) -> tuple[str, str]:
    """The record that a kernel is built from, and a note about it; empty for the default."""
    from loopwright.history import Match

    if choice is None or choice.record is None:
        return "", ""
    if choice.match is Match.DEFAULT and choice.unverified:
        return "", f"record {choice.record.id} is unverified"
    if choice.match is Match.DEFAULT:
        return "", f"by the verdict of record {choice.record.id}"
    return choice.record.id, choice.against_default


def _operators(rows: Sequence[KernelRow]) -> Counter[str]:
    """Number of calls of each operator in a run of the model, as it is compiled."""
    return Counter(name for row in rows for name in row.ops for _ in range(row.calls))


def _as_json(subject: ModelSubject, planned: Planned, rows: Sequence[KernelRow]) -> dict[str, Json]:
    program = planned.program
    return {
        "model": subject.words[0],
        **({"batch": subject.batches[0]} if subject.batches else {}),
        "target": str(subject.target),
        "inputs": {v.name: [v.dtype, *v.shape] for v in program.input_values},
        "outputs": {v.name: [v.dtype, *v.shape] for v in program.output_values},
        **({"layouts": subject.layouts.to_json()} if subject.layouts is not None else {}),
        "weight_bytes": sum(a.nbytes for a in planned.constants.values()),
        "pool_bytes": program.pool_bytes,
        "operators": dict(_operators(rows)),
        "kernels": [row.to_json() for row in rows],
    }


def _text(
    subject: ModelSubject, planned: Planned, rows: Sequence[KernelRow], *, with_records: bool
) -> Iterator[str]:
    program, operators = planned.program, _operators(rows)
    tuned = {row.key for row in rows if row.tuned}
    head = (
        f"{subject.title} on {subject.target}: {operators.total()} operators in "
        f"{len(program.steps)} calls of {len(planned.kernels)} kernels, {len(tuned)} tasks"
    )
    yield head + (f"; without a kernel: {len(planned.hosts)}" if planned.hosts else "")
    facts: dict[str, str] = {}
    for title, values in (("inputs", program.input_values), ("outputs", program.output_values)):
        facts[title] = ", ".join(f"{v.name} {v.dtype}{list(v.shape)}" for v in values)
    weights = sum(a.nbytes for a in planned.constants.values())
    facts["memory"] = f"{_bytes(weights)} of weights, {_bytes(program.pool_bytes)} beside"
    facts["operators"] = ", ".join(f"{n} {name}" for name, n in operators.most_common())
    if (choice := subject.layouts) is not None:
        facts["layouts"] = f"{choice}{f', for {choice.target}' if choice.target else ''}"
    yield from (f"{title + ':':11}{text}" for title, text in facts.items())
    yield ""
    yield from _table(rows, with_records)


def _table(rows: Sequence[KernelRow], with_records: bool) -> Iterator[str]:
    total = sum(row.seconds or 0.0 for row in rows)
    times = ["-" if row.seconds is None else duration(row.seconds) for row in rows]
    shares = [f"{row.share:.1%}" if row.share is not None else "-" for row in rows]
    spreads = [f"{s:.1%}" if (s := row.share_spread) is not None else "-" for row in rows]
    flops = [f"{row.calls * row.flop / 1e9:.3f}" if row.flop else "-" for row in rows]
    columns = [
        TextColumn("kernel", [row.name for row in rows]),
        TextColumn("calls", [str(row.calls) for row in rows], right=True),
        TextColumn("GFLOP", flops, right=True),
        TextColumn("time", times, right=True),
        TextColumn("share", shares, right=True),
        TextColumn("+-", spreads, right=True),
        TextColumn("built from", [row.origin(with_records) for row in rows]),
    ]
    yield from table_lines(columns, None)
    if total:
        width = max(len(name) for name in ("kernel", *(row.name for row in rows)))
        yield f"{'sum':{width}} {duration(total)} a run, inside kernels"
    if not with_records:
        return
    rows = [row for row in rows if not row.by]
    have = [row for row in rows if row.record or row.note]
    recorded, tasks = ({row.key for row in some} for some in (have, rows))
    text = f"{len(recorded)} of {len(tasks)} tasks have records"
    if total := sum(row.seconds or 0.0 for row in rows):
        text += f" ({sum(row.seconds or 0.0 for row in have) / total:.1%} of the time)"
    yield f"{text}, {len({row.key for row in have if row.record})} are built from them"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
