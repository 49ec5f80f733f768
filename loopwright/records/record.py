"""Records and expressions: their fields, checks of these, and their JSON lines.

``docs/records.md`` is the specification. Nothing in a line is ever executed or unpickled.
"""

from __future__ import annotations

import functools
import hashlib
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from loopwright.errors import RecordError
from loopwright.records.error_kinds import FAILED_AGAIN, ErrorKind
from loopwright.records.line import (
    Json,
    UnknownVersionError,
    body_of,
    canonical_json,
    parse_line,
    sealed,
)
from loopwright.records.provenance import hardware, machine_of, threads
from loopwright.records.verdict import verdict_of

VERSION = 1  # the version written, and the newest that is understood


class Checked(StrEnum):
    """Whether the answer of a candidate was compared with the reference.

    Example:
        >>> print(lw.records.best(lw.records.load("matmul.jsonl")).checked)
        yes
    """

    YES = "yes"  # it was compared, and found right
    NO = "no"  # ``check_reason`` has the reason
    OFF = "off"  # checking was switched off


#: Fields that a line lacks where they are empty.
LEFT_OUT = (
    *("check_reason", "phase", "program", "code", "same_as", "times_of", "resources"),
    *("prepare_s", "verdict"),
)


def task_key(op: str, args: Iterable[Json], kind: str) -> str:
    """Name of a template's task in records: JSON of ``[template, arguments, target kind]``.

    It is an alias: a task is identified by what it computes, see :func:`expression_key`.

    Example:
        >>> print(lw.records.task_key("matmul", [64, 64, 64], "llvm"))
        ["matmul",[64,64,64],"llvm"]
    """
    return canonical_json([op, list(args), kind])


def expression_key(dag_hash: str, kind: str) -> str:
    """The identity of a task: canonical JSON of the hash of its expression, including constant
    operands, and of its target kind.

    Example:
        >>> print(lw.records.expression_key("0123456789abcdef", "llvm"))
        {"expression":"0123456789abcdef","kind":"llvm"}
    """
    return canonical_json({"expression": dag_hash, "kind": kind})


