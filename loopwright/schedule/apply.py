"""``apply(state, step) -> state``: one step of a schedule, which changes no state."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import ScheduleError
from loopwright.schedule.bounds.results import Bounds
from loopwright.schedule.primitives.placement import keep_groups
from loopwright.schedule.state import IllegalStep, State
from loopwright.schedule.steps import Step, TraceNames, resolved
from loopwright.te import Dag


def apply(state: State, step: Step) -> State:
    """Apply one step.

    Raises:
        ScheduleError: the step is illegal in this state: which step, which loop, why, and what to
            do instead.
    """
    step = resolved(state, step)
    try:
        new = step.apply(state, state.steps)
        if new.groups:
            new = keep_groups(state, new, step.stage)
    except IllegalStep as reason:
        raise ScheduleError(f"{step.verb} (step {state.steps}): {reason}") from None
    return new.after_step()


def trace_as_python(dag: Dag, trace: Sequence[Step]) -> str:
    """The function ``schedule(s, <tensors of the DAG in order>)`` that applies a trace.

    ``s`` is a fresh schedule of the DAG; running it gives a schedule with the same trace.
    """
    state = State.initial(dag)
    names = TraceNames(state)
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


def validate_bounds(state: State, bounds: Bounds) -> None:
    """Ask every primitive whether what its steps left in the state can be lowered."""
    for primitive in Step.registry.values():
        primitive.check_bounds(state, bounds)
