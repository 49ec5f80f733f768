"""Limits of a trace that is read from JSON: a log may be damaged, or written to do harm.

They are checked before anything looks into the steps, without recursion, so that no number, depth
or length in a file costs more than a message.
"""

from __future__ import annotations

import math

from loopwright.errors import ScheduleError

#: Most steps of a trace. Those of the operators have less than a hundred.
MAX_STEPS = 1000
#: Most steps that add a stage to the program, all of whose stages each further one must look at.
MAX_ADDED = 200
_ADDING = ("cache_read", "cache_write", "rfactor", "blocked_scan")
#: Most values in all steps together; an intrinsic has some hundreds.
MAX_VALUES = 100_000
#: Deepest nesting of lists and objects; the expressions of an intrinsic nest in it.
MAX_DEPTH = 200
#: Largest number: extents, and products of a few of them, are below.
MAX_NUMBER = 1 << 40
#: Longest text.
MAX_TEXT = 1000


def check_trace(trace: object) -> None:
    """Refuse JSON that is no list of steps of reasonable size, naming the step and the limit."""
    if not isinstance(trace, list | tuple):
        raise ScheduleError(f"trace: a trace is a list of steps, got a {type(trace).__name__}")
    if len(trace) > MAX_STEPS:
        raise ScheduleError(f"trace: {len(trace)} steps, and at most {MAX_STEPS} are read")
    added = sum(isinstance(x, list | tuple) and len(x) > 0 and x[0] in _ADDING for x in trace)
    if added > MAX_ADDED:
        raise ScheduleError(f"trace: {added} steps add a stage, and at most {MAX_ADDED} are read")
    values = 0
    for t, step in enumerate(trace):
        values += _check_step(t, step, MAX_VALUES - values)


def _check_step(t: int, step: object, room: int) -> int:
    """Check the JSON of one step; returns the number of its values."""
    waiting: list[tuple[object, int]] = [(step, 0)]
    count = 0
    while waiting:
        x, depth = waiting.pop()
        count += 1
        if count > room:
            raise ScheduleError(f"trace: step {t}: more than {MAX_VALUES} values in all steps")
        if depth > MAX_DEPTH:
            raise ScheduleError(f"trace: step {t}: its lists nest deeper than {MAX_DEPTH}")
        if isinstance(x, list | tuple):
            waiting += [(v, depth + 1) for v in x]
        elif isinstance(x, dict):
            waiting += [(v, depth + 1) for pair in x.items() for v in pair]
        elif reason := _refused(x):
            raise ScheduleError(f"trace: step {t}: {reason}")
    return count


def _refused(x: object) -> str:
    """Reason why a value that holds no others has no place in a trace; or ''."""
    match x:
        case None | bool():
            return ""
        case str():
            return f"a text of {len(x)} characters, at most {MAX_TEXT}" * (len(x) > MAX_TEXT)
        case int():
            return f"a number of more than {MAX_NUMBER}" * (abs(x) > MAX_NUMBER)
        case float():
            return f"the number {x}" * (not math.isfinite(x))
    return f"a {type(x).__name__}, which JSON does not have"
