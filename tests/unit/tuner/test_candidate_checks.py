"""Checks between proposing and measuring."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import TuneError, UsageError
from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, bowl
from loopwright.tuner import TUNERS, RandomTuner, candidate_checks, register_check, remove_check
from loopwright.tuner.candidate_checks import CandidateChecks


@pytest.fixture
def odd_is_refused():
    """A check that refuses odd candidates, and says by how much."""

    @register_check("parity")
    def parity(task, config):
        return f"rest {config.index % 2}" if config.index % 2 else None

    yield
    remove_check("parity")


@pytest.mark.usefixtures("odd_is_refused")
@pytest.mark.parametrize("name", TUNERS)
def test_no_tuner_measures_what_a_check_refuses_and_all_go_on(name):
    options = {"droplet": {"restarts": None}}.get(name, {})
    tuner = TUNERS[name](FakeTask(FakeSpace((8, 8), default=1)), seed=3, **options)
    measurer = FakeMeasurer(bowl)
    summary = tuner.tune(measure_option=measurer)
    # The default configuration is measured in any case.
    assert sorted(measurer.measured) == [0, 1, *range(2, 64, 2)]
    assert summary.stopped == "exhausted"
    assert tuner.checks.reasons == {"parity: rest 1": 31}
    assert "refused: 31 candidates by checks (parity: rest 1 31)" in tuner.notes


@pytest.mark.usefixtures("odd_is_refused")
def test_the_summary_says_what_was_refused():
    tuner = RandomTuner(FakeTask(), seed=0)
    summary = tuner.tune(n_trial=10, measure_option=FakeMeasurer(bowl))
    assert "candidates by checks (parity: rest 1" in str(summary)


def test_each_candidate_is_asked_about_once_and_counts_for_the_first_that_refuses_it():
    asked = []
    checks = CandidateChecks(
        FakeTask(),
        {
            "first": lambda task, config: asked.append(config.index),
            "second": lambda task, config: "small" if config.index < 3 else None,
            "third": lambda task, config: "never reached" if config.index < 3 else None,
        },
    )
    assert [checks(index) for index in (2, 3, np.int64(2), 3)] == [False, True, False, True]
    assert asked == [2, 3]
    assert checks.reasons == {"second: small": 1}


def test_many_reasons_are_cut_short():
    checks = CandidateChecks(FakeTask(), {"n": lambda task, config: str(config.index)})
    assert not any(map(checks, range(6)))
    assert checks.note.startswith("refused: 6 candidates by checks (n: 0 1, n: 1 1, ")
    assert checks.note.endswith(", 2 other reasons)")


def test_a_task_of_several_structures_counts_what_all_of_them_were_refused():
    X = te.placeholder((24, 40), name="X")
    Y = te.compute((24, 40), lambda i, j: te.exp(X[i, j]), name="Y")
    task = lw.create_task([X, Y], target="llvm -num-threads=1")
    asked = []

    def even_alone(of, config):
        asked.append((of is task, of.config_space.get(config.index).values == config.values))
        return "odd" if config.index % 2 else None

    register_check("even alone")(even_alone)
    try:
        tuner = RandomTuner(task, seed=0)
        summary = tuner.tune(measure_option=FakeMeasurer(bowl))
    finally:
        remove_check("even alone")
    default, count = task.config_space.default_index, len(task.config_space)
    assert tuner.trials == len({*range(0, count, 2), default})
    assert summary.stopped == "exhausted"
    refused = len({*range(1, count, 2)} - {default})
    assert tuner.checks.reasons == {"even alone: odd": refused}
    assert str(summary).count(f"refused: {refused} candidates by checks") == 1
    assert set(asked) == {(True, True)}


def leave(task, config):
    """A check that ends the process, or tries to."""
    sys.exit(3)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (lambda task, config: 1 / 0, "check 'bad' raised ZeroDivisionError for "),
        (leave, "check 'bad' raised SystemExit for .*: 3; mend it, or leave it out with"),
        (lambda task, config: False, "check 'bad' must return why .* it returned False"),
        (lambda task, config: "", "it returned ''"),
        (lambda task: None, "check 'bad' raised TypeError"),
    ],
)
def test_a_check_that_fails_is_no_answer(check, text):
    with pytest.raises(TuneError, match=text) as raised:
        CandidateChecks(FakeTask(), {"bad": check})(0)
    assert "\n" not in str(raised.value)


def test_a_check_that_never_ends_is_ended(monkeypatch):
    def ages(task, config):
        while True:
            pass

    monkeypatch.setattr(candidate_checks, "TEMPLATE_S", 0.2)
    with pytest.raises(TuneError, match=r"check 'ages' took longer than 0\.2 s for"):
        CandidateChecks(FakeTask(), {"ages": ages})(0)


def test_names_are_taken_once_but_a_definition_may_run_again():
    def define(reason):
        @register_check("once")
        def once(task, config):
            return reason

        return once

    try:
        define("first")
        define("second")
        checks = CandidateChecks(FakeTask())
        assert not checks(0)
        assert checks.reasons == {"once: second": 1}
        with pytest.raises(UsageError, match="there is a check 'once'"):
            register_check("once")(lambda task, config: None)
    finally:
        remove_check("once")
    with pytest.raises(UsageError, match="unknown check 'once'"):
        remove_check("once")
    with pytest.raises(UsageError, match="a check needs a name"):
        register_check(define)
