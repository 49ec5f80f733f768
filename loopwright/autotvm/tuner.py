"""``autotvm.tuner``: the tuners, and the base class of custom ones in AutoTVM's scripts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from loopwright.measure import MeasureInput, MeasureResult
from loopwright.task import ConfigEntity
from loopwright.tuner import DropletTuner, GATuner, GridSearchTuner, RandomTuner, XGBTuner
from loopwright.tuner import Tuner as _Tuner
from loopwright.tuner.run import callbacks as callback
from loopwright.tuner.run.state import point

__all__ = [
    "DropletTuner",
    "GATuner",
    "GridSearchTuner",
    "RandomTuner",
    "Tuner",
    "XGBTuner",
    "callback",
]


class Tuner(_Tuner):
    """The base of a custom tuner, which overrides ``next_batch`` and ``update``.

    The loop measures the default configuration first, asks for no configuration twice, and passes
    each round to ``update``, as for every tuner. When a run continues, ``update`` gets the trials
    of the log again. For runs that continue exactly where they stopped, derive from
    `loopwright.tuner.Tuner`.

    Attributes:
        name: its name in logs; by default that of the class.

    Example:
        >>> from loopwright import autotvm
        >>> class LastFirst(autotvm.tuner.Tuner):
        ...     def next_batch(self, batch_size):
        ...         left = [i for i in range(len(self.task.config_space)) if i not in self.visited]
        ...         return [self.task.config_space.get(i) for i in left[: -batch_size - 1 : -1]]
        ...
        >>> task = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm -mcpu=x86-64-v4")
        >>> tuner = LastFirst(task)
        >>> print([config.index for config in tuner.ask(2)], tuner.name)
        [815, 814] LastFirst
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__

    @abstractmethod
    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """Up to so many configurations of the space; an exhausted one gives none, or known ones."""

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from the results of one round, in the order of their trials."""

    def propose(self, n: int) -> Iterator[int]:
        """The indices of `next_batch`."""
        for config in self.next_batch(n):
            yield point(config)

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Hand one round to `update`."""
        inputs = [MeasureInput(self.task, config) for config, _ in results]
        self.update(inputs, [result for _, result in results])