@dataclass(frozen=True, eq=False)
class Record:
    """One trial: the candidate, the conditions, and the result.

    ``docs/records.md`` has the meaning of each field; seconds are floats, hashes hexadecimal text,
    and a text is empty where its field is not known.

    Attributes:
        task: `task_key` of a template, `expression_key` of an automatic space.
        times: Seconds per call, one per timed window; empty when the trial failed.
        dropped: True when racing stopped the trial after its first run: the time is then rough; it
            trains a model, but is never best and never applied.
        ts: Time at which the trial ended, seconds since the epoch.
        checked: A line without the field counts as not checked.
        phase: Empty for a trial of the search. Otherwise a further measurement of a candidate,
            which is no trial: ``"playoff"`` for the final re-measuring, ``"drift"`` for one after
            the machine had changed, ``"check"`` for a check alone, without times.
        program: Hash of the lowered program, the target, the threads and the settings of the
            passes: equal programs give equal code.
        same_as: Id of the record whose samples this one shares, since both are one program.
        times_of: Id of the record whose times these are: it was measured with another version of
            the compiler, which made the same object code.
        resources: Resources of the kernel as the device's compiler reports them, ``{"registers",
            "spill_bytes", "shared_bytes", "local_bytes"}`` as far as it does, the maximum over all
            kernels of the function; None on CPUs and where it reports nothing.
        extra: Fields that this version does not know; written back unchanged.

    Example:
        >>> record = lw.records.load("matmul.jsonl").records[0]
        >>> print(record.op, record.args[:3], record.median > 0)
        matmul [64, 64, 64] True
        >>> print(lw.records.Record.from_line(record.to_line()) == record)
        True
    """

    task: str
    op: str
    args: list[Json]
    target: Mapping[str, Json]
    config: Mapping[str, Json]
    times: tuple[float, ...]
    dag: str = ""
    trace: list[Json] = field(default_factory=list)
    dropped: bool = False
    error: Mapping[str, str] | None = None
    build_s: float = 0.0
    run_s: float = 0.0
    space: str = ""
    build: str = ""
    run: str = ""
    round: int = 0
    trial: int = 0
    seed: int | None = None
    ts: float = 0.0
    env: Mapping[str, Json] = field(default_factory=dict)
    max_error: float | None = None
    checked: Checked = Checked.NO
    check_reason: str = ""
    phase: str = ""
    program: str = ""
    code: str = ""
    same_as: str = ""
    times_of: str = ""
    resources: Mapping[str, Json] | None = None
    prepare_s: float = 0.0
    verdict: Mapping[str, Json] | None = None
    v: int = VERSION
    extra: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        times = tuple(self.times)
        for value in times:
            number = not isinstance(value, bool) and hasattr(value, "__float__")
            if not number or not 0 < float(value) <= _MOST_SECONDS:
                raise RecordError(
                    f"field 'times' holds {str(value)[:60]!r}; each time is a finite number of "
                    f"seconds above 0, and at most {_MOST_SECONDS:g}"
                )
        object.__setattr__(self, "times", tuple(map(float, times)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.to_line() == other.to_line()

    def __hash__(self) -> int:
        return hash(self.to_line())

    #: HTML for notebooks; `loopwright.records` puts its function here.
    _html: ClassVar[Callable[[Any], str]]

    def _repr_html_(self) -> str:
        return self._html()

    @property
    def valid(self) -> bool:
        """Whether the trial ran to a time, without an error."""
        return self.error is None and bool(self.times)

    @property
    def usable(self) -> bool:
        """Whether the record may be best and may be applied: valid and not dropped."""
        return self.error is None and bool(self.times) and not self.dropped

    @property
    def wrong(self) -> bool:
        """Whether the answer was found to be wrong."""
        return self.error is not None and self.error.get("kind") == ErrorKind.WRONG_ANSWER

    @property
    def failed_again(self) -> bool:
        """Whether a kernel that had a time before failed when it was measured again."""
        kind = None if self.error is None else self.error.get("kind")
        return bool(self.phase) and kind in FAILED_AGAIN

    @property
    def median(self) -> float | None:
        """Median of ``times`` in seconds; None when the trial failed."""
        return statistics.median(self.times) if self.valid else None

    @property
    def kind(self) -> str:
        """Kind of the target, such as ``"llvm"``; empty when not known."""
        return str(self.target.get("kind", ""))

    @property
    def expression(self) -> str:
        """Key of the task's expression, see :func:`expression_key`; empty when not known."""
        return expression_key(self.dag, self.kind) if self.dag else ""

    @functools.cached_property
    def hardware(self) -> str:
        """Hardware it ran on, see :func:`loopwright.records.hardware`; empty when not known."""
        return hardware(self.env, self.target)

    @functools.cached_property
    def threads(self) -> int:
        """Threads of the kernel; 0 when not known."""
        return threads(self.target, self.env)

    @property
    def id(self) -> str:
        """Short name of this record: 10 hexadecimal digits of the hash of its unsealed line."""
        return vars(self).get("_id") or id_of(self._body().encode())

    @functools.cached_property
    def candidate(self) -> str:
        """Identity of the measured code and its conditions, whenever and by whomever measured."""
        if common := vars(self).get("_common"):
            return str(common.candidate(self))
        machine = machine_of(self.env, self.target)
        parts = [self.task, self.dag, self.target, self.config, self.trace, machine]
        return hashlib.sha256(canonical_json(parts).encode()).hexdigest()

    def to_json(self) -> dict[str, Json]:
        """The fields of the line, in the order in which they are written."""
        line: dict[str, Json] = {"v": self.v}
        for name in WRITTEN:
            line[name] = getattr(self, name)
        for name in LEFT_OUT:
            if not line[name]:
                del line[name]
        if self.max_error is None:
            del line["max_error"]
        return line | {k: v for k, v in self.extra.items() if k not in line}

    def to_line(self) -> str:
        """The record as one line of JSON with its checksum, without the newline; RecordError where
        a field holds a value that JSON cannot represent.
        """
        return sealed(self._body())

    def _body(self) -> str:
        return body_of(self.to_json(), f"record of task {self.task}")

    @classmethod
    def from_line(cls, line: str | bytes) -> Record:
        """Read one line; RecordError where it is no record, or of an unknown version."""
        return cls.from_json(parse_line(line))

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Record:
        """Make a record of the parsed fields of a line, with errors as of `from_line`."""
        check_version(data)
        values, extra = checked_fields(data)
        checked = Checked(values.pop("checked", Checked.NO))
        return cls(**values, checked=checked, extra=extra)


#: Fields in the order in which they are written, behind the version.
WRITTEN = tuple(item.name for item in fields(Record) if item.name not in ("v", "extra"))


def id_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:10]


def header_line(header: Mapping[str, Json]) -> str:
    return sealed(canonical_json({"v": VERSION, "header": header}))


def check_version(data: Mapping[str, Json]) -> None:
    """Refuse a line without a version, or of a newer one."""
    version = data.get("v")
    if type(version) is not int:
        raise RecordError("not a record (no version 'v')")
    if version > VERSION:
        raise UnknownVersionError(
            f"version {version} is newer than {VERSION}, the last one known here"
        )
    if version < 1:
        raise RecordError(f"version {version} is not known")


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
#: Finite numbers of at least 0, such as errors. A whole one stays whole, since ids depend on it.
_Amount = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0, le=sys.float_info.max)]
_LAST_SECOND = 253402300799  # the last second of the year 9999: what a calendar can show
_Moment = (
    Annotated[int, Meta(ge=0, le=_LAST_SECOND)] | Annotated[float, Meta(ge=0, le=_LAST_SECOND)]
)
_MOST_SECONDS = 1e30  # so that sums of any number of lines are finite
_Seconds = Annotated[int, Meta(ge=0, le=2**63 - 1)] | Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]


class _Error(msgspec.Struct):
    kind: str
    text: str = ""


class _Target(msgspec.Struct):
    kind: str = ""
    mcpu: str | None = None
    mattr: str | list[str] | None = None
    num_threads: Count | None = None


