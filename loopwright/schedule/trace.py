"""A trace as Python source: the calls that make the schedule again."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.schedule.apply import apply
from loopwright.schedule.names import Names
from loopwright.schedule.state import State
from loopwright.schedule.steps import Step
from loopwright.te.dag import Dag


def trace_as_python(dag: Dag, trace: Sequence[Step]) -> str:
    """The function ``schedule(s, <tensors of the DAG in order>)`` that applies a trace.

    ``s`` is a fresh schedule of the DAG; running it gives a schedule with the same trace.
    """
    state = State.initial(dag)
    names = Names(state)
    params = [names.tensor(sid) for sid in state.order]
    for step in trace:
        names.before, names.after = names.after, apply(names.after, step)
        call = step.as_python(names)
        names.lines.append(f"    {call}")
        if (moves := step.moved_loops(names.before)) is not None:
            names.move(step.stage, moves)
    lines = names.lines or ["    pass"]
    head = f"def schedule({', '.join(['s', *params])}):"
    return "\n".join([head, *lines, "    return s"]) + "\n"
