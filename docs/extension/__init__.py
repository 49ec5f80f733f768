"""What the documentation adds to Sphinx: pictures of loop nests, and tutorials with their output."""

from __future__ import annotations

from sphinx.application import Sphinx

from extension.nests import NestPicture, VisitsPicture
from extension.tutorials import Tutorial, write_pages


def one_sentence(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep "Seconds: what it took" together, whose first word Napoleon takes for a type."""
    head, colon, rest = lines[0].partition(": ") if lines else ("", "", "")
    if what in ("attribute", "data", "property") and colon:
        lines[:1] = [f"{head}:", rest]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("nest", NestPicture)
    app.add_directive("visits", VisitsPicture)
    app.add_directive("tutorial", Tutorial)
    app.connect("autodoc-process-docstring", one_sentence, priority=400)  # before Napoleon
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
