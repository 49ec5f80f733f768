"""``loopwright doctor | explain-error``: what keeps this machine, or a trial, from working well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import harmless, paragraph
from loopwright.cli.options import argument, flag, json_option, verb
from loopwright.errors import UsageError, did_you_mean
from loopwright.presenting import counted
from loopwright.records import ErrorKind, error_help, errors_page

if TYPE_CHECKING:
    from loopwright.inspection import Finding

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "blue"}
#: Columns of the state, and of the name of what was looked at.
_STATE, _CHECK = 9, 16


@verb("doctor")
def doctor_command(
    folder: str = argument(default=".", type=click.Path()),
    as_json: bool = json_option(),
    no_measure: bool = flag("--no-measure", "Time nothing: leave out the noise floor."),
) -> int:
    """Look at the compiler, the CPU, limits, other load, the clock, memory, files and devices, and
    say what each costs and how to mend it.

    FOLDER is where logs are to be written [default: here]. A warning costs speed, or makes times
    less certain; with a problem tuning does not work, and the exit code is 1. A check for which
    this machine gives no answer is unknown.
    """
    from loopwright.inspection import State, examine

    diagnosis = examine(folder, measure=not no_measure)
    if as_json:
        click.echo(json.dumps(diagnosis.to_json()))
    else:
        lines = [line for finding in diagnosis.findings for line in _finding(finding)]
        counts = {state: f"{diagnosis.count(state)} {state}" for state in State}
        plural = (State.WARNING, State.PROBLEM)
        counts |= {state: counted(diagnosis.count(state), state) for state in plural}
        click.echo("\n".join([*lines, "", ", ".join(counts.values())]))
    return 0 if diagnosis.healthy else 1


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


@verb("explain-error")
def explain_error_command(
    kind: str | None = argument(
        required=False,
        shell_complete=lambda context, parameter, incomplete: [
            kind for kind in ErrorKind if kind.startswith(incomplete.upper())
        ],
    ),
    markdown: bool = flag("--markdown", "Print all kinds as a page in Markdown."),
) -> None:
    """Explain a KIND of error, such as RUN_TIMEOUT: what it means, how it comes about, what to do.

    Without KIND it lists the kinds.
    """
    if markdown:
        click.echo(errors_page(), nl=False)
        return
    if kind is None:
        lines = [
            line
            for name in ErrorKind
            for line in paragraph(getattr(error_help(name), "meaning", ""), 15, first=f"{name:15}")
        ]
        lines += ["", "`loopwright explain-error KIND` says how it comes about and what to do."]
    else:
        name = kind.strip().upper().replace("-", "_")  # run-timeout will do, too
        error = error_help(name)
        if error is None:
            names = [kind.value for kind in ErrorKind]
            raise UsageError(
                f"unknown kind of error {kind!r}{did_you_mean(name, names)}; there are "
                f"{', '.join(names)}"
            )
        lines = [*paragraph(error.meaning, first=f"{error.kind}: "), ""]
        lines += paragraph(error.next_step, 2, first="In general: ")
        for cause in error.causes:
            lines += ["", *paragraph(cause.what, 11, first="Cause:     ")]
            lines += paragraph(cause.example, 11, first="Example:   ")
            lines += paragraph(cause.next_step, 11, first="Next step: ")
    click.echo("\n".join(lines))
