from __future__ import annotations

import subprocess
import sys

import click
import pytest

from loopwright.cli.app import Verbs
from loopwright.version import __version__


def test_version(cli):
    assert cli("--version") == (0, f"loopwright, version {__version__}\n", "")


def test_help_lists_every_verb(cli):
    ran = cli("--help")
    assert ran.code == 0
    assert all(f"\n  {verb} " in ran.out for verb in Verbs.modules)


def test_nothing_at_all_is_the_help(cli):
    ran = cli()
    assert ran.code == 0
    assert "Commands:" in ran.out


@pytest.mark.parametrize("verb", Verbs.modules)
def test_every_verb_has_help(cli, verb):
    ran = cli(verb, "--help")
    assert ran.code == 0
    assert f"loopwright {verb}" in ran.out


def test_an_unknown_verb_names_the_nearest_and_all(cli):
    ran = cli("tuen")
    assert ran.code == 2
    assert "unknown command 'tuen' (did you mean 'tune'?)" in ran.error
    assert f"there are {', '.join(Verbs.modules)} (see" in ran.error


def test_an_unknown_option_names_the_nearest(cli):
    ran = cli("tune", "matmul", "--trails", "3")
    assert ran.code == 2
    assert "--trails" in ran.error
    assert "--trials" in ran.error


def test_a_missing_argument(cli):
    assert "Missing argument 'WORKLOAD'" in cli("tune").error


def test_debug_shows_the_traceback(cli):
    ran = cli("lower", "nope", "--debug")
    assert ran.code == 2
    assert "Traceback (most recent call last)" in ran.err
    assert ran.err.splitlines()[-1].startswith("error: unknown workload 'nope'")


def test_an_unexpected_error_is_one_line(cli, monkeypatch):
    def broken(*args):
        raise ZeroDivisionError("one\nline")

    monkeypatch.setattr(Verbs, "get_command", broken)
    ran = cli("devices")
    assert ran.code == 1
    assert ran.error == (
        "error: internal error: ZeroDivisionError: one line; --debug shows the traceback"
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_is_130(cli, monkeypatch, error):
    def interrupted(*args):
        raise error

    monkeypatch.setattr(Verbs, "get_command", interrupted)
    ran = cli("devices")
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "interrupted")


def test_a_reader_that_leaves_ends_it_silently(tuned):
    code = "import sys; from loopwright.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "records", "list", str(tuned), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
