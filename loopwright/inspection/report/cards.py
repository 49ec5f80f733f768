"""Sections of a page, and the places where its script draws charts."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from loopwright.inspection.report.elements import Child, element


def card(title: str, *children: Child, caption: Child = None) -> Element:
    """Section with its title and a sentence on its content."""
    said = element("p", caption, class_="caption") if caption else None
    return element("section", element("h3", title), said, children, class_="card")


def chart(kind: str, **places: int) -> Element:
    """Place of a chart, which the script of the page draws."""
    named = {f"data_{name}": place for name, place in places.items()}
    return element("figure", data_chart=kind, class_="only-script", **named)
