"""HTML of spaces and configurations for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from loopwright.presenting import html_block, html_table
from loopwright.task.entities import Entity
from loopwright.task.knobs import Knob

#: Candidates of a knob that are shown.
_SHOWN = 6


def html_of_space(knobs: Sequence[Knob], filtered: bool) -> str:
    """HTML of a space: a row for each of its knobs."""
    rows = [(k.name, k.kind, len(k), k.entities[k.default], _few(k)) for k in knobs]
    refused = ", of which a filter refuses some" if filtered else ""
    points = f"{math.prod(map(len, knobs)):,} points{refused}"
    table = html_table(rows, ("knob", "kind", "candidates", "default", "which"))
    return html_block(f"Space of {len(knobs)} knobs, {points}", table)


def html_of_config(entities: Mapping[str, Entity], index: int | None) -> str:
    """HTML of a configuration: the choice for each knob; ``index`` is None outside of its space."""
    number = "which its space does not have" if index is None else f"number {index:,}"
    return html_block(f"Configuration, {number}", html_table(entities.items()))


def _few(knob: Knob) -> str:
    more = len(knob) - _SHOWN
    shown = ", ".join(map(str, knob.entities[:_SHOWN]))
    return f"{shown}, and {more} more" if more > 0 else shown
