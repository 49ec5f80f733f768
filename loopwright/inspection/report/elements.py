"""Elements of HTML, in which text is escaped by construction, never inserted as markup."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from xml.etree.ElementTree import Element, tostring

#: Content of an element.
Child: TypeAlias = "Element | str | Iterable[Child] | None"


def element(tag: str, *children: Child, **attributes: str | int | None) -> Element:
    """Element with children (elements, text, or several of these) and attributes; None is left out.

    In names of attributes ``_`` stands for ``-`` and is left out at the end, as in ``class_``.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), visible(str(value)))
    _fill(made, children)
    return made


def raw(tag: str, text: str, **attributes: str) -> Element:
    """Element whose text is not escaped: our own script or style, or JSON of `embedded`."""
    assert tag in ("script", "style")
    assert "</" + tag not in text.lower(), f"the text would end its {tag}"
    made = element(tag, **attributes)
    made.text = text
    return made


def embedded(json_text: str) -> str:
    """JSON that can stand inside of a script: no ``<`` in it ends that, or begins a comment."""
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def markup(elements: Iterable[Element]) -> str:
    """Elements as text of a page."""
    return "".join(tostring(one, encoding="unicode", method="html") for one in elements)


def visible(text: str) -> str:
    """Text in which unprintable characters are written as escapes.

    Control characters, marks that change the direction of writing, and lone surrogates, which no
    page can hold; line breaks stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def cut(text: str, most: int) -> str:
    """First ``most`` characters of a long text, with a mark where it was cut."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _fill(parent: Element, children: Iterable[Child]) -> None:
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif isinstance(child, str):
            _add_text(parent, visible(child))
        elif child is not None:
            _fill(parent, child)


def _add_text(parent: Element, text: str) -> None:
    """Add text before the first child of an element, or behind its last one."""
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text
