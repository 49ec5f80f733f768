"""Tutorials as pages: the text of the script, its code, and what it printed during this build."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tutorials"
#: Seconds that a tutorial may take in its quick form.
LIMIT = 300


def write_pages(app: Sphinx) -> None:
    """Write a page for each script, so that a new tutorial needs no file here."""
    folder = Path(app.srcdir) / "tutorials"
    folder.mkdir(exist_ok=True)
    scripts = sorted(SCRIPTS.glob("[0-9]*.py"))
    pages = {folder / f"{script.stem}.md": _page(script) for script in scripts}
    for page in set(folder.glob("*.md")) - set(pages):
        page.unlink()
    for page, text in pages.items():
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _page(script: Path) -> str:
    title = _docstring(script).partition("\n")[0].partition(":")[2].strip().rstrip(".")
    number = script.stem[:2]
    return f"# {number} · {title[:1].upper()}{title[1:]}\n\n```{{tutorial}} {script.name}\n```\n"


def _docstring(script: Path) -> str:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or ""


def run(script: Path) -> str:
    """What a tutorial prints in its quick form, run in an empty folder; in words why it was not run
    where it needs a package that is not installed.

    Raises:
        ExtensionError: it failed, or took longer than `LIMIT`.
    """
    missing = _missing(script)
    if missing:
        return f"(Not run for this page: it needs {', '.join(missing)}.)"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as locks:
        env = {
            **os.environ,
            "LOOPWRIGHT_TUTORIAL_SMALL": "1",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
            "XDG_RUNTIME_DIR": locks,  # no run beside this one is waited for
        }
        try:
            done = subprocess.run(
                [sys.executable, str(script)],
                cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ExtensionError(f"{script.name}: still running after {LIMIT} s") from None
    if done.returncode:
        raise ExtensionError(f"{script.name}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout.replace(folder, "/tmp/tutorial").replace(str(ROOT), ".").rstrip()


def _missing(script: Path) -> list[str]:
    """The packages that a tutorial imports at its top and that are not installed."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.Import)]
    names = {alias.name.partition(".")[0] for node in imports for alias in node.names}
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


class Tutorial(SphinxDirective):
    """``{tutorial} 01_matmul_by_hand.py``: its text, its code, its output."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """The nodes of the page below its title."""
        script = SCRIPTS / self.arguments[0]
        self.env.note_dependency(str(script))
        text = _docstring(script).partition("\n")[2].strip()
        source = script.read_text(encoding="utf-8")
        body = source[source.index('"""', 3) + 3 :].strip()
        return [
            *self.parse_text_to_nodes(text),
            nodes.literal_block(body, body, language="python"),
            nodes.rubric(text="What it prints"),
            *self.parse_text_to_nodes(
                "In its quick form, with small sizes, run when these pages were built: times are "
                "those of that machine, and too short to be compared."
            ),
            _printed(self._output(script)),
        ]

    def _output(self, script: Path) -> str:
        """What it prints; a failure is a warning, so that the other pages are built."""
        try:
            return run(script)
        except ExtensionError as error:
            logger.warning("%s", error, location=self.get_location())
            return "(It failed when this page was built.)"


def _printed(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="text")
