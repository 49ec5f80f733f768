"""``loopwright workloads``: operators and templates that can be tuned, and their parameters."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import click

from loopwright.cli import workload
from loopwright.cli.console import command_line, echo
from loopwright.cli.options import argument, json_option, verb
from loopwright.ops import Description, Parameter, describe, describe_all, parameters_of


@verb("workloads")
def workloads_command(
    name: str | None = argument(required=False, shell_complete=workload.completed_workloads),
    as_json: bool = json_option(),
) -> None:
    """List the operators that can be tuned by name; with NAME the parameters of that one, their
    meaning and default, and a command to begin with.

    NAME may be a Python file, too: then its templates are listed, or its functions, which can be
    tuned if they return tensors, where it has no template; or path/to/file.py:name of one.
    """
    if name is None:
        descriptions, text = describe_all(), _list
    elif ".py:" in f"{name}:":
        descriptions, text = _templates(name), _full
    else:
        descriptions, text = (describe(workload.find_operator(name)),), _full
    if as_json:
        click.echo(json.dumps([one.to_json() for one in descriptions]))
        return
    echo(text(descriptions).rstrip() or f"{name} has no template or function")


def _templates(name: str) -> tuple[Description, ...]:
    """The templates of a file, or else its functions; or the one that is named behind a colon."""
    stem, _, wanted = f"{name}:".partition(".py:")
    path, wanted = f"{stem}.py", wanted.removesuffix(":")
    functions = workload.workloads_in(Path(path))
    if wanted and wanted not in functions:
        raise workload.no_workload(path, wanted, list(functions))
    public = [name for name in functions if not name.startswith("_")]
    names = [wanted] if wanted else list(workload.templates_in(Path(path))) or public
    descriptions = []
    for one in names:
        signature = inspect.signature(functions[one])
        parameters = parameters_of({n: p.default for n, p in signature.parameters.items()}, {})
        summary = (inspect.getdoc(functions[one]) or "").partition("\n")[0]
        example = " ".join(f"{p.name}=..." for p in parameters if p.required)
        descriptions.append(Description(f"{path}:{one}", summary, parameters, (), example))
    return tuple(descriptions)


def _list(descriptions: Sequence[Description]) -> str:
    page = _page()
    page.write_dl([(one.name, one.summary) for one in descriptions])
    page.write_paragraph()
    more = command_line(["workloads", descriptions[0].name])
    page.write_text(
        f"`{more}` shows the parameters of one. A template of your own, or a "
        "function that returns tensors, is tuned as path/to/file.py:name."
    )
    return page.getvalue()


def _full(descriptions: Sequence[Description]) -> str:
    page = _page()
    for one in descriptions:
        page.write_text(f"{one.name}: {one.summary}" if one.summary else one.name)
        with page.section("Parameters"):
            page.write_dl([(p.name, _explained(p, one)) for p in one.parameters])
        with page.section("Example"):
            words = ["tune", *one.name.split(), *one.example.split()]
            page.write(f"  {command_line(words)}\n")
        page.write_paragraph()
    return page.getvalue()


def _explained(parameter: Parameter, of: Description) -> str:
    meaning, default = parameter.meaning, parameter.default
    if parameter.name == "dtype" and of.dtypes:
        meaning = f"{meaning}: {', '.join(of.dtypes)}"
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    return f"{meaning} [{'required' if parameter.required else shown}]".lstrip()


def _page() -> click.HelpFormatter:
    return click.HelpFormatter(width=min(100, shutil.get_terminal_size().columns) - 1)
