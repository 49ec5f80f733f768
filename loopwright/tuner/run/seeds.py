"""Points that a run measures first, since records of another system name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loopwright.presenting import counted
from loopwright.records import Record, ranked
from loopwright.tuner.run.state import point

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity, Seed, Task

#: Most points that are measured first; most remarks, and names of other workloads, in notes.
_POINTS, _REMARKS, _WORKLOADS = 8, 6, 3


class Seeds:
    """Records of templates of TVM's operators, as a task's template reads them.

    Attributes:
        points: the points that the fastest records of the task's workload name, in their order.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._taken: list[tuple[Record, Seed]] = []
        self.points: list[ConfigEntity] = []
        self._remarks: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, records: Sequence[Record | None]) -> set[int]:
        """Take in the records that are of another system's templates; returns their places."""
        foreign = {n: r for n, r in enumerate(records) if r is not None and "autotvm" in r.extra}
        seed_of = self._task.template.seed_of if foreign else None
        if seed_of is None:
            return set()
        seeds = {n: seed for n, r in foreign.items() if (seed := seed_of(self._task, r))}
        self._taken += [(foreign[n], seed) for n, seed in seeds.items()]
        self._choose()
        return set(seeds)

    def _choose(self) -> None:
        """Let the fastest records name points, until these are enough."""
        mine = [record for record, seed in self._taken if seed.is_of_it]
        named = {record.id: seed.point for record, seed in self._taken if seed.point is not None}
        points: dict[int, ConfigEntity] = {}
        self._remarks.clear()
        for record in ranked(mine):
            config, remarks = named[record.id]()
            if config is None or point(config) not in points:
                self._remarks.update(remarks)
            if config is not None:
                points.setdefault(point(config), config)
            if len(points) == _POINTS:
                break
        if not points:
            failed = [record for record in mine if not record.usable]
            self._remarks.update(
                f"{record.op}: it has no time, only a failure" for record in failed
            )
        self.points = list(points.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines on the points that are named, on what they leave out, and on why others are not."""
        if not self._taken:
            return ()
        lines = [self._others()]
        if count := sum(seed.is_of_it for _, seed in self._taken):
            lines = [
                f"{counted(len(self.points), 'point')} that the fastest of "
                f"{counted(count, 'record')} of TVM's operators name "
                f"{'is' if len(self.points) == 1 else 'are'} measured first"
            ]
        lines += [f"{n} x {remark}" for remark, n in self._remarks.most_common(_REMARKS)]
        if len(self._remarks) > _REMARKS:
            lines.append(f"and {len(self._remarks) - _REMARKS} more such remarks")
        unread: Counter[str] = Counter()
        for _, seed in self._taken:
            if seed.point is not None and not seed.read:
                unread.update(seed.point()[1])
        lines += [f"{n} x not known of which workload: {why}" for why, n in unread.most_common(3)]
        return tuple(f"seeds:   {line}" for line in lines)

    def _others(self) -> str:
        others = [seed.workload for _, seed in self._taken if seed.point is None]
        if not others:
            return f"no record is of {self._task}"
        workloads = list(dict.fromkeys(others))
        names = "; ".join(workloads[:_WORKLOADS])
        more = len(workloads) - _WORKLOADS
        return (
            f"no record is of {self._task}; the {counted(len(others), 'record')} of TVM's "
            f"operators {'is' if len(others) == 1 else 'are'} of {names}"
            f"{f'; and {more} more workloads' if more > 0 else ''}"
        )
