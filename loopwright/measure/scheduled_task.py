"""One schedule as a task, for measuring a kernel that a log or a program has, with no template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from loopwright.records import Json
from loopwright.target import Target

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity
    from loopwright.task.template import Scheduled


@dataclass(eq=False)
class ScheduledTask:
    """A task that makes one schedule whatever the configuration is; see `TaskLike`.

    Attributes:
        name: name of the template that the schedule is from.
        args: arguments of that template.
        key: identity of its task in records.
        target: for what it is built.
        reference: NumPy function of the inputs that returns the outputs, or None.
        make_inputs: makes one array per input, or None for random ones.
        scheduled: the schedule with its tensors in calling order.
    """

    name: str
    args: tuple[Json, ...]
    key: str
    target: Target
    reference: Callable[..., Any] | None
    make_inputs: Callable[[], Sequence[npt.ArrayLike]] | None
    scheduled: Scheduled

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        """The schedule."""
        return self.scheduled
