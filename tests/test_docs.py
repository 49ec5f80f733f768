"""What the documents say is true: commands exist, code runs, links lead somewhere."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import loopwright as lw
from loopwright.cli import main
from loopwright.cli.app import app
from loopwright.ops import WORKLOADS
from loopwright.schedule.schedule import Schedule
from loopwright.schedule.stage import Stage
from loopwright.schedule.steps import Step

ROOT = Path(__file__).parents[1]
MAKES_STEP = re.compile(r"\.apply_step\(|\._annotate\(|\.all_or_nothing\(")
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
#: Methods of stages and schedules that record a step.
PRIMITIVES = sorted(
    name
    for owner in (*Stage.__mro__[:-1], Schedule)
    for name, f in vars(owner).items()
    if not name.startswith("_")
    and inspect.isfunction(f)
    and MAKES_STEP.search(inspect.getsource(f))
)
TUTORIALS = sorted(path.name for path in (ROOT / "tutorials").glob("[0-9]*.py"))


COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    """The fenced code blocks of README.md, or of another text, in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def commands(program: str, text: str = README) -> list[list[str]]:
    """The words after `program` of every shell line of README.md, or of another text, that starts
    with it."""
    lines = "\n".join(blocks("sh", text)).replace("\\\n", " ").splitlines()
    words = [line.partition("#")[0].split() for line in lines]
    return [line[1:] for line in words if line and Path(line[0]).name == program]


def python(script: str | Path, *args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess:
    """Run a file, or a text with -c, as a user would: in a process and a folder of its own."""
    head = [str(script)] if isinstance(script, Path) else ["-c", script]
    return subprocess.run(
        [sys.executable, *head, *args],
        cwd=cwd,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_readme_shows_the_two_commands_of_a_fresh_machine() -> None:
    shown = [words[0] for words in commands("make") if words]
    assert shown[:2] == ["tune", "test"]


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    described = set(re.findall(r"^([a-z]+):.*## ", makefile, flags=re.MULTILINE))
    documents = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS)
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", documents, flags=re.MULTILINE))
    assert {"tune", "smoke", "test", "check", "bench", "clean", "help"} <= described
    assert named <= targets


def test_ci_runs_what_readme_says() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    steps = re.findall(r"^step make ([a-z]+)", script, flags=re.MULTILINE)
    more = {"check", "oldest", "docs", "package", "browser"}
    assert {words[0] for words in commands("make")[:2]} | more == set(steps)
    assert "step make test ARGS=--durations=25\n" in script  # the slowest are shown
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def shown_commands() -> list[list[str]]:
    """The command lines of loopwright that any document shows, each once."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS]
    lines = [tuple(words) for text in texts for words in commands("loopwright", text)]
    return [list(words) for words in dict.fromkeys(lines)]


@pytest.mark.parametrize("words", shown_commands(), ids=" ".join)
def test_command_line_knows_what_documents_use(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    verbs = words[: 2 if words[0] == "records" else 1]
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*verbs, "--help"]) == 0
    text = capsys.readouterr().out
    for option in (word.partition("=")[0] for word in words if word.startswith("-")):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), option
    for name in (word for word in words if Path(word).suffix in (".jsonl", ".o", ".txt", ".log")):
        (tmp_path / name).touch()
    context = click.Context(app)
    command, rest = app, words
    with contextlib.chdir(tmp_path):
        while isinstance(command, click.Group):
            _, command, rest = command.resolve_command(context, rest)
        command.make_context(words[0], list(rest))  # raises where an argument is missing


def test_the_page_of_the_command_line_shows_every_verb() -> None:
    shown = {words[0] for words in commands("loopwright", COMMAND_LINE)}
    assert shown >= {"workloads", "tune", "tune-tasks", "records", "explain", "lower", "bench"}
    assert {"build", "run", "devices"} <= shown
    for shell in ("bash", "zsh", "fish"):
        assert f"_LOOPWRIGHT_COMPLETE={shell}_source loopwright" in COMMAND_LINE


def test_the_table_beside_others_holds_what_was_measured() -> None:
    measured = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = {
        tuple(re.findall(r"(?<=\| )([\d.]+)(?= (?:\(\d+%\) )?\|)", line))
        for line in measured.splitlines()
        if line.startswith("|")
    }
    section = README.partition("## Beside others")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| .*\*\*([\d.]+)\*\* \| (.*) \|$", section, flags=re.MULTILINE)
    assert len(lines) == 8
    for ours, others in lines:
        shown = (ours, *others.split(" | "))
        assert any(shown == row[-4:] for row in rows), shown


@pytest.mark.docs
@pytest.mark.parametrize(
    ("page", "shape", "log"),
    [
        ("README.md", "(64, 40, 24)", "matmul.jsonl"),
        # Much like the README's.
        pytest.param("docs/guide/start.md", "(24, 24, 24)", "demo.jsonl", marks=pytest.mark.slow),
    ],
)
def test_first_script_runs(page: str, shape: str, log: str, tmp_path: Path) -> None:
    code = "\n".join(blocks("python", (ROOT / page).read_text(encoding="utf-8")))
    assert "apply_history_best" in code
    small = code.replace("1000", "40").replace("512", "24")
    small = re.sub(r"n_trial=\d+", "n_trial=4", small)
    assert shape in small
    assert "n_trial=4" in small
    script = tmp_path / "script.py"
    script.write_text(small, encoding="utf-8")
    run = python(script, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert len((tmp_path / log).read_text(encoding="utf-8").splitlines()) >= 4


@pytest.mark.docs
def test_an_operator_of_ones_own_is_tuned_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "howto" / "own-operator.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python", page)
    Path("scale.py").write_text(code, encoding="utf-8")
    tune, bench, build = commands("loopwright", page)
    assert bench[0] == "bench"  # which takes its time to sample
    for words in (tune, build):
        small = [word.replace("1024", "64") for word in words]
        assert main([*small, "--trials", "2"] if words[0] == "tune" else small) == 0
    assert Path("scale.so").exists()


def test_every_decision_is_in_the_table() -> None:
    table = (ROOT / "docs" / "adr" / "README.md").read_text(encoding="utf-8")
    decisions = {path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
    assert decisions == set(re.findall(r"\]\(([^)]+)\)", table))


def test_the_changelog_has_one_section_of_each_kind_per_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Dependencies"]
    for release in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        shown = re.findall(r"^### (.+)$", release, flags=re.MULTILINE)
        assert shown == [kind for kind in kinds if kind in shown], release.partition("\n")[0]


def test_the_changelog_knows_the_version() -> None:
    """It is that of the newest release, or there is something that is not released yet."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    release = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d")
    dated = [release.fullmatch(head) for head in heads if head != "[Unreleased]"]
    versions = [tuple(map(int, match.groups())) for match in dated if match]
    assert len(versions) == len(dated), "a release is `## [1.2.3] - 2027-01-31`"
    assert versions == sorted(set(versions), reverse=True)
    if "[Unreleased]" in heads:
        assert heads.index("[Unreleased]") == 0
        assert heads.count("[Unreleased]") == 1
        return
    assert ".".join(map(str, versions[0])) == lw.__version__


