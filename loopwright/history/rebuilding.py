"""A schedule from a record and the expression in its log, without the template that made it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopwright.errors import LoopwrightError, RecordError
from loopwright.records import Expression, Json, Log, Record, origin_of
from loopwright.target import Target

if TYPE_CHECKING:
    from loopwright.lowering import PassContext
    from loopwright.schedule import Schedule
    from loopwright.te import Dag, Tensor


def expression_of(log: Log, record: Record) -> Expression:
    """The expression that a record was made of; an error where its log does not hold it."""
    if not record.dag and record.error is not None:
        text = f"{record.error.get('kind')}: {record.error.get('text')}"
        raise RecordError(f"record {record.id} has no schedule, since it failed before: {text}")
    expression = log.expression(record)
    if expression is not None:
        return expression
    why = f"it holds {len(log.dags)} others" if log.dags else "it was written before logs kept them"
    unnamed = f"({origin_of(record) or 'AutoTVM'} keeps none)"
    name = f"expression {repr(record.dag[:20]) if record.dag else unnamed}"
    raise RecordError(f"{log.path} does not hold the {name} of record {record.id}: {why}")


def dag_of(expression: Expression) -> Dag:
    """The DAG of an expression, proved to be the one that its hash names."""
    from loopwright.te import Dag

    name = f"expression {expression.hash[:20]!r}"
    try:
        dag = Dag.from_json(dict(expression.dag))
        digest = dag.hash
    except _MALFORMED as exc:
        raise RecordError(f"the {name} of the log is malformed: {_one_line(exc)}") from exc
    if digest != expression.hash:
        raise RecordError(f"the {name} of the log is another one: its hash is {digest!r}")
    return dag


#: Errors that data which no program has written may raise where it is read.
_MALFORMED = (
    LoopwrightError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class Rebuilt:
    """Schedule, arguments, target and pass settings that a record was made from."""

    schedule: Schedule
    #: In calling order.
    args: list[Tensor]
    #: A target of kind ``c`` has a compiler of this machine.
    target: Target
    passes: PassContext


def rebuild(log: Log, record: Record) -> Rebuilt:
    """Replay the schedule of a record, a failed one too, on the expression that its log holds."""
    from loopwright.lowering import PassContext
    from loopwright.schedule import replay
    from loopwright.te import read_arg_id

    expression = expression_of(log, record)
    dag = dag_of(expression)
    try:
        schedule = replay(dag, record.trace)
        ids = [read_arg_id(a) for a in expression.arg_ids]
        if any(op not in range(len(dag.ops)) for op, _ in ids):
            raise RecordError("an argument is no operation of the expression")
        args = [schedule.tensor(a) for a in ids]
        passes = PassContext.from_json(_passes(expression.passes))
        return Rebuilt(schedule, args, _target(record), passes)
    except _MALFORMED as exc:
        raise RecordError(f"record {record.id} cannot be rebuilt: {_one_line(exc)}") from exc


#: Flags of a C compiler that a log may pass. Others can make it run programs (``-wrapper``,
#: ``-fplugin``) or read and write files.
_HARMLESS_FLAG = re.compile(
    r"-(O[0-3sg]|Ofast|g[0-3]?|m(arch|cpu|tune|prefer-vector-width)=[\w.+-]+"
    r"|f(no-)?(unroll-loops|peel-loops|tree-vectorize|tree-slp-vectorize|fast-math|math-errno"
    r"|trapping-math|signed-zeros|associative-math|omit-frame-pointer|inline))"
)


def _target(record: Record) -> Target:
    """The target of a record without its C compiler: a log names no program to be run."""
    flags = record.target.get("cflags", "")
    for flag in shlex.split(flags) if isinstance(flags, str) else []:
        if not _HARMLESS_FLAG.fullmatch(flag):
            raise RecordError(
                f"its target has the compiler flag {flag[:40]!r}, which a log may not set; build "
                "its schedule for the target in a program of your own"
            )
    return Target({name: value for name, value in record.target.items() if name != "cc"})


def _passes(said: Mapping[str, Json]) -> Mapping[str, Json]:
    """The settings of an expression without the limit of work: a log cannot lift it."""
    config = said.get("config")
    if not isinstance(config, Mapping):
        return said
    kept = {name: x for name, x in config.items() if name.removeprefix("tir.") != "code_limit"}
    return {**said, "config": kept}


def _one_line(exc: Exception) -> str:
    return " ".join(f"{exc}".split())[:300]
