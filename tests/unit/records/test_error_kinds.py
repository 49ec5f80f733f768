"""Each kind of error has a cause, an example and a next step, and the advice fits the cause."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from loopwright.measure.workers.process import describe_exit
from loopwright.records import ErrorKind, error_help, errors_page, next_step

PAGE = Path(__file__).parents[3] / "docs" / "errors.md"


def sections() -> dict[str, str]:
    """The sections of the page, by the kind that heads them."""
    parts = re.split(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_each_kind_has_its_section_with_cause_example_and_next_step(kind):
    text = sections()[kind]
    causes, examples, steps = (
        re.findall(rf"\*\*{name}:\*\* \S.*", text) for name in ("Cause", "Example", "Next step")
    )
    assert causes
    assert len(causes) == len(examples) == len(steps)


def test_the_page_has_no_other_section_and_is_what_the_texts_say():
    assert list(sections()) == [kind.value for kind in ErrorKind]
    assert PAGE.read_text(encoding="utf-8") == errors_page(), (
        "run `loopwright explain-error --markdown > docs/errors.md`"
    )


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_the_example_of_a_cause_leads_to_its_next_step(kind):
    found = error_help(kind)
    assert found is not None
    for cause in found.causes:
        if cause.phrases:
            assert next_step(kind, cause.example) == cause.next_step, cause.example


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_a_next_step_is_one_line_that_goes_on_in_a_sentence(kind):
    found = error_help(kind)
    assert found is not None
    for text in (found.next_step, *(cause.next_step for cause in found.causes)):
        assert re.fullmatch(r"[a-z`].*[^.\n]", text), text
    for cause in found.causes:
        assert re.fullmatch(r"[A-Z].*\.", cause.what), cause.what
        assert "`" not in cause.example, "it stands between backticks on the page"


def test_a_text_that_tells_no_cause_gets_the_general_advice():
    found = error_help("RUN_TIMEOUT")
    assert found is not None
    assert next_step("RUN_TIMEOUT") == next_step("RUN_TIMEOUT", "?") == found.next_step


def test_a_kind_of_a_newer_version_has_no_advice():
    assert error_help("TOO_LOUD") is None
    assert next_step("TOO_LOUD", "it hums") == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("kind", "role"), [("RUN_CRASH", "runner"), ("BUILD_CRASH", "builder")])
def test_who_was_killed_from_outside_is_not_told_to_mend_the_kernel(kind, role, number):
    advice = next_step(kind, describe_exit(-number, role))
    assert advice.startswith("see whether memory ran out")


def test_an_index_that_leaves_its_tensor_is_a_matter_of_the_data():
    """The text names the access already: running with checks of bounds would tell nothing new."""
    text = "main: access outside x: index [7, 0], shape [7, 64] (load at i = 3)"
    for kind in ("WRONG_ANSWER", "RUN_ERROR"):
        assert "make_inputs" in next_step(kind, text)
        assert "instrument_bound_checkers" not in next_step(kind, text)


def test_data_that_take_long_are_made_by_the_runner_not_by_the_task():
    text = "making the input data took longer than 120 s and was ended"
    assert "make_inputs" not in next_step("RUN_TIMEOUT", text)


@pytest.mark.parametrize(
    ("kind", "role"), [("RUN_TIMEOUT", "runner"), ("BUILD_TIMEOUT", "builder")]
)
def test_who_is_stopped_is_the_process_of_that_kind(kind, role):
    found = error_help(kind)
    assert found is not None
    (stopped,) = [c for c in found.causes if "SIGSTOP" in c.what]
    assert f"the {role} was stopped by a signal from outside" in stopped.example


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS])
def test_a_crash_of_the_kernel_is_told_from_a_kill(number):
    advice = next_step("RUN_CRASH", describe_exit(-number, "runner"))
    assert "instrument_bound_checkers" in advice