class _Device(msgspec.Struct):
    kind: str = ""
    name: str = ""
    uuid: str = ""
    driver: str = ""
    arch: str = ""
    processors: Count = 0


class _Environment(msgspec.Struct):
    device: _Device | None = None
    cpu: str | None = None
    isa: str | list[str] | None = None
    cores: Count | None = None


_Trace = list[list[Json]]

#: Types of fields in JSON, as msgspec checks them, by their declared types; objects may have more
#: entries than are named here.
_BY_TYPE: dict[str, object] = {
    "str": str,
    "bool": bool,
    "int": Count,
    "int | None": int | None,
    "float": _Amount,
    "float | None": _Amount | None,
    "tuple[float, ...]": list,
    "list[Json]": list,
    "Mapping[str, Json]": dict,
    "Mapping[str, Json] | None": dict | None,
    "Mapping[str, str] | None": _Error | None,
    "Checked": Checked,
}
FIELD_TYPES = {item.name: _BY_TYPE[str(item.type)] for item in fields(Record)}
FIELD_TYPES |= {
    "target": _Target,
    "env": _Environment,
    "trace": _Trace,
    "resources": dict[str, Count] | None,
    "ts": _Moment,
    **dict.fromkeys(("build_s", "run_s", "prepare_s"), _Seconds),
}
del FIELD_TYPES["extra"]


def fits(kind: object, value: Json) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter of half a surrogate pair
        return False
    return _is_listed(kind, value)


def _is_listed(kind: object, value: Json) -> bool:
    """Whether lists are lists: `msgspec.convert` takes tuples and sets for them, too."""
    if kind is _Trace:
        return type(value) is list and all(type(step) is list for step in value)
    return kind is not list or type(value) is list


#: The fields that every line of a record has.
REQUIRED = ("task", "op", "args", "target", "config", "times")

#: All fields at once, each of which may be missing: one by one takes ten times longer.
_Fields = msgspec.defstruct(
    "_Fields",
    [(name, kind | msgspec.UnsetType, msgspec.UNSET) for name, kind in FIELD_TYPES.items()],
)
_LISTS = [(name, kind) for name, kind in FIELD_TYPES.items() if kind is list or kind is _Trace]


def checked_fields(data: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
    """Split the fields of a line into those of a record and those unknown to this version."""
    values = {name: value for name, value in data.items() if name in FIELD_TYPES}
    listed = all(_is_listed(kind, values.get(name, [])) for name, kind in _LISTS)
    if not listed or values.get("verdict") is not None or not fits(_Fields, values):
        for name, value in values.items():  # the first that is wrong
            unreadable = name == "verdict" and value is not None and verdict_of(value) is None
            if unreadable or not fits(FIELD_TYPES[name], value):
                raise RecordError(
                    f"field {name!r} is malformed: {json.dumps(value, default=repr)[:60]}"
                )
    for name in REQUIRED:
        if name not in values:
            raise RecordError(f"field {name!r} is missing")
    return values, {name: value for name, value in data.items() if name not in FIELD_TYPES}


@dataclass(frozen=True, eq=False)
class Expression:
    """The tensor expression that the records of one DAG share.

    Attributes:
        hash, dag: hash of the DAG, by which records refer to it, and its ``Dag.to_json``.
        arg_ids: the arguments in calling order, as ids of the DAG.
        op, args: name of the template that made it, and its arguments.
        passes: settings of the `PassContext` that candidates were lowered in; empty: the defaults.
        inputs: origin of the input data: ``{"made_by": "template"}`` for the template's
            ``make_inputs``, or ``{"made_by": "seed", "seed": 0}`` for random data.

    Example:
        >>> log = lw.records.load("matmul.jsonl")
        >>> expression = log.expression(log.records[0])
        >>> print(expression.op, te.Dag.from_json(expression.dag).ops[0].name)
        matmul A
    """

    hash: str
    dag: Mapping[str, Json]
    arg_ids: list[Json]
    op: str = ""
    args: list[Json] = field(default_factory=list)
    passes: Mapping[str, Json] = field(default_factory=dict)
    inputs: Mapping[str, Json] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Key that is equal for expressions of which a log needs only one line."""
        return canonical_json([self.hash, self.arg_ids, self.op, self.args, self.passes])

    def to_line(self) -> str:
        """The line with its checksum; RecordError where it is too long, or too deep, to be read."""
        return sealed(body_of({"v": VERSION, "expression": asdict(self)}, "an expression"))

    @classmethod
    def from_json(cls, data: Json) -> Expression:
        """Read the ``expression`` of a line; unknown fields are ignored. RecordError where a field
        is missing or malformed.
        """
        if not isinstance(data, dict):
            raise RecordError("field 'expression' is not an object")
        for item in fields(cls):
            if not fits(_BY_TYPE[str(item.type)], data.get(item.name)):
                raise RecordError(f"field {item.name!r} of 'expression' is missing or malformed")
        return cls(**{item.name: data[item.name] for item in fields(cls)})
