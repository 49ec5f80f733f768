"""``loopwright doctor``: does tuning work on this machine, and how steady are its times?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from loopwright.cli.diagnosis.paragraphs import paragraph
from loopwright.cli.harmless import harmless

if TYPE_CHECKING:
    from loopwright.inspection.doctor import Diagnosis, Finding

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "blue"}
#: Columns of the state, and of the name of what was looked at.
_STATE, _CHECK = 9, 16


@click.command("doctor", short_help="Look for what keeps this machine from tuning well.")
@click.argument("folder", default=".", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--no-measure", is_flag=True, help="Time nothing: leave out the noise floor.")
def command(folder: str, as_json: bool, no_measure: bool) -> int:
    """Look at the compiler, the CPU, limits, other load, the clock, memory, files and devices, and
    say what each costs and how to mend it.

    FOLDER is where logs are to be written [default: here]. A warning costs speed, or makes times
    less certain; with a problem tuning does not work, and the exit code is 1. What this machine
    does not tell is unknown.
    """
    from loopwright.inspection.doctor import examine

    diagnosis = examine(folder, measure=not no_measure)
    if as_json:
        click.echo(json.dumps(diagnosis.to_json()))
    else:
        click.echo("\n".join(_lines(diagnosis)))
    return 0 if diagnosis.healthy else 1


def _lines(diagnosis: Diagnosis) -> list[str]:
    from loopwright.inspection.doctor import State

    lines = [line for finding in diagnosis.findings for line in _finding(finding)]
    counts = {state: diagnosis.count(state) for state in State}
    words = [
        f"{n} {state}{'s' * (state in ('warning', 'problem') and n != 1)}"
        for state, n in counts.items()
    ]
    return [*lines, "", ", ".join(words)]


def _finding(finding: Finding) -> list[str]:
    indent = _STATE + _CHECK
    head = f"{finding.state:{_STATE}}{finding.check:{_CHECK}}"
    lines = paragraph(harmless(finding.found), indent, first=head)
    for name, text in (("costs:", finding.cost), ("mend:", finding.remedy)):
        if text:
            first = f"{'':{indent}}{name} "
            lines += paragraph(harmless(text), len(first), first=first)
    state = click.style(finding.state.value, fg=_COLOURS[finding.state])
    return [lines[0].replace(finding.state.value, state, 1), *lines[1:]]
