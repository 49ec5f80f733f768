"""Logs of measurements: the record, the append-only store, reading, and queries.

A leaf: knows nothing of schedules or of the runtime, so that a log can be listed with nothing else
imported. Traces and targets stay raw JSON here. ``docs/records.md`` specifies the format.
"""

from loopwright.records.error_kind import ErrorKind
from loopwright.records.json_value import Json
from loopwright.records.log import Log, Skipped, load, load_lines
from loopwright.records.provenance import build_hash, environment, hardware, new_run, threads
from loopwright.records.query import best, by_task, distill, pick_best, top_k
from loopwright.records.ranking import Measurement, Ranking, ranked, vouched
from loopwright.records.record import VERSION, Checked, Record, canonical_json, task_key
from loopwright.records.reuse import Conditions, Reuse, differences, reuse_of
from loopwright.records.store import Store
from loopwright.records.verdict import Outcome, Verdict

__all__ = [
    "VERSION",
    "Checked",
    "Conditions",
    "ErrorKind",
    "Json",
    "Log",
    "Measurement",
    "Outcome",
    "Ranking",
    "Record",
    "Reuse",
    "Skipped",
    "Store",
    "Verdict",
    "best",
    "build_hash",
    "by_task",
    "canonical_json",
    "differences",
    "distill",
    "environment",
    "hardware",
    "load",
    "load_lines",
    "new_run",
    "pick_best",
    "ranked",
    "reuse_of",
    "task_key",
    "threads",
    "top_k",
    "vouched",
]
