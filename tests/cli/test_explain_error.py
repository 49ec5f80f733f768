from __future__ import annotations

import pytest

from loopwright.records import ErrorKind, errors_page


@pytest.mark.parametrize("name", ["RUN_TIMEOUT", "run-timeout", "Run_Timeout"])
def test_a_kind_is_explained(cli, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli("explain-error", name)
    assert ran.code == 0
    assert ran.out.startswith("RUN_TIMEOUT: ")
    assert ran.out.count("Cause: ") == ran.out.count("Example: ") == ran.out.count("Next step: ")
    assert "the runner's timeout" in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) <= 80


def test_without_a_kind_all_are_listed(cli):
    lines = cli("explain-error").out.splitlines()
    assert [line.split()[0] for line in lines if line[:1].isupper()] == list(ErrorKind)


def test_the_page_is_printed(cli):
    assert cli("explain-error", "--markdown").out == errors_page()


def test_an_unknown_kind_is_one_line_with_the_nearest(cli):
    ran = cli("explain-error", "time-out")
    assert ran.code == 2
    assert "unknown kind of error 'time-out' (did you mean 'RUN_TIMEOUT'?)" in ran.error
    assert "WRONG_ANSWER" in ran.error


def test_control_codes_in_a_kind_are_harmless(cli):
    assert "\x1b" not in cli("explain-error", "\x1b[31mx").err
