"""Interfaces of a task that cost models need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from loopwright.target import Target

if TYPE_CHECKING:
    from loopwright.task.space import ConfigEntity, ConfigSpace
    from loopwright.task.template import Scheduled


class Ranking(Protocol):
    """A task whose space is a list of structures, of which some are more promising than others."""

    @property
    def ranking(self) -> Sequence[tuple[int, float]]:
        """Index of each structure's best point and its predicted share of the peak, best first."""


class Scheduler(Protocol):
    """A space whose configurations are schedules: a `loopwright.task.Task`, or a part of one."""

    @property
    def target(self) -> Target: ...

    @property
    def config_space(self) -> ConfigSpace: ...

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        """The schedule of a configuration, and the arguments in calling order."""
