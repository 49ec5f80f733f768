"""Results as records keep them."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.measure import MeasureError, MeasureResult
from loopwright.records import Record, fields_of


def result_of(record: Record) -> MeasureResult:
    return results_of([record])[0]


def results_of(records: Sequence[Record]) -> list[MeasureResult]:
    columns = fields_of(records, *_SAME, "error", "program", "same_as")
    results = [
        MeasureResult(
            **dict(zip(_SAME, values, strict=True)),
            error=None if error is None else MeasureError(error["kind"], error.get("text", "")),
            program=program,
            same_as=program if same_as else "",
        )
        for *values, error, program, same_as in zip(*columns, strict=True)
    ]
    (medians,) = fields_of(records, "median")
    for result, median in zip(results, medians, strict=True):
        if result.error is None:
            vars(result)["median"] = median  # which it would compute when it is first asked for
    return results


#: Fields that a result and its record have alike.
_SAME = (
    *("times", "dropped", "build_s", "run_s", "ts", "max_error"),
    *("checked", "check_reason", "code", "times_of", "resources", "prepare_s"),
)
