"""The best comes from what was compared: one rule, for every verb that says what is best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopwright.records import (
    Checked,
    Log,
    Outcome,
    Store,
    Verdict,
    best,
    distill,
    kept,
    load,
    measured,
    ranked,
    top_k,
)
from loopwright.records.ranking import Basis, places, playoffs, ratios
from loopwright.records.reports.curve import best_so_far
from loopwright.records.reports.differences import compare_logs
from loopwright.records.reports.errors import failures
from loopwright.records.reports.importance import importance
from loopwright.records.reports.standings import standings
from tests.unit.records.reports.made_logs import record

DEFAULT = 10e-3


def judged(gain, outcome=Outcome.FASTER, **more):
    return Verdict(outcome, gain, 0.01, 20, **more).to_json()


def playoff(times, verdict, slower, *, winner, ts, rounds=20, run="r1"):
    """The records of a playoff on a machine that is slower by a factor; the winner comes last."""
    order = sorted(times, key=lambda trial: (trial == winner, trial != 0, -times[trial]))
    return [
        record(
            trial,
            times=(times[trial] * slower,) * (3 if trial == 0 else rounds),
            phase="playoff",
            ts=ts + n,
            run=run,
            checked=Checked.YES,
            verdict=verdict if trial == winner else None,
        )
        for n, trial in enumerate(order)
    ]


def searched(times, **fields):
    return [record(trial, seconds, checked=Checked.YES, **fields) for trial, seconds in times]


#: Trial 1 was lucky in the search; 70, 85 and 254 won the playoffs, on a machine that had slowed.
SEARCH = [(0, DEFAULT), (1, 1e-3), (70, 2e-3), (85, 2.1e-3), (254, 2.2e-3), (9, 3e-3)]


def slowed():
    first = playoff({0: DEFAULT, 85: 2e-3, 9: 3e-3}, judged(4.0), 2.0, winner=85, ts=2e9)
    second = playoff({0: DEFAULT, 85: 2e-3, 70: 1.9e-3}, judged(4.2), 4.0, winner=70, ts=3e9)
    third = playoff({0: DEFAULT, 70: 1.9e-3, 254: 1.8e-3}, judged(4.5), 8.0, winner=254, ts=4e9)
    return [*searched(SEARCH), *first, *second, *third]


def trials(records):
    return [r.trial for r in records]


def test_the_best_comes_from_a_playoff_whatever_the_search_said():
    records = slowed()
    assert trials(ranked(records)) == [254, 70, 85, 9, 0, 1]
    assert best(records).verdict is not None
    assert [p.basis for p in places(records).values()] == [Basis.VERIFIED] * 9
    known = {r.candidate: value for r in records for value in [ratios(records).get(r.candidate)]}
    assert sum(value is None for value in known.values()) == 1  # trial 1 took part in none
    assert min(v for v in known.values() if v) == pytest.approx(1 / 5.5)


def test_every_report_names_the_same(tmp_path):
    records = slowed()
    winner = best(records)
    assert top_k(records, 1) == distill(records) == [winner]
    (table,) = standings(records, 3)
    assert [place.record.trial for place in table.places] == [254, 70, 85]
    assert table.verdict.gain == 4.5
    # Times of other minutes are compared by what took part in both.
    by_best = [place.to_best.value for place in table.places]
    assert by_best == pytest.approx([1.0, 1.9 / 1.8, 5.5 / 5.2 * 2.0 / 1.9])
    assert [p.to_default.value for p in table.places] == pytest.approx([0.18, 0.19, 0.2])
    (whole,) = standings(records, 9)
    assert whole.places[-1].record.trial == 1
    assert whole.places[-1].to_best.value == pytest.approx(1e-3 / 2.2e-3)
    assert best_so_far(records).final == winner
    with Store(tmp_path / "log.jsonl") as store:
        for one in records:
            store.append(one)
    log = load(tmp_path / "log.jsonl")
    assert best(log) == winner
    (compared,) = compare_logs(log, Log(tmp_path, records))
    assert compared.one.record == compared.other.record == winner
    # What is picked says the same by itself, and beside the log of another machine's run.
    few = kept(records, 3)
    assert trials(ranked(few))[:3] == [254, 70, 85]
    assert ranked([*few, *records]) == ranked(records)


def test_a_playoff_that_was_cut_off_decides_nothing():
    records = [*searched(SEARCH), *playoff({0: 1.0, 9: 0.1, 70: 0.2}, None, 9.0, winner=9, ts=2e9)]
    assert trials(ranked(records)) == [1, 70, 85, 254, 9, 0]
    assert ratios(records) == {}
    # Of what was measured in nothing else its times count, behind all others.
    again = playoff({5: 1e-9}, None, 1.0, winner=None, ts=3e9)
    assert trials(ranked([*records, *again]))[-1] == 5


def test_a_playoff_that_was_cut_off_is_apart_from_the_next_of_its_run():
    cut = playoff({0: 1e-3, 9: 1e-4}, None, 1.0, winner=None, ts=2e9)
    whole = playoff({0: DEFAULT, 70: 2e-3, 85: 2.1e-3}, judged(4.0), 1.0, winner=70, ts=3e9)
    records = [*searched(SEARCH), *cut, *whole]
    assert trials(ranked(records)) == [70, 85, 0, 1, 254, 9]
    assert list(ratios(records).values()) == pytest.approx([1.0, 0.21, 0.2])
    numbers = [number for _, number in playoffs(records).values()]
    assert numbers == [0, 0, 1, 1, 1]


def test_without_the_default_the_latest_playoff_counts():
    none = Verdict(Outcome.NOT_COMPARED).to_json()
    first = playoff({70: 2e-3, 85: 2.1e-3}, none, 1.0, winner=70, ts=2e9)
    second = playoff({70: 2e-3, 254: 1.9e-3}, none, 3.0, winner=254, ts=3e9)
    records = [*searched(SEARCH), *first, *second]
    assert trials(ranked(records))[:3] == [254, 70, 85]
    assert ratios(records) == {}
    # What was compared with the default goes before.
    third = playoff({0: DEFAULT, 9: 3e-3}, judged(2.0), 1.0, winner=9, ts=1e9 + 500, run="r2")
    assert trials(ranked([*records, *third]))[:2] == [9, 0]


def test_a_default_that_is_best_leads():
    said = judged(0.0, Outcome.TIE, is_default=True)
    records = [*searched(SEARCH), *playoff({0: DEFAULT, 70: 11e-3}, said, 5.0, winner=0, ts=2e9)]
    assert trials(ranked(records))[:2] == [0, 70]


def test_whoever_left_in_fast_minutes_is_behind_the_winner():
    records = playoff({0: DEFAULT, 70: 2e-3, 85: 2.1e-3}, judged(4.0), 2.0, winner=70, ts=2e9)
    (left,) = (r for r in records if r.trial == 85)
    # In its three rounds the machine was fast, and the winner's first rounds were slow ones.
    fast = replace(left, times=(3e-3,) * 3)
    assert trials(ranked([fast if r is left else r for r in records]))[:2] == [70, 85]


def test_a_winner_that_fails_later_makes_way_for_the_next_of_its_playoff():
    records = slowed()
    wrong = replace(
        best(records), times=(), verdict=None, error={"kind": "WRONG_ANSWER", "text": ""}, ts=5e9
    )
    assert trials(ranked([*records, wrong]))[:2] == [70, 85]


def test_a_verdict_that_makes_no_sense_is_none():
    for gain in (-1.0, -2.0, float("nan")):
        records = playoff({0: 2.0, 70: 1.0}, judged(gain), 1.0, winner=70, ts=2e9)
        assert [p.basis for p in places(records).values()] == [Basis.PLAYED] * 2


def test_the_playoffs_of_two_runs_are_apart():
    one = playoff({0: 2.0, 70: 1.0}, judged(1.0), 1.0, winner=70, ts=2e9)
    other = playoff({0: 2.0, 9: 1.0}, judged(1.0), 1.0, winner=9, ts=3e9, run="r2")
    mixed = [r for pair in zip(one, other, strict=True) for r in pair]
    assert set(playoffs(mixed).values()) == {("r1", 0), ("r2", 0)}


# -- copies -------------------------------------------------------------------------------------


def with_copies():
    trials = [record(n, 1e-3 * (1 + n % 7), config={"tile": n % 7, "u": n % 3}) for n in range(64)]
    copies = [
        record(
            64 + n, 1e-3 * (1 + n % 7), config={"tile": n % 7, "u": 9}, same_as=trials[n % 64].id
        )
        for n in range(281)
    ]
    return trials, copies


def test_copies_are_no_measurements():
    originals, copies = with_copies()
    both = [*originals, *copies]
    assert measured(both) == originals
    assert measured([*both, record(3, phase="playoff")], again=False) == originals
    assert importance(both) == importance(originals)
    assert importance(both).records == 64
    assert failures(both).trials == 64
    assert len(best_so_far(both)) == 64
    assert standings(both)[0].candidates == standings(originals)[0].candidates


def test_copies_of_a_failure_are_no_failures():
    failed = record(1, None)
    report = failures([record(0), failed, record(2, None, same_as=failed.id)])
    assert (report.trials, report.failed) == (2, 1)
