"""What the documentation adds to Sphinx: pictures of loop nests, tutorials with their output."""

from __future__ import annotations

import inspect

from sphinx.application import Sphinx

from extension.nests import NestPicture, VisitsPicture
from extension.tutorials import Tutorial, write_pages
from loopwright.transform import Pass


def docstring_as_meant(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Give Napoleon docstrings as they are meant.

    A pass is shown with the docstring of the function that it runs. Of an attribute, "Seconds: what
    it took" stays one sentence: Napoleon would take its first word for a type.
    """
    if isinstance(obj, Pass):
        lines[:] = (inspect.getdoc(obj.run) or "").splitlines()
    head, colon, rest = lines[0].partition(": ") if lines else ("", "", "")
    if what in ("attribute", "data", "property") and colon:
        lines[:1] = [f"{head}:", rest]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("nest", NestPicture)
    app.add_directive("visits", VisitsPicture)
    app.add_directive("tutorial", Tutorial)
    app.connect("autodoc-process-docstring", docstring_as_meant, priority=400)  # before Napoleon
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
