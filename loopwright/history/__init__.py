"""Applying records: the record that a task is built from, and the reasons for the choice.

Above `loopwright.task`, which has templates and spaces: its dispatcher asks whatever context is
around a call.
"""

from loopwright.history.apply_best import ApplyHistoryBest, apply_history_best
from loopwright.history.call_overhead import AsCalled
from loopwright.history.choice import Choice, Match, Report
from loopwright.history.contexts import ApplyConfig, ApplyFixedConfig, ApplyGraphBest
from loopwright.history.selection import why_not_applied

__all__ = [
    "ApplyConfig", "ApplyFixedConfig", "ApplyGraphBest", "ApplyHistoryBest", "AsCalled", "Choice",
    "Match", "Report", "apply_history_best", "why_not_applied",
]  # fmt: skip
