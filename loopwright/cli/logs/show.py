"""``loopwright records show``: everything that a log holds about one record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import echo, harmless
from loopwright.cli.logs.reading import Filters, check_one_setup, find_record, load_log
from loopwright.cli.options import any_of, argument, flag, option, verb
from loopwright.cli.tables import TextColumn, table_lines, terminal_width, wrapped
from loopwright.errors import LoopwrightError, RecordError
from loopwright.presenting import counted

if TYPE_CHECKING:
    from loopwright.records import Importance, Log, Neighbours, Record


#: Other structures that are named.
_OTHERS = 3


def structure_lines(
    record: Record, own: Sequence[Record], ids: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Its structure and the next best ones for its task and machine; nothing without structures."""
    from loopwright.inspection import structure_of, tried_structures
    from loopwright.records import value_text

    name = structure_of(record)
    if name is None:
        return

    def named(name: str) -> str:
        return harmless(" ".join(filter(None, ((ids or {}).get(value_text(name)), name))))

    yield wrapped(f"{'structure:':10} {named(name)}", 10)
    tried = tried_structures(own)
    own_time = next((s.seconds for s in tried if s.name == name), None)
    others = [s for s in tried if s.name != name and s.seconds is not None]
    if own_time is None or not others:
        yield f"          {len(tried)} tried"
        return
    yield f"          {len(tried)} tried; the best of each beside the best of this one:"
    for other in others[:_OTHERS]:
        assert other.seconds is not None
        count = counted(other.trials, "record")
        text = f"{other.seconds / own_time:.2f} x its time, {count}: {named(other.name)}"
        yield wrapped(f"          {text}", 12)
    if len(others) > _OTHERS:
        yield f"          and {len(others) - _OTHERS} more"


def loop_lines(log: Log, record: Record) -> Iterator[str]:
    from loopwright.history import rebuild
    from loopwright.inspection import outline, structure_of
    from loopwright.lowering import lower

    if structure_of(record) is None or not record.dag or not record.trace:
        return
    try:
        rebuilt = rebuild(log, record)
    except LoopwrightError:
        return  # what is said of its schedule has the reason
    try:
        with rebuilt.passes:
            text = outline(lower(rebuilt.schedule, rebuilt.args))
    except LoopwrightError as error:
        yield wrapped(f"Its loops cannot be shown: {error}")
        return
    yield "Its loops (--ir prints them in full):"
    yield from (f"  {line}" for line in text.splitlines())
    yield ""


#: The word for the best record.
BEST = "best"
#: Number of candidates that a tie names.
_TIES = 5


@verb("show", "All that is known of one record.")
def show(
    *,
    log: str = argument(),
    filters: Filters,
    record: str = argument(),
    as_json: bool = flag("--json", "Print JSON lines."),
    part: str | None = any_of(
        option("--expr", "Print its tensor expression as Python.", flag_value="expr"),
        option("--schedule", "Print its schedule as Python.", flag_value="schedule"),
        option("--ir", "Print its loop nest.", flag_value="ir"),
        option("--code", "Print its code for the target.", flag_value="code"),
    ),
) -> None:
    """Show one RECORD of LOG: its id (or the beginning of it), `best` or `default`.

    Prints its speed and how certain that is, whether it would be applied on this machine, what each
    of its knobs costs, and its schedule; of an automatic space also its structure beside the others
    that were tried, and its loops in outline. --json prints the record as it stands in the log.
    --expr, --schedule, --ir and --code need no template: the log holds the expression and the
    schedule.
    """
    from loopwright.records import of_one_setup, ranked

    read = load_log(log)
    records = filters.of(read)
    order: list[Record] = []
    if record == BEST:
        # To rank 100 000 records takes more than half a second: the best and its place are found
        # at once.
        check_one_setup(read, records)
        order = ranked(records)
    chosen = order[0] if order else find_record(read, records, record)
    if part is not None:
        echo(_part(read, chosen, part))
    elif as_json:
        click.echo(chosen.to_line())
    else:
        of_setup = records if order else of_one_setup(read.records, chosen)
        for line in _described(read, chosen, of_setup, order or ranked(of_setup)):
            echo(line)


