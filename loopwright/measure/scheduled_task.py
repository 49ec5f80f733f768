"""One schedule as a task, to measure a kernel of a log or a program without a template."""

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
    """A task that makes one schedule whatever the configuration is; see `TaskLike`."""

    name: str
    args: tuple[Json, ...]
    key: str
    target: Target
    reference: Callable[..., Any] | None
    make_inputs: Callable[[], Sequence[npt.ArrayLike]] | None
    scheduled: Scheduled  # the schedule with its tensors in calling order

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        return self.scheduled
