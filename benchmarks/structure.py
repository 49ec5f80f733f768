"""Figures of the house: lines and files a room, import cycles, ``Any``, long and deep functions.

``python -m benchmarks.structure`` prints them for this tree, ``python -m benchmarks.structure
/path/to/another`` for another checkout.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.import_graph import cycles, import_graph

ROOT = Path(__file__).resolve().parents[1]
_ANY = re.compile(r"\bAny\b")
_NESTING = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)


@dataclass(frozen=True)
class Function:
    """One function or method: where it is, its lines, and how deep its statements nest."""

    place: str
    lines: int
    depth: int


def depth_of(statements: Sequence[ast.stmt]) -> int:
    """Levels of nesting in a body; an ``elif`` is on the level of its ``if``."""
    return max((_depth_of_statement(s) for s in statements), default=0)


def _depth_of_statement(s: ast.stmt) -> int:
    if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return 0
    inner = [depth_of(body) for body in _bodies(s)]
    if isinstance(s, ast.If) and len(s.orelse) == 1 and isinstance(s.orelse[0], ast.If):
        return max(1 + depth_of(s.body), _depth_of_statement(s.orelse[0]))
    return isinstance(s, _NESTING) + max(inner, default=0)


def _bodies(s: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        yield getattr(s, name, [])
    for part in (*getattr(s, "handlers", []), *getattr(s, "cases", [])):
        yield part.body


def functions(package: Path) -> list[Function]:
    """All functions of a package, with those inside classes and other functions."""
    out = []
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                place = f"{path.relative_to(package)}:{node.lineno} {node.name}"
                out.append(Function(place, lines, depth_of(node.body)))
    return out


def rooms(package: Path) -> list[tuple[str, int, int]]:
    """Folder, number of its files, and their lines."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        room = path.parent.relative_to(package).as_posix()
        files[room] += 1
        lines[room] += len(path.read_text(encoding="utf-8").splitlines())
    return [(room, files[room], lines[room]) for room in sorted(files)]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures of a tree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structure", description=__doc__)
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT, help="default: this tree")
    package = parser.parse_args(argv).tree / "loopwright"
    table = rooms(package)
    print(f"{'room':24} {'files':>5} {'lines':>6}")
    for room, files, lines in table:
        print(f"{room:24} {files:5} {lines:6}")
    print(f"{'all':24} {sum(r[1] for r in table):5} {sum(r[2] for r in table):6}")
    text = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    print(f"Any: {len(_ANY.findall(text))}")
    found = cycles(import_graph(package))
    print(f"import cycles: {len(found)} {sorted((len(c) for c in found), reverse=True)}")
    every = functions(package)
    print(f"functions: {len(every)}, median {statistics.median(f.lines for f in every):g} lines")
    for f in sorted(every, key=lambda f: -f.lines)[:3]:
        print(f"  long: {f.lines} lines {f.place}")
    deep = sorted((f for f in every if f.depth > 2), key=lambda f: -f.depth)
    print(f"functions deeper than two levels: {len(deep)}")
    for f in deep[:20]:
        print(f"  deep: {f.depth} levels {f.place}")


if __name__ == "__main__":
    main()
