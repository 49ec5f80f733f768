"""The help for kinds of errors: the advice for a failure, and the page ``docs/errors.md``.

The texts are in `loopwright.records.failures.causes`. They are printed by ``loopwright
explain-error`` and by the summary of a run; ``loopwright explain-error --markdown`` makes the page
of them.
"""

from __future__ import annotations

from loopwright.records.failures.causes import HELP, ErrorHelp

_INTRODUCTION = """# Why a trial failed

<!-- Made by `loopwright explain-error --markdown`; texts: loopwright/records/failures/causes.py -->

A trial that fails is no trouble as long as others succeed: it is recorded with its kind and its
text, the tuner learns from it, and the run goes on. The summary of a run counts the failures of
each kind; this page says for each kind what happened, how that comes about, and what to do. The
same texts are printed by `loopwright explain-error KIND`.
"""


def error_help(kind: str) -> ErrorHelp | None:
    """The help for a kind of error; None for a kind that this version does not know.

    Example:
        >>> help = lw.records.error_help("RUN_TIMEOUT")
        >>> print(help.kind.value, len(help.causes) > 0)
        RUN_TIMEOUT True
    """
    return HELP.get(kind)


def next_step(kind: str, text: str = "") -> str:
    """The remedy of a failure, in one line without a full stop.

    Args:
        kind: name of its `ErrorKind`.
        text: text of the error in the record; with it the advice fits the cause.

    Returns:
        The advice; empty for a kind that this version does not know.

    Example:
        >>> print(len(lw.records.next_step("RUN_TIMEOUT")) > 0)
        True
    """
    found = error_help(kind)
    if found is None:
        return ""
    fitting = (cause.next_step for cause in found.causes if cause.fits(text))
    return next(fitting, found.next_step)


def errors_page() -> str:
    """The page ``docs/errors.md``: a section for each kind of error, in Markdown.

    Example:
        >>> print(lw.records.errors_page().splitlines()[0])
        # Why a trial failed
    """
    return "\n".join([_INTRODUCTION, *map(_section, HELP.values())])


def _section(of: ErrorHelp) -> str:
    lines = [f"## {of.kind}", "", of.meaning, "", f"**In general:** {of.next_step}.", ""]
    for cause in of.causes:
        lines += [f"- **Cause:** {cause.what}", f"  **Example:** `{cause.example}`"]
        lines += [f"  **Next step:** {cause.next_step}.", ""]
    return "\n".join(lines)