def _part(log: Log, record: Record, part: str) -> str:
    """The expression, schedule, loop nest or code of a record, made from the log alone."""
    from loopwright.driver import build
    from loopwright.history import rebuild
    from loopwright.lowering import lower

    rebuilt = rebuild(log, record)
    if part == "expr":
        return rebuilt.schedule.dag.as_python()
    if part == "schedule":
        return rebuilt.schedule.as_python().rstrip()
    with rebuilt.passes:
        if part == "ir":
            return str(lower(rebuilt.schedule, rebuilt.args))
        return build(rebuilt.schedule, rebuilt.args, rebuilt.target).get_source()


def _described(
    log: Log, record: Record, own: Sequence[Record], order: Sequence[Record]
) -> Iterator[str]:
    """A record in words, from those of its task and machine, and the candidates, best first."""
    from loopwright.cli.logs.record_text import minute_text, setup_title
    from loopwright.inspection import applies_here, time_text
    from loopwright.records import STRUCTURE, structure_ids

    yield f"record {record.id} of {log.path}"
    yield _named("task", setup_title(record))
    if names := _other_names(record, own):
        yield _named("also", names)
    measured = [minute_text(record.ts)] if record.ts else []
    measured += [f"trial {record.trial} of run {record.run}"] if record.run else []
    measured += [f"in the phase {record.phase!r}"] if record.phase else []
    measured.append(f"built in {record.build_s:.3g} s, run for {record.run_s:.3g} s")
    yield _named("measured", ", ".join(measured))
    if record.resources:
        figures = record.resources.items()
        taken = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in figures)
        yield _named("takes", taken)
    yield _named("speed", _speed(log, record))
    if record.prepare_s:
        text = f"once in {time_text(record.prepare_s)}, not in the time of a call"
        yield _named("prepared", text)
    yield from _standing(record, own, order)
    here = applies_here(record, log.records)
    yield _named("here", f"{'applied' if here.applied else 'not applied'}: {here.reason}")
    yield from (wrapped(f"          {difference}", 12) for difference in here.differs)
    if STRUCTURE in record.config:
        yield from structure_lines(record, own, structure_ids(log.records))
    yield ""
    yield from _knobs(record, own)
    yield ""
    yield from loop_lines(log, record)
    yield from _schedule(log, record)


def _named(name: str, text: str) -> str:
    """A line under a name; on a terminal wrapped to its width."""
    return wrapped(f"{name + ':':10}{text}", 10)


def _other_names(record: Record, own: Sequence[Record]) -> str:
    from loopwright.records import fields_of, task_text

    tasks = zip(*fields_of(own, "op", "args"), strict=True)
    names = dict.fromkeys(task_text(op, args) for op, args in tasks)
    names.pop(task_text(record.op, record.args), None)
    return harmless(", ".join(names))


def _speed(log: Log, record: Record) -> str:
    from loopwright.cli.logs.record_text import speed_text
    from loopwright.inspection import work_of
    from loopwright.records import origin_of, spread

    if record.error is not None:
        text = " ".join(str(record.error.get("text", "")).split())
        return f"none: it failed ({record.error.get('kind')}: {text})"
    work = work_of(log, record)
    parts = [speed_text(work, record.median)]
    apart = spread(record.times)
    count = counted(len(record.times), "window")
    parts.append(f"middle half of {count} within {apart:.1%}" if apart is not None else count)
    if record.dropped:
        parts.append("dropped by racing, so the time is a rough one")
    if record.checked == "yes":
        parts.append("answer checked")
    else:
        parts.append(f"answer not checked{f': {why}' if (why := record.check_reason) else ''}")
    if work is None:
        origin = origin_of(record)
        keeper = f"{origin} keeps" if origin else "the log has"
        parts.append(f"GFLOP/s not known: {keeper} no expression to count from")
    return "; ".join(parts)


