"""The steps of a `State`: primitives of a schedule, with stages and loops by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule import Schedule, Stage
from loopwright.task import ConfigSpace, SplitEntity

if TYPE_CHECKING:
    from loopwright.space import Sketch


def apply_step(schedule: Schedule, sketch: Sketch | None, name: str, args: tuple[Any, ...]) -> Any:
    """Apply a step under the name of Ansor's primitive, and return its loops, tensor or nothing; an
    open length of a split becomes a knob of the sketch, an illegal step is a `ScheduleError`.
    """
    if name == "split":
        stage, loop, lengths, inner_to_outer = args
        if None in lengths:
            lengths = _chosen(schedule, sketch, stage, loop, lengths)
        args = (stage, loop, lengths, inner_to_outer)
    return _STEPS[name](schedule, *args)


def _split(
    schedule: Schedule, stage: int, loop: int, sizes: Sequence[Any], inner_to_outer: bool
) -> list[te.IterVar]:
    target, axis = _placed(schedule, stage, loop)
    made: list[te.IterVar] = []
    for size in reversed(sizes) if inner_to_outer else sizes:
        outer, inner = target.split(axis, **{"factor" if inner_to_outer else "nparts": size})
        axis = outer if inner_to_outer else inner
        made.append(inner if inner_to_outer else outer)
    return [axis, *reversed(made)] if inner_to_outer else [*made, axis]


def _chosen(
    schedule: Schedule, sketch: Sketch | None, stage: int, loop: int, lengths: Sequence[int | None]
) -> Sequence[Any]:
    """Sizes that a knob of the sketch chooses: all factorizations of the loop's extent."""
    target, axis = _placed(schedule, stage, loop)
    name = target.op.name
    if sketch is None or any(length is not None for length in lengths):
        raise ScheduleError(
            f"split: the lengths of {axis.name!r} of {name!r} are {list(lengths)}; give numbers, "
            "or None for all in a rule of PreloadCustomSketchRule"
        )
    if not isinstance(axis.dom.extent, int):
        raise ScheduleError(
            f"split: the loop {axis.name!r} of {name!r} has an extent that a knob chooses; split "
            "the loop before it once, with more lengths"
        )
    space = ConfigSpace()
    space.define_split("split", axis.dom.extent, num_outputs=len(lengths) + 1)
    shares = [entity for entity in space.knobs["split"].entities if isinstance(entity, SplitEntity)]
    tuples = [tuple(entity.size[1:]) for entity in shares]
    return sketch.numbers(f"{name}.{len(sketch.space.knobs)}", tuples)


def _placed(schedule: Schedule, stage: int, loop: int) -> tuple[Stage, te.IterVar]:
    target = schedule.stages[stage]
    return target, target.leaf_iter_vars[loop]


def _marked(verb: str) -> Callable[[Schedule, int, int], te.IterVar]:
    """The step of a primitive that marks a loop."""

    def step(schedule: Schedule, stage: int, loop: int) -> te.IterVar:
        target, axis = _placed(schedule, stage, loop)
        getattr(target, verb)(axis)
        return axis

    return step


def _bind(schedule: Schedule, stage: int, loop: int, thread: str) -> te.IterVar:
    target, axis = _placed(schedule, stage, loop)
    target.bind(axis, te.thread_axis(thread))
    return axis


def _pragma(schedule: Schedule, stage: int, loop: int, said: str) -> None:
    target, axis = _placed(schedule, stage, loop)
    kind, _, value = said.partition("$")
    target.pragma(axis, kind, int(value) if value else True)


def _fuse(schedule: Schedule, stage: int, loops: tuple[int, ...]) -> te.IterVar:
    target = schedule.stages[stage]
    return target.fuse(*[target.leaf_iter_vars[n] for n in loops])


def _reorder(schedule: Schedule, stage: int, loops: tuple[int, ...]) -> None:
    target = schedule.stages[stage]
    target.reorder(*[target.leaf_iter_vars[n] for n in loops])


def _compute_at(schedule: Schedule, stage: int, at: int, loop: int) -> None:
    target, axis = _placed(schedule, at, loop)
    schedule.stages[stage].compute_at(target, axis)


def _storage_align(schedule: Schedule, stage: int, loop: int, factor: int, offset: int) -> None:
    target, axis = _placed(schedule, stage, loop)
    target.storage_align(axis, factor, offset)


def _cache_read(schedule: Schedule, stage: int, scope: Any, readers: tuple[int, ...]) -> te.Tensor:
    stages = schedule.stages
    return schedule.cache_read(stages[stage].op, scope, [stages[n].op for n in readers])


def _cache_write(schedule: Schedule, stage: int, scope: Any) -> te.Tensor:
    made: Any = schedule.cache_write(schedule.stages[stage].op, scope)
    return _first(made)


def _rfactor(schedule: Schedule, stage: int, loop: int, place: int) -> te.Tensor:
    target, axis = _placed(schedule, stage, loop)
    made: Any = schedule.rfactor(target.op, axis, place)
    return _first(made)


def _first(made: Any) -> te.Tensor:
    """The tensor of a new stage; of one with several results the first."""
    found: te.Tensor = made[0] if isinstance(made, list) else made
    return found


_STEPS: dict[str, Callable[..., Any]] = {
    "split": _split,
    "fuse": _fuse,
    "reorder": _reorder,
    "parallel": _marked("parallel"),
    "vectorize": _marked("vectorize"),
    "unroll": _marked("unroll"),
    "bind": _bind,
    "pragma": _pragma,
    "compute_at": _compute_at,
    "compute_inline": lambda schedule, stage: schedule.stages[stage].compute_inline(),
    "compute_root": lambda schedule, stage: schedule.stages[stage].compute_root(),
    "storage_align": _storage_align,
    "cache_read": _cache_read,
    "cache_write": _cache_write,
    "rfactor": _rfactor,
}
