"""Steps of one expression as steps of a larger one that it is a part of."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from loopwright.errors import ScheduleError
from loopwright.schedule.steps import Step

#: A stage or a loop that a step made, with the number of that step.
_MADE_STAGE = re.compile(r"s(\d+)")
_MADE_LOOP = re.compile(r"(\d+)\.(\d+)")


def transplanted(steps: Iterable[Step], stages: Mapping[int, int], first: int) -> list[Step]:
    """The steps of a part, to be applied to the whole behind other steps.

    Args:
        steps: of the part, from its first one on.
        stages: for each operation of the part its index among those of the whole.
        first: how many steps the whole has had.

    Raises:
        ScheduleError: a step names an operation that ``stages`` lacks.
    """
    return [_transplanted(step, stages, first) for step in steps]


def _transplanted(step: Step, stages: Mapping[int, int], first: int) -> Step:
    moved = {f.name: _field(getattr(step, f.name), f.type, stages, first) for f in fields(step)}
    return replace(step, **moved)


def _field(value: Any, type_: Any, stages: Mapping[int, int], first: int) -> Any:
    """A field with ids of the whole: numbers where the type says that they are ids, and texts."""
    if isinstance(value, tuple):
        return tuple(_field(v, type_, stages, first) for v in value)
    if isinstance(value, str):
        return _text(value, first)
    name = type_ if isinstance(type_, str) else inspect.formatannotation(type_)
    if type(value) is not int or "StageId" not in name:
        return value
    if value not in stages:
        raise ScheduleError(f"transplant: the whole has no operation for number {value} of a part")
    return stages[value]


def _text(text: str, first: int) -> str:
    if made := _MADE_STAGE.fullmatch(text):
        return f"s{int(made[1]) + first}"
    if made := _MADE_LOOP.fullmatch(text):
        return f"{int(made[1]) + first}.{made[2]}"
    return text
