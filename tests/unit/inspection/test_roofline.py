"""Limits of a machine are those that its own log sampled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright.inspection import speed
from loopwright.inspection.speed import Limits, Work, limits_in, roofline_point
from loopwright.records import Log, Outcome, Record, Verdict
from loopwright.target import host_unit, vector_unit
from tests.unit.inspection.report_logs import trial

WORK = Work(flop=2_000_000, bytes=500_000)


@pytest.fixture(autouse=True)
def _known_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "work_of", lambda log, record: WORK)


def judged(peak: str, of_peak: float, seconds: float = 1e-3, number: int = 0) -> Record:
    verdict = Verdict(Outcome.TIE, 0.0, 0.1, 20, "d", peak, of_peak)
    return trial(number, times=(seconds,), verdict=verdict.to_json())


#: What playoffs call the limits of this machine and of others, and what logs of before called it.
PEAKS = [host_unit().peak, vector_unit("x86-64-v3", "").peak, vector_unit("x86-64", "").peak]


@pytest.mark.parametrize("peak", ["FMA peak", *dict.fromkeys(PEAKS)])
def test_a_limit_is_the_speed_of_the_winner_by_its_share(tmp_path, peak: str) -> None:
    log = Log(tmp_path)
    record = judged(peak, 0.25)
    limits = limits_in(log, [trial(1), record])
    flops = pytest.approx(2e9 / 0.25)
    assert limits == Limits(flops, flops_from=record.id, flops_name=peak)
    memory = judged("memory bandwidth", 0.5, number=2)
    both = limits_in(log, [record, memory])
    assert both.bandwidth == pytest.approx(0.5e9 / 0.5)
    assert (both.flops, both.bandwidth_from) == (limits.flops, memory.id)


def test_the_latest_counts_and_what_cannot_be_is_passed_over(tmp_path) -> None:
    log, first = Log(tmp_path), judged("FMA peak (AVX2)", 0.25)
    latest = judged("FMA peak (AVX2)", 0.5, number=3)
    assert limits_in(log, [first, latest]).flops_from == latest.id
    broken = replace(first, verdict={"outcome": "faster", "gain": "much"})
    for other in (judged("FMA peak", 0.0), judged("FMA peak", 1.7), broken, judged("luck", 0.5)):
        assert limits_in(log, [other]) == Limits()


def test_a_point_and_its_shares() -> None:
    point = roofline_point(WORK, 1e-3, Limits(flops=8e9, bandwidth=1e9))
    assert point is not None
    assert (point.intensity, point.speed) == (4.0, pytest.approx(2e9))
    assert (point.of_flops, point.of_bandwidth) == (pytest.approx(0.25), pytest.approx(0.5))
    unknown = roofline_point(WORK, 1e-3, Limits())
    assert unknown is not None
    assert (unknown.of_flops, unknown.of_bandwidth) == (None, None)
    assert roofline_point(Work(0, 100), 1e-3, Limits()) is None
