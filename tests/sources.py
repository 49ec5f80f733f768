"""The files of the package, each parsed once: imports, docstrings, classes and arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source(NamedTuple):
    """Contents of a file that tests of the whole package ask for; the syntax tree is not kept."""

    imports: tuple[tuple[ast.AST, bool], ...]  # statements and calls, whether inside a function
    docstrings: tuple[tuple[int, str], ...]  # line and text
    classes: frozenset[str]  # public, at the top level
    arguments: tuple[tuple[int, str], ...]  # line and name, of functions

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a file."""
        tree = ast.parse(text)
        nodes = [(tree, False), *_statements(tree, False)]
        functions = [n for n, _ in nodes if isinstance(n, _FUNCTION)]
        documented = [n for n, _ in nodes if isinstance(n, (ast.Module, ast.ClassDef, *_FUNCTION))]
        return cls(
            (
                *((n, nested) for n, nested in nodes if isinstance(n, ast.Import | ast.ImportFrom)),
                *(_calls(tree, False) if "import_module" in text or "__import__" in text else ()),
            ),
            tuple((n.body[0].lineno, t) for n in documented if (t := ast.get_docstring(n))),
            frozenset(
                s.name for s in tree.body if isinstance(s, ast.ClassDef) and s.name[0] != "_"
            ),
            tuple(
                (a.lineno, a.arg)
                for f in functions
                for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)
            ),
        )


@cache
def read(path: Path) -> Source:
    """Parse a file that does not change while tests run."""
    return Source.of(path.read_text(encoding="utf-8"))


def _statements(node: ast.AST, nested: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Statements and their clauses below a node; no expression holds one."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, name, ()):
            yield child, nested
            yield from _statements(child, nested or isinstance(child, _FUNCTION))


def _calls(node: ast.AST, nested: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Calls that import the module they name."""
    match node:
        case ast.Call(
            func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module")
        ):
            yield node, nested
    nested = nested or isinstance(node, (*_FUNCTION, ast.Lambda))
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, nested)
