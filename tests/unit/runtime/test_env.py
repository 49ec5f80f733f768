"""Settings from the environment, and the machine's description."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopwright import env
from loopwright.errors import UsageError


def test_defaults() -> None:
    found = env.Settings.from_environ({})
    assert found == env.Settings()
    assert found.num_threads is None
    assert found.workspace_limit is None
    assert found.pool == "auto"
    assert env.Settings.from_environ({"LOOPWRIGHT_NUM_THREADS": " "}) == found


def test_values_are_read() -> None:
    found = env.Settings.from_environ(
        {
            "LOOPWRIGHT_NUM_THREADS": "3",
            "LOOPWRIGHT_SPIN": "0",
            "LOOPWRIGHT_WORKSPACE_LIMIT": "2GiB",
            "LOOPWRIGHT_POOL": "pthread",
        }
    )
    assert found == env.Settings(3, 0, 2 << 30, "pthread")


def test_tvms_names_count_where_ours_are_unset() -> None:
    theirs = {"TVM_NUM_THREADS": "3", "TVM_THREAD_POOL_SPIN_COUNT": "7"}
    assert env.Settings.from_environ(theirs) == env.Settings(num_threads=3, spin=7)
    assert env.num_threads_variable(theirs) == "TVM_NUM_THREADS"
    ours = {"LOOPWRIGHT_NUM_THREADS": "2", "LOOPWRIGHT_SPIN": "0"}
    for both in ({**theirs, **ours}, {**ours, "TVM_NUM_THREADS": "x", "OMP_NUM_THREADS": "5"}):
        assert env.Settings.from_environ(both) == env.Settings(num_threads=2, spin=0)
        assert env.num_threads_variable(both) == "LOOPWRIGHT_NUM_THREADS"
    assert env.num_threads_variable({}) == "LOOPWRIGHT_NUM_THREADS"
    with pytest.raises(UsageError, match="TVM_NUM_THREADS='x' is not a whole number from 1"):
        env.Settings.from_environ({"TVM_NUM_THREADS": "x"})
    not_read = {"OMP_NUM_THREADS": "5", "TVM_BIND_THREADS": "1"}
    assert env.Settings.from_environ(not_read) == env.Settings()
    assert env.surroundings(not_read)["variables"] == not_read


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NUM_THREADS", "0", "whole number from 1 to 1023"),
        ("NUM_THREADS", "two", "LOOPWRIGHT_NUM_THREADS='two'"),
        ("NUM_THREADS", "99999", "whole number"),
        ("SPIN", "-1", "whole number from 0"),
        ("WORKSPACE_LIMIT", "lots", "is not a size"),
        ("POOL", "tbb", "is not one of auto, futex, pthread"),
    ],
)
def test_bad_values_name_the_variable(name: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        env.Settings.from_environ({f"LOOPWRIGHT_{name}": value})


def test_machine_is_json_and_stable() -> None:
    facts = env.machine()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["numpy"][0].isdigit()
    assert facts["llvmlite"][0].isdigit()
    assert env.version("no-such-distribution") == "not installed"


def test_what_surrounds_a_run_is_plain_data() -> None:
    environ = {"OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "1", "HOME": "/root", "MY_OMP_KEY": "x"}
    found = env.surroundings(environ)
    assert json.loads(json.dumps(found)) == found
    assert found["variables"] == {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "2"}
    assert found["load"] >= 0
    assert not found.keys() & {"cpu", "isa", "cores"}, "the hardware of a record would change"
    assert "variables" not in env.surroundings({})


def test_a_system_that_does_not_tell_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox without /proc: a run must not end for a line of its header."""

    def unknown() -> tuple[float, float, float]:
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr("os.getloadavg", unknown)
    assert "load" not in env.surroundings({})


def test_the_revision_of_a_checkout(tmp_path: Path) -> None:
    assert env._revision(tmp_path) == ""
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert env._revision(tmp_path) == ""
    (git / "packed-refs").write_text("# pack\n" + "a" * 40 + " refs/heads/main\n")
    assert env._revision(tmp_path) == "a" * 40
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text("b" * 40 + "\n")
    assert env._revision(tmp_path) == "b" * 40
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {git / 'worktrees' / 'tree'}\n")
    (git / "worktrees" / "tree").mkdir(parents=True)
    (git / "worktrees" / "tree" / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "worktrees" / "tree" / "commondir").write_text("../..\n")
    assert env._revision(tree) == "b" * 40
    (git / "HEAD").write_text("c" * 40)
    assert env._revision(tmp_path) == "c" * 40
