"""``loopwright explain-error``: meaning, causes and cures of a kind of error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loopwright.cli.diagnosis.paragraphs import paragraph
from loopwright.errors import UsageError, did_you_mean
from loopwright.records import ErrorHelp, ErrorKind, error_help, errors_page

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _completed_kinds(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(kind) for kind in ErrorKind if kind.startswith(incomplete.upper())]


@click.command("explain-error", short_help="Explain why a trial failed: causes and next steps.")
@click.argument("kind", required=False, shell_complete=_completed_kinds)
@click.option("--markdown", is_flag=True, help="Print all kinds as a page in Markdown.")
def command(kind: str | None, markdown: bool) -> None:
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
