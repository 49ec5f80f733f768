from __future__ import annotations

import pytest

from loopwright.errors import RecordError
from loopwright.records import Outcome, Verdict


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (
            Verdict(Outcome.FASTER, 0.031, 0.006, 20),
            "the best beats the default by 3.1 % +- 0.6 %",
        ),
        (
            Verdict(Outcome.FASTER, 4.123, 0.12, 20),
            "the best beats the default by a factor of 5.12 +- 0.12",
        ),
        (
            Verdict(Outcome.FASTER, 9.15, 43.1, 20),
            "the best beats the default by an uncertain amount (a factor of 10.15 +- 43.10)",
        ),
        (
            Verdict(Outcome.SLOWER, -0.02, 0.004, 20),
            "the fastest other configuration is slower than the default by 2.0 % +- 0.4 %",
        ),
        (
            Verdict(Outcome.TIE, -0.002, 0.006, 20),
            "tie: the best and the default differ by 0.2 % +- 0.6 %",
        ),
        (
            Verdict(Outcome.TIE, 0.0, 0.006, 20, "", "FMA peak", 0.94),
            "no measurable gain: the default has 94 % of the FMA peak",
        ),
        (
            Verdict(Outcome.TIE, 0.0, 0.0, 20, is_default=True),
            "the best is the default itself: nothing faster was found",
        ),
        (
            Verdict(Outcome.TIE, 0.0, 0.0, 20, "", "FMA peak", 0.94, is_default=True),
            "the best is the default itself: nothing faster was found; "
            "the default has 94 % of the FMA peak",
        ),
        (Verdict(Outcome.NOT_COMPARED), "the best was not compared with the default"),
    ],
)
def test_the_words(verdict, text):
    assert verdict.text() == text
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert verdict.is_gain == (verdict.outcome is Outcome.FASTER)


def test_verdicts_without_a_peak_are_read():
    old = {"outcome": "tie", "gain": 0.0, "margin": 0.1, "rounds": 20, "default": "x"}
    assert Verdict.from_json(old) == Verdict(Outcome.TIE, 0.0, 0.1, 20, "x")
    with pytest.raises(RecordError, match="'verdict' is malformed"):
        Verdict.from_json({**old, "peak": "p", "of_peak": "much"})