def _standing(record: Record, own: Sequence[Record], order: Sequence[Record]) -> Iterator[str]:
    from loopwright.inspection import LOOKED_AT, place_of, ties_of
    from loopwright.records import FEWEST_WINDOWS, ratios, verdict_on

    if not record.usable:
        return
    place = place_of(record, order)
    if place is None:
        yield _named("rank", "none: its candidate was found to be wrong, or failed, later")
        return
    candidates = counted(len(order), "candidate")
    yield _named("rank", f"{place + 1} of {candidates} of this task and machine")
    if verdict := verdict_on(record, own):
        text = verdict.text("it")
        peak = f"; it has {verdict.of_peak:.0%} of the {verdict.peak}" if verdict.peak else ""
        yield _named("verdict", f"{text}{peak}")
    elif (ratio := ratios(own).get(record.candidate)) is None:
        yield _named("verdict", "unverified: no playoff compared it with the default")
    else:
        yield _named("verdict", f"in a playoff it took {ratio:.2f} of the time of the default")
    if len(record.times) < FEWEST_WINDOWS:
        yield _named("ties", f"not known: fewer than {FEWEST_WINDOWS} windows give no interval")
        return
    ties = ties_of(record, own, order)
    if not ties:
        yield _named("ties", "none: no other candidate's interval reaches its time")
        return
    paired = sum(tie.paired for tie in ties)
    how = "by the windows of each, as if at different times"
    if paired:
        how = "sampled in turns" if paired == len(ties) else "some of them sampled in turns"
    least = "at least " * (len(ties) >= LOOKED_AT)
    yield _named("ties", f"with {least}{counted(len(ties), 'candidate')} ({how}):")
    for tie in ties[:_TIES]:
        interval = f"{tie.low:.2f} to {tie.high:.2f}{', sampled in turns' * tie.paired}"
        yield f"          {tie.record.id} {tie.ratio:.2f} x its time, 95 % interval {interval}"
    if len(ties) > _TIES:
        yield f"          and {len(ties) - _TIES} more"


def _knobs(record: Record, own: Sequence[Record]) -> Iterator[str]:
    from loopwright.records import importance, neighbours, value_text
    from loopwright.task import STRUCTURE

    if not record.config:
        yield "It has no knobs."
        return
    effects: Importance | None = None
    try:
        effects = importance(own)
        how = f"{effects.method}; rank correlation {effects.rank_correlation:.2f}"
        note = "on average: time by that of the knob's best value, all other knobs varying "
        note += f"({how} on what it had not seen)"
    except RecordError as error:
        note = f"`on average` is not known: {error}"
    alone = {near.knob: near for near in neighbours(record, own)} if record.valid else {}
    names = [name for name in record.config if name != STRUCTURE] or [STRUCTURE]
    table = [
        TextColumn("knob", [harmless(name) for name in names]),
        TextColumn("value", [harmless(value_text(record.config[name])) for name in names]),
        TextColumn("on average", [_on_average(effects, record, name) for name in names]),
        TextColumn("changed alone", [_changed(alone.get(name)) for name in names], cut=True),
    ]
    yield from table_lines(table, terminal_width())
    yield wrapped(note)


def _on_average(effects: Importance | None, record: Record, name: str) -> str:
    if effects is None:
        return "-"
    effect = next((knob for knob in effects.knobs if knob.knob == name), None)
    if effect is None:
        return "never varied"
    value = effect.of(record.config[name])
    if value is None or value.slower <= 1.0:
        return "-" if value is None else "1.00 x (best)"
    return f"{value.slower:.2f} x ({harmless(effect.best.text)})"


def _changed(near: Neighbours | None) -> str:
    if near is None or near.ratio is None:
        return "never measured"
    count = "1 other value" if near.count == 1 else f"the best of {near.count} others"
    return f"{harmless(near.value)} takes {near.ratio.value:.2f} x as long ({count})"


def _schedule(log: Log, record: Record) -> Iterator[str]:
    """Its schedule as Python, or the reason why that is not known."""
    from loopwright.records import origin_of

    unknown = "Its schedule is not known: "
    if origin := origin_of(record):
        yield wrapped(f"{unknown}{origin} keeps the knobs, and not the kernel that they make")
    elif not record.dag or not record.trace:
        yield wrapped(f"{unknown}it was never built, so the log has no steps")
    else:
        try:
            yield _part(log, record, "schedule")
        except LoopwrightError as error:
            yield wrapped(f"Its schedule cannot be shown: {error}")
