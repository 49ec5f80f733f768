"""Logs of measurements: the record, the append-only store, reading, and queries.

Imports neither schedules nor the runtime; traces and targets stay raw JSON here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.records.bulk import fields_of, once_for_equal
from loopwright.records.error_kinds import (
    FAILED_AGAIN,
    Cause,
    ErrorHelp,
    ErrorKind,
    error_help,
    errors_page,
    next_step,
)
from loopwright.records.files import distill_file, merge, pick, pick_best, split
from loopwright.records.line import Json, canonical_json
from loopwright.records.log import (
    Log,
    Skipped,
    load,
    load_expressions,
    load_lines,
    open_log,
    read_line,
)
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

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.records.bulk import grouped
    from loopwright.records.follow import Follower, News
    from loopwright.records.foreign import origin_of
    from loopwright.records.log import (
        ERRORS,
        LOG,
        check_has_records,
        check_is_log,
        no_log,
        raw_lines,
        without_collector,
        without_records,
    )
    from loopwright.records.provenance import source_hash
    from loopwright.records.query import latest_verdict, verdict_on
    from loopwright.records.ranking import (
        PLAYOFF,
        Basis,
        Place,
        Played,
        PlayoffReader,
        is_of_playoff,
        places,
        playoffs,
        ratios,
    )
    from loopwright.records.reports.curve import Curve, best_so_far
    from loopwright.records.reports.differences import (
        FEWEST_WINDOWS,
        Ratio,
        Side,
        TaskComparison,
        compare_logs,
        machines,
        ratio_interval,
        record_differences,
        time_ratio,
    )
    from loopwright.records.reports.errors import FailureReport, Failures, failures
    from loopwright.records.reports.importance import (
        ConfigTable,
        Importance,
        fit_trees,
        importance,
        rank_correlation,
    )
    from loopwright.records.reports.knobs import (
        ABSENT,
        STRUCTURE,
        KnobColumn,
        config_text,
        config_texts,
        knobs_of,
        structure_ids,
        structure_legend,
        value_text,
        varying_knobs,
    )
    from loopwright.records.reports.neighbours import Neighbours, neighbours
    from loopwright.records.reports.setups import (
        Setup,
        by_setup,
        conditions_text,
        hardware_names,
        of_one_setup,
        setup_titles,
        task_text,
    )
    from loopwright.records.reports.spread import spread, spread_text, spreads
    from loopwright.records.reports.standings import Standing, Standings, default_record, standings
    from loopwright.records.validation import Validation, line_reports, validate
    from loopwright.records.verdict import FACTOR, NOT_COMPARED, verdict_of

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
