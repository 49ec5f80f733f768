"""One task on one machine in one log, as a report shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.errors import RecordError
from loopwright.inspection.log_statistics import TimeSpent
from loopwright.inspection.report.elements import cut
from loopwright.inspection.report.knob_data import effects_of, forecasts, parallel_of
from loopwright.inspection.report.page_data import (
    Accuracy,
    CandidateRow,
    FailureKind,
    Points,
    Roofline,
    Series,
    Steps,
)
from loopwright.inspection.roofline import Limits, roofline_point
from loopwright.inspection.speed import Work, work_of
from loopwright.records import (
    NOT_COMPARED,
    Checked,
    Curve,
    FailureReport,
    Log,
    Outcome,
    Record,
    Setup,
    best_so_far,
    config_text,
    default_record,
    failures,
    fields_of,
    measured,
    ranked,
    record_differences,
    spread,
    verdict_on,
    vouched,
)

#: Candidates of the table and of the parallel coordinates.
TOP, LINES = 20, 50
#: Characters of an error's text that are shown.
_TEXT = 600


@dataclass(frozen=True)
class Detail:
    points: int = 2000  # trials of the curve at most; of more a sample is drawn
    places: int = 12  # number of places at which a model is asked for the next trials; 0 for none
    learned: int = 4000  # trials that the shares of knobs rest on at most; 0 for no shares


@dataclass(frozen=True)
class SetupFacts:
    """Facts on one task on one machine from the whole log."""

    limits: Limits
    spent: TimeSpent | None  # None where its records have no clock


def series_of(
    log: Log, place: int, setup: Setup, records: list[Record], detail: Detail, known: SetupFacts
) -> tuple[Series, Record | None]:
    """Report of one task on one machine, and its best record; ``place`` is that of the log.

    `RecordError` if the index of the log, made by another program, is malformed.
    """
    originals = measured(records)
    curve = best_so_far(originals, log.headers)
    top = ranked(records, max(TOP, LINES))
    best = next(iter(top), None)
    verdict = NOT_COMPARED if best is None else verdict_on(best, records) or NOT_COMPARED
    compared = verdict.outcome is not Outcome.NOT_COMPARED
    default = default_record(records, verdict)
    work = work_of(log, records[0] if best is None else best)
    report = failures(records)
    knobs, knobs_total, knobs_note = effects_of(records, detail.learned)
    accuracy, accuracy_note = _accuracy(records, detail.places)
    roofline, roofline_note = _roofline(best, default, work, known.limits)
    spent = known.spent
    right = vouched(records)
    shown = [_candidate(one, default, right) for one in top[:TOP]]
    target = records[-1].target
    valid, phases, dropped = fields_of(originals, "valid", "phase", "dropped")
    series = Series(
        label="",
        log=place,
        hardware=setup.hardware.split(" | ")[0] or str(target.get("model") or ""),
        threads=setup.threads,
        target=" ".join(str(target[name]) for name in ("kind", "mcpu") if target.get(name)),
        trials=sum(own and not phase for own, phase in zip(valid, phases, strict=True)),
        failed=report.failed,
        dropped=sum(dropped),
        duplicates=len(records) - len(originals),
        spent=spent.run + spent.again + spent.build if spent else 0.0,
        flop=0 if work is None else work.flop,
        best=None if best is None else _candidate(best, default, right),
        default=None if default is None else _candidate(default, default, right),
        verdict=verdict.text() if compared else "",
        outcome=verdict.outcome.value if compared else "",
        gain=verdict.gain if compared else None,
        steps=_steps(curve),
        points=_points(curve, detail.points),
        errors=_errors(report),
        knobs=knobs,
        knobs_total=knobs_total,
        knobs_note=knobs_note,
        parallel=parallel_of(top[:LINES], records),
        roofline=roofline,
        roofline_note=roofline_note,
        accuracy=accuracy,
        accuracy_note=accuracy_note,
        top=tuple(shown),
    )
    return series, best


def _errors(report: FailureReport) -> tuple[FailureKind, ...]:
    return tuple(
        FailureKind(
            one.kind,
            one.count,
            one.share,
            one.first.id,
            one.first.trial,
            cut(one.text, _TEXT),
            tuple(
                f"{value.knob} = {value.value}: {value.failed} of {value.trials} failed so"
                for value in one.values[:6]
            ),
        )
        for one in report.kinds
    )


def _candidate(one: Record, default: Record | None, right: set[tuple[str, str]]) -> CandidateRow:
    """Record of the tables.

    Its speed over the default's rests on the two medians; the verdict of a playoff, which pairs
    samples, is shown separately.
    """
    seconds = one.median
    assert seconds is not None, "a ranked record has a time"
    changes = None
    if default is not None:
        differences = record_differences(default, one)
        changes = tuple(f"{each.what.removeprefix('knob ')}={each.other}" for each in differences)
    return CandidateRow(
        one.id,
        one.trial,
        seconds,
        spread(one.times),
        one.checked is Checked.YES or (one.candidate, one.build) in right,
        config_text(one.config),
        changes,
        None if default is None or not default.median else default.median / seconds,
    )


def _steps(curve: Curve) -> Steps:
    rows = [(x.number, x.clock, x.seconds, x.low, x.high, x.record.id) for x in curve.steps]
    return Steps(*zip(*rows, strict=True)) if rows else Steps(*[()] * 6)


def _points(curve: Curve, most: int) -> Points:
    """Trials of the curve; of many the last one, the steps and a sample of the others."""
    count = len(curve)
    chosen = np.arange(count)
    if count > most:
        rng = np.random.default_rng(0)
        kept = {count - 1, *(step.number - 1 for step in curve.steps)}
        rest = rng.choice(count, max(0, most - len(kept)), replace=False)
        chosen = np.array(sorted(kept | set(rest.tolist())))
    failed = np.isnan(curve.seconds[chosen])
    kinds = np.where(failed, 2, np.where(curve.counts[chosen], 0, 1))
    seconds: Iterable[float] = curve.seconds[chosen].tolist()
    return Points(
        tuple((chosen + 1).tolist()),
        tuple(curve.clock[chosen].tolist()),
        tuple(None if bad else s for s, bad in zip(seconds, failed.tolist(), strict=True)),
        tuple(kinds.tolist()),
        count,
    )


def _accuracy(records: Sequence[Record], places: int) -> tuple[Accuracy | None, str]:
    if not places:
        why = (
            "there are many tasks, and it takes a while; a page of this task alone (--task) has it"
        )
        return None, why
    try:
        predictions = forecasts(records, places)
    except RecordError as error:
        return None, str(error)
    note = (
        "The log holds no predictions, so the question is asked anew: at each point trees learned "
        "the times of the trials before it from their knobs alone, and predicted the next ones. "
        "It is not the tuner's own model. 1 is a perfect order, 0 is chance; where a tuner "
        "measures only good candidates, these lie close together, and a low figure is no fault."
    )
    rows = [(one.before, one.correlation, one.count, one.trained_on) for one in predictions]
    return Accuracy(*zip(*rows, strict=True)), note


def _roofline(
    best: Record | None, default: Record | None, work: Work | None, limits: Limits
) -> tuple[Roofline | None, str]:
    if best is None or best.median is None:
        return None, "no record may be best"
    if work is None:
        return None, "the log holds no tensor expression, so the work of a call is not known"
    point = roofline_point(work, best.median, limits)
    if point is None:
        return None, "a call has no arithmetic to count"
    seconds = None if default is None else default.median
    speed = None if seconds is None else work.flop / seconds
    figures = (point.intensity, point.speed, speed, limits.flops, limits.bandwidth)
    return Roofline(*figures, _source(limits)), ""


def _source(limits: Limits) -> str:
    sources = []
    if limits.flops:
        name = limits.flops_name
        # Limits of CPUs do not say it.
        name += " of float32" if name.startswith(("FMA", "peak")) and "float" not in name else ""
        sources.append(f"{name} beside the playoff of record {limits.flops_from}")
    if limits.bandwidth:
        sources.append(f"memory bandwidth beside the playoff of record {limits.bandwidth_from}")
    if not sources:
        return (
            "The log does not tell the limits of its machine (no playoff sampled them), and one of "
            "another machine would say nothing."
        )
    return f"Limits of this machine, sampled by the log itself: {' and '.join(sources)}."
