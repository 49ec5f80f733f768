"""`Manifest`: the description of an artifact's code, as data, read from JSON and checked.

Format 2 adds functions of symbolic sizes; format 1 is still read, and written for all others. A
number that depends on the sizes of a call is a formula: an int, the name of a size variable, or
``[operation, a, b]`` with ``+ - * // %`` and ``max``. `evaluate` computes it; nothing in a manifest
is executed.

A manifest is read by code that trusts it: sizes become memory, names become addresses. A checksum
detects damage (`loopwright.runtime.artifacts.artifact`); `check_manifest` detects entries that no
builder writes. That does not make an artifact safe to run: it is code, and trusted.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from string import Formatter
from typing import Any, NoReturn

from loopwright import dtypes, env
from loopwright.errors import UsageError, shown

#: A number as a manifest writes it.
SizeFormula = int | str | list["SizeFormula"]
#: Operations of formulas.
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
}

#: Maximum bytes of an array or of a workspace: the address space of a process.
MAX_BYTES = 1 << 47
_MAX_TEXT = 20_000
_MAX_ENTRIES = 100_000
_MAX_DEPTH = 50
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
#: Newest format that is read.
FORMAT = 2
#: A JSON object as `json.loads` gives it.
JsonObject = Mapping[str, Any]
_FIELDS = ("format", "kind", "entry", "triple", "cpu", "features", "num_threads", "functions")
_FUNCTION_FIELDS = ("name", "args", "workspace_bytes", "parallel_workspace_bytes", "uses_pool")
_ARG_FIELDS = ("name", "shape", "dtype", "output")
_PARTS_FIELDS = ("prepare", "main", "prepare_args", "main_args")
_SIZE_FIELDS = ("sizes", "extents", "order")


def evaluate(e: SizeFormula, values: Mapping[str, int]) -> int:
    """The value of a formula; UsageError where it is malformed, or a variable has no value."""
    match e:
        case int():
            return e
        case str() if e in values:
            return values[e]
        case [str(op), a, b] if op in OPERATIONS:
            x, y = evaluate(a, values), evaluate(b, values)
            if op in ("//", "%") and y <= 0:
                raise UsageError(f"a manifest divides by {y}; build the program again")
            return OPERATIONS[op](x, y)
    raise UsageError(f"{e!r} in a manifest is no size; build the program again")


def text(e: SizeFormula) -> str:
    """A formula in the usual notation."""
    match e:
        case ["max", a, b]:
            return f"max({text(a)}, {text(b)})"
        case [str(op), a, b]:
            x, y = (f"({text(part)})" if isinstance(part, list) else str(part) for part in (a, b))
            return f"{x} {op} {y}"
    return str(e)


def linear(e: SizeFormula) -> tuple[str, int, int] | None:
    """``(name, factor, constant)`` of a formula that is linear in one variable, else None."""
    match e:
        case str():
            return e, 1, 0
        case ["+" | "-" | "*" as op, a, int(k)]:
            inner = linear(a)
        case ["+" | "*" as op, int(k), a]:
            inner = linear(a)
        case _:
            return None
    if inner is None:
        return None
    name, factor, const = inner
    if op == "*":
        return (name, factor * k, const * k) if k else None
    return name, factor, const + (k if op == "+" else -k)


def check_manifest(data: Mapping[str, Any], source: str) -> None:
    """Raise UsageError for a field that is missing, of a wrong type, or out of range.

    `source` is the manifest's name in messages.
    """
    checks = _Checks(source)
    _ask_for(_FIELDS, data, source, "; build the program again")
    for name in ("triple", "cpu", "features", "loopwright", "llvmlite"):
        checks.text(data.get(name, ""), name)
    checks.name(data["entry"], "entry")
    checks.whole(data["num_threads"], "num_threads", env.MAX_THREADS)
    workload = data.get("workload", {})
    fields = {"name", "args", "target"}
    if not isinstance(workload, Mapping) or (workload and set(workload) - {"expression"} != fields):
        checks.refuse("workload", workload, "name, args and target of a task")
    if workload:
        checks.text(workload["name"], "workload.name")
        checks.text(workload["target"], "workload.target")
        checks.entries(workload["args"], "workload.args")
    for k, need in enumerate(checks.entries(data.get("needs", ()), "needs")):
        checks.text(need, f"needs[{k}]")
    functions = [_Function(source, f) for f in checks.entries(data["functions"], "functions")]
    for f in functions:
        f.check()
    names = [f.entry["name"] for f in functions]
    if len(set(names)) != len(names):
        checks.refuse("functions", names, "functions of different names")
    by_name = {f.entry["name"]: f.entry for f in functions}
    for f in functions:
        if f.entry.get("parts"):
            f.parts(by_name)
    if data["entry"] not in names:
        raise UsageError(f"{source}: the entry {data['entry']!r} is not among {names}")


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

    def entries(self, x: object, field: str, length: int | None = None) -> Sequence[Any]:
        if not isinstance(x, list | tuple) or len(x) > _MAX_ENTRIES:
            self.refuse(field, x, f"a list of up to {_MAX_ENTRIES}")
        if length is not None and len(x) != length:
            self.refuse(field, x, f"a list of {length}")
        return x


class _Function(_Checks):
    """Checks of the entry of one function."""

    def __init__(self, source: str, entry: Any) -> None:
        super().__init__(source)
        called = f": function {shown(entry.get('name'))}" if isinstance(entry, Mapping) else ""
        self.who = f"{source}{called}"
        _ask_for(_FUNCTION_FIELDS, entry, self.who)
        self.where = f"function {self.name(entry['name'], 'the name of a function')!r}: "
        self.entry: Mapping[str, Any] = entry
        self.variables: list[str] = []

    def check(self) -> None:
        """Refuse an entry that no builder writes."""
        f = self.entry
        symbolic = bool(f.get("sizes"))
        if symbolic:
            _ask_for(_SIZE_FIELDS, f, self.who)
            self.size_variables(f["sizes"])
        args = self.entries(f["args"], "args")
        for k, arg in enumerate(args):
            _ask_for(_ARG_FIELDS, arg, f"{self.source}: an argument of {shown(f['name'])}")
            self.argument(arg, f"args[{k}]")
        for key in ("workspace_bytes", "parallel_workspace_bytes"):
            self.formula(f[key], key, least=0)
        self.flag(f["uses_pool"], "uses_pool")
        for k, check in enumerate(self.entries(f.get("checks", ()), "checks")):
            self.message(check, f"checks[{k}]")
        for k, name in enumerate(self.entries(f.get("packed", ()), "packed")):
            self.text(name, f"packed[{k}]")
        if symbolic:
            self.symbolic(args)

    def parts(self, functions: Mapping[str, Mapping[str, Any]]) -> None:
        """Check that parts take arguments of the function, and behind them the same buffers."""
        f = self.entry
        parts, args, kept = f["parts"], f["args"], []
        _ask_for(_PARTS_FIELDS, parts, f"{self.who}: parts")
        for which in ("prepare", "main"):
            part = functions.get(self.name(parts[which], f"parts.{which}"))
            if part is None or part is f or part.get("parts"):
                self.refuse(f"parts.{which}", parts[which], "another function without parts")
            at = f"parts.{which}_args"
            numbers = self.entries(parts[f"{which}_args"], at)
            for n in numbers:
                self.whole(n, at, len(args) - 1)
            own_places = [_place(args[n]) for n in numbers]
            taken = [_place(arg) for arg in part["args"]]
            if len(set(numbers)) != len(numbers) or taken[: len(own_places)] != own_places:
                self.refuse(at, numbers, f"the first arguments of {parts[which]}")
            kept.append(taken[len(own_places) :])
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
        self.refuse(at, e, "a number, or a formula of the sizes" if self.variables else "a number")

    def message(self, text: object, at: str) -> None:
        """Check the message of a check: a format whose fields are numbers."""
        try:
            fields = [field for _, field, _, _ in Formatter().parse(self.text(text, at))]
        except ValueError:
            self.refuse(at, text, "a format")
        for place in fields:
            if place and not re.fullmatch(r"\d{1,2}", place):
                self.refuse(at, text, "a format of numbered values")

    def size_variables(self, sizes: object) -> None:
        for k, x in enumerate(self.entries(sizes, "sizes")):
            name, dtype, nonnegative = self.entries(x, f"sizes[{k}]", 3)
            self.variables.append(self.text(name, f"sizes[{k}][0]"))
            if dtype not in ("int32", "int64"):
                self.refuse(f"sizes[{k}][1]", dtype, "int32 or int64")
            self.flag(nonnegative, f"sizes[{k}][2]")
        if len(set(self.variables)) != len(self.variables):
            self.refuse("sizes", self.variables, "different names")

    def symbolic(self, args: Collection[Mapping[str, Any]]) -> None:
        """Check the entries of a function that serves every size."""
        f = self.entry
        for key in ("extents", "requires"):
            for k, x in enumerate(self.entries(f.get(key, ()), key)):
                formula, shown = self.entries(x, f"{key}[{k}]", 2)
                self.formula(formula, f"{key}[{k}]")
                self.text(shown, f"{key}[{k}][1]")
        order = self.entries(f["order"], "order")
        arrays = [x for x in order if isinstance(x, int) and not isinstance(x, bool)]
        passed = [x for x in order if isinstance(x, str)]
        consistent = len(arrays) + len(passed) == len(order) and set(passed) <= set(self.variables)
        if not consistent or arrays != list(range(len(args))) or len(set(passed)) != len(passed):
            self.refuse("order", order, "every array once, in order, and names of sizes")
        forms = [linear(n) for arg in args for n in arg["shape"]]
        for name in {*self.variables} - {*passed} - {form[0] for form in forms if form}:
            self.refuse("sizes", name, "sizes that a dimension tells or a call passes")


def _place(arg: Mapping[str, Any]) -> tuple[Any, ...]:
    """The fields that must agree between two descriptions of one array."""
    return (*arg["shape"], arg["dtype"], arg["output"])


@dataclass(frozen=True, slots=True)
class ArgSpec:
    """An array among the arguments of a function."""

    name: str
    shape: tuple[SizeFormula, ...]
    dtype: str
    output: bool
    #: Whether its values are known before calls.
    constant: bool = False

    @classmethod
    def from_json(cls, data: JsonObject) -> ArgSpec:
        shape, constant = tuple(data["shape"]), bool(data.get("constant", False))
        return cls(str(data["name"]), shape, data["dtype"], bool(data["output"]), constant)


@dataclass(frozen=True, slots=True)
class PartsSpec:
    """The two parts of a function, of which the first needs constants alone."""

    #: Names of the parts, which are functions of the artifact as well.
    prepare: str
    main: str
    #: Arguments of the whole function that each part takes, by number. The buffers between the
    #: two, which `prepare` writes, come after these.
    prepare_args: tuple[int, ...]
    main_args: tuple[int, ...]

    @classmethod
    def from_json(cls, data: JsonObject) -> PartsSpec:
        args = tuple(data["prepare_args"]), tuple(data["main_args"])
        return cls(str(data["prepare"]), str(data["main"]), *args)


@dataclass(frozen=True, slots=True)
class SizesSpec:
    """The sizes of a function that serves every size."""

    #: Name, dtype, and whether it is never negative, in the order of values behind the arrays.
    variables: tuple[tuple[str, str, bool], ...]
    #: Extents that must be positive, and their texts.
    extents: tuple[tuple[SizeFormula, str], ...] = ()
    #: Numbers that must not be negative, and messages for those that are.
    requires: tuple[tuple[SizeFormula, str], ...] = ()
    #: Arguments of a call: arrays by number, and names of sizes that are passed.
    order: tuple[int | str, ...] = ()

    @classmethod
    def from_json(cls, data: JsonObject) -> SizesSpec:
        return cls(
            tuple((str(n), str(t), bool(p)) for n, t, p in data["sizes"]),
            tuple((e, str(shown)) for e, shown in data["extents"]),
            tuple((e, str(shown)) for e, shown in data.get("requires", ())),
            tuple(data["order"]),
        )


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function of an artifact."""

    name: str
    args: tuple[ArgSpec, ...]
    #: Workspace of a call.
    workspace_bytes: SizeFormula = 0
    #: Workspace of each further thread of parallel loops.
    parallel_workspace_bytes: SizeFormula = 0
    uses_pool: bool = False
    #: Messages of the checks inside the code, by number.
    checks: tuple[str, ...] = ()
    #: None where the function has fixed sizes.
    sizes: SizesSpec | None = None
    #: Names of the packed functions that it calls.
    packed: tuple[str, ...] = ()
    parts: PartsSpec | None = None

    @classmethod
    def from_json(cls, data: JsonObject) -> FunctionSpec:
        return cls(
            str(data["name"]),
            tuple(map(ArgSpec.from_json, data["args"])),
            data["workspace_bytes"],
            data["parallel_workspace_bytes"],
            bool(data["uses_pool"]),
            tuple(data.get("checks", ())),
            SizesSpec.from_json(data) if data.get("sizes") else None,
            tuple(data.get("packed", ())),
            PartsSpec.from_json(data["parts"]) if data.get("parts") else None,
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of an artifact, and the machine that it is for.

    Attributes:
        kind: of artifact, such as ``"llvm-object"`` (`loopwright.runtime.artifacts.kinds`).
        entry: name of the function that calling the module runs.
        triple: LLVM's name of the machine; empty for code of no machine.
        cpu: LLVM's name of the CPU, or a level such as ``x86-64-v3``.
        features: CPU features that the code uses, as ``+avx2,-avx512f``.
        num_threads: threads of parallel loops; 0: the pool's default.
        format: 1, or 2 where functions have symbolic sizes.
        loopwright, llvmlite: versions that built it.
        needs: CPU features that the machine must have to run it, by LLVM's names; empty where they
            are not known.
        workload: the computation, as ``name``, ``args`` and ``target`` of a task; where that is no
            operator also ``expression``, its DAG and arguments as data. Empty where unknown.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], name="add_one")
        >>> manifest = f.artifact.contents
        >>> print(manifest.kind, manifest.entry, [a.name for a in manifest.functions[0].args])
        llvm-object add_one ['A', 'B']
    """

    kind: str
    entry: str
    triple: str
    cpu: str
    features: str
    num_threads: int
    functions: tuple[FunctionSpec, ...]
    format: int = FORMAT
    loopwright: str = ""
    llvmlite: str = ""
    needs: tuple[str, ...] = ()
    workload: JsonObject = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: JsonObject, source: str, kinds: Collection[str]) -> Manifest:
        """Read a manifest of one of the given kinds of artifacts; `source` is its name in messages.

        Raises:
            UsageError: it is no manifest, of a newer format or another kind, lacks something, or
                contradicts itself (`loopwright.runtime.artifacts.manifest`).
        """
        version = read_format(data, source)
        if data["kind"] not in kinds:
            raise UsageError(
                f"{source} holds a {data['kind'][:40]!r}; this runtime runs {', '.join(kinds)}"
            )
        check_manifest(data, source)
        functions = tuple(map(FunctionSpec.from_json, data["functions"]))
        return cls(
            str(data["kind"]),
            str(data["entry"]),
            str(data["triple"]),
            str(data["cpu"]),
            str(data["features"]),
            int(data["num_threads"]),
            functions,
            version,
            str(data.get("loopwright", "")),
            str(data.get("llvmlite", "")),
            tuple(data.get("needs", ())),
            data.get("workload", {}),
        )

    def to_json(self) -> dict[str, Any]:
        """The manifest as a JSON object."""
        return {"format": self.format, **_to_json(self)}

    def function(self, name: str) -> FunctionSpec:
        """The function of that name, or KeyError."""
        for f in self.functions:
            if f.name == name:
                return f
        raise KeyError(name)


#: Fields that stand in a manifest only where they say something.
_OPTIONAL = ("constant", "checks", "sizes", "packed", "parts", "needs", "workload")
_SPECS = ArgSpec, PartsSpec, FunctionSpec


def _to_json(spec: Any) -> dict[str, Any]:
    """The fields of a description by name; the sizes of a function stand among its own."""
    out: dict[str, Any] = {}
    for name in spec.__dataclass_fields__:  # `fields` makes a tuple of them at each call
        value = getattr(spec, name)
        if isinstance(value, SizesSpec):
            sizes = _to_json(value)
            out |= {"sizes": sizes.pop("variables"), **sizes}
        elif value or name not in _OPTIONAL:
            out[name] = _plain(value)
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(x) for x in value]
    return _to_json(value) if isinstance(value, _SPECS) else value


def read_format(data: JsonObject, source: str) -> int:
    """The format of a manifest; UsageError where this version does not read it."""
    version = data.get("format")
    if type(version) is not int or version < 1 or not isinstance(data.get("kind"), str):
        raise UsageError(f"{source} is not a manifest of loopwright; build the program again")
    if version > FORMAT:
        raise UsageError(
            f"{source} has format {version}, this version of loopwright reads up to {FORMAT}; "
            "upgrade loopwright or build the program again"
        )
    return version


def _ask_for(fields: Sequence[str], data: JsonObject, who: str, remedy: str = "") -> None:
    if not isinstance(data, Mapping):
        raise UsageError(f"{who}: {str(data)[:40]!r} stands where an object belongs")
    missing = [name for name in fields if name not in data]
    if missing:
        raise UsageError(f"{who} lacks {', '.join(missing)}{remedy}")
