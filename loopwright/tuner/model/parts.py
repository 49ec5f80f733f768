"""Features of points of any space: those of a list of structures are described part by part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.cost.features import Extractor
from loopwright.cost.features.extract import FeatureRows
from loopwright.errors import UsageError
from loopwright.task.interfaces import Scheduler
from loopwright.task.union import SpaceUnion
from loopwright.task.vectors import digits_of


def part_of(task: Scheduler, index: int) -> tuple[Scheduler, int]:
    """The structure that a point is of, and its index there; a task of one space is its own."""
    space = task.config_space
    if not isinstance(space, SpaceUnion):
        return task, index
    number, local = space.place(index)
    return space.parts[number], local


def rows_of(task: Scheduler, indices: Sequence[int], feature_type: str) -> FeatureRows:
    """Features of one or more points; those of knobs are refused for several structures."""
    members: dict[int, tuple[Scheduler, list[int], list[int]]] = {}
    for row, index in enumerate(indices):
        part, local = part_of(task, index)
        _, rows, locals_ = members.setdefault(id(part), (part, [], []))
        rows.append(row)
        locals_.append(local)
    if feature_type == "knob" and len(members) > 1:
        raise UsageError(
            f"features of knobs: the records are of {len(members)} structures, each with knobs of "
            "its own; ask for the features 'itervar' or 'curve'"
        )
    found = [
        (rows, Extractor(part, feature_type).rows(digits_of(part.config_space, locals_)))
        for part, rows, locals_ in members.values()
    ]
    order = np.argsort(np.concatenate([rows for rows, _ in found]))
    return FeatureRows(
        np.concatenate([own.values for _, own in found])[order],
        np.concatenate([own.failed for _, own in found])[order],
    )
