"""Following a tuning run from outside: what its log says so far, and whether somebody writes it."""

from loopwright.inspection.watch.status import Status, TaskStatus, Watcher
from loopwright.inspection.watch.writers import Writers, writers_of

__all__ = ["Status", "TaskStatus", "Watcher", "Writers", "writers_of"]
