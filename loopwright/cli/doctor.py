"""``loopwright doctor``: does tuning work on this machine, and how steady are its times?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import harmless, paragraph
from loopwright.errors import UsageError, did_you_mean
from loopwright.records import ErrorHelp, ErrorKind, error_help, errors_page

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from loopwright.inspection.doctor import Diagnosis, Finding


_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red", "unknown": "blue"}
#: Columns of the state, and of the name of what was looked at.
_STATE, _CHECK = 9, 16


@click.command("doctor", short_help="Look for what keeps this machine from tuning well.")
@click.argument("folder", default=".", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--no-measure", is_flag=True, help="Time nothing: leave out the noise floor.")
def doctor_command(folder: str, as_json: bool, no_measure: bool) -> int:
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


def _completed_kinds(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(kind) for kind in ErrorKind if kind.startswith(incomplete.upper())]


@click.command("explain-error", short_help="Explain why a trial failed: causes and next steps.")
@click.argument("kind", required=False, shell_complete=_completed_kinds)
@click.option("--markdown", is_flag=True, help="Print all kinds as a page in Markdown.")
def explain_error_command(kind: str | None, markdown: bool) -> None:
    """Explain a KIND of error, such as RUN_TIMEOUT: what it means, how it comes about, what to do.

    Without KIND it lists the kinds.
    """
    if markdown:
        click.echo(errors_page(), nl=False)
        return
    lines = _list() if kind is None else _section(_found(kind))
    click.echo("\n".join(lines))


def _found(kind: str) -> ErrorHelp:
    """The help for a kind of error, which may be written as ``run-timeout`` too."""
    name = kind.strip().upper().replace("-", "_")
    found = error_help(name)
    if found is None:
        known = [kind.value for kind in ErrorKind]
        raise UsageError(
            f"unknown kind of error {kind!r}{did_you_mean(name, known)}; there are "
            f"{', '.join(known)}"
        )
    return found


def _list() -> list[str]:
    lines: list[str] = []
    for kind in ErrorKind:
        found = error_help(kind)
        meaning = "" if found is None else found.meaning
        lines += paragraph(meaning, 15, first=f"{kind:15}")
    return [*lines, "", "`loopwright explain-error KIND` says how it comes about and what to do."]


def _section(of: ErrorHelp) -> list[str]:
    lines = [*paragraph(of.meaning, first=f"{of.kind}: "), ""]
    lines += paragraph(of.next_step, 2, first="In general: ")
    for cause in of.causes:
        lines += ["", *paragraph(cause.what, 11, first="Cause:     ")]
        lines += paragraph(cause.example, 11, first="Example:   ")
        lines += paragraph(cause.next_step, 11, first="Next step: ")
    return lines
