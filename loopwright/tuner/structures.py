"""Search over the structures of a space: a tuner for each, and a bandit that shares out the trials.

First comes the best point of each leading structure by the analytical model, and of the first one
the default of its rule, too, since that model may be wrong. Then every trial goes to the structure
with the best upper confidence bound (Auer et al., 2002), on its fastest result instead of the mean,
since one fast kernel is all that is wanted of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from loopwright.errors import TaskError
from loopwright.measure import MeasureInput
from loopwright.records import Json, Record
from loopwright.task import STRUCTURE, SpaceUnion
from loopwright.tuner.base import Tuner
from loopwright.tuner.candidate_checks import ChecksOfPart
from loopwright.tuner.model.transfer_model import History, Teacher
from loopwright.tuner.run.state import point, speed_of
from loopwright.tuner.xgb_tuner import XGBTuner

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.task import ConfigEntity, Scheduled, StructureRanking, Task
    from loopwright.tuner.model.xgb_model import XGBCostModel


#: Number of structures of which the best point is measured before any other.
_LEADING = 8
#: Trust that a structure of few trials is faster, in powers of two of speed.
_TRUST = 0.5
#: Number of failures without a success after which a structure is left alone.
_HOPELESS = 4


class StructureTask:
    def __init__(self, task: Task, number: int) -> None:
        self.task, self.number = task, number
        space = union_of(task)
        self.structure, self._part = space.names[number], space.parts[number]
        self.name, self.args, self.key, self.alias = task.name, task.args, task.key, task.alias
        self.target, self.dag_hash = task.target, task.dag_hash
        self.config_space = self._part.config_space

    #: As of `Task`.
    automatic: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.task}: {self.structure}"

    @property
    def flop(self) -> int:
        return self.task.flop

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        return self._part.instantiate(config)

    def of(self, args: Sequence[Json]) -> StructureTask:
        """The structure of the same name of the same workload with other arguments."""
        other = self.task.of(args)
        names = union_of(other).names
        if self.structure not in names:
            raise TaskError(f"{other} has no structure {self.structure!r}")
        return StructureTask(other, names.index(self.structure))


def union_of(task: Task) -> SpaceUnion:
    space = task.config_space
    assert isinstance(space, SpaceUnion)
    return space


@dataclass
class Arm:
    number: int
    tuner: Tuner
    #: Number of its results.
    trials: int = 0
    #: Number of results that failed.
    failures: int = 0
    #: The best, in calls per second; 0.0 before the first.
    speed: float = 0.0

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        """Take in its part of a round, even an empty one, so that its rounds are those of all."""
        speeds = [speed_of(result) for _, result in results]
        self.trials += len(speeds)
        self.failures += speeds.count(0.0)
        self.speed = max([self.speed, *speeds])
        self.tuner.tell(results)


class StructuresTuner(Tuner):
    """Searches a space of several structures; made by any tuner that is given such a task.

    Example:
        >>> X = te.placeholder((64, 256), name="X")
        >>> Y = te.compute((64, 256), lambda i, j: te.exp(X[i, j]), name="Y")
        >>> tuner = lw.tuner.RandomTuner(lw.create_task([X, Y], target="llvm"), seed=0)
        >>> print(type(tuner).__name__, tuner.name, len(tuner.ask(4)))
        StructuresTuner random 4
    """

    searches_unions = True
    name: ClassVar[str] = "structures"

    def __init__(
        self,
        task: Task,
        kind: type[Tuner],
        positional: Sequence[object],
        named: Mapping[str, object],
    ) -> None:
        self._kind, self._positional = kind, positional
        self._named: dict[str, Any] = dict(named)
        self.name = kind.name  # type: ignore[misc]  # as the command line and logs know it
        self._union = union_of(task)
        self._predicted = {
            self._union.place(index)[0]: (index, math.log2(max(speed, 1e-9)))
            for index, speed in cast("StructureRanking", task).ranking
        }
        self._ranking = self._predicted
        self._arms: dict[int, Arm] = {}
        self._teacher = Teacher(self)
        self._taught: XGBCostModel | None = None
        super().__init__(task, seed=self._named.get("seed", 0))
        leader = self._arm(next(iter(self._predicted))).tuner
        self.settings, self.plan_size = leader.settings, leader.plan_size

    def reset(self) -> None:
        self._arms.clear()
        super().reset()

    def _arm(self, number: int) -> Arm:
        if number not in self._arms:
            task = cast("Task", StructureTask(self.task, number))
            tuner = self._kind(task, *self._positional, **self._named)
            if isinstance(tuner, XGBTuner) and tuner.settings.feature_type != "knob":
                tuner.teacher = self._teacher  # features of schedules are the same for all
            tuner.checks = ChecksOfPart(self.checks, self._union.offsets[number])
            tuner.begin_round(self.round, self._round_seed)
            tuner.exclude(self._own(number, self.visited))
            self._arms[number] = Arm(number, tuner)
        return self._arms[number]

    def _own(self, number: int, indices: Iterable[int]) -> list[int]:
        begin, end = self._union.offsets[number : number + 2]
        return [index - begin for index in indices if begin <= index < end]

    def _prepared(self, number: int) -> Tuner:
        tuner = self._arm(number).tuner
        tuner.on_phase = self.on_phase
        tuner.elsewhere = [pair for n, pair in self._placed(self.elsewhere) if n == number]
        tuner.relatives = self.relatives
        name = self._union.names[number]
        offered = (_of_structure(item, name) for item in self.pretrained)
        tuner.pretrained = [item for item in offered if item is not None]
        return tuner

    def _placed(
        self, results: Sequence[tuple[ConfigEntity, MeasureResult]]
    ) -> Iterator[tuple[int, tuple[ConfigEntity, MeasureResult]]]:
        for config, result in results:
            number, local = self._union.place(point(config))
            yield number, (self._union.parts[number].config_space.get(local), result)

    def propose(self, n: int) -> Iterator[int]:
        """Yield points of the structures that are worth most, in turns, so that a round that is cut
        short has tried each of them; in the end those of all others."""
        self._predict_taught()
        turns = [self._points(number, count) for number, count in self._shares(n).items()]
        while turns:
            for points in list(turns):
                index = next(points, None)
                if index is None:
                    turns.remove(points)
                else:
                    yield index
        for number in self._predicted:  # where a structure had fewer points left than its share
            while batch := list(self._points(number, 1)):
                yield from batch
        self.why_empty = "every structure is exhausted"

    @property
    def taught(self) -> XGBCostModel | None:
        """The model of measurements from elsewhere, once ``ask`` was called; None without any."""
        return self._taught

    @property
    def history(self) -> History:
        return self._teacher.history

    def _predict_taught(self) -> None:
        leader = self._arm(next(iter(self._ranking))).tuner
        if not isinstance(leader, XGBTuner) or leader.teacher is not self._teacher:
            return
        if leader.transfer_model is self._taught:
            return
        self._taught = leader.transfer_model
        self._predicted = self._ranking
        if self._taught is not None:
            self._predicted = self._ranked_again(self._ranking)

    def _ranked_again(
        self, ranking: Mapping[int, tuple[int, float]]
    ) -> dict[int, tuple[int, float]]:
        """The leading part of the ranking by the transfer model, best first; the others, and
        structures of which it knows no point, come last."""
        self.on_phase("ranking structures by what was learned elsewhere")
        ranked: dict[int, tuple[int, float]] = {}
        for number in itertools.islice(ranking, 2 * _LEADING):
            tuner = self._arm(number).tuner
            best = tuner.most_promising() if isinstance(tuner, XGBTuner) else None
            if best is not None:
                ranked[number] = (self._union.offsets[number] + best[0], best[1])
        order = sorted(ranked, key=lambda number: -ranked[number][1])
        lowest = ranked[order[-1]][1] if order else 0.0
        rest = {n: (index, lowest - 1) for n, (index, _) in ranking.items() if n not in ranked}
        return {**{number: ranked[number] for number in order}, **rest}

    def _points(self, number: int, count: int) -> Iterator[int]:
        """Points of a structure: its most promising one, the default of the leading one, the best
        of all structures with its choices carried over, then the proposals of its tuner."""
        tuner, begin = self._prepared(number), self._union.offsets[number]
        by_rule = None
        if number == next(iter(self._predicted)):
            # The default by the rule of the structure that leads, a second opinion beside the
            # analytical model's; to other structures the best is carried over.
            by_rule = begin + self._union.parts[number].config_space.default_index
        firsts = (self._predicted[number][0], by_rule, self._carried(number))
        for index in firsts:
            if count and index is not None and index not in self.visited:
                tuner.exclude([index - begin])
                count -= 1
                yield index
        yield from (begin + point(config) for config in tuner.ask(count))

    def _carried(self, number: int) -> int | None:
        """The best configuration of all as one of this structure; None where it is its own or
        unfit."""
        name, space = self._union.names[number], self._union.parts[number].config_space
        knobs = space.knobs
        if self.best is None or self.best[0].values[STRUCTURE] == name:
            return None
        values = self.best[0].values
        shared = {n: values[n] for n, knob in knobs.items() if n in values and len(knob) > 1}
        fitting = {n: v for n, v in shared.items() if knobs[n].position(v) is not None}
        if not fitting:
            return None
        index = space.find(space.entity_of(fitting))  # with the default of every other knob
        return None if index is None else self._union.offsets[number] + index

    def learn(self, results: Sequence[tuple[ConfigEntity, MeasureResult]]) -> None:
        parts: dict[int, list[tuple[ConfigEntity, MeasureResult]]] = {}
        for number, pair in self._placed(results):
            parts.setdefault(number, []).append(pair)
        for number in sorted({*self._arms, *parts}):
            self._arm(number).learn(parts.get(number, []))

    def begin_round(self, number: int, seed: int | None = None) -> None:
        super().begin_round(number, seed)
        for arm in self._arms.values():
            arm.tuner.begin_round(number, seed)

    def exclude(self, indices: Iterable[int]) -> None:
        gone = set(indices)
        super().exclude(gone)
        for number, arm in self._arms.items():
            arm.tuner.exclude(self._own(number, gone))

    @property
    def options(self) -> dict[str, Any]:
        return self._arm(next(iter(self._predicted))).tuner.options

    @property
    def notes(self) -> tuple[str, ...]:
        tried = [arm for arm in self._arms.values() if arm.trials]
        if not tried:
            return super().notes
        best = max(tried, key=lambda arm: arm.speed)
        others = sorted(
            (arm.speed / best.speed for arm in tried if arm is not best and best.speed),
            reverse=True,
        )
        near = f", the next ones reached {', '.join(f'{s:.2f}' for s in others[:3])} of it"
        line = (
            f"structures: {len(tried)} of {len(self._union.parts)} tried; best structure "
            f"{best.number + 1} with {best.trials} trials{near if others else ''}"
        )
        return (line, *super().notes, *best.tuner.notes)

    def _shares(self, n: int) -> dict[int, int]:
        asked: dict[int, int] = {}
        for number in itertools.islice(self._predicted, min(n, _LEADING)):
            if not self._trials(number):
                asked[number] = 1
        for _ in range(n - len(asked)):
            number = max(self._predicted, key=lambda a: self._worth(a, asked))
            asked[number] = asked.get(number, 0) + 1
        return asked

    def _trials(self, number: int) -> int:
        return self._arms[number].trials if number in self._arms else 0

    def _worth(self, number: int, asked: Mapping[int, int]) -> float:
        """Log2 of the speed that a structure may have, beside the fastest; -inf: hopeless."""
        arm = self._arms.get(number)
        if arm is not None and not arm.speed and arm.failures >= _HOPELESS:
            return -math.inf
        total = 1 + sum(a.trials for a in self._arms.values()) + sum(asked.values())
        trials = 1 + self._trials(number) + asked.get(number, 0)
        open_ = _TRUST * math.sqrt(math.log(total) / trials)
        return self._known(number) + open_

    def _known(self, number: int) -> float:
        """Log2 of the best speed of a structure beside the fastest: measured, else predicted."""
        fastest = max((arm.speed for arm in self._arms.values()), default=0.0)
        arm = self._arms.get(number)
        if arm is not None and arm.speed:
            return math.log2(arm.speed / fastest)
        best = max(predicted for _, predicted in self._predicted.values())
        return self._predicted[number][1] - best


def _of_structure(item: Any, name: str) -> Any:
    if isinstance(item, Record):
        return item if item.config.get(STRUCTURE) == name else None
    measured, result = item
    space = measured.task.config_space
    if not isinstance(space, SpaceUnion):
        return None
    number, local = space.place_of(measured.config)
    if space.names[number] != name:
        return None
    return MeasureInput(cast("Task", StructureTask(measured.task, number)), local), result


Tuner._over_structures = StructuresTuner
