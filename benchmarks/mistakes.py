"""Planted mistakes: how many of them do the tests notice, and which tests?

    python -m benchmarks.mistakes draw plan.jsonl --seed 34 --count 80
    python -m benchmarks.mistakes trace plan.jsonl tests.json
    python -m benchmarks.mistakes run plan.jsonl tests.json results.jsonl [--whole]
    python -m benchmarks.mistakes report results.jsonl --before older.jsonl

``draw`` draws mistakes at random in functions of some rooms: a comparison flipped, a constant one
more or less, ``and`` and ``or`` swapped, a branch negated, two arguments swapped, a statement
removed. Texts of errors, annotations and docstrings are left alone. A mistake is known by its
function and statement, so that it is found again where other lines or another file hold them.
``trace`` runs the tests of a commit once, with a probe before each statement of the plan, and keeps
which tests execute it, those that do so in a process of their own included.
``run`` plants each mistake in a checkout and runs these tests, those of its room first, until one
fails; with ``--whole`` those that were not noticed meet all tests. A failure counts where the test
fails again by itself, and passes without the mistake. It goes on where it was interrupted. What
runs is what is committed.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.mistakes_side import CHOSEN, STARTED

ROOMS = "te schedule lowering codegen cost tuner measure records graph"
#: The tests that `make test` runs; seconds and bytes that one may take.
_MARKED = "not slow and not browser and not package"
_TEST_S, _BYTES = 120, 8 << 30
#: Statuses of pytest; what stands for a test where pytest fails before the first one.
_PASSED, _NOTHING_TO_RUN, _COLLECTION = 0, 5, "collection"

_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_UNTOUCHED = (ast.JoinedStr, ast.Assert, ast.pattern)
_UNTOUCHED_FIELDS = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Place:
    """Where a mistake may be planted.

    Attributes:
        file: below the root of the tree.
        function: its qualified name.
        statement: its text in one spelling; of a compound one the first line.
        kind: of the mistake.
        index: of the mistakes of this kind in statements of this text in this function.
        lines: first and last line of the statement, without the body of a compound one.
        span: bytes of the file that are replaced.
        text: what stands there then.
    """

    file: str
    function: str
    statement: str
    kind: str
    index: int
    lines: tuple[int, int]
    span: tuple[int, int]
    text: str

    def planted(self, source: bytes) -> bytes:
        """The file with the mistake."""
        return source[: self.span[0]] + self.text.encode() + source[self.span[1] :]


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Kind of mistake, the node that is replaced, and its new text."""
    match node:
        case ast.Compare(left, [first, *more], comparators):
            flipped = ast.Compare(left, [_FLIPPED[type(first)](), *more], comparators)
            yield "comparison flipped", node, ast.unparse(flipped)
        case ast.Constant(value) if type(value) is int:
            for near in (value + 1, value - 1):
                yield "constant off by one", node, str(near)
        case ast.BoolOp(op, values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield "and/or swapped", node, ast.unparse(ast.BoolOp(other, values))
        case ast.Call(func, args, keywords) if not any(isinstance(a, ast.Starred) for a in args):
            for n, (a, b) in enumerate(itertools.pairwise(args)):
                if ast.dump(a) != ast.dump(b):
                    swapped = [*args[:n], b, a, *args[n + 2 :]]
                    yield "arguments swapped", node, ast.unparse(ast.Call(func, swapped, keywords))
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield "branch negated", test, f"not ({ast.unparse(test)})"


def _removable(s: ast.stmt) -> bool:
    """Whether what remains is a function without an unknown name."""
    match s:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Continue() | ast.Break() | ast.Raise():
            return True
        case ast.Assign(targets):
            return all(isinstance(t, ast.Attribute | ast.Subscript) for t in targets)
    return False


class _Places:
    """The places of a file."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file = file
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self.found: list[Place] = []
        self._visit(ast.parse(source), "", None)

    def _visit(self, node: ast.AST, function: str, statement: ast.stmt | None) -> None:
        """Collect the places below a node; statement: the innermost one, None outside functions."""
        if isinstance(node, _UNTOUCHED):
            return
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            return
        if isinstance(node, ast.stmt) and statement is not None:
            statement = node
            if _removable(node):
                self._add("statement removed", node, "pass", function, node)
        if statement is not None:
            for kind, replaced, text in _replacements(node):
                self._add(kind, replaced, f"({text})", function, statement)
        if isinstance(node, ast.Raise):
            return
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{function}.{node.name}".removeprefix(".")
            for s in node.body:
                self._visit(s, name, None if isinstance(node, ast.ClassDef) else s)
            return
        for field, value in ast.iter_fields(node):
            if field not in _UNTOUCHED_FIELDS:
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self._visit(child, function, statement)

    def _add(self, kind: str, node: Any, text: str, function: str, s: ast.stmt) -> None:
        header = ast.unparse(s).splitlines()[0]
        body = getattr(s, "body", None)
        first = node if isinstance(s, ast.Match) else s  # a case has no statement of its own
        last = max(s.lineno, body[0].lineno - 1) if body else first.end_lineno
        index = self._seen[function, header, kind]
        self._seen[function, header, kind] += 1
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        lines, span = (first.lineno, last), (begin, end)
        self.found.append(Place(self._file, function, header, kind, index, lines, span, text))


def places(tree: Path) -> list[Place]:
    """All places of a tree's package, in order."""
    found = []
    for path in sorted((tree / "loopwright").rglob("*.py")):
        found += _Places(path.relative_to(tree).as_posix(), path.read_bytes()).found
    return found


def draw(every: Iterable[Place], rooms: Sequence[str], count: int, seed: int) -> list[Place]:
    """Places drawn at random, as many of each room; each kind is as likely as the others."""
    by_room: dict[str, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
    for place in every:
        by_room[place.file.split("/")[1]][place.kind].append(place)
    found = []
    for n, room in enumerate(rooms):
        rng, kinds = random.Random(f"{seed} {room}"), by_room[room]
        for _ in range(count // len(rooms) + (n < count % len(rooms))):
            kind = rng.choice(sorted(kinds))
            found.append(kinds[kind].pop(rng.randrange(len(kinds[kind]))))
    return found


class Located:
    """The places of a tree, by what they were when they were drawn."""

    def __init__(self, tree: Path) -> None:
        self._by_statement: dict[tuple[str, str, int], list[Place]] = defaultdict(list)
        for place in places(tree):
            self._by_statement[place.statement, place.kind, place.index].append(place)

    def __call__(self, mistake: Mapping[str, Any]) -> Place | None:
        """Where the statement is now: the same function, one of its name, or the only one."""
        key = mistake["statement"], mistake["kind"], mistake["index"]
        found, function = self._by_statement.get(key, []), mistake["function"]
        same = [p for p in found if p.function == function and p.file == mistake["file"]]
        name = function.rpartition(".")[2]
        alike = [p for p in found if p.function.rpartition(".")[2] == name]
        return next((some[0] for some in (same, alike, found) if len(some) == 1), None)


# --- which tests execute a statement ---------------------------------------------------------

#: A module of the tree that is traced. A process that a test starts inherits the test's name.
_PROBE = "loopwright._executed"
_PROBE_SOURCE = """import os
noted = set()
def note(number):
    line = f"{{number}} {{os.environ.get('PYTEST_CURRENT_TEST', '')}}\\n"
    if line not in noted:
        noted.add(line)
        with open({file!r}, "a", encoding="utf-8") as out:
            out.write(line)
"""


def _with_probes(source: bytes, wanted: Mapping[int, Place]) -> str:
    """A file in which each statement of these places notes the place's number before it runs."""
    tree = ast.parse(source)
    for number, place in wanted.items():
        at = max(  # the innermost one around this line
            (
                (depth, body, n)
                for depth, body in enumerate(_bodies(tree))
                for n, s in enumerate(body)
                if s.lineno <= place.lines[0] <= (s.end_lineno or 0)
            ),
            key=lambda found: found[0],
        )
        call = ast.parse(f"__import__({_PROBE!r})._executed.note({number})").body[0]
        at[1].insert(at[2], call)
    return ast.unparse(ast.fix_missing_locations(tree))


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements, outer ones first."""
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(node, field, None), list):
                yield body


def trace(
    tree: Path, wanted: Mapping[int, Place], tests: Sequence[str], jobs: int
) -> dict[str, Any]:
    """Run tests, and tell which of them execute which statements.

    Args:
        tree: a checkout in which no compiled kernels are kept; its files are changed.
        wanted: places by their numbers.
        tests: files and folders.
        jobs: processes.

    Returns:
        "tests": all names; "executed": numbers of tests by that of the place; "fixtures": files in
        which a fixture executes the place, whose other tests may use what it gave.
    """
    names: dict[str, int] = {}
    executed: dict[int, set[int]] = defaultdict(set)
    fixtures: dict[int, set[str]] = defaultdict(set)
    by_file: dict[str, dict[int, Place]] = defaultdict(dict)
    for number, place in wanted.items():
        by_file[place.file][number] = place
    for file, its in by_file.items():
        source = (tree / file).read_bytes()
        (tree / file).write_text(_with_probes(source, its), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder, "noted")
        module = (tree / _PROBE.replace(".", "/")).with_suffix(".py")
        module.write_text(_PROBE_SOURCE.format(file=str(noted)), encoding="utf-8")
        environment = _environment(tree)
        environment.pop("PYTEST_CURRENT_TEST", None)  # where a test calls this
        parallel = ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else []
        subprocess.run([*_PYTEST, *parallel, *tests], env=environment, cwd=tree, check=False)
        for line in noted.read_text("utf-8").splitlines():
            number, _, context = line.partition(" ")
            test, _, phase = context.rpartition(" ")
            if test:
                executed[int(number)].add(names.setdefault(test, len(names)))
                if phase == "(setup)":
                    fixtures[int(number)].add(test.partition("::")[0])
    return {
        "tests": list(names),
        "executed": {n: sorted(found) for n, found in executed.items()},
        "fixtures": {n: sorted(found) for n, found in fixtures.items()},
    }


# --- planting --------------------------------------------------------------------------------

_PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.mistakes_side", "-m", _MARKED]


def _environment(*paths: object) -> dict[str, str]:
    """Processes import from these folders; random examples are the same each time."""
    own = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "CI": "1", "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **own}


class Checkout:
    """A checkout in which mistakes are planted one after the other.

    Args:
        tree: the checkout.
        folder: for files of its own.
    """

    def __init__(self, tree: Path, folder: Path) -> None:
        self._tree, self._chosen, self._started = tree, folder / "chosen", folder / "started"

    def noticed(
        self, place: Place, order: Sequence[str] | None, files: Sequence[str]
    ) -> tuple[str, list[str]]:
        """The test that notices a mistake, "" for none, and those that fail without it, too.

        Args:
            place: of the mistake.
            order: tests to run, in order; None: all.
            files: of which all tests are run.
        """
        path = self._tree / place.file
        source, without = path.read_bytes(), list[str]()
        while True:
            try:
                self._write(path, place.planted(source))
                failed = self._run(order, files, without)
                again = failed and (failed == _COLLECTION or self._run([failed], (), ()))
            finally:
                self._write(path, source)
            if not failed:
                return "", without
            if again and not self._run([] if failed == _COLLECTION else [failed], (), ()):
                return failed, without
            if failed == _COLLECTION:
                raise RuntimeError("pytest collects no tests, even without a mistake")
            without.append(failed)

    def _write(self, path: Path, source: bytes) -> None:
        """Write a file, and forget its bytecode, which goes by seconds and sizes."""
        path.write_bytes(source)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def _run(
        self, order: Sequence[str] | None, files: Sequence[str], without: Sequence[str]
    ) -> str:
        """Run tests until one fails: its name, "" for none."""
        chosen = {"order": order, "files": files, "without": without}
        self._chosen.write_text(json.dumps(chosen), encoding="utf-8")
        self._started.unlink(missing_ok=True)
        own = {CHOSEN: str(self._chosen), STARTED: str(self._started)}
        names = ["tests"] if order is None else {n.partition("::")[0] for n in (*order, *files)}
        limits = ["-x", f"--timeout={_TEST_S}", "--timeout-method=thread"]
        with subprocess.Popen(
            [*_PYTEST, *limits, *sorted(names)],
            env={**_environment(self._tree), **own},
            cwd=self._tree,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (_BYTES, _BYTES)),
        ) as process:
            try:
                code = process.wait()
            finally:
                with suppress(ProcessLookupError):  # what tests started, and has not ended
                    os.killpg(process.pid, signal.SIGKILL)
        if code in (_PASSED, _NOTHING_TO_RUN):
            return ""
        return self._started.read_text("utf-8") if self._started.exists() else _COLLECTION


def nearest_first(room: str, names: Iterable[str]) -> list[str]:
    """Tests of a room before others, and one of each function before others of its parameters."""
    copies: Counter[str] = Counter()
    keys = {}
    for name in sorted(names):
        function = name.partition("[")[0]
        keys[name] = (not name.startswith(f"tests/unit/{room}/"), copies[function] > 0, name)
        copies[function] += 1
    return sorted(keys, key=lambda name: keys[name])


def run(
    plan: Sequence[dict[str, Any]],
    tests: Mapping[str, Any],
    results: Path,
    whole: bool,
    jobs: int,
    commit: str = "HEAD",
) -> None:
    """Plant the mistakes of a plan that have no result yet, and append a line for each.

    Args:
        plan: mistakes.
        tests: what `trace` gave.
        results: a file of lines of JSON.
        whole: run all tests for mistakes that were not noticed.
        jobs: checkouts that are used at the same time.
        commit: whose package and tests run.
    """
    from benchmarks.replay import checkout

    known = latest(read(results)) if results.exists() else {}
    todo = [m for m in plan if _is_open(known.get(m["number"]), whole)]
    with ExitStack() as stack:
        checkouts: queue.Queue[Checkout] = queue.Queue()
        for _ in range(jobs):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            checkouts.put(Checkout(tree := stack.enter_context(checkout(commit)), Path(folder)))
        located = Located(tree)

        def result(mistake: dict[str, Any]) -> dict[str, Any]:
            place, begin = located(mistake), time.monotonic()
            if place is None:
                return {**mistake, "gone": True, "noticed_by": ""}
            number, by, unreliable = str(mistake["number"]), "", list[str]()
            names = [tests["tests"][n] for n in tests["executed"].get(number, ())]
            if names or whole:
                order = None if whole else nearest_first(mistake["room"], names)
                tree_of_its_own = checkouts.get()
                files = tests["fixtures"].get(number, ())
                by, unreliable = tree_of_its_own.noticed(place, order, files)
                checkouts.put(tree_of_its_own)
            return {
                **mistake,
                "executed_by": len(names),
                "noticed_by": by,
                "whole": whole,
                "unreliable": unreliable,
                "seconds": round(time.monotonic() - begin),
            }

        with ThreadPoolExecutor(jobs) as pool, results.open("a", encoding="utf-8") as out:
            for future in as_completed([pool.submit(result, m) for m in todo]):
                done = future.result()
                print(line_of(done), flush=True)
                out.write(json.dumps(done) + "\n")
                out.flush()


def _is_open(known: Mapping[str, Any] | None, whole: bool) -> bool:
    """Whether a mistake is still to be planted."""
    if known is None or known.get("gone"):
        return not whole
    return whole and not (known["noticed_by"] or known["whole"])


# --- files and tables ------------------------------------------------------------------------


def read(path: Path) -> list[dict[str, Any]]:
    """Lines of JSON."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def latest(results: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The last result of each mistake."""
    found = {r["number"]: r for r in results}
    return dict(sorted(found.items()))


def line_of(r: Mapping[str, Any]) -> str:
    """A result in words."""
    if r.get("gone"):
        end = "its statement is gone: name file, function and statement of today in the plan"
    elif r["noticed_by"]:
        end = f"noticed by {r['noticed_by']} ({r['seconds']} s)"
    else:
        end = "SURVIVES all tests" if r["whole"] else f"SURVIVES {r['executed_by']} tests"
    what = f"{r['kind']}: {r['before']!r} -> {r['after']!r}"
    return f"{r['number']} {r['file']}:{r['line']} {r['function']}: {what}: {end}"


def table(results: Iterable[dict[str, Any]]) -> list[str]:
    """Counts by room."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for r in results:
        for room in (r["room"], "all"):
            rows[room].update(
                planted=1,
                gone=bool(r.get("gone")),
                unexecuted=r.get("executed_by") == 0,
                noticed=bool(r["noticed_by"]),
            )
    rows["all"] = rows.pop("all", Counter())
    columns = "planted", "gone", "unexecuted", "noticed"
    head = f"{'room':12}" + "".join(f"{c:>12}" for c in columns)
    return [
        head,
        *(f"{n:12}" + "".join(f"{row[c]:12}" for c in columns) for n, row in rows.items()),
    ]


def plan_of(tree: Path, rooms: Sequence[str], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Mistakes as lines of a plan."""
    for number, place in enumerate(draw(places(tree), rooms, count, seed)):
        begin, end = place.span
        yield {
            "number": number,
            "seed": seed,
            "room": place.file.split("/")[1],
            "file": place.file,
            "line": place.lines[0],
            "function": place.function,
            "statement": place.statement,
            "kind": place.kind,
            "index": place.index,
            "before": (tree / place.file).read_bytes()[begin:end].decode(),
            "after": place.text,
        }


def main(argv: Sequence[str] | None = None) -> None:
    """Draw, trace, run or report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mistakes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing, tracing, running, reporting = map(verbs.add_parser, ("draw", "trace", "run", "report"))
    for verb in (drawing, tracing, running):
        verb.add_argument("plan", type=Path)
    for verb in (tracing, running):
        verb.add_argument("tests", type=Path, help="which tests execute what, as JSON")
        verb.add_argument("--jobs", type=int, default=2, help="[2]")
        verb.add_argument("--commit", default="HEAD", help="whose package and tests run [HEAD]")
    drawing.add_argument("--seed", type=int, default=34, help="[34]")
    drawing.add_argument("--count", type=int, default=80, help="of all rooms together [80]")
    drawing.add_argument("--rooms", default=ROOMS, help=f"[{ROOMS}]")
    tracing.add_argument("folders", nargs="*", default=["tests"], help="tests to run [tests]")
    running.add_argument("--whole", action="store_true", help="all tests, for what survived")
    for verb in (running, reporting):
        verb.add_argument("results", type=Path)
    reporting.add_argument("--before", type=Path, help="other results of the same plan")
    options = parser.parse_args(argv)
    if options.verb == "draw":
        from benchmarks.replay import ROOT

        drawn = plan_of(ROOT, options.rooms.split(), options.count, options.seed)
        options.plan.write_text("".join(json.dumps(m) + "\n" for m in drawn), encoding="utf-8")
        print(f"seed {options.seed}: {options.plan}")
    elif options.verb == "trace":
        from benchmarks.replay import checkout

        with checkout(options.commit) as tree:
            located, plan = Located(tree), read(options.plan)
            wanted = {m["number"]: place for m in plan if (place := located(m)) is not None}
            found = trace(tree, wanted, options.folders, options.jobs)
        options.tests.write_text(json.dumps(found), encoding="utf-8")
        print(
            f"{len(found['executed'])} of {len(plan)} are executed by {len(found['tests'])} tests"
        )
    elif options.verb == "run":
        tests = json.loads(options.tests.read_text(encoding="utf-8"))
        run(
            read(options.plan),
            tests,
            options.results,
            options.whole,
            options.jobs,
            options.commit,
        )
    if options.verb in ("run", "report"):
        results = latest(read(options.results))
        before = latest(read(options.before)) if getattr(options, "before", None) else {}
        survivors = [r for r in results.values() if not r["noticed_by"]]
        print("\n".join([*map(line_of, survivors), *table(results.values())]))
        for number, r in before.items():
            if r["noticed_by"] and number in results and not results[number]["noticed_by"]:
                print(f"before: {line_of(r)}")


if __name__ == "__main__":
    main()
