"""No verb writes over a file that is not ours, and none leaves half a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from loopwright import records
from loopwright.cli.app import app
from tests.cli.conftest import WORKLOAD, Cli

#: Options that name a file of the user's, by verb: those that are read,
READ = {
    ("tune", "pretrain"), ("tune-tasks", "file"), ("records compare", "log"),
    ("records merge", "logs"), ("records pick", "logs"), ("records distill", "logs"),
    ("report", "model"), ("report", "layouts"), ("dashboard", "logs"), ("explain", "history"),
    ("lower", "history"), ("build", "history"), ("build", "layouts"), ("run", "file"),
    ("run", "inputs"), ("run", "layouts"), ("bench", "history"), ("bench", "layouts"),
    ("inspect", "model"), ("inspect", "history"), ("inspect", "layouts"), ("doctor", "folder"),
}  # fmt: skip
#: and those that are written, with a command line that writes OUT; MODEL needs the package onnx.
WRITTEN = {
    ("tune", "log"): [
        ["tune", *WORKLOAD, "--trials", "2", "--log", "OUT.py"],
        ["tune", "MODEL", "--trials", "9", "--log", "OUT.onnx"],
    ],
    ("tune", "layouts"): [["tune", "MODEL", "--trials", "9", "--layouts", "OUT.json"]],
    ("tune-tasks", "log"): [["tune-tasks", "tasks.py", "--trials", "4", "--log", "OUT.py"]],
    ("records curve", "out"): [["records", "curve", "LOG", "-o", "OUT.svg"]],
    ("records export", "out"): [["records", "export", "LOG", "-o", "OUT.py"]],
    ("records merge", "out"): [["records", "merge", "LOG", "-o", "OUT.txt"]],
    ("records pick", "out"): [["records", "pick", "LOG", "-o", "OUT.txt"]],
    ("records distill", "out"): [["records", "distill", "LOG", "-o", "OUT.txt"]],
    ("records split", "out"): [["records", "split", "LOG", "-o", "OUT.txt"]],
    ("report", "out"): [["report", "LOG", "-o", "OUT.html"]],
    ("build", "output"): [
        ["build", *WORKLOAD, "-o", "OUT.so"],
        ["build", *WORKLOAD, "-o", "OUT.o"],
        ["build", "MODEL", "-o", "OUT.lw"],
        ["build", "MODEL", "-o", "OUT.so"],
    ],
    ("run", "output"): [["run", "MODEL", "--output", "OUT.npz"]],
}
LINES = [line for lines in WRITTEN.values() for line in lines]
TASKS = "import loopwright as lw\nTASKS = [lw.create_task('matmul', (8, 8, 8), 'llvm')]\n"
FOREIGN = b"x = 1\n\0\xff"


def _options(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Options and arguments of a verb, and of those under it, that may name a file."""
    if isinstance(command, click.Group):
        for verb in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), verb)
            assert found is not None
            yield from _options(found, f"{name} {verb}".strip())
        return
    for p in command.params:
        words = {"FILE", "OUT", "DIR", "LOG", "PATH", "FOLDER"}
        named = words & {w.strip(".") for w in (p.metavar or "").replace("=", " ").split()}
        if named or isinstance(p.type, click.Path) or set(p.opts) & {"-o", "--log", "--output"}:
            assert p.name is not None
            yield name, p.name


def test_every_option_that_names_a_file_is_known_here() -> None:
    assert set(_options(app, "")) == READ | set(WRITTEN)


@pytest.fixture
def words(request: pytest.FixtureRequest, cli: Cli, tuned: Path) -> list[str]:
    """A command line with the names of its files, in an empty folder."""
    line = request.param
    if "MODEL" in line:
        pytest.importorskip("onnx")
        from tests.unit.graph.small_onnx import perceptron

        Path("model.onnx").write_bytes(perceptron().SerializeToString())
    if "curve" in line:
        pytest.importorskip("matplotlib")
    Path("tasks.py").write_text(TASKS)
    names = {"MODEL": "model.onnx", "LOG": str(tuned)}
    return [names.get(word, word) for word in line]


