"""One record of a log as a Python file that builds, checks and times its kernel."""

from __future__ import annotations

import json
import os
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from loopwright.errors import LoopwrightError, RecordError, TensorError, UsageError
from loopwright.files import FileKind, Output, check, marked, write
from loopwright.history import Rebuilt, expression_of, rebuild
from loopwright.inspection import kernel_file
from loopwright.inspection.choosing import LogLike, choose, log_of, title
from loopwright.inspection.speed import seed_of
from loopwright.presenting import counted, duration, harmless
from loopwright.records import Checked, Expression, Json, Log, Record, Verdict

if TYPE_CHECKING:
    from loopwright.measure import DataPlan


#: Forms of a program in an exported file: calls of te and of the schedule's primitives, or
#: the JSON of the log.
Form: TypeAlias = Literal["python", "data"]
KERNEL = FileKind("an exported kernel", marked(kernel_file.HEAD[:80].encode()))
_WIDTH = 100


def export(
    log: LogLike,
    record: Record | str = "best",
    path: str | os.PathLike[str] | None = None,
    *,
    form: Form = "python",
    force: bool = False,
) -> str:
    """Write a record as a Python file that needs neither its log nor its template.

    Running the file builds the kernel, compares its answer with the same computation without a
    schedule, and times it; ``--help`` lists its other functions. The file has the computation as
    Python: the tensor expression, and the calls of the schedule's primitives. Returns its text.

    Args:
        log: the log, or its path.
        record: a record of it, an id or the beginning of one, ``"best"`` or ``"default"``.
        path: the file to be written; an earlier export is replaced. None: nothing is written.
        form: ``"data"`` for the JSON of the log in place of Python. JSON is also written where
            Python cannot express the program, and the file says why.
        force: replace any file.

    Raises:
        RecordError: there is no such record, or it cannot be rebuilt from its log.
        UsageError: several records match; another form; or ``path`` is the log, or a file that is
            no export.
        LoopwrightError: the file cannot be written.

    Example:
        >>> from loopwright.inspection import export
        >>> text = export("matmul.jsonl", "best")
        >>> print("te.placeholder" in text, "split" in text)
        True True
    """
    if form not in ("python", "data"):
        raise UsageError(f"there is no form {form!r} of an exported kernel; give python or data")
    opened = log_of(log)
    chosen = choose(opened, record) if isinstance(record, str) else record
    if path is None:
        return kernel_text(opened, chosen, form)
    file = Path(path)
    if file.exists() and opened.path.exists() and file.samefile(opened.path):
        raise UsageError(f"{path} is the log itself, and would be replaced; name another file")
    check((file, KERNEL), force=force, error=LoopwrightError)
    text = kernel_text(opened, chosen, form)
    write(Output(file, text.encode(), KERNEL), force=force, error=LoopwrightError)
    return text


def kernel_text(log: Log, record: Record, form: Form = "python") -> str:
    rebuilt, expression = rebuild(log, record), expression_of(log, record)
    dag = rebuilt.schedule.dag
    program, why = ("", "it was exported as data") if form == "data" else _as_python(rebuilt)
    from_data = not program
    plan = _plan(rebuilt)
    parts = [
        kernel_file.HEAD + "\n".join(_origin(log, record, rebuilt, expression, plan)),
        kernel_file.IMPORTS + (kernel_file.IMPORTS_FOR_DATA if from_data else ""),
        _constants(rebuilt, expression, record, plan),
        *_trusted(rebuilt),
        program
        or "\n".join(
            [
                f"# Program and schedule stand here as data, since {why}.",
                f"DAG = json.loads({_literal(dag.to_json())})",
                f"TRACE = json.loads({_literal(record.trace)})",
            ]
        ),
        kernel_file.FROM_DATA if from_data else kernel_file.FROM_PYTHON,
        kernel_file.MAIN,
    ]
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _origin(
    log: Log, record: Record, rebuilt: Rebuilt, expression: Expression, plan: DataPlan | None
) -> Iterator[str]:
    """Origin of the kernel, as comments: no text of a log can end a line or a comment."""
    env, config = record.env, record.config
    run = f", trial {record.trial} of run {record.run}" if record.run else ""
    clock = time.strftime(", %Y-%m-%d %H:%M UTC", time.gmtime(record.ts)) if record.ts > 0 else ""
    threads = f", {counted(record.threads, 'thread')}" if record.threads else ""
    packages = ("loopwright", "llvmlite", "numpy", "python")
    try:
        verdict = "" if record.verdict is None else Verdict.from_json(record.verdict).text("it")
    except RecordError:
        verdict = ""
    if record.checked is Checked.YES:
        error = "" if record.max_error is None else f", largest error {record.max_error:.3g}"
        answer = f"compared with the reference{error}"
    else:
        why = f": {record.check_reason}" if record.check_reason else ""
        answer = f"not compared with a reference{why}"
    if expression.inputs.get("made_by") != "template":
        inputs = f"random, from seed {seed_of(expression)}, as in the log"
    else:
        inputs = "made by the template, which is not in the log; "
        inputs += "give your own with --inputs" if plan is None else "here they are random"
    rows = [
        ("task", title(record)),
        ("record", f"{record.id} of {log.path.name}{run}{clock}"),
        ("speed", _speed(record, rebuilt)),
        ("verdict", verdict),
        ("answer", answer),
        ("hardware", f"{env.get('cpu') or 'unknown'}{threads}"),
        ("target", str(rebuilt.target)),
        ("knobs", " ".join(f"{name}={json.dumps(v)}" for name, v in config.items())),
        ("software", ", ".join(f"{name} {env[name]}" for name in packages if env.get(name))),
        ("inputs", inputs),
    ]
    yield "# Where it is from:"
    for name, text in rows:
        lines = textwrap.wrap(harmless(text), _WIDTH - 13, break_on_hyphens=False)
        for head, line in zip([name, *[""] * len(lines)], lines, strict=False):
            yield f"#   {head:8} {line}"


