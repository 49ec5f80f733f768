"""`Manifest`: the description of an artifact's code, as data, read from JSON and checked.

Format 2 adds functions of symbolic sizes (`loopwright.runtime.artifacts.size_formulas`); format 1
is still read, and written for all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loopwright.errors import UsageError, shown
from loopwright.runtime.artifacts.manifest_checks import check_manifest
from loopwright.runtime.artifacts.size_formulas import SizeFormula

#: Newest format that is read.
FORMAT = 2
#: A JSON object as `json.loads` gives it.
JsonObject = Mapping[str, Any]
_FIELDS = ("format", "kind", "entry", "triple", "cpu", "features", "num_threads", "functions")
_FUNCTION_FIELDS = ("name", "args", "workspace_bytes", "parallel_workspace_bytes", "uses_pool")
_ARG_FIELDS = ("name", "shape", "dtype", "output")
_PARTS_FIELDS = ("prepare", "main", "prepare_args", "main_args")
_SIZE_FIELDS = ("sizes", "extents", "order")


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

    def to_json(self) -> dict[str, Any]:
        shape = list(self.shape)
        out = {"name": self.name, "shape": shape, "dtype": self.dtype, "output": self.output}
        return out | {"constant": True} if self.constant else out


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

    def to_json(self) -> dict[str, Any]:
        args = {"prepare_args": list(self.prepare_args), "main_args": list(self.main_args)}
        return {"prepare": self.prepare, "main": self.main, **args}


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

    def to_json(self) -> dict[str, Any]:
        """The keys that are added to the entry of the function."""
        return {
            "requires": [list(x) for x in self.requires],
            "sizes": [list(x) for x in self.variables],
            "extents": [list(x) for x in self.extents],
            "order": list(self.order),
        }


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

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "args": [a.to_json() for a in self.args],
            "workspace_bytes": self.workspace_bytes,
            "parallel_workspace_bytes": self.parallel_workspace_bytes,
            "uses_pool": self.uses_pool,
            **({"checks": list(self.checks)} if self.checks else {}),
            **(self.sizes.to_json() if self.sizes is not None else {}),
            **({"packed": list(self.packed)} if self.packed else {}),
            **({"parts": self.parts.to_json()} if self.parts is not None else {}),
        }


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
        functions: the functions.
        format: 1, or 2 where functions have symbolic sizes.
        loopwright: version that built it.
        llvmlite: version that it was built with.
        needs: CPU features that the machine must have to run it, by LLVM's names; empty where they
            are not known.
        workload: the computation, as ``name``, ``args`` and ``target`` of a task; where that is no
            operator also ``expression``, its DAG and arguments as data. Empty where unknown.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B], name="add_one")
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
                contradicts itself (`loopwright.runtime.artifacts.manifest_checks`).
        """
        version = read_format(data, source)
        if data["kind"] not in kinds:
            raise UsageError(
                f"{source} holds a {data['kind'][:40]!r}; this runtime runs {', '.join(kinds)}"
            )
        _ask_for(_FIELDS, data, source, "; build the program again")
        _ask_functions(data["functions"], source)
        check_manifest(data, source)
        functions = tuple(map(FunctionSpec.from_json, data["functions"]))
        names = [f.name for f in functions]
        if data["entry"] not in names:
            raise UsageError(f"{source}: the entry {data['entry']!r} is not among {names}")
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
        return {
            "format": self.format,
            "kind": self.kind,
            "entry": self.entry,
            "triple": self.triple,
            "cpu": self.cpu,
            "features": self.features,
            "num_threads": self.num_threads,
            "functions": [f.to_json() for f in self.functions],
            "loopwright": self.loopwright,
            "llvmlite": self.llvmlite,
            **({"needs": list(self.needs)} if self.needs else {}),
            **({"workload": self.workload} if self.workload else {}),
        }

    def function(self, name: str) -> FunctionSpec:
        """The function of that name, or KeyError."""
        for f in self.functions:
            if f.name == name:
                return f
        raise KeyError(name)


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


def _ask_functions(functions: object, source: str) -> None:
    """Raise UsageError for functions, or arguments of them, that lack something."""
    if not isinstance(functions, list | tuple):
        raise UsageError(f"{source}: functions is no list; build the program again")
    for f in functions:
        who = f"{source}: function {shown(f.get('name'))}" if isinstance(f, Mapping) else source
        _ask_for(_FUNCTION_FIELDS, f, who)
        if not isinstance(f["args"], list | tuple):
            raise UsageError(f"{who}: args is no list; build the program again")
        for arg in f["args"]:
            _ask_for(_ARG_FIELDS, arg, f"{source}: an argument of {shown(f['name'])}")
        if f.get("sizes"):
            _ask_for(_SIZE_FIELDS, f, who)
        if f.get("parts"):
            _ask_for(_PARTS_FIELDS, f["parts"], f"{who}: parts")


def _ask_for(fields: Sequence[str], data: JsonObject, who: str, remedy: str = "") -> None:
    if not isinstance(data, Mapping):
        raise UsageError(f"{who}: {str(data)[:40]!r} stands where an object belongs")
    missing = [name for name in fields if name not in data]
    if missing:
        raise UsageError(f"{who} lacks {', '.join(missing)}{remedy}")
