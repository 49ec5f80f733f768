"""`Manifest`: what an artifact says of its code, as data, read from JSON and checked.

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
    """An array among the arguments of a function.

    Attributes:
        name: for messages.
        shape: its extents.
        dtype: its element type by name.
        output: whether the function writes it.
        constant: whether its values are known before calls.
    """

    name: str
    shape: tuple[SizeFormula, ...]
    dtype: str
    output: bool
    constant: bool = False

    @classmethod
    def from_json(cls, data: JsonObject) -> ArgSpec:
        """Read one entry of a function's ``args``."""
        shape, constant = tuple(data["shape"]), bool(data.get("constant", False))
        return cls(str(data["name"]), shape, data["dtype"], bool(data["output"]), constant)

    def to_json(self) -> dict[str, Any]:
        """The entry in the manifest."""
        shape = list(self.shape)
        out = {"name": self.name, "shape": shape, "dtype": self.dtype, "output": self.output}
        return out | {"constant": True} if self.constant else out


@dataclass(frozen=True, slots=True)
class PartsSpec:
    """The two parts of a function, of which the first needs constants alone.

    Attributes:
        prepare, main: names of the parts, which are functions of the artifact as well.
        prepare_args, main_args: the arguments of the function that each takes, by number. What a
            part takes behind these are the buffers between the two, which ``prepare`` writes.
    """

    prepare: str
    main: str
    prepare_args: tuple[int, ...]
    main_args: tuple[int, ...]

    @classmethod
    def from_json(cls, data: JsonObject) -> PartsSpec:
        """Read the entry ``parts`` of a function."""
        args = tuple(data["prepare_args"]), tuple(data["main_args"])
        return cls(str(data["prepare"]), str(data["main"]), *args)

    def to_json(self) -> dict[str, Any]:
        """The entry in the manifest."""
        args = {"prepare_args": list(self.prepare_args), "main_args": list(self.main_args)}
        return {"prepare": self.prepare, "main": self.main, **args}


@dataclass(frozen=True, slots=True)
class SizesSpec:
    """The sizes of a function that serves every size.

    Attributes:
        variables: name, dtype, and whether it is never negative, of each size variable, in the
            order in which code takes their values behind the arrays.
        extents: extents that must be positive, and their texts.
        requires: numbers that must not be negative, and what to say where they are.
        order: arguments of a call: arrays by number, and names of sizes that are passed.
    """

    variables: tuple[tuple[str, str, bool], ...]
    extents: tuple[tuple[SizeFormula, str], ...] = ()
    requires: tuple[tuple[SizeFormula, str], ...] = ()
    order: tuple[int | str, ...] = ()

    @classmethod
    def from_json(cls, data: JsonObject) -> SizesSpec:
        """Read what the entry of a function says of its sizes."""
        return cls(
            tuple((str(n), str(t), bool(p)) for n, t, p in data["sizes"]),
            tuple((e, str(shown)) for e, shown in data["extents"]),
            tuple((e, str(shown)) for e, shown in data.get("requires", ())),
            tuple(data["order"]),
        )

    def to_json(self) -> dict[str, Any]:
        """What is added to the entry of the function."""
        return {
            "requires": [list(x) for x in self.requires],
            "sizes": [list(x) for x in self.variables],
            "extents": [list(x) for x in self.extents],
            "order": list(self.order),
        }


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One function of an artifact.

    Attributes:
        name: the symbol that is called.
        args: its arrays, in order.
        workspace_bytes: workspace of a call.
        parallel_workspace_bytes: workspace of each further thread of its parallel loops.
        uses_pool: whether it has parallel loops.
        checks: messages of the checks inside of it, by number.
        sizes: of a function that serves every size; else None.
        packed: names of the packed functions that it calls.
        parts: of a function that calls one part after the other these; else None.
    """

    name: str
    args: tuple[ArgSpec, ...]
    workspace_bytes: SizeFormula = 0
    parallel_workspace_bytes: SizeFormula = 0
    uses_pool: bool = False
    checks: tuple[str, ...] = ()
    sizes: SizesSpec | None = None
    packed: tuple[str, ...] = ()
    parts: PartsSpec | None = None

    @classmethod
    def from_json(cls, data: JsonObject) -> FunctionSpec:
        """Read one entry of a manifest's ``functions``."""
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
        """The entry in the manifest."""
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
    """What an artifact holds, and for which machine.

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
        workload: what it computes, as ``name``, ``args`` and ``target`` of a task; where that is no
            operator also ``expression``, its DAG and arguments as data. Empty where nobody has
            said.

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
        """Read a manifest.

        Args:
            data: the JSON object.
            source: what it is, for messages.
            kinds: the kinds of artifacts that this runtime runs.

        Raises:
            UsageError: it is no manifest, of a newer format or another kind, lacks something, or
                says what cannot be true (`loopwright.runtime.artifacts.manifest_checks`).
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
        """The function of that name.

        Raises:
            KeyError: there is none.
        """
        for f in self.functions:
            if f.name == name:
                return f
        raise KeyError(name)


def read_format(data: JsonObject, source: str) -> int:
    """The format of a manifest, which is one that this version reads.

    Raises:
        UsageError: it is no manifest, or of a newer format.
    """
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
    """Refuse functions, or arguments of them, that lack something."""
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
