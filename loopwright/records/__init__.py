"""Logs of measurements: the record, the append-only store, reading, and queries.

Imports neither schedules nor the runtime; traces and targets stay raw JSON here.
"""

from __future__ import annotations

from loopwright.lazy import lazy_names
from loopwright.records.bulk import fields_of
from loopwright.records.bulk import once_for_equal
from loopwright.records.error_kinds import Cause
from loopwright.records.error_kinds import ErrorHelp
from loopwright.records.error_kinds import ErrorKind
from loopwright.records.error_kinds import FAILED_AGAIN
from loopwright.records.error_kinds import error_help
from loopwright.records.error_kinds import errors_page
from loopwright.records.error_kinds import next_step
from loopwright.records.files import distill_file
from loopwright.records.files import merge
from loopwright.records.files import pick
from loopwright.records.files import pick_best
from loopwright.records.files import split
from loopwright.records.line import Json
from loopwright.records.line import canonical_json
from loopwright.records.log import Log
from loopwright.records.log import Skipped
from loopwright.records.log import load
from loopwright.records.log import load_expressions
from loopwright.records.log import load_lines
from loopwright.records.log import open_log
from loopwright.records.log import read_line
from loopwright.records.notebook import html_of_log
from loopwright.records.notebook import html_of_record
from loopwright.records.notebook import to_dataframe
from loopwright.records.provenance import build_hash
from loopwright.records.provenance import device_of
from loopwright.records.provenance import environment
from loopwright.records.provenance import hardware
from loopwright.records.provenance import new_run
from loopwright.records.provenance import threads
from loopwright.records.query import best
from loopwright.records.query import by_task
from loopwright.records.query import distill
from loopwright.records.query import kept
from loopwright.records.query import keys_of
from loopwright.records.query import measured
from loopwright.records.query import top_k
from loopwright.records.ranking import Measurement
from loopwright.records.ranking import Ranking
from loopwright.records.ranking import ranked
from loopwright.records.ranking import vouched
from loopwright.records.record import Checked
from loopwright.records.record import Expression
from loopwright.records.record import Record
from loopwright.records.record import VERSION
from loopwright.records.record import expression_key
from loopwright.records.record import task_key
from loopwright.records.reuse import Conditions
from loopwright.records.reuse import Reuse
from loopwright.records.reuse import by_code
from loopwright.records.reuse import differences
from loopwright.records.reuse import reuse_of
from loopwright.records.reuse import reuses_of
from loopwright.records.store import Store
from loopwright.records.verdict import Outcome
from loopwright.records.verdict import Verdict
from loopwright.records.verdict import compared
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopwright.records.bulk import grouped
    from loopwright.records.follow import Follower
    from loopwright.records.follow import News
    from loopwright.records.foreign import origin_of
    from loopwright.records.log import ERRORS
    from loopwright.records.log import LOG
    from loopwright.records.log import check_has_records
    from loopwright.records.log import check_is_log
    from loopwright.records.log import no_log
    from loopwright.records.log import raw_lines
    from loopwright.records.log import without_collector
    from loopwright.records.log import without_records
    from loopwright.records.query import latest_verdict
    from loopwright.records.query import verdict_on
    from loopwright.records.ranking import Basis
    from loopwright.records.ranking import PLAYOFF
    from loopwright.records.ranking import Place
    from loopwright.records.ranking import Played
    from loopwright.records.ranking import PlayoffReader
    from loopwright.records.ranking import is_of_playoff
    from loopwright.records.ranking import places
    from loopwright.records.ranking import playoffs
    from loopwright.records.ranking import ratios
    from loopwright.records.reports.curve import Curve
    from loopwright.records.reports.curve import best_so_far
    from loopwright.records.reports.differences import FEWEST_WINDOWS
    from loopwright.records.reports.differences import Ratio
    from loopwright.records.reports.differences import Side
    from loopwright.records.reports.differences import TaskComparison
    from loopwright.records.reports.differences import compare_logs
    from loopwright.records.reports.differences import machines
    from loopwright.records.reports.differences import ratio_interval
    from loopwright.records.reports.differences import record_differences
    from loopwright.records.reports.differences import time_ratio
    from loopwright.records.reports.errors import FailureReport
    from loopwright.records.reports.errors import Failures
    from loopwright.records.reports.errors import failures
    from loopwright.records.reports.importance import ConfigTable
    from loopwright.records.reports.importance import Importance
    from loopwright.records.reports.importance import fit_trees
    from loopwright.records.reports.importance import importance
    from loopwright.records.reports.importance import rank_correlation
    from loopwright.records.reports.knobs import ABSENT
    from loopwright.records.reports.knobs import KnobColumn
    from loopwright.records.reports.knobs import STRUCTURE
    from loopwright.records.reports.knobs import config_text
    from loopwright.records.reports.knobs import config_texts
    from loopwright.records.reports.knobs import knobs_of
    from loopwright.records.reports.knobs import structure_ids
    from loopwright.records.reports.knobs import structure_legend
    from loopwright.records.reports.knobs import value_text
    from loopwright.records.reports.knobs import varying_knobs
    from loopwright.records.reports.neighbours import Neighbours
    from loopwright.records.reports.neighbours import neighbours
    from loopwright.records.reports.setups import Setup
    from loopwright.records.reports.setups import by_setup
    from loopwright.records.reports.setups import conditions_text
    from loopwright.records.reports.setups import hardware_names
    from loopwright.records.reports.setups import of_one_setup
    from loopwright.records.reports.setups import setup_titles
    from loopwright.records.reports.setups import task_text
    from loopwright.records.reports.spread import spread
    from loopwright.records.reports.spread import spread_text
    from loopwright.records.reports.spread import spreads
    from loopwright.records.reports.standings import Standing
    from loopwright.records.reports.standings import Standings
    from loopwright.records.reports.standings import default_record
    from loopwright.records.reports.standings import standings
    from loopwright.records.validation import Validation
    from loopwright.records.validation import line_reports
    from loopwright.records.validation import validate
    from loopwright.records.verdict import FACTOR
    from loopwright.records.verdict import NOT_COMPARED
    from loopwright.records.verdict import verdict_of


# Imported at their first use, by other rooms.


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

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
