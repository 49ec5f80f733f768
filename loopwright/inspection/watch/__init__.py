"""Observation of a tuning run from outside: the state of its log, and its writers."""

from loopwright.inspection.watch.status import Status, TaskStatus, Watcher
from loopwright.inspection.watch.writers import Writers, writers_of

__all__ = ["Status", "TaskStatus", "Watcher", "Writers", "writers_of"]
