"""The one rule of which candidate is best."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright.records import Checked, Outcome, Ranking, Record, Verdict, ranked


def test_nothing_measured():
    ranking = Ranking()
    assert ranking.best is None
    assert ranking.top() == []


def test_the_fastest_leads_and_among_equals_the_first():
    ranking = Ranking()
    for name, seconds in [("a", 3.0), ("b", 1.0), ("c", 1.0), ("d", 2.0)]:
        ranking.add(name, name.upper(), seconds)
    assert ranking.best == ("B", 1.0, 0.0)
    assert ranking.top() == ["B", "C", "D", "A"]
    assert ranking.top(2) == ["B", "C"]
    assert ranking.top(0) == ranking.top(-1) == []


def test_the_latest_measurement_counts():
    ranking = Ranking()
    ranking.add("a", "lucky", 1.0, ts=1)
    ranking.add("b", "b", 2.0, ts=1)
    ranking.add("a", "later", 3.0, ts=2)
    assert ranking.top() == ["b", "later"]
    ranking.add("a", "older", 0.5, ts=1)
    assert ranking.top() == ["b", "later"]
    ranking.add("a", "as late, and after it", 1.5, ts=2)
    assert ranking.best.item == "as late, and after it"


def test_a_wrong_answer_takes_a_candidate_out_for_good():
    ranking = Ranking()
    ranking.add("a", "a", 1.0)
    ranking.add("b", "b", 2.0)
    ranking.refute("a")
    assert ranking.best.item == "b"
    ranking.add("a", "a again", 0.5, ts=9)
    assert ranking.top() == ["b"]
    ranking.refute("c")
    ranking.add("c", "c", 0.1)
    assert ranking.best.item == "b"


def test_the_best_is_always_the_first_of_all():
    source = random.Random(0)
    ranking = Ranking()
    for step in range(500):
        name = source.randrange(40)
        if source.random() < 0.05:
            ranking.refute(name)
        else:
            ranking.add(name, step, source.randrange(1, 9), ts=source.randrange(5))
        assert (ranking.best and [ranking.best.item]) == (ranking.top(1) or None)


# -- records, against the rule spelled out ------------------------------------------------------


VERDICTS = [
    Verdict(Outcome.FASTER, 1.0, 0.1, 20, "d").to_json(),
    Verdict(Outcome.SLOWER, -0.5, 0.1, 20, "d").to_json(),
    Verdict(Outcome.NOT_COMPARED).to_json(),
    {"outcome": "faster"},
]


@st.composite
def measured(draw):
    """A record of one of few candidates, builds and clocks."""
    kind = draw(st.sampled_from(["", "", "", "WRONG_ANSWER", "RUN_CRASH"]))
    times = () if kind else tuple(draw(st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=3)))
    return Record(
        task="t",
        op="t",
        args=[],
        target={},
        config={"a": draw(st.integers(0, 2))},
        times=times,
        error={"kind": kind, "text": ""} if kind else None,
        dropped=draw(st.booleans()) and draw(st.booleans()),
        build=draw(st.sampled_from("ab")),
        ts=float(draw(st.integers(0, 3))),
        checked=draw(st.sampled_from(list(Checked))),
        phase=draw(st.sampled_from(["", "playoff", "check"])),
        run=draw(st.sampled_from("rs")),
        verdict=draw(st.sampled_from([None, None, *VERDICTS])) if times else None,
    )


def admitted(record, records):
    """Whether a record may be ranked at all."""
    for other in records:
        if other.candidate != record.candidate:
            continue
        if other.wrong and (other.build == record.build or other.ts >= record.ts):
            return False
        kind = other.error and other.error["kind"]
        if other.phase and kind == "RUN_CRASH" and other.build == record.build:
            return False
    return record.usable


def place_in_playoff(record, records):
    """Ratio to the default by the verdict of its playoff; without a comparison by the latest."""
    own = [r for r in records if r.run == record.run and (r.verdict or r.phase == "playoff")]
    playoffs = [[]]
    for r in own:  # each has one record of a candidate, those with its verdict last
        known = {other.candidate for other in playoffs[-1]}
        over = any(other.verdict for other in playoffs[-1])
        if r.candidate in known or (over and r.verdict is None):
            playoffs.append([])
        playoffs[-1].append(r)
    own = next(p for p in playoffs if any(r is record for r in p))
    # Of several winners, which have equal code, the first.
    winner = next((r for r in own if r.verdict), None)
    if winner is None:
        return 3, 0.0, statistics.median(record.times)
    rounds = min(len(winner.times), len(record.times))
    behind = statistics.median(record.times[:rounds]) / statistics.median(winner.times[:rounds])
    behind = 1.0 if record.times == winner.times else max(1.0 + 1e-9, behind)
    if "gain" not in winner.verdict or winner.verdict["outcome"] == "not compared":
        return 1, -winner.ts, behind
    return 0, 0.0, behind / (1.0 + winner.verdict["gain"])


def place(candidate, records):
    """The latest of those places of a candidate that rest on most."""
    own = [
        (
            place_in_playoff(r, records)
            if r.verdict or r.phase == "playoff"
            else (2, 0.0, statistics.median(r.times)),
            r.ts,
        )
        for r in records
        if r.candidate == candidate and admitted(r, records)
    ]
    most = min(one[0][0] for one in own)
    latest = max(ts for one, ts in own if one[0] == most)
    return [one for one, ts in own if one[0] == most and ts == latest][-1]


def by_the_rule(records):
    """One record a candidate: the latest that is admitted; checked ones first, then by place."""
    latest = {}
    for record in records:
        if not admitted(record, records):
            continue
        before = latest.get(record.candidate)
        if before is None or record.ts >= before.ts:
            latest[record.candidate] = record
    order = list(dict.fromkeys(r.candidate for r in records if admitted(r, records)))

    def unchecked(record):
        return not any(
            other.candidate == record.candidate
            and other.build == record.build
            and other.checked == "yes"
            and not other.wrong
            for other in records
        )

    key = lambda r: (unchecked(r), place(r.candidate, records), order.index(r.candidate))  # noqa: E731
    return sorted(latest.values(), key=key)


@given(st.lists(measured(), max_size=12))
@settings(max_examples=150, deadline=None)
def test_records_are_ranked_by_the_rule(records):
    expected = by_the_rule(records)
    assert [id(r) for r in ranked(records)] == [id(r) for r in expected]
    assert [id(r) for r in ranked(records, 1)] == [id(r) for r in expected[:1]]


def test_a_wrong_answer_takes_out_all_candidates_of_its_program():
    """Two runs, each without the log of the other, may record equal programs."""
    conditions = {"build": "b", "program": "p", "ts": 1.0, "checked": Checked.YES}
    first, second = (
        Record("t", "op", [], {"kind": "llvm"}, {"tile": n}, (float(n),), **conditions)
        for n in (1, 2)
    )
    error = {"kind": "WRONG_ANSWER", "text": "off"}
    wrong = replace(first, times=(), error=error, ts=2.0, checked=Checked.NO)
    assert ranked([first, second]) == [first, second]
    assert ranked([first, second, wrong]) == []
    assert ranked([first, replace(second, build="c"), wrong]) == [replace(second, build="c")]
    assert ranked([first, replace(second, program="q"), wrong]) == [replace(second, program="q")]
    elsewhere = replace(second, env={"cpu": "another"})
    assert ranked([first, elsewhere, wrong]) == [elsewhere]
    unknown = [replace(r, program="") for r in (first, second, wrong)]
    assert ranked(unknown) == [unknown[1]]


@given(st.lists(measured(), max_size=12))
@settings(max_examples=50, deadline=None)
def test_no_wrong_answer_is_hidden_by_what_follows_from_the_same_compiler(records):
    refuted = {(r.candidate, r.build) for r in records if r.wrong}
    assert not refuted & {(r.candidate, r.build) for r in ranked(records)}


operations = st.lists(
    st.tuples(
        st.sampled_from(["add", "vouch", "refute"]),
        st.integers(0, 4),
        st.integers(1, 5),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(operations)
@settings(max_examples=100, deadline=None)
def test_a_ranking_is_that_of_all_it_was_told(steps):
    """Order of the calls does not matter, but for equal clocks and equal times."""
    ranking = Ranking()
    for number, (what, name, seconds, ts) in enumerate(steps):
        if what == "add":
            ranking.add(name, (name, number), float(seconds), ts)
        else:
            getattr(ranking, what)(name)
        told = steps[: number + 1]
        refuted = {n for w, n, _, _ in told if w == "refute"}
        vouched = {n for w, n, _, _ in told if w == "vouch"}
        latest, order = {}, {}
        for at, (w, n, s, t) in enumerate(told):
            if w == "add":
                order.setdefault(n, at)
                if n not in latest or t >= latest[n][1]:
                    latest[n] = (s, t, at)
        names = [n for n in latest if n not in refuted]
        fastest = sorted(names, key=lambda n: (latest[n][0], order[n]))
        best = sorted(fastest, key=lambda n: n not in vouched)
        assert ranking.top() == [(n, latest[n][2]) for n in best]
        assert ranking.fastest(2) == [(n, latest[n][2]) for n in fastest[:2]]
        assert (ranking.best and ranking.best.item) == (ranking.top(1) or [None])[0]
        assert all(ranking.is_checked(n) == (n in vouched - refuted) for n in range(5))
