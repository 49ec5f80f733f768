"""Logs of measurements: the record, the append-only store, reading, and queries.

A leaf: knows nothing of schedules or of the runtime, so that a log can be listed with nothing else
imported. Traces and targets stay raw JSON here. ``docs/records.md`` specifies the format.
"""

from loopwright.records.log import Log, Skipped, load
from loopwright.records.provenance import build_hash, environment, hardware, new_run, threads
from loopwright.records.query import best, by_task, distill, pick_best, top_k
from loopwright.records.record import VERSION, Record, canonical_json, task_key
from loopwright.records.reuse import Standing, already_measured, explain
from loopwright.records.store import Store

__all__ = [
    "VERSION",
    "Log",
    "Record",
    "Skipped",
    "Standing",
    "Store",
    "already_measured",
    "best",
    "build_hash",
    "by_task",
    "canonical_json",
    "distill",
    "environment",
    "explain",
    "hardware",
    "load",
    "new_run",
    "pick_best",
    "task_key",
    "threads",
    "top_k",
]
