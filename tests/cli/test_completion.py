"""Shell completion: the scripts are made, and complete verbs, workloads, parameters and files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from loopwright import ops
from loopwright.cli.app import Verbs, app

ROOT = Path(__file__).parents[2]


def offered(*words: str) -> list[str]:
    """What is offered for the last word."""
    complete = BashComplete(app, {}, "loopwright", "_LOOPWRIGHT_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def kinds(*words: str) -> set[str]:
    """Whether the shell itself is asked for files."""
    complete = BashComplete(app, {}, "loopwright", "_LOOPWRIGHT_COMPLETE")
    return {item.type for item in complete.get_completions(list(words[:-1]), words[-1])}


def test_verbs():
    assert offered("") == list(Verbs.modules)
    assert offered("tu") == ["tune", "tune-tasks"]
    assert set(offered("records", "s")) >= {"show", "split"}


def test_workloads_and_their_parameters():
    assert offered("tune", "") == list(ops.WORKLOADS)
    assert offered("bench", "mat") == ["matmul", "matmul_int8"]
    assert kinds("tune", "path/to/mine.p") == {"file"}
    assert offered("tune", "matmul", "") == ["M=", "N=", "K=", "trans_a=", "trans_b=", "dtype="]
    assert offered("tune", "matmul", "M=8", "tr") == ["trans_a=", "trans_b="]
    assert offered("tune", "nonsense", "M") == []


def test_kinds_of_errors():
    assert offered("explain-error", "RUN") == ["RUN_TIMEOUT", "RUN_CRASH", "RUN_ERROR"]
    assert offered("explain-error", "w") == ["WRONG_ANSWER"]


def test_options_and_their_values():
    assert offered("tune", "matmul", "--tuner", "") == ["random", "grid", "ga", "xgb", "droplet"]
    assert "--min-repeat-ms" in offered("tune", "matmul", "--m")
    for words in (("tune", "--log"), ("bench", "--history"), ("build", "-o"), ("run",)):
        assert kinds(*words, "") == {"file"}, words
    assert kinds("tune-tasks", "") == {"file"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(tmp_path, shell):
    """As a user makes it: by the variable, from the command that ``pip`` installs."""
    if shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    command = tmp_path / "loopwright"
    command.write_text(
        f"#!{sys.executable}\nimport sys\nfrom loopwright.cli import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    made = subprocess.run(
        ["loopwright"],
        env={**env, "_LOOPWRIGHT_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"_LOOPWRIGHT_COMPLETE={shell}_complete" in made.stdout
    if shell == "bash":
        asked = f"{made.stdout}\nCOMP_WORDS=(loopwright tune mat) COMP_CWORD=2\n"
        asked += '_loopwright_completion loopwright; echo "${COMPREPLY[@]}"\n'
        ran = subprocess.run(["bash", "-c", asked], env=env, capture_output=True, text=True)
        assert ran.stdout.split() == ["matmul", "matmul_int8"], ran.stderr
