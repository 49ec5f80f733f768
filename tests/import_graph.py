"""Which files of the package import which, also inside functions and under TYPE_CHECKING."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.sources import read

#: Module -> modules of the package that it imports, by dotted names.
Graph = Mapping[str, frozenset[str]]

#: Files that look up names of a room above them, inside a function: `te.create_schedule` is a name
#: of the field; the contexts of history were names of `task`, executors a part of runtime.
FACADES = {
    ("te/__init__.py", "schedule"),
    ("task/__init__.py", "history"),
    ("runtime/executors.py", "executors"),
}


@cache
def import_graph(package: Path) -> Graph:
    """The imports between the files of a package; they are read once.

    ``from a.b import c`` is an import of ``a.b.c`` where that is a file, else of ``a.b``. What
    facades look up is left out.
    """
    files = {_module(path, package): path for path in package.rglob("*.py")}
    graph = {name: frozenset(_imports(name, path, files)) for name, path in files.items()}
    for file, room in FACADES:
        if (name := _module(package / file, package)) in graph:
            above = f"{package.name}.{room}"
            graph[name] = frozenset(t for t in graph[name] if not f"{t}.".startswith(f"{above}."))
    return graph


def _module(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, _ in read(path).imports:
        for target in _targets(node, inside, files):
            if target in files and target != name:
                yield target


def _targets(node: ast.AST, inside: str, files: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if not isinstance(node, ast.ImportFrom):
        return
    base = node.module or ""
    if node.level:
        parts = inside.split(".")
        kept = parts[: len(parts) - (node.level - 1)]
        base = ".".join([*kept, *([node.module] if node.module else [])])
    for alias in node.names:
        whole = f"{base}.{alias.name}"
        yield whole if whole in files else base


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of two or more files that reach each other: strongly connected components.

    Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1 (1972).
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(v: str) -> None:
        order[v] = lowest[v] = len(order)
        stack.append(v)
        for w in sorted(graph[v]):
            if w not in order:
                visit(w)
                lowest[v] = min(lowest[v], lowest[w])
            elif w in stack:
                lowest[v] = min(lowest[v], order[w])
        if lowest[v] == order[v]:
            start = stack.index(v)
            groups.append(sorted(stack[start:]))
            del stack[start:]

    for v in sorted(graph):
        if v not in order:
            visit(v)
    return [group for group in groups if len(group) > 1]