@pytest.mark.parametrize("words", LINES, ids=" ".join, indirect=True)
def test_what_is_not_ours_stays(cli: Cli, words: list[str]) -> None:
    out = Path(words[-1])
    there, link = Path(f"mine{out.suffix}"), Path(f"link{out.suffix}")
    there.write_bytes(FOREIGN)
    link.symlink_to(there)
    folder, astray = Path(f"folder{out.suffix}"), Path(f"astray{out.suffix}")
    folder.mkdir()
    astray.symlink_to("nowhere/x")
    before = sorted(os.listdir())
    for path in (there, link, folder, astray):
        if "split" in words and path == folder:
            continue  # that is what it writes to
        ran = cli(*words[:-1], str(path))
        assert ran.code in (1, 2), ran
        assert ran.error
        assert there.read_bytes() == FOREIGN
        assert not list(folder.iterdir())
    assert sorted(set(os.listdir()) - {"report.html"}) == before


@pytest.mark.parametrize(
    "words", [n for n in LINES if n[0] in ("build", "run") or n[1] in ("curve", "export")],
    ids=" ".join, indirect=True,
)  # fmt: skip
def test_force_replaces_and_ours_are_replaced(cli: Cli, words: list[str]) -> None:
    out = Path(words[-1])
    out.write_bytes(FOREIGN)
    assert "--force" in cli(*words).error
    ran = cli(*words, "--force")
    assert ran.code == 0, ran.err
    ours = out.read_bytes()
    assert len(ours) > 100
    assert ours[:8] != FOREIGN[:8]
    again = cli(*words)
    assert again.code == 0, again.err
    left = {"tasks.py", "model.onnx", out.name, f"{out.name}.json", f"{out.stem}.h"}
    assert set(os.listdir()) <= left


@pytest.mark.usefixtures("instant")
def test_a_link_to_a_log_of_ours_is_a_log(cli: Cli, tuned: Path) -> None:
    Path("real.jsonl").write_bytes(tuned.read_bytes())
    Path("link.jsonl").symlink_to("real.jsonl")
    assert cli("tune", *WORKLOAD, "--trials", "7", "--log", "link.jsonl").code == 0
    assert Path("link.jsonl").is_symlink()
    assert len(records.load("real.jsonl").records) > len(records.load(tuned).records)


FULL = """
import resource, sys
from loopwright.cli import main
limit, words = int(sys.argv[1]), sys.argv[2:]
if words[0] == "tune":  # NumPy beside it takes a second to start
    import loopwright.cli.tune
    loopwright.cli.tune._numpy = lambda *_: None
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(main(words))
"""


def _on_a_full_disk(words: list[str], limit: int) -> subprocess.CompletedProcess[str]:
    """Run a command line where no file grows beyond so many bytes."""
    code = [sys.executable, "-c", FULL, str(limit), *words]
    return subprocess.run(code, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "words",
    [n for n in LINES if n[1] in ("export", "merge", "pick") or n[-1] in ("OUT.o", "OUT.html")],
    ids=" ".join,
    indirect=True,
)
def test_a_full_disk_leaves_the_old_file(cli: Cli, words: list[str], tuned: Path) -> None:
    out = Path(words[-1])
    assert cli(*words).code == 0
    before, names = out.read_bytes(), sorted(os.listdir())
    ran = _on_a_full_disk(words, 500)
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [f"error: cannot write {out}: File too large"]
    assert out.read_bytes() == before
    assert sorted(os.listdir()) == names


def test_a_disk_that_fills_while_a_log_grows(cli: Cli, tuned: Path) -> None:
    log = Path("log.jsonl")
    log.write_bytes(tuned.read_bytes())
    limit = log.stat().st_size + 300  # within the header of the run, or the first record
    words = ["tune", *WORKLOAD, "--trials", "30", "--log", "log.jsonl"]
    words += ["--tuner", "random", "--parallel", "1"]
    ran = _on_a_full_disk(words, limit)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    error = ran.stderr.splitlines()[-1]
    assert error.startswith("error: cannot write the log 'log.jsonl': ")
    assert "run the same command again" in error
    read = records.load(log)
    assert not read.skipped
    assert len(read.records) >= len(records.load(tuned).records)
    assert log.read_bytes().startswith(tuned.read_bytes())
    assert log.read_bytes().endswith(b"\n")
