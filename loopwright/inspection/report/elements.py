"""Elements of HTML, in which text is escaped by construction, never inserted as markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, tostring

from loopwright.inspection.report.page_data import CandidateRow
from loopwright.inspection.speed import speed_text, time_text
from loopwright.presenting import harmless_lines

#: Content of an element.
Child: TypeAlias = "Element | str | Iterable[Child] | None"


def element(tag: str, *children: Child, **attributes: str | int | None) -> Element:
    """Element with attributes, in whose names ``_`` stands for ``-``; None is left out."""
    node = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            node.set(name.rstrip("_").replace("_", "-"), harmless_lines(str(value)))
    _fill(node, children)
    return node


def raw(tag: str, text: str, **attributes: str) -> Element:
    """Element whose text is not escaped: our own script or style, or JSON of `embedded`."""
    assert tag in ("script", "style")
    assert "</" + tag not in text.lower(), f"the text would end its {tag}"
    node = element(tag, **attributes)
    node.text = text
    return node


def embedded(json_text: str) -> str:
    """JSON that can stand inside of a script: no ``<`` in it ends that, or begins a comment."""
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def markup(elements: Iterable[Element]) -> str:
    return "".join(tostring(one, encoding="unicode", method="html") for one in elements)


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _fill(parent: Element, children: Iterable[Child]) -> None:
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif isinstance(child, str):
            text = harmless_lines(child)
            if len(parent):
                parent[-1].tail = (parent[-1].tail or "") + text
            else:
                parent.text = (parent.text or "") + text
        elif child is not None:
            _fill(parent, child)


def card(title: str, *children: Child, caption: Child = None) -> Element:
    note = element("p", caption, class_="caption") if caption else None
    return element("section", element("h3", title), note, children, class_="card")


def chart(kind: str, **places: int) -> Element:
    """Place of a chart, which the script of the page draws."""
    named = {f"data_{name}": place for name, place in places.items()}
    return element("figure", data_chart=kind, class_="only-script", **named)


class Cell(NamedTuple):
    content: Child
    value: float | None = None  # sort key of its column; None: its content
    kind: str = ""  # its class: ``n`` for a number, ``mono`` for code, ``wrap`` for long text


def number(text: str, value: float | None) -> Cell:
    return Cell(text if value is not None else "-", float("inf") if value is None else value, "n")


def table(
    name: str, titles: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = ""
) -> Element:
    """Table that the page's script makes sortable; the caption is for screen readers."""
    rows = list(rows)
    classes = ["n" if cell.kind == "n" else None for cell in (rows[0] if rows else ())]
    head = [
        element("th", title, scope="col", class_=kind)
        for title, kind in zip(titles, classes or [None] * len(titles), strict=True)
    ]
    body = [element("tr", map(_cell, row)) for row in rows]
    grid = element(
        "table",
        element("caption", caption, hidden="") if caption else None,
        element("thead", element("tr", head)),
        element("tbody", body),
        id=name,
        aria_label=caption or None,
        data_sortable="",
    )
    return element("div", grid, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _cell(cell: Cell) -> Element:
    value = (
        None if cell.value is None else ("" if cell.value == float("inf") else f"{cell.value!r}")
    )
    return element("td", cell.content, class_=cell.kind or None, data_value=value)


def facts(entries: Mapping[str, Child]) -> Element:
    parts = [
        (element("dt", name), element("dd", content))
        for name, content in entries.items()
        if content is not None
    ]
    return element("dl", parts, class_="facts")


def figures(entries: Iterable[tuple[str, str, Child]]) -> Element:
    parts = [
        element("div", element("dt", name), element("dd", value, element("small", note)))
        for name, value, note in entries
    ]
    return element("dl", parts, class_="figures")


def candidates(name: str, top: Sequence[CandidateRow], flop: int, caption: str) -> Element:
    """Table of the best candidates, the best first, with their differences from the default."""
    titles = ["rank", "record", "trial", "time of a call", "spread", "GFLOP/s", "of the default"]
    rows = [_candidate(rank, one, flop) for rank, one in enumerate(top, 1)]
    return table(name, [*titles, "answer", "differs from the default in"], rows, caption)


def _candidate(rank: int, one: CandidateRow, flop: int) -> list[Cell]:
    speed = flop / one.seconds / 1e9 if flop else None
    if one.changes is None:
        changes = one.config
    else:
        changes = " ".join(one.changes) or "nothing: it is the default"
    return [
        number(str(rank), rank),
        Cell(one.id, kind="mono"),
        number(str(one.trial), one.trial),
        number(time_text(one.seconds), one.seconds),
        number("-" if one.spread is None else f"{one.spread:.1%}", one.spread),
        number(f"{speed:.4g}" if speed else "-", speed),
        number(f"{one.of_default:.2f}x" if one.of_default else "-", one.of_default),
        Cell("checked" if one.checked else "not checked"),
        Cell(changes, kind="mono wrap"),
    ]


def best_cell(one: CandidateRow | None, flop: int) -> Cell:
    """Speed of a candidate, or, behind all speeds, its time where ``flop`` is 0."""
    if one is None:
        return number("-", None)
    return Cell(speed_text(one.seconds, flop), flop / one.seconds if flop else float("inf"), "n")