def _speed(record: Record, rebuilt: Rebuilt) -> str:
    if record.error is not None:
        return f"none: it failed ({record.error.get('kind')}: {record.error.get('text')})"
    if record.median is None:
        return "not measured"
    gflops = rebuilt.schedule.dag.flop / record.median / 1e9
    windows = counted(len(record.times), "window")
    speed = f", {gflops:.4g} GFLOP/s" if gflops else ""
    rough = "; dropped after its first run, so that this is a rough value" if record.dropped else ""
    return (
        f"{duration(record.median)} per call (median of {windows}, {duration(min(record.times))} "
        f"to {duration(max(record.times))}){speed}{rough}"
    )


def _plan(rebuilt: Rebuilt) -> DataPlan | None:
    """Plan of its inputs; None where an input is an index of unknown range."""
    from loopwright.measure import Candidate, plan_of

    schedule = rebuilt.schedule
    ids = tuple(schedule.arg_ids(rebuilt.args))
    try:
        return plan_of(Candidate(schedule.dag, [], ids, "main"), from_template=False)[1]
    except UsageError:
        return None


def _constants(
    rebuilt: Rebuilt, expression: Expression, record: Record, plan: DataPlan | None
) -> str:
    from loopwright.measure import computed_in, reduction_length

    dag = rebuilt.schedule.dag
    close = f"Closeness({reduction_length(dag)}, {computed_in(dag)!r})"
    ids = list(rebuilt.schedule.arg_ids(rebuilt.args))
    lines = [
        "#: What it was compiled for; `main` takes another target with --target.",
        _assigned("TARGET", rebuilt.target.canonical),
        "#: Settings of the passes that it was lowered with.",
        _assigned("PASSES", rebuilt.passes.to_json()),
        "#: The arguments in calling order: operations of the program, by their number.",
        f"ARGUMENTS = {ids!r}",
        "#: How the inputs are made: ranges of what is used as an index, and the largest number of",
        "#: the second set of inputs, which are integers where sums of them are exact.",
        f"INPUTS = {plan!r}",
        f"SEED = {seed_of(expression)}",
        "#: How close floats must be: terms of the longest sum, and the type that is computed in.",
        f"CLOSENESS = {close}",
        "#: Seconds per call in the log.",
        f"RECORDED_S = {record.median!r}",
        "#: Names the program: equal programs have equal hashes.",
        f'DAG_HASH = "{dag.hash}"',
    ]
    return "\n".join(lines)


def _assigned(name: str, value: Mapping[str, object]) -> str:
    line = f"{name} = {dict(value)!r}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name} = {{", *(f"    {k!r}: {v!r}," for k, v in value.items()), "}"])


def _as_python(rebuilt: Rebuilt) -> tuple[str, str]:
    """Program and schedule as functions; or "", and why Python cannot express them."""
    try:
        _, _, source = rebuilt.schedule.dag.as_python().partition("\n\n")
        lines, _, outputs = source.rstrip("\n").rpartition("\n")
        body = [f"    {line}" for line in lines.split("\n")]
        result = f"    return {outputs.removeprefix('outputs = ')}"
        title = '    """The tensor expression; returns what is computed."""'
        program = "\n".join(["def program():", title, *body, result])
        text = f"{program}\n\n\n{rebuilt.schedule.as_python()}"
        compile(text, "<exported kernel>", "exec")  # which runs nothing
    except (TensorError, SyntaxError, RecursionError, MemoryError) as error:
        return "", f"Python cannot say it: {harmless(str(error))[:200]}"
    return text, ""


def _literal(data: Json) -> str:
    text = json.dumps(data, separators=(",", ":"))
    parts = [text[at : at + _WIDTH - 10] for at in range(0, len(text), _WIDTH - 10)]
    return "\n".join(["", *(f"    {part!r}" for part in parts), ""])


def _trusted(rebuilt: Rebuilt) -> list[str]:
    """Digests of intrinsics that the exporting program has declared, without a proof."""
    from loopwright.schedule import Tensorize
    from loopwright.te import call_of, why_not_harmless

    used = [step.intrin for step in rebuilt.schedule.trace if isinstance(step, Tensorize)]
    unproved = [x.digest for x in used if not call_of(x) and why_not_harmless(x)]
    if not unproved:
        return []
    return [
        "# Intrinsics that the program which exported this file has declared itself.\n"
        "from loopwright.te.intrin_proof import vouch_for\n\n"
        f"vouch_for({list(dict.fromkeys(unproved))!r})"
    ]
