"""``loopwright inspect``: the kernels of a model, their share of its time, and their records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import echo
from loopwright.cli.model import (
    APPLIED_LAYOUTS,
    GivenModel,
    batch_option,
    find_model,
    layouts_option,
    max_error_option,
    no_fallback_option,
)
from loopwright.env import MAX_THREADS
from loopwright.records import Json

if TYPE_CHECKING:
    from loopwright.graph import HostFunction, LayoutChoice
    from loopwright.graph.building import CompiledModel
    from loopwright.graph.kernel_tasks import KernelTasks
    from loopwright.graph.plan import Planned
    from loopwright.task import ApplyHistoryBest, Choice

#: Runs of the model that are timed.
_RUNS = 10


@dataclass(frozen=True)
class KernelRow:
    name: str
    #: The computation in words.
    task: str
    #: Key of the task; kernels of equal keys are tuned once.
    key: str
    #: Its operators.
    ops: tuple[str, ...]
    #: Calls in a run of the model.
    calls: int
    #: Operations of one call; 0 where there are none to count.
    flop: int
    #: Whether `loopwright tune` tunes it.
    tuned: bool
    #: Id of the record that it is built from; empty for its default.
    record: str
    #: Further facts about that record, in words.
    note: str
    #: Implementation of its operator; ``"definition"`` if there is only one.
    implementation: str
    #: Time of all its calls in a run; None without timing.
    seconds: float | None = None
    #: The executor of a node without a kernel; empty for a kernel.
    by: str = ""

    def to_json(self) -> dict[str, Json]:
        return {**self.__dict__, "ops": list(self.ops)}


@click.command("inspect", short_help="Show what a model consists of, and where its time goes.")
@click.argument("model", type=click.Path())
@click.argument("shapes", nargs=-1, metavar="[INPUT=SHAPE]...")
@click.option(
    "--target",
    default="llvm",
    show_default=True,
    help='What kernels are compiled for, with options, such as "llvm -mcpu=x86-64-v3".',
)
@click.option(
    "--threads",
    type=click.IntRange(1, MAX_THREADS),
    metavar="N",
    help="Threads that each kernel runs on [default: all cores].",
)
@click.option(
    "--history",
    multiple=True,
    type=click.Path(),
    metavar="LOG",
    help="A log of `loopwright tune`, or a folder of such *.jsonl: says which kernels have "
    "records, and times them as these say. Several may be given.",
)
@no_fallback_option
@batch_option
@layouts_option(APPLIED_LAYOUTS)
@max_error_option
@click.option("--no-time", is_flag=True, help="Build and time nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(
    model: str,
    shapes: tuple[str, ...],
    target: str,
    threads: int | None,
    history: tuple[str, ...],
    no_fallback: bool,
    batches: tuple[int, ...],
    layouts: str | None,
    max_error: float | None,
    no_time: bool,
    as_json: bool,
) -> None:
    """Show the operators of MODEL, an ONNX file, the kernels that they become, how often each is
    called, its share of the time of a run, and which kernels have records in a log (--history).

    INPUT=SHAPE, such as image=1x3x224x224, goes before what the model declares. Times are those of
    runs on random data; kernels that map elements one by one are not tuned. Nodes that have no
    kernel stand among the kernels, with who computes them, and why. With --batch all of this is
    told of each batch, one after the other; --json prints a line for each. With --layouts the model
    is told as it is in these layouts.
    """
    from loopwright.graph.building import built
    from loopwright.graph.kernel_tasks import kernel_tasks
    from loopwright.graph.pipeline import prepared
    from loopwright.task import apply_history_best

    given = find_model(
        model,
        shapes,
        target,
        threads,
        no_fallback=no_fallback,
        max_error=max_error,
        batches=batches,
        layouts=layouts,
    )
    applied = apply_history_best(list(history)) if history else None
    for number, one in enumerate(given.each()):
        planned = prepared(one.module, one.layouts, one.target)
        with one.limits():
            tasks = kernel_tasks(planned, one.target)
        rows = _rows(planned, tasks, applied)
        if not no_time:
            rows = _timed(rows, built(planned, tasks, one.target, applied))
        if as_json:
            click.echo(json.dumps(_as_json(one, planned, rows)))
            continue
        lines = _text(one, planned, rows, with_records=applied is not None)
        echo("\n".join([*([""] if number else []), *lines]))


def _rows(
    planned: Planned, tasks: KernelTasks, applied: ApplyHistoryBest | None
) -> list[KernelRow]:
    from loopwright.graph.kernel_tasks import fastest
    from loopwright.graph.tasks import grouped
    from loopwright.tuner.run.state import flop_of

    known = {one.task.key: one for one in grouped(planned, tasks)}
    rows = []
    for name, candidates in tasks.items():
        one = known[fastest(candidates, applied).task.key]
        record, note = _found(None if applied is None else applied.explain(one.task))
        rows.append(
            KernelRow(
                name,
                str(one.task),
                one.task.key,
                one.ops,
                planned.calls[name],
                flop_of(one.task),
                not one.is_simple,
                record,
                note,
                one.implementation,
            )
        )
    return rows + [_without_kernel(name, host) for name, host in planned.hosts.items()]


def _without_kernel(name: str, host: HostFunction) -> KernelRow:
    ops, said = (host.name,), host.span or host.name
    return KernelRow(name, said, "", ops, 1, 0, False, "", host.reason, "", by=host.by)


def _found(choice: Choice | None) -> tuple[str, str]:
    """The record that a kernel is built from, and a note about it; empty for the default."""
    from loopwright.task import Match

    if choice is None or choice.record is None:
        return "", ""
    if choice.match is Match.DEFAULT and choice.unverified:
        return "", f"record {choice.record.id} is unverified"
    if choice.match is Match.DEFAULT:
        return "", f"by the verdict of record {choice.record.id}"
    return choice.record.id, choice.against_default


def _timed(rows: Sequence[KernelRow], model: CompiledModel) -> list[KernelRow]:
    """The rows with the time of their calls inside runs of the model, longest first."""
    from dataclasses import replace

    from loopwright.cli.timing import place_of
    from loopwright.graph.step_times import seconds_by_step

    with place_of(model).held():
        took = seconds_by_step(model, _RUNS)
    found = [replace(row, seconds=took[row.name]) for row in rows]
    return sorted(found, key=lambda row: -(row.seconds or 0.0))


def _operators(rows: Sequence[KernelRow]) -> Counter[str]:
    """Number of calls of each operator in a run of the model, as it is compiled."""
    found: Counter[str] = Counter()
    for row in rows:
        for name in row.ops:
            found[name] += row.calls
    return found


def _as_json(given: GivenModel, planned: Planned, rows: Sequence[KernelRow]) -> dict[str, Json]:
    program = planned.program
    return {
        "model": given.words[0],
        **({"batch": given.batches[0]} if given.batches else {}),
        "target": str(given.target),
        "inputs": {v.name: [v.dtype, *v.shape] for v in program.input_values},
        "outputs": {v.name: [v.dtype, *v.shape] for v in program.output_values},
        **({"layouts": given.layouts.to_json()} if given.layouts is not None else {}),
        "weight_bytes": sum(a.nbytes for a in planned.constants.values()),
        "pool_bytes": program.pool_bytes,
        "operators": dict(_operators(rows)),
        "kernels": [row.to_json() for row in rows],
    }


def _text(
    given: GivenModel, planned: Planned, rows: Sequence[KernelRow], *, with_records: bool
) -> list[str]:
    program = planned.program
    operators = _operators(rows)
    weights = sum(a.nbytes for a in planned.constants.values())
    tuned = {row.key for row in rows if row.tuned}
    head = (
        f"{given.title} on {given.target}: {operators.total()} operators in "
        f"{len(program.steps)} calls of {len(planned.kernels)} kernels, {len(tuned)} tasks"
    )
    head += f"; without a kernel: {len(planned.hosts)}" if planned.hosts else ""
    lines = [head]
    for title, named in (("inputs", program.input_values), ("outputs", program.output_values)):
        told = ", ".join(f"{v.name} {v.dtype}{list(v.shape)}" for v in named)
        lines.append(f"{title + ':':11}{told}")
    lines.append(f"{'memory:':11}{_bytes(weights)} of weights, {_bytes(program.pool_bytes)} beside")
    told = ", ".join(f"{count} {name}" for name, count in operators.most_common())
    lines.append(f"{'operators:':11}{told}")
    lines += [] if given.layouts is None else [f"{'layouts:':11}{_layouts(given.layouts)}"]
    lines += ["", *_table(rows, with_records)]
    return lines


def _layouts(choice: LayoutChoice) -> str:
    """The chosen layouts in words, with their gain and their target."""
    return f"{choice}, for {choice.target}" if choice.target else str(choice)


def _table(rows: Sequence[KernelRow], with_records: bool) -> list[str]:
    from loopwright.task.applying.as_called import duration

    whole = sum(row.seconds or 0.0 for row in rows)
    cells: list[tuple[str, ...]] = [("kernel", "calls", "GFLOP", "time", "share", "built from")]
    for row in rows:
        time = "-" if row.seconds is None else duration(row.seconds)
        share = "-" if not row.seconds else f"{row.seconds / whole:.1%}"
        flop = f"{row.calls * row.flop / 1e9:.3f}" if row.flop else "-"
        cells.append((row.name, str(row.calls), flop, time, share, _origin(row, with_records)))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_aligned(row, widths) for row in cells]
    if whole:
        lines.append(f"{'sum':{widths[0]}}  {duration(whole)} a run, inside kernels")
    if with_records:
        lines.append(_recorded(rows))
    return lines


def _recorded(rows: Sequence[KernelRow]) -> str:
    """The number of tasks with records, and their share of the time."""
    rows = [row for row in rows if not row.by]
    have = [row for row in rows if row.record or row.note]
    told = (
        f"{len({row.key for row in have})} of {len({row.key for row in rows})} tasks have records"
    )
    whole = sum(row.seconds or 0.0 for row in rows)
    if whole:
        told += f" ({sum(row.seconds or 0.0 for row in have) / whole:.1%} of the time)"
    return f"{told}, {len({row.key for row in have if row.record})} are built from them"


def _origin(row: KernelRow, with_records: bool) -> str:
    """The origin of a kernel's schedule in words; empty for a node without a kernel."""
    from loopwright.graph.strategy import DEFINITION

    if row.by:
        return f"no kernel, {row.by}: {row.note}"
    schedule = _schedule(row, with_records)
    plain = row.implementation == DEFINITION
    return schedule if plain else f"{row.implementation}, {schedule}"


def _schedule(row: KernelRow, with_records: bool) -> str:
    if row.record:
        return f"record {row.record}: {row.note}"
    if row.note:
        return f"default, {row.note}"
    if not row.tuned:
        return "default (is not tuned)"
    return "default, no record" if with_records else "default"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = (0, len(cells) - 1)
    parts = [
        cell.ljust(width) if n in left else cell.rjust(width)
        for n, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(parts).rstrip()


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
