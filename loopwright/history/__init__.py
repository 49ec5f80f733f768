"""Applying records: the record that a task is built from, and the reasons for the choice.

Above `loopwright.task`, which has templates and spaces: its dispatcher asks whatever context is
around a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.history.apply_best import ApplyHistoryBest, apply_history_best
from loopwright.history.call_overhead import AsCalled
from loopwright.history.choice import Choice, Match, Report
from loopwright.history.contexts import ApplyConfig, ApplyFixedConfig, ApplyGraphBest
from loopwright.history.selection import why_not_applied
from loopwright.lazy import lazy_names

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.history.contexts import Source, logs_of
    from loopwright.history.fit import FieldDifference, Here
    from loopwright.history.rebuilding import Rebuilt, dag_of, expression_of, rebuild
    from loopwright.history.selection import failed_checks, other_knobs, refusal

__all__ = [
    "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "AsCalled", "Choice",
    "Match", "Report", "apply_history_best", "why_not_applied",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
