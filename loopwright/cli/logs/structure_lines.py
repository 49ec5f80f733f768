"""The structure of a record: its name, the results of others, and its loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from loopwright.cli.harmless import harmless
from loopwright.cli.logs.columns import wrapped
from loopwright.errors import LoopwrightError

if TYPE_CHECKING:
    from loopwright.records import Log, Record

#: Other structures that are named.
_OTHERS = 3


def structure_lines(record: Record, own: Sequence[Record]) -> Iterator[str]:
    """Its structure and the next best ones for its task and machine; nothing without structures."""
    from loopwright.inspection.structures import structure_of, tried_structures

    name = structure_of(record)
    if name is None:
        return
    yield wrapped(f"{'structure:':10} {harmless(name)}", 10)
    tried = tried_structures(own)
    own_time = next((s.seconds for s in tried if s.name == name), None)
    others = [s for s in tried if s.name != name and s.seconds is not None]
    if own_time is None or not others:
        yield f"          {len(tried)} tried"
        return
    yield f"          {len(tried)} tried; the best of each beside the best of this one:"
    for other in others[:_OTHERS]:
        assert other.seconds is not None
        count = f"{other.trials} record{'s' * (other.trials != 1)}"
        text = f"{other.seconds / own_time:.2f} x its time, {count}: {harmless(other.name)}"
        yield wrapped(f"          {text}", 12)
    if len(others) > _OTHERS:
        yield f"          and {len(others) - _OTHERS} more"


def loop_lines(log: Log, record: Record) -> Iterator[str]:
    """The loops of a record that has a structure, from the log alone."""
    from loopwright.history.rebuild import rebuild
    from loopwright.inspection.outline import outline
    from loopwright.inspection.structures import structure_of
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
