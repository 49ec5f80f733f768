"""Files for other programs are what those programs read: the workflow, issue forms, pre-commit."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from loopwright.cli.app import app

ROOT = Path(__file__).parents[1]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflow_calls_what_runs_anywhere() -> None:
    (job,) = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert len(commands) == 1
    assert commands[0].endswith(".ci/run")
    used = [step["uses"] for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", name) for name in used)
    systems = job["strategy"]["matrix"]["os"]
    assert job["runs-on"] == "${{ matrix.os }}"
    assert {name.endswith("-arm") for name in systems} == {True, False}
    assert not any(name.endswith("-latest") for name in systems)


def test_other_workflows_call_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    others = {"release.yml": "make package", "macos.yml": "make smoke"}
    for name, command in others.items():
        jobs = read(ROOT / ".github" / "workflows" / name)["jobs"].values()
        commands = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        assert command in commands
        assert command.removeprefix("make ") in targets
        assert not any(job["runs-on"].endswith("-latest") for job in jobs)


def test_the_citation_is_of_this_project() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert set(citation) >= {"cff-version", "message", "title", "authors"}
    assert "version" not in citation, "version.py alone names it"
    assert f'license = "{citation["license"]}"' in (ROOT / "pyproject.toml").read_text()


def test_tutorials_have_different_numbers() -> None:
    numbers = [path.name[:2] for path in sorted((ROOT / "tutorials").glob("[0-9]*.py"))]
    assert numbers == [f"{n:02}" for n in range(1, len(numbers) + 1)]


def test_the_workflow_has_the_oldest_python_that_is_supported() -> None:
    (job,) = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"].values()
    wanted = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert wanted
    assert wanted[1] in job["strategy"]["matrix"]["python"]


def test_pre_commit_runs_the_tools_of_make_check() -> None:
    from pre_commit.clientlib import load_config

    (repository,) = load_config(ROOT / ".pre-commit-config.yaml")["repos"]
    words = [hook["entry"].split() for hook in repository["hooks"]]
    assert [line[0] for line in words] == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]
    check = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ncheck: ")[2]
    for line in words:
        tool = line[0].replace(".venv/bin", "$(BIN)")
        assert f"\t{' '.join([tool, *line[1:2]])}" in check.partition("\n\n")[0]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_issue_form(form: Path) -> None:
    content = read(form)
    if form.stem == "config":
        assert set(content) <= {"blank_issues_enabled", "contact_links"}
        return
    assert set(content) >= {"name", "description", "body"}
    questions = [part for part in content["body"] if part["type"] != "markdown"]
    assert all(part["type"] in ("textarea", "input", "dropdown") for part in questions)
    assert all(part["attributes"]["label"] for part in questions)
    assert len({part["id"] for part in questions}) == len(questions) > 0


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_issue_forms_name_commands_that_exist(form: Path) -> None:
    context = click.Context(app)
    for line in re.findall(r"`loopwright ([^`]+)`", form.read_text(encoding="utf-8")):
        command: click.Command = app
        words = line.split()
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0)) or pytest.fail(line)
        options = {option for param in command.params for option in param.opts}
        assert {word for word in words if word.startswith("-")} <= options, line
