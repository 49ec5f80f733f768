"""``apply(state, step) -> state``: one step of a schedule.

Pure: a state is never changed. What a step does, and when it is legal, stands in its class in
`loopwright.schedule.rules`; rules that need extents are asked by `loopwright.schedule.validate`.
"""

from __future__ import annotations

from loopwright.schedule.rules.grouping import keep_groups
from loopwright.schedule.state import State
from loopwright.schedule.steps import Step, resolved


def apply(state: State, step: Step) -> State:
    """Apply one step.

    Raises:
        ScheduleError: the step is illegal in this state: which step, which loop, why, and what to
            do instead.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> before = s.state
        >>> s[B].parallel(B.op.axis[0])
        >>> after = lw.schedule.apply(before, s.trace[0])
        >>> print(before.stages[1].marks, after.stages[1].marks)
        {} {'a0': Mark(kind='parallel', step=0, tag='', extent=None)}
    """
    new = resolved(state, step).apply(state, state.steps)
    if new.groups:
        new = keep_groups(state, new, step.stage, step.primitive)
    return new.after_step()
