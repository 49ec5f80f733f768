from __future__ import annotations

import re

import pytest

from loopwright.errors import UsageError
from loopwright.measure import ErrorKind
from loopwright.tuner import TUNERS, find_tuner
from loopwright.tuner.run.state import Failure
from loopwright.tuner.run.summary import failure_lines, speed


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_every_kind_of_failure_has_advice_and_says_where_more_stands(kind):
    advice = failure_lines({kind: Failure(1, "?")})[1]
    assert re.fullmatch(rf" +advice: .+ \(more: loopwright explain-error {kind}\)", advice)


def test_the_advice_is_about_the_limit_that_acted():
    slow = "it ran longer than 1 s and was killed; its limit was 20 x the best so far, at least 1 s"
    advice = failure_lines({"RUN_TIMEOUT": Failure(1, slow)})[1]
    assert "cannot win" in advice
    assert "LocalRunner(timeout" not in advice


def test_a_kind_of_a_newer_version_is_counted_without_advice():
    assert failure_lines({"TOO_LOUD": Failure(1, "it hums")}) == [
        "failed:  1 x TOO_LOUD, first: it hums"
    ]


def test_the_histogram_is_sorted_and_examples_are_one_short_line():
    text = failure_lines({"COMPILE": Failure(2, "a\n b" + "c" * 500), "MEMORY": Failure(7, "oom")})
    assert text[0] == "failed:  7 x MEMORY, first: oom"
    assert text[2].startswith("failed:  2 x COMPILE, first: a bccc")
    assert len(text[2]) < 250


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5, "2.5 s"),
        (1.0, "1 s"),
        (0.0123, "12.3 ms"),
        (4.56e-5, "45.6 us"),
        (3.2e-8, "32 ns"),
        (3.2e-11, "0.032 ns"),
    ],
)
def test_times_have_a_fitting_unit(seconds, text):
    assert speed(seconds, None) == text
    assert speed(seconds, 12.34) == f"{text}, 12.3 GFLOP/s"


def test_tuners_by_name():
    assert {name: find_tuner(name).name for name in TUNERS} == {n: n for n in TUNERS}
    with pytest.raises(UsageError, match=r"unknown tuner 'gird' \(did you mean 'grid'\?\)"):
        find_tuner("gird")