def test_readme_names_every_tutorial_and_document() -> None:
    shown = set(re.findall(r"\]\(([^)#]+)\)", README))
    here = [*(ROOT / "tutorials").glob("[0-9]*.py"), *(ROOT / "docs").glob("*.md")]
    assert {str(path.relative_to(ROOT)) for path in here} <= shown


def test_readme_names_every_operator() -> None:
    section = README.partition("The workloads are the operators")[2].partition("or what a file")[0]
    assert set(re.findall(r"`(\w+)`", section)) == set(WORKLOADS)


def test_readme_names_every_primitive() -> None:
    named = set(re.findall(r"`(\w+)`", README))
    assert not set(PRIMITIVES) - named


def test_the_specification_of_records_names_every_step() -> None:
    text = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
    section = text.partition("### Steps of a trace")[2].partition("### Kinds of errors")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(Step.registry)
    for line in re.findall(r"^\[.*\]$", section, flags=re.MULTILINE):
        step = json.loads(line)
        assert Step.from_json(step).to_json() == step


def test_architecture_has_a_line_for_every_folder() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("## Folders")[2].partition("\n## ")[0]
    table = section.partition("|---|---|")[2]
    rows = re.findall(r"^\| `([\w/]+)/` \|", table, flags=re.MULTILINE)
    package = ROOT / "loopwright"
    folders = {path.parent.relative_to(package) for path in package.glob("*/**/__init__.py")}
    assert sorted(rows) == sorted(folder.as_posix() for folder in folders)


def test_the_tutorial_shows_every_primitive() -> None:
    """Calls of every method that makes a step stand in tutorial 04, or 21 of GPU threads."""
    names = ("04_primitives.py", "21_threads.py")
    text = "".join((ROOT / "tutorials" / name).read_text(encoding="utf-8") for name in names)
    missing = [name for name in PRIMITIVES if f".{name}(" not in text]
    assert not missing


def test_first_tutorials_exist() -> None:
    first = {"01_matmul_by_hand.py", "02_tune_a_matmul.py", "03_apply_history_best.py"}
    assert first <= set(TUTORIALS)


@pytest.mark.slow  # `make docs` runs them, too
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial_runs(name: str, tmp_path: Path) -> None:
    if "torch" in name:
        pytest.importorskip("torch")
    run = python(ROOT / "tutorials" / name, cwd=tmp_path, LOOPWRIGHT_TUTORIAL_SMALL="1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.strip(), "a tutorial shows something"


# `make docs` runs all tutorials, this one with a device where there is one.
@pytest.mark.slow
def test_the_tutorial_for_gpus_runs_without_a_device(tmp_path: Path) -> None:
    """It says what is missing, and the interpreter runs and checks every step."""
    script = ROOT / "tutorials" / "11_gpu_matmul.py"
    run = python(script, cwd=tmp_path, OCL_ICD_VENDORS=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "opencl(0) cannot be used: " in run.stdout
    assert run.stdout.count("   right, in ") == 6
    assert "nothing to tune for" in run.stdout


def test_links_lead_somewhere() -> None:
    broken = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
        local = [link for link in links if "://" not in link]
        broken += [
            (name, link) for link in local if not (ROOT / name).parent.joinpath(link).exists()
        ]
    assert not broken


def test_files_that_are_named_exist() -> None:
    """By their path from the root or, as decisions do it, from the package."""
    homes, placeholders = (ROOT, ROOT / "loopwright"), {"path/to/file.py", "docs/adr/NNN-title.md"}
    missing = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        paths = {*re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|md|ll|js|css|npz))\b", text)}
        there = {path for path in paths if any((home / path).exists() for home in homes)}
        missing += [(name, path) for path in paths - there - placeholders]
    assert not missing
