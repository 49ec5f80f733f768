"""A lowered function as a picture: a box for each loop, its colour the way in which it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

CHAR = 7.3  # width of a letter of the font below, in pixels
LINE = 19  # height of a line
PAD = 8  # space inside a box
GAP = 5  # space between boxes


@dataclass
class Box:
    """Lines of text, or the head of a loop with what it repeats."""

    text: str
    kind: str = ""
    inside: list[Box] = field(default_factory=list)

    @property
    def width(self) -> float:
        """In pixels."""
        own = len(self.text) * CHAR + 2 * PAD
        return max([own, *(b.width + 2 * PAD for b in self.inside)])

    @property
    def height(self) -> float:
        """In pixels."""
        if not self.inside:
            return LINE + (PAD if self.kind else 0)
        return LINE + sum(b.height + GAP for b in self.inside) + PAD

    def draw(self, x: float, y: float, width: float) -> list[str]:
        """As SVG elements, with the upper left corner at (x, y)."""
        out = []
        if self.kind:
            out.append(
                f'<rect class="loop {self.kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{self.height:.1f}" rx="5"/>'
            )
        out.append(
            f'<text x="{x + PAD:.1f}" y="{y + LINE - 4:.1f}" xml:space="preserve">'
            f"{escape(self.text)}</text>"
        )
        y += LINE + GAP / 2
        for box in self.inside:
            out += box.draw(x + PAD, y, width - 2 * PAD)
            y += box.height + GAP
        return out


def boxes(program: str) -> list[Box]:
    """The boxes of a function's printed text, which indents by two spaces."""
    open_boxes = [Box("")]
    for line in program.splitlines()[1:]:  # without the signature
        if line.lstrip().startswith("# bound = "):  # the axis stands in the loop below
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        box = Box(line.strip(), _kind(line.strip()))
        del open_boxes[depth:]
        open_boxes[-1].inside.append(box)
        open_boxes.append(box)
    return open_boxes[0].inside


def _kind(line: str) -> str:
    """The class of a line: how its loop runs, ``guard`` for a condition, empty for a statement."""
    if line.startswith("if "):
        return "guard"
    if not line.startswith("for "):
        return ""
    head = line.partition(" in ")[2].partition("(")[0]
    if head == "range":
        return "serial"
    return head if head in ("parallel", "vectorized", "unrolled") else "thread"


def svg(program: str, title: str) -> str:
    """A picture of a program's text, to stand in a page as it is.

    Args:
        program: what `str` gives for a lowered function.
        title: what the picture shows, for those who cannot see it.
    """
    tops = boxes(program)
    width = max(b.width for b in tops)
    height = sum(b.height + GAP for b in tops)
    out, y = [], 0.0
    for box in tops:
        out += box.draw(1, y + 1, width)
        y += box.height + GAP
    return framed(out, width + 2, height + 2, title)


def framed(elements: list[str], width: float, height: float, title: str) -> str:
    """SVG elements as one picture."""
    return (
        f'<svg class="nest" role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width:{width:.0f}px" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title>{''.join(elements)}</svg>"
    )
