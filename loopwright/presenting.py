"""Text of users and logs for a screen, a file or a notebook, with controls and markup escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Lines of a text that a notebook shows at once; longer ones scroll.
_LINES = 30
#: Lines and rows that it is given at most: a browser is slow with very long ones.
_MOST = 1000
#: Characters of a cell.
_CELL_LENGTH = 300
# Colours are those of the notebook, light or dark: nothing here names one.
_TEXT = f"margin:0.3em 0;overflow:auto;max-height:{_LINES * 1.3:.0f}em;line-height:1.3"
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
_CELL = "text-align:left;padding:0.1em 0.8em 0.1em 0;vertical-align:top"
_HEAD = f"{_CELL};border-bottom:1px solid currentColor"


def harmless(text: str) -> str:
    r"""One line of text with everything that does not print written as its escape: controls, marks
    of the direction of writing, and lone surrogates, which no stream can encode."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def harmless_lines(text: str) -> str:
    return "\n".join(map(harmless, text.split("\n")))


def duration(seconds: float) -> str:
    """A time for people, such as ``1.234 ms``."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"


def counted(count: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{count} {what}{'s' * (count != 1)}"


def html_block(title: str, *parts: str) -> str:
    """HTML of a plain heading and the parts below it, for ``_repr_html_``."""
    return f"<div><b>{_escaped(title)}</b>{''.join(parts)}</div>"


def html_text(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    more = [f"... and {len(lines) - _MOST} more lines"] if len(lines) > _MOST else []
    shown = "\n".join(map(_escaped, [*lines[:_MOST], *more]))
    return f'<pre style="{_TEXT}">{shown}</pre>'


def html_folded(title: str, part: str) -> str:
    return f"<details><summary>{_escaped(title)}</summary>{part}</details>"


def html_table(rows: Iterable[Sequence[object]], titles: Sequence[str] = ()) -> str:
    """HTML of a table of plain text, of which long cells and many rows are cut."""
    head = "".join(f'<th style="{_HEAD}">{_escaped(t)}</th>' for t in titles)
    lines = [f"<tr>{head}</tr>"] if head else []
    for number, row in enumerate(rows):
        if number == _MOST:
            lines.append("<tr><td>... and more</td></tr>")
            break
        texts = [str(c) for c in row]
        short = [t if len(t) <= _CELL_LENGTH else f"{t[: _CELL_LENGTH - 3]}..." for t in texts]
        cells = "".join(f'<td style="{_CELL}">{_escaped(t)}</td>' for t in short)
        lines.append(f"<tr>{cells}</tr>")
    return f'<div style="overflow-x:auto"><table style="{_TABLE}">{"".join(lines)}</table></div>'


def _escaped(text: str) -> str:
    import html  # not at the top: its tables of names are of no use to others

    return html.escape(harmless(text))
