"""Every command that is printed runs when it is pasted into a shell, however we were called."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.cli import console

ROOT = Path(__file__).parents[2]
#: The console script, with a device that takes no time.
SCRIPT = f"""#!{sys.executable}
import sys
if sys.argv[1].startswith("tune"):
    import loopwright.cli.tune
    import loopwright.tuner.run.loop
    from loopwright.testing.tuner_contract import FakeMeasurer
    loopwright.tuner.run.loop.default_option = FakeMeasurer
    loopwright.cli.tune._numpy = lambda workload, stack: None
from loopwright.cli import main
sys.exit(main())
"""
WORKLOAD = "M=16 N=16 K=16 --target 'llvm -num-threads=1'"


def installed(folder: Path) -> Path:
    """A console script in a folder."""
    folder.mkdir(parents=True)
    script = folder / "loopwright"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    return script


def shell(line: str, folder: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Paste a line into a shell."""
    # Nobody else's run is waited for.
    own = {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "XDG_RUNTIME_DIR": str(folder)}
    env = {**os.environ, **own}
    # Of the programs of this environment only those in `path` are found.
    env["PATH"] = f"{path}:/usr/bin:/bin"
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )


def printed(text: str) -> list[str]:
    """The commands in an output: behind a word or two with a colon."""
    return re.findall(r"^(?:  [a-z ]+|run it): +(.*loopwright'? .+)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("called", "path", "left_out"),
    [
        # As `make tune` does: not on the path; and with a blank.
        pytest.param("'my venv/bin/loopwright'", "", [], marks=pytest.mark.slow),
        # All commands begin with the same word: by day the first of them stands for the others.
        ("loopwright", "my venv/bin", ["bench", "tune", "run", "build"]),
        pytest.param("loopwright", "my venv/bin", ["bench", "tune"], marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("instant")
def test_what_a_run_prints_can_be_pasted(cli, tmp_path, called, path, left_out):
    installed(tmp_path / "my venv" / "bin")
    on_path = str(tmp_path / path) if path else ""
    first = f"{called} tune matmul {WORKLOAD} --trials 3 --tuner random --log 'a log.jsonl'"
    ran = shell(first, tmp_path, on_path)
    assert ran.returncode == 0, ran.stderr
    lines = printed(ran.stdout)
    assert [shlex.split(line)[1] for line in lines] == ["tune", "tune", "bench", "build"]
    assert {shlex.split(line)[0] for line in lines} == {shlex.split(called)[0]}
    for line in (line for line in lines if shlex.split(line)[1] not in left_out):
        words = shlex.split(line)
        if words[1] != "build":  # the same program before other words
            assert cli(*words[1:]).code == 0, line
            continue
        again = shell(line, tmp_path, on_path)
        assert again.returncode == 0, (line, again.stderr)
    assert (tmp_path / "a log.fresh.jsonl").exists() == (not left_out)
    if "build" in left_out:
        return
    (run,) = printed(again.stdout)
    assert shlex.split(run)[1] == "run"
    if "run" in left_out:
        return
    assert shell(run, tmp_path, on_path).returncode == 0, run


@pytest.mark.usefixtures("instant")
def test_several_workloads(cli, tmp_path):
    script = installed(tmp_path / "venv" / "bin")
    (tmp_path / "two of them.txt").write_text("matmul M=16 N=16 K=16\n2 matmul M=16 N=16 K=8\n")
    ran = shell(f"{script} tune-tasks 'two of them.txt' --trials 6 --threads 1", tmp_path)
    assert ran.returncode == 0, ran.stderr
    lines = printed(ran.stdout)
    verbs = ["tune-tasks", "records", "bench", "bench", "build", "build"]
    assert [shlex.split(line)[1] for line in lines] == verbs
    assert all(line.startswith("venv/bin/loopwright ") for line in lines)
    again = cli(*shlex.split(lines[0])[1:])
    assert again.code == 0, again.err


def test_an_error_names_a_help_page_that_is_there(cli, tmp_path):
    called = f"{shlex.quote(sys.executable)} -m loopwright"
    ran = shell(f"{called} tune", tmp_path)
    assert ran.returncode == 2
    (help_page,) = re.findall(r"\(see '(.+)'\)$", ran.stderr.strip())
    assert help_page == f"{called} tune --help"
    assert cli("tune", "--help").code == 0


@pytest.mark.usefixtures("instant")
def test_the_example_of_the_first_page(cli):
    text = " ".join(cli("--help").out.split())
    found = re.search(r"loopwright (tune [a-z_]+(?: \w+=\w+)+ --trials \d+)", text)
    assert found, text
    ran = cli(*shlex.split(found[1]), "--threads", "1", "--tuner", "random")
    assert ran.code == 0, ran.err


def test_another_program_that_calls_main_has_no_command_of_its_own(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/pytest"])
    assert console.command_line(["run", "a b.o"]) == "loopwright run 'a b.o'"


def test_the_interpreter_of_python_m(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [str(ROOT / "loopwright" / "__main__.py")])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # an interpreter below this folder is called by a shorter name
    assert console.program_words() == [sys.executable, "-m", "loopwright"]
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    assert console.program_words() == ["python3", "-m", "loopwright"]
