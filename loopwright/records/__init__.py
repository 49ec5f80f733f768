"""Logs of measurements: the record, the append-only store, reading, and queries.

Imports neither schedules nor the runtime, so that a log can be listed with nothing else loaded.
Traces and targets stay raw JSON here. ``docs/records.md`` specifies the format.
"""

from loopwright.records.bulk import fields_of, once_for_equal
from loopwright.records.failures import (
    FAILED_AGAIN,
    Cause,
    ErrorHelp,
    ErrorKind,
    error_help,
    errors_page,
    next_step,
)
from loopwright.records.files import distill_file, merge, pick, pick_best, split
from loopwright.records.index.open import open_log
from loopwright.records.line import Json, canonical_json
from loopwright.records.log import Log, Skipped, load, load_expressions, load_lines, read_line
from loopwright.records.notebook import html_of_log, html_of_record, to_dataframe
from loopwright.records.provenance import (
    build_hash,
    device_of,
    environment,
    hardware,
    new_run,
    threads,
)
from loopwright.records.query import best, by_task, distill, kept, keys_of, measured, top_k
from loopwright.records.ranking import Measurement, Ranking, ranked, vouched
from loopwright.records.record import VERSION, Checked, Expression, Record, expression_key, task_key
from loopwright.records.reuse import Conditions, Reuse, by_code, differences, reuse_of, reuses_of
from loopwright.records.store import Store
from loopwright.records.verdict import Outcome, Verdict, compared

Log._html = html_of_log
Record._html = html_of_record

__all__ = [
    "FAILED_AGAIN", "VERSION", "Cause", "Checked", "Conditions", "ErrorHelp", "ErrorKind",
    "Expression", "Json", "Log", "Measurement", "Outcome", "Ranking", "Record", "Reuse", "Skipped",
    "Store", "Verdict", "best", "build_hash", "by_code", "by_task", "canonical_json", "compared",
    "device_of", "differences", "distill", "distill_file", "environment", "error_help",
    "errors_page", "expression_key", "fields_of", "hardware", "kept", "keys_of", "load",
    "load_expressions", "load_lines", "measured", "merge", "new_run", "next_step", "once_for_equal",
    "open_log", "pick", "pick_best", "ranked", "read_line", "reuse_of", "reuses_of", "split",
    "task_key", "threads", "to_dataframe", "top_k", "vouched",
]  # fmt: skip
