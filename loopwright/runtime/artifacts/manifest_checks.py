"""Checks that a manifest is consistent, before anything that it describes is mapped or called.

A manifest is read by code that trusts it: sizes become memory, names become addresses. A checksum
detects damage (`loopwright.runtime.artifacts.artifact`); these checks detect entries that no
builder writes. They do not make an artifact safe to run: it is code, and trusted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from math import prod
from string import Formatter
from typing import Any, NoReturn

from loopwright import dtypes, env
from loopwright.errors import UsageError, shown
from loopwright.runtime.artifacts.size_formulas import OPERATIONS, linear

#: Maximum bytes of an array or of a workspace: the address space of a process.
MAX_BYTES = 1 << 47
_MAX_TEXT = 20_000
_MAX_ENTRIES = 100_000
_MAX_DEPTH = 50
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_TEXTS = ("triple", "cpu", "features", "loopwright", "llvmlite")


def check_manifest(data: Mapping[str, Any], source: str) -> None:
    """Raise UsageError for a field of a wrong type, or out of range, with what was expected.

    The data has all fields that manifests must have; `source` is its name in messages.
    """
    checks = _Checks(source)
    for name in _TEXTS:
        checks.text(data.get(name, ""), name)
    checks.name(data["entry"], "entry")
    checks.whole(data["num_threads"], "num_threads", env.MAX_THREADS)
    checks.workload(data.get("workload", {}))
    for k, need in enumerate(checks.entries(data.get("needs", ()), "needs")):
        checks.text(need, f"needs[{k}]")
    functions = checks.entries(data["functions"], "functions")
    for f in functions:
        _Function(source, f["name"]).check(f)
    names = [f["name"] for f in functions]
    if len(set(names)) != len(names):
        checks.refuse("functions", names, "functions of different names")
    by_name = {f["name"]: f for f in functions}
    for f in functions:
        if f.get("parts"):
            _Function(source, f["name"]).parts(f, by_name)


class _Checks:
    """Checks of single values, which know their place in the manifest."""

    def __init__(self, source: str, where: str = "") -> None:
        self.source, self.where = source, where

    def refuse(self, field: str, value: object, expected: str) -> NoReturn:
        raise UsageError(
            f"{self.source}: {self.where}{field} is {shown(value)}, expected {expected}; build the "
            "program again"
        )

    def text(self, x: object, field: str) -> str:
        if not isinstance(x, str) or len(x) > _MAX_TEXT:
            self.refuse(field, x, "a text")
        return x

    def name(self, x: object, field: str) -> str:
        if not isinstance(x, str) or not _NAME.fullmatch(x):
            self.refuse(field, x, "a name of letters, digits and underscores")
        return x

    def flag(self, x: object, field: str) -> None:
        if not isinstance(x, bool):
            self.refuse(field, x, "true or false")

    def whole(self, x: object, field: str, most: int = MAX_BYTES, least: int = 0) -> int:
        if not isinstance(x, int) or isinstance(x, bool) or not least <= x <= most:
            self.refuse(field, x, f"a whole number from {least} to {most}")
        return x

    def workload(self, x: object) -> None:
        known = {"name", "args", "target"}
        if not isinstance(x, Mapping) or (x and set(x) - {"expression"} != known):
            self.refuse("workload", x, "name, args and target of a task")
        if x:
            self.text(x["name"], "workload.name")
            self.text(x["target"], "workload.target")
            self.entries(x["args"], "workload.args")

    def entries(self, x: object, field: str, length: int | None = None) -> Sequence[Any]:
        if not isinstance(x, list | tuple) or len(x) > _MAX_ENTRIES:
            self.refuse(field, x, f"a list of up to {_MAX_ENTRIES}")
        if length is not None and len(x) != length:
            self.refuse(field, x, f"a list of {length}")
        return x


class _Function(_Checks):
    """Checks of the entry of one function."""

    def __init__(self, source: str, name: object) -> None:
        super().__init__(source)
        self.where = f"function {self.name(name, 'the name of a function')!r}: "
        self.variables: list[str] = []

    def check(self, f: Mapping[str, Any]) -> None:
        """Refuse an entry that no builder writes."""
        symbolic = bool(f.get("sizes"))
        if symbolic:
            self.size_variables(f["sizes"])
        args = self.entries(f["args"], "args")
        for k, arg in enumerate(args):
            self.argument(arg, f"args[{k}]")
        for field in ("workspace_bytes", "parallel_workspace_bytes"):
            self.formula(f[field], field, least=0)
        self.flag(f["uses_pool"], "uses_pool")
        for k, check in enumerate(self.entries(f.get("checks", ()), "checks")):
            self.message(check, f"checks[{k}]")
        for k, name in enumerate(self.entries(f.get("packed", ()), "packed")):
            self.text(name, f"packed[{k}]")
        if symbolic:
            self.symbolic(f, args)

    def parts(self, f: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]]) -> None:
        """Check that parts take arguments of the function, and behind them the same buffers."""
        parts, args = f["parts"], f["args"]
        kept = []
        for which in ("prepare", "main"):
            part = functions.get(self.name(parts[which], f"parts.{which}"))
            if part is None or part is f or part.get("parts"):
                self.refuse(f"parts.{which}", parts[which], "another function without parts")
            at = f"parts.{which}_args"
            numbers = self.entries(parts[f"{which}_args"], at)
            for n in numbers:
                self.whole(n, at, len(args) - 1)
            own = [_place(args[n]) for n in numbers]
            taken = [_place(arg) for arg in part["args"]]
            if len(set(numbers)) != len(numbers) or taken[: len(own)] != own:
                self.refuse(at, numbers, f"the first arguments of {parts[which]}")
            kept.append(taken[len(own) :])
        needed = {n for n, arg in enumerate(args) if not arg.get("constant")}
        first, second = (functions[parts[which]].get("sizes") for which in ("prepare", "main"))
        if first or second != f.get("sizes"):
            self.refuse("parts", parts["main"], "the sizes of the function in its second part")
        if not needed <= set(parts["main_args"]):
            self.refuse("parts.main_args", parts["main_args"], "every argument that varies")
        if needed & set(parts["prepare_args"]):
            self.refuse("parts.prepare_args", parts["prepare_args"], "constant arguments")
        if [(*place[:-1], not place[-1]) for place in kept[0]] != kept[1] or not kept[0]:
            self.refuse("parts", parts["prepare"], "outputs that are inputs of the other part")
        if not all(place[-1] for place in kept[0]):
            self.refuse("parts", parts["prepare"], "a part that writes what the other one reads")

    def argument(self, arg: Mapping[str, Any], at: str) -> None:
        self.text(arg["name"], f"{at}.name")
        self.flag(arg["output"], f"{at}.output")
        self.flag(arg.get("constant", False), f"{at}.constant")
        if arg["dtype"] not in dtypes.SUPPORTED:
            self.refuse(f"{at}.dtype", arg["dtype"], f"one of {', '.join(dtypes.SUPPORTED)}")
        shape = self.entries(arg["shape"], f"{at}.shape")
        if len(shape) > 64:
            self.refuse(f"{at}.shape", shape, "at most 64 dimensions")
        for d, n in enumerate(shape):
            self.formula(n, f"{at}.shape[{d}]", least=0)
        total = prod(n for n in shape if isinstance(n, int)) * dtypes.nbytes(arg["dtype"])
        if total > MAX_BYTES:
            self.refuse(f"{at}.shape", shape, f"an array of at most {MAX_BYTES} bytes")

    def formula(self, e: object, at: str, least: int | None = None, depth: int = 0) -> None:
        """Check a number, the name of a size variable, or an operation on two formulas."""
        match e:
            case bool():
                pass
            case int():
                self.whole(e, at, MAX_BYTES, -MAX_BYTES if least is None else least)
                return
            case str() if e in self.variables:
                return
            case [str(op), a, b] if self.variables and op in OPERATIONS and depth < _MAX_DEPTH:
                self.formula(a, at, None, depth + 1)
                self.formula(b, at, None, depth + 1)
                return
        kinds = "a number, or a formula of the sizes" if self.variables else "a number"
        self.refuse(at, e, kinds)

    def message(self, text: object, at: str) -> None:
        """Check the message of a check: a format whose fields are numbers."""
        try:
            fields = [field for _, field, _, _ in Formatter().parse(self.text(text, at))]
        except ValueError:
            self.refuse(at, text, "a format")
        for field in fields:
            if field and not re.fullmatch(r"\d{1,2}", field):
                self.refuse(at, text, "a format of numbered values")

    # ------------------------------------------------------------ sizes

    def size_variables(self, sizes: object) -> None:
        for k, x in enumerate(self.entries(sizes, "sizes")):
            name, dtype, nonnegative = self.entries(x, f"sizes[{k}]", 3)
            self.variables.append(self.text(name, f"sizes[{k}][0]"))
            if dtype not in ("int32", "int64"):
                self.refuse(f"sizes[{k}][1]", dtype, "int32 or int64")
            self.flag(nonnegative, f"sizes[{k}][2]")
        if len(set(self.variables)) != len(self.variables):
            self.refuse("sizes", self.variables, "different names")

    def symbolic(self, f: Mapping[str, Any], args: Collection[Mapping[str, Any]]) -> None:
        """Check the entries of a function that serves every size."""
        for field in ("extents", "requires"):
            for k, x in enumerate(self.entries(f.get(field, ()), field)):
                formula, shown = self.entries(x, f"{field}[{k}]", 2)
                self.formula(formula, f"{field}[{k}]")
                self.text(shown, f"{field}[{k}][1]")
        order = self.entries(f["order"], "order")
        arrays = [x for x in order if isinstance(x, int) and not isinstance(x, bool)]
        passed = [x for x in order if isinstance(x, str)]
        known = len(arrays) + len(passed) == len(order) and set(passed) <= set(self.variables)
        if not known or arrays != list(range(len(args))) or len(set(passed)) != len(passed):
            self.refuse("order", order, "every array once, in order, and names of sizes")
        forms = [linear(n) for arg in args for n in arg["shape"]]
        for name in {*self.variables} - {*passed} - {form[0] for form in forms if form}:
            self.refuse("sizes", name, "sizes that a dimension tells or a call passes")


def _place(arg: Mapping[str, Any]) -> tuple[Any, ...]:
    """The fields that must agree between two descriptions of one array."""
    return (*arg["shape"], arg["dtype"], arg["output"])
