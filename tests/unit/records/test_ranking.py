"""The one rule of which candidate is best."""

from __future__ import annotations

import random

from loopwright.records import Ranking


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
