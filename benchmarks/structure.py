"""Figures of the house: lines by kind, helpers, docstrings, names and circles of each room.

``python -m benchmarks.structure`` prints them for this tree, ``python -m benchmarks.structure
/path/to/another`` for another checkout. A room is a folder of the package, or all files beside
them; a folder `fuzzing` beside the package counts as one.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.import_graph import Graph, cycles, import_graph

ROOT = Path(__file__).resolve().parents[1]
_ANY = re.compile(r"\bAny\b")
_NESTING = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTED = (ast.Module, ast.ClassDef, *_FUNCTION)
_OPENER = re.compile(r"(What|Which|Those|Where|How|By|Of)\b")
#: Rooms whose class names are those of other systems.
FACADES = ("auto_scheduler", "autotvm", "compat", "tir")
#: Columns of the table, each with what it counts. The second to the sixth add up to the first.
COLUMNS = {
    "lines": "all lines",
    "code": "lines of anything but what the next four count",
    "docs": "lines of docstrings, with blank lines inside",
    "comments": "lines of a comment alone",
    "imports": "lines of import statements",
    "blank": "blank lines outside docstrings",
    "statements": "statements of the syntax tree, docstrings and imports left out",
    "helpers": "private functions and methods that are read in exactly one place of their file",
    "small": "those of them with at most 8 lines of body, the docstring left out",
    "openers": "docstrings that open with What, Which, Those, Where, How, By or Of",
    "documented": "docstrings",
    "wide": "functions with at least 8 parameters, self and cls left out",
    "circle": "files and folders of the room that import each other in a circle",
}


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


def functions(path: Path, tree: ast.Module) -> Iterator[Function]:
    """All functions of a file, with those inside classes and other functions."""
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTION):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(f"{path}:{node.lineno} {node.name}", lines, depth_of(node.body))


def figures(text: str, tree: ast.Module) -> Counter[str]:
    """What a file adds to each column, the circles left out."""
    starts = (line.strip()[:1] for line in text.splitlines())
    kinds = [{"": "blank", "#": "comments"}.get(start, "code") for start in starts]
    found: Counter[str] = Counter(lines=len(kinds))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            _mark(kinds, node, "imports")
        elif isinstance(node, ast.stmt):
            found["statements"] += 1
        if isinstance(node, _DOCUMENTED) and (docs := ast.get_docstring(node)) is not None:
            _mark(kinds, node.body[0], "docs")
            found.update(documented=1, openers=bool(_OPENER.match(docs)), statements=-1)
        if isinstance(node, _FUNCTION):
            found["wide"] += parameters(node) >= 8
    helpers = single_caller_helpers(tree)
    found.update(helpers=len(helpers), small=sum(_body_lines(f) <= 8 for f in helpers))
    return found + Counter(kinds)


def _mark(kinds: list[str], node: ast.stmt, kind: str) -> None:
    last = node.end_lineno or node.lineno
    kinds[node.lineno - 1 : last] = [kind] * (last - node.lineno + 1)


def parameters(f: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a caller may give, those of * and ** left out."""
    places = [*f.args.posonlyargs, *f.args.args]
    own = bool(places) and places[0].arg in ("self", "cls")
    return len(places) - own + len(f.args.kwonlyargs)


def single_caller_helpers(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Private functions with a name of their own in the file that is read once in it."""
    defined: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
    reads: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTION) and re.match("_(?!_)", node.name):
            defined[node.name].append(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            reads[node.id] += 1
        elif isinstance(node, ast.Attribute):
            reads[node.attr] += 1
    return [fs[0] for name, fs in defined.items() if len(fs) == 1 and reads[name] == 1]


def _body_lines(f: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = f.body[ast.get_docstring(f) is not None :]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def circles(graph: Graph, room: str) -> list[list[str]]:
    """Files and folders of a room that import each other, not counting the room's ``__init__``."""
    home = f"loopwright.{room}."
    parts: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        if name.startswith(home):
            part = name.removeprefix(home).split(".")[0]
            others = {t.removeprefix(home).split(".")[0] for t in targets if t.startswith(home)}
            parts[part] |= others - {part}
    return cycles({part: frozenset(others) for part, others in parts.items()})


@dataclass
class House:
    """What is counted over all files: figures of each room, files, functions, classes."""

    rooms: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    functions: list[Function] = field(default_factory=list)
    classes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    any: int = 0

    def add(self, room: str, path: Path, text: str) -> None:
        """Count a file."""
        tree = ast.parse(text)
        self.rooms[room] += figures(text, tree) + Counter(files=1)
        self.functions += functions(path, tree)
        self.any += len(_ANY.findall(text))
        for node in tree.body:
            public = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if public and room not in FACADES:
                self.classes[node.name].add(path.as_posix())

    def twins(self) -> dict[str, set[str]]:
        """Names of public classes that stand in several files, facades left out."""
        return {name: places for name, places in self.classes.items() if len(places) > 1}


def house(tree: Path) -> House:
    """Read a checkout."""
    found = House()
    for folder in ("loopwright", "fuzzing"):
        for path in sorted((tree / folder).rglob("*.py")):
            inside = path.relative_to(tree / folder)
            room = inside.parts[0] if folder == "loopwright" else "fuzzing/"
            found.add("." if room == inside.name else room, inside, path.read_text("utf-8"))
    return found


def _row(name: str, cells: Mapping[str, object]) -> str:
    return f"{name:15}" + "".join(f"{cells[c]:>{max(len(c), 6) + 1}}" for c in ("files", *COLUMNS))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the figures of a tree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structure", description=__doc__)
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT, help="default: this tree")
    options = parser.parse_args(argv)
    found, graph = house(options.tree), import_graph(options.tree / "loopwright")
    knots = {room: circles(graph, room) for room in found.rooms}
    total: Counter[str] = Counter()
    for room, counted in found.rooms.items():
        counted["circle"] = sum(map(len, knots[room]))
        total += counted
    print(_row("room", {c: c for c in ("files", *COLUMNS)}))
    for room, counted in (*sorted(found.rooms.items()), ("all", total)):
        print(_row(room, counted))
    shares = {c: f"{100 * total[c] / total['lines']:.1f}" for c in list(COLUMNS)[1:7]}
    print(_row("% of all lines", {c: shares.get(c, "") for c in ("files", *COLUMNS)}))
    for column, meaning in COLUMNS.items():
        print(f"  {column}: {meaning}")
    twins = found.twins()
    print(f"public classes: {len(found.classes)} names, {len(twins)} of them in several files")
    for name, places in sorted(twins.items(), key=lambda it: (-len(it[1]), it[0])):
        print(f"  {name}: {' '.join(sorted(places))}")
    for room, groups in sorted(knots.items()):
        for group in groups:
            print(f"circle in {room}: {' '.join(group)}")
    between = cycles(graph)
    print(f"circles of files: {len(between)} {sorted(map(len, between), reverse=True)}")
    print(f"Any: {found.any}")
    every = found.functions
    print(f"functions: {len(every)}, median {statistics.median(f.lines for f in every):g} lines")
    for f in sorted(every, key=lambda f: -f.lines)[:3]:
        print(f"  long: {f.lines} lines {f.place}")
    deep = sorted((f for f in every if f.depth > 2), key=lambda f: -f.depth)
    print(f"functions deeper than two levels: {len(deep)}")
    for f in deep[:20]:
        print(f"  deep: {f.depth} levels {f.place}")


if __name__ == "__main__":
    main()
