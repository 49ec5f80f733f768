"""Directives that run some lines of Python, show them, and draw the nest that they make."""

from __future__ import annotations

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

import loopwright as lw
from extension import drawing, visits


class Executed(SphinxDirective):
    """Runs its content. The lines of one page share their names, from top to bottom."""

    has_content = True
    option_spec: ClassVar = {
        "draw": directives.unchanged_required,
        "title": directives.unchanged_required,
        "hidden": directives.flag,
    }

    def run(self) -> list[nodes.Node]:
        """The code, and the picture of what the option ``draw`` names: a schedule, arguments."""
        code = "\n".join(self.content)
        names = self.env.temp_data.setdefault("executed_names", {"lw": lw, "te": lw.te})
        exec(compile(code, f"{self.env.docname}:{self.lineno}", "exec"), names)
        shown = [] if "hidden" in self.options else [_python(code)]
        if "draw" not in self.options:
            return shown
        program = str(lw.lower(*eval(self.options["draw"], names)))
        picture = self.picture(program, self.options.get("title", "a loop nest"))
        return [*shown, nodes.raw("", picture, format="html")]

    def picture(self, program: str, title: str) -> str:
        """As SVG."""
        raise NotImplementedError


class NestPicture(Executed):
    """``{nest}``: boxes for the loops."""

    def picture(self, program: str, title: str) -> str:
        """The nest as boxes."""
        return drawing.svg(program, title)


class VisitsPicture(Executed):
    """``{visits}``: the order in which the elements of the matrix ``output`` are written."""

    option_spec: ClassVar = {**Executed.option_spec, "output": directives.unchanged_required}

    def picture(self, program: str, title: str) -> str:
        """A line through the elements."""
        return visits.svg(program, self.options["output"], title)


def _python(code: str) -> nodes.literal_block:
    return nodes.literal_block(code, code, language="python")
