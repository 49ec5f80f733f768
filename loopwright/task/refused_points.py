"""Reasons why points of a space cannot be used, with the share that each refuses."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopwright.errors import SpaceError, TimeLimitError
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.task.space import ConfigEntity
    from loopwright.task.task import Task
    from loopwright.task.template_config import Filter

#: Number of points that are looked at.
_SAMPLE = 400


@dataclass(frozen=True)
class Refusal:
    #: The filter, with file and line, or the error of the template.
    reason: str
    #: Share of the points looked at, 0 to 1; the first filter that refuses a point counts.
    share: float
    #: One such configuration.
    example: str

    def __str__(self) -> str:
        return f"{self.share:.0%} of the space: {self.reason}, such as {self.example}"


def refusals(task: Task, sample: int = _SAMPLE) -> list[Refusal]:
    """Reasons why points of a task are refused, most frequent first.

    Looks at ``sample`` random points, or all of a smaller space; at fewer where filters or the
    template, which runs for each accepted point, are slow.
    """
    space = task.config_space
    if space.range_length <= sample:
        points = list(range(space.range_length))
    else:
        chance = random.Random(0)
        # A space may have more points than 64 bits count.
        points = [chance.randrange(space.range_length) for _ in range(sample)]
    seen: dict[str, tuple[int, str]] = {}
    looked = 0
    until = time.monotonic() + TEMPLATE_S
    for index in points:
        if time.monotonic() > until:
            break
        looked += 1
        reason = _reason(task, space.get(index))
        if reason is not None:
            count, example = seen.get(reason, (0, str(space.get(index))))
            seen[reason] = (count + 1, example)
    ordered = sorted(seen.items(), key=lambda item: -item[1][0])
    return [Refusal(reason, n / looked, example) for reason, (n, example) in ordered]


def _reason(task: Task, config: ConfigEntity) -> str | None:
    assert config.index is not None
    for accepts in task.config_space.filters:
        reason = _reason_of_filter(accepts, config)
        if reason is not None:
            return reason
    try:
        if not task.config_space.is_valid(config.index):
            return "the space refuses it"
        limited(TEMPLATE_S, "the template", task.instantiate, config)
    except TimeLimitError as exc:
        return str(exc)
    except SpaceError as exc:
        cause = exc.__cause__ or exc
        return f"the template raises {type(cause).__name__}: {_general(cause)}"
    return None


def _reason_of_filter(accepts: Filter, config: ConfigEntity) -> str | None:
    try:
        accepted = limited(TEMPLATE_S, f"filter {_name(accepts)}", accepts, config)
        return None if accepted else f"filter {_name(accepts)} refuses it"
    except TimeLimitError as exc:
        return str(exc)
    except Exception as exc:  # a user's filter: what it raises is the reason
        return f"filter {_name(accepts)} raises {type(exc).__name__}: {_general(exc)}"


def _name(function: Callable[..., Any]) -> str:
    """Name of a filter, with file and line."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    name = name.rsplit("<locals>.", 1)[-1]
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else name


def _general(exc: BaseException) -> str:
    """The text of an error with its numbers left out, so that equal errors count as one."""
    text = re.sub(r"\d+", "N", " ".join(str(exc).split()))
    return text if len(text) <= 160 else text[:157] + "..."
