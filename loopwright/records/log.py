"""Reading a log: the lines that can be understood, of other tuners too, and a count of the rest."""

from __future__ import annotations

import ast
import functools
import gc
import io
import json
import os
import re
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

from loopwright.errors import RecordError
from loopwright.files import FileKind
from loopwright.presenting import counted
from loopwright.records.error_kinds import ErrorKind
from loopwright.records.file_kinds import described
from loopwright.records.foreign import (
    READABLE,
    TORN,
    ansor_as_autotvm,
    data_of,
    fields_of_result,
    filled,
    is_lines,
    result_lines,
)
from loopwright.records.line import (
    BEGINNING,
    BOM,
    MAX_LINE,
    Json,
    NotJsonError,
    TornLineError,
    UnknownVersionError,
    begins_log,
    parse_line,
)
from loopwright.records.own_lines import SharedValues, own_record
from loopwright.records.provenance import build_hash
from loopwright.records.record import VERSION, Expression, Record, check_version, task_key

#: Contents of a line; a header is a dictionary.
Line: TypeAlias = "Record | Expression | dict[str, Json]"
LOG = FileKind("a log", begins_log)


class Skipped(NamedTuple):
    """A line that was not understood: its number, from 1, and the reason.

    Example:
        >>> (skipped,) = lw.records.load_lines(["{no JSON"]).skipped
        >>> print(skipped.line, skipped.reason)
        1 torn line
    """

    line: int
    reason: str


@dataclass
class Log:
    """Contents of a file of records, in the order of its lines.

    Attributes:
        path: File it was read from.
        headers: The lines that open a run, as dictionaries.
        dags: The expressions by the hash of their DAG.
        skipped: The lines that were not understood.

    Example:
        >>> log = lw.records.load("matmul.jsonl")
        >>> print(len(log.records) >= 6, len(log.headers), log.expression(log.records[0]).op)
        True 1 matmul
    """

    path: Path
    records: list[Record] = field(default_factory=list)
    headers: list[dict[str, Json]] = field(default_factory=list)
    dags: dict[str, list[Expression]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    #: HTML for notebooks; `loopwright.records` puts its function here.
    _html: ClassVar[Callable[[Any], str]]

    def _repr_html_(self) -> str:
        return self._html()

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def expression(self, record: Record) -> Expression | None:
        """The expression of a record, where the log holds it.

        Among several of one DAG, the one with the record's own template and pass settings is
        preferred. The pass settings are those in the header of its run, or follow from its
        ``build`` where the compiler is the present one.
        """
        there = self.dags.get(record.dag, [])
        candidates = [e for e in there if e.op == record.op and e.args == record.args]
        if len(candidates) > 1:
            passes = [h.get("passes", {}) for h in self.headers if h.get("run") == record.run]
            # Not with the record's target: of ``c`` the hash would run the compiler that it names.
            by_build = [e for e in candidates if build_hash(None, e.passes) == record.build]
            candidates = [e for e in candidates if e.passes in passes] or by_build or candidates
        return next(iter(candidates or there), None)

    def complaint(self) -> str:
        """One line of text on how many lines were skipped and why; empty when none was."""
        return f"{self.path}: {_skipped(self)}" if self.skipped else ""


def _skipped(log: Log) -> str:
    """Number of skipped lines, the first of them, and the reasons."""
    reasons = Counter(item.reason for item in log.skipped)
    first = log.skipped[0].line
    what = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(4))
    more = f"; {len(reasons) - 4} more reasons" if len(reasons) > 4 else ""
    return f"{counted(len(log.skipped), 'line')} skipped, the first is line {first} ({what}{more})"


def load(path: str | os.PathLike[str]) -> Log:
    """Read a log of loopwright, of AutoTVM (0.1, 0.2) or Ansor (v0.2 to v0.6), or a mixture; a
    cache of Kernel Tuner, results in the T4 format, or the JSON of KTT. Each may be gzip'd.

    Torn lines, lines of other programs and lines of a newer version are skipped and counted. Blank
    lines and lines that start with ``#`` are ignored. A cache that was cut off, or is still being
    written, is read as far as it goes. RecordError where the file does not exist or cannot be read.
    Example:
        >>> log = lw.records.load("matmul.jsonl")
        >>> print(len(log.records) >= 6, log.records[0].op)
        True matmul
    """
    log, shared = Log(Path(path)), SharedValues()
    with without_collector():
        for number, raw in enumerate(raw_lines(path), 1):
            take_line(log, number, raw, shared)
    return log


open_log = load  #: The name of `load` for large logs, while these were read through an index.


def load_expressions(path: str | os.PathLike[str]) -> Log:
    """Read only the expressions and headers of a log, which is quick for a log of any size.

    The result has neither records nor skipped lines; errors as of `load`.
    Example:
        >>> log = lw.records.load_expressions("matmul.jsonl")
        >>> print(len(log.records), len(log.dags) > 0)
        0 True
    """
    log, shared = Log(Path(path)), SharedValues()
    for number, raw in enumerate(raw_lines(path), 1):
        beginning = raw[:40]  # which contains the name of its kind
        if b'"expression"' in beginning or b'"header"' in beginning:
            take_line(log, number, raw, shared)
    log.records, log.skipped = [], []
    return log


def check_is_log(log: Log, *, torn: bool = False) -> None:
    """Refuse a file without any line of a log: it is empty, newer, or something else. With ``torn``
    one passes that holds the beginning of its first line alone, as a killed run leaves it.
    """
    if log.records or log.headers or log.dags:
        return
    if torn and [s.reason for s in log.skipped] == ["torn line"] and not described(log.path):
        return
    if not log.skipped:
        raise RecordError(
            f"{str(log.path)!r} is empty; tune into it: loopwright tune WORKLOAD --log {log.path}"
        )
    if all("is newer than" in item.reason for item in log.skipped):
        raise RecordError(
            f"{str(log.path)!r} was written by a newer loopwright ({log.skipped[0].reason}): "
            "upgrade loopwright, or name another log"
        )
    kind = f": it is {text}" if (text := described(log.path)) else ""
    raise RecordError(f"{str(log.path)!r} is no log ({_skipped(log)}){kind}; name {READABLE}")


def check_has_records(log: Log) -> None:
    """Refuse a file without records, with the reason: it is no log, or no trial has ended yet."""
    check_is_log(log)
    if not log.records:
        raise RecordError(without_records(log))


def without_records(log: Log) -> str:
    if log.skipped:
        return (
            f"{log.path} has no record that can be read ({_skipped(log)}); "
            f"`loopwright records validate {log.path}` names the lines"
        )
    return (
        f"{log.path} has no record yet ({counted(len(log.headers), 'run')} began, and no trial has "
        "ended): wait, or go on with the same `loopwright tune ... --log`"
    )


def load_lines(lines: Iterable[str | bytes], name: str | None = None) -> Log:
    """Read the lines of a log that is open, or held in memory, called ``name`` in messages.

    Example:
        >>> with open("matmul.jsonl") as lines:
        ...     print(len(lw.records.load_lines(lines).records) >= 6)
        True
    """
    log, shared = Log(Path(name or "lines of a log")), SharedValues()
    for number, raw in enumerate(lines, 1):
        take_line(log, number, raw.encode() if isinstance(raw, str) else raw, shared)
    return log


def raw_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of a file with their newlines; of one that is too long only the beginning, to bound
    memory. Devices are refused, since they may have no end.
    """
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise RecordError(f"{str(path)!r} is a device; name a log file")
        with open(path, "rb") as file:
            yield from lines_of(file)
    except FileNotFoundError as exc:
        raise no_log(path) from exc
    except IsADirectoryError as exc:
        logs = sorted(file.name for file in Path(path).glob("*.jsonl"))
        inside = ", and holds no log (*.jsonl); name a log file"
        if logs:
            more = f" and {len(logs) - 3} more" if len(logs) > 3 else ""
            inside = f"; name a log in it: {', '.join(logs[:3])}{more}"
        raise RecordError(f"{str(path)!r} is a directory{inside}") from exc
    except OSError as exc:
        raise RecordError(f"cannot read the log {str(path)!r}: {exc.strerror or exc}") from exc


def no_log(path: str | os.PathLike[str]) -> RecordError:
    return RecordError(f"no log at {str(path)!r}; tune first, or check the path")


def lines_of(packed: io.BufferedReader) -> Iterator[bytes]:
    """The lines of an open file, see `raw_lines`; each result of another tuner is one, too."""
    whole, unzipped = filled(packed)
    file: io.BufferedIOBase = whole
    lines = None
    if not is_lines(whole.peek(BEGINNING)):
        data = data_of(whole)
        lines = result_lines(data, str(packed.name))
        file = io.BytesIO(data)
    last = b""
    for last in _lines(file) if lines is None else lines:
        yield last
    cut = unzipped is not None and unzipped.broken is not None
    if cut and last != TORN and (last.endswith((b"\n", b"}")) or not last):
        yield TORN


def _lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    raw = file.readline(MAX_LINE + 2).removeprefix(BOM)
    while raw:
        yield raw
        while len(raw) > MAX_LINE and not raw.endswith(b"\n"):
            raw = file.readline(MAX_LINE + 2)
        raw = file.readline(MAX_LINE + 2)


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector: parsed JSON has no cycles, and looking for them took 5 of
    the 8 seconds of reading 100 000 records.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def take_line(log: Log, number: int, raw: bytes, shared: SharedValues) -> None:
    """Add the contents of a line to a log, or the reason why it was not understood; ``shared`` are
    values of earlier lines.
    """
    record = own_record(raw.strip(), shared)
    if record is not None:
        log.records.append(record)
        return
    try:
        line = read_line(raw, log.records[-1] if log.records else None)
    except RecordError as exc:
        log.skipped.append(Skipped(number, str(exc)))
        return
    match line:
        case Record():
            log.records.append(line)
        case Expression():
            log.dags.setdefault(line.hash, []).append(line)
        case dict():
            log.headers.append(line)


#: A line of AutoTVM's protocol ``pickle``: target, task, configuration and result.
_PICKLED = re.compile(rb"[^\t{]+(?:\t[A-Za-z0-9+/]+={0,2}){3}")


def read_line(raw: bytes, before: Record | None = None) -> Line | None:
    """Read one line of a log: a record, an expression, or the contents of a header.

    None for blank lines and comments; equal values are shared with the record ``before``. The
    message of a RecordError is the ``reason`` of `Skipped`.

    Example:
        >>> with open("matmul.jsonl", "rb") as lines:
        ...     print(sorted({type(lw.records.read_line(line)).__name__ for line in lines}))
        ['Expression', 'Record', 'dict']
    """
    line = raw.strip()
    if not line or line.startswith(b"#"):
        return None
    try:
        data = parse_line(line)
    except NotJsonError:
        if _PICKLED.fullmatch(line):
            raise RecordError(
                "a pickled record of AutoTVM, which is not read: unpickling can run any code"
            ) from None
        torn = line.startswith(b"{") or not raw.endswith(b"\n")
        raise (TornLineError("torn line") if torn else RecordError("not JSON")) from None
    if (fields := _foreign_fields(data)) is not None:
        return Record.from_json(_shared(before, fields))
    if "header" in data:
        check_version(data)
        if not isinstance(data["header"], dict):
            raise RecordError("field 'header' is not an object")
        return data["header"]
    if "expression" in data:
        check_version(data)
        return Expression.from_json(data["expression"])
    return Record.from_json(_shared(before, data))


def _foreign_fields(data: Mapping[str, Json]) -> dict[str, Json] | None:
    """The fields of a record of another tuner; None where the line is not one."""
    of_tvm = isinstance(data.get("i"), list)
    if of_tvm and isinstance(data.get("v"), str):
        return _from_autotvm(ansor_as_autotvm(data), "Ansor")
    if of_tvm or ("v" not in data and "input" in data):
        return _from_autotvm(data)
    return fields_of_result(data)


def _shared(before: Record | None, data: dict[str, Json]) -> dict[str, Json]:
    """Let a record share values of the one before, which are most of its size, where they are
    equal, and also in their text: 1 and True, and objects in another order, make other ids.
    """
    for name in () if before is None else ("task", "target", "env"):
        value = getattr(before, name)
        if data.get(name) == value and repr(data[name]) == repr(value):
            data[name] = value
    return data


#: AutoTVM's numbers of errors, as kinds of loopwright.
ERRORS = {
    1: (ErrorKind.INSTANTIATION, "the template refused the configuration"),
    2: (ErrorKind.COMPILE, "the host code did not compile"),
    3: (ErrorKind.COMPILE, "the device code did not compile"),
    4: (ErrorKind.RUN_ERROR, "the device reported an error"),
    5: (ErrorKind.WRONG_ANSWER, "the output differed from the reference"),
    6: (ErrorKind.BUILD_TIMEOUT, "the build took too long"),
    7: (ErrorKind.RUN_TIMEOUT, "the run took too long"),
    8: (ErrorKind.RUN_ERROR, "unknown error"),
}
_SENTINEL = 1e9  # the cost by which AutoTVM marks a failure
_KINDS = ("sp", "re", "an", "ot")
_MALFORMED = (
    *(KeyError, TypeError, ValueError, AttributeError, OverflowError),
    *(SyntaxError, MemoryError, RecursionError),  # of a dictionary as text
)


def _from_autotvm(data: Mapping[str, Json], origin: str = "AutoTVM") -> dict[str, Json]:
    """The fields of a line of AutoTVM 0.1 or 0.2, which keeps no trace, no text of an error, and
    nothing about the machine; these stay empty.
    """
    version = data.get("version", data.get("v"))
    if version not in (0.1, 0.2) or (version == 0.1) != ("i" in data):
        text = ascii(version).strip("'")[:20]
        raise UnknownVersionError(f"TVM record of version {text} (AutoTVM 0.1 and 0.2 can be read)")
    template: dict[str, Json] = {}
    try:
        if version == 0.1:
            target, op, args, kwargs, _, point = data["i"]
            costs, error_no, all_cost, stamp = data["r"]
            entity, index = point["e"], point["i"]
            template = {"template": point["t"]} if point.get("t") else {}
        else:
            target, op, args, kwargs = data["input"]
            costs, error_no, all_cost, stamp = data["result"]
            entity, index = data["config"]["entity"], data["config"].get("index")
        config = {name: value for name, kind, value in entity if kind in _KINDS}
        if not all(isinstance(name, str) for name in config):
            raise TypeError("the name of a knob is no text")
        if not isinstance(target, str | dict) or not isinstance(args, list):
            raise TypeError("no target, or arguments that are no list")
        parsed = _target(target if isinstance(target, str) else json.dumps(target))
        args = [*args, kwargs] if kwargs else args
        failure = _failure(int(error_no), list(map(float, costs)), origin)
        extra: dict[str, Json] = {"target": target, "index": index, **template}
        if kwargs:
            extra["kwargs"] = kwargs
        return {
            "v": VERSION,
            "task": task_key(op, args, parsed["kind"]),
            "op": op,
            "args": args,
            "target": parsed,
            "config": config,
            "times": [] if failure else costs,
            "error": failure,
            "run_s": float(all_cost),
            "ts": float(stamp),
            origin.lower(): extra,
        }
    except _MALFORMED as exc:
        raise RecordError(f"malformed {origin} record") from exc


#: Options of a target string that say of which code and which board a time is.
_OPTIONS = ("model", "mcpu", "mattr", "num_threads", "mtriple", "arch")
_LONGEST = 1 << 14  # characters: splitting takes a second for a million
#: Those that are read apart, and values that TVM writes, or leaves out, by its version.
_APART = ("kind", "keys", "device", "target", "tag")
_USUAL = {"link_params": "0 false", "max_num_threads": "1024 256", "thread_warp_size": "1 32 64"}


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark without its like
        return [word.strip("'\"") for word in text.split()]


def _named(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of a target string, or of one that is JSON or a dictionary of Python; the
    first is the kind.
    """
    if text.lstrip().startswith("{"):
        try:
            fields = json.loads(text)
        except ValueError:
            fields = ast.literal_eval(text.strip())
        yield "kind", fields["kind"]
        for name, value in fields.items():
            if isinstance(value, bool | None):
                value = str(int(value or 0)) if value is not None else ""
            yield name, ",".join(map(str, value)) if isinstance(value, list) else str(value)
        return
    kind, *words = _words(text) or [""]
    yield "kind", kind
    while words:
        name, given, value = words.pop(0).partition("=")
        if not given:
            # The value may follow; without one, the option is switched on.
            follows = name.startswith("-") and words and not words[0].startswith("-")
            value = words.pop(0) if follows else "1" * (name.strip("-") not in _OPTIONS)
        yield name.lstrip("-"), value


@functools.lru_cache(maxsize=256)
def _target(text: str) -> dict[str, Json]:
    """Kind, code, board and other options of a target string such as ``llvm -keys=cpu
    -mcpu=skylake``; families only where they are more than those that the kind has anyway.
    """
    if len(text) > _LONGEST:
        raise ValueError("too long for a target")
    options: dict[str, str] = {}
    (_, kind), *pairs = _named(text)
    if not isinstance(kind, str) or not kind or kind.startswith(("[", "-")):
        raise ValueError("no kind of target")
    for name, value in pairs:
        name = name.replace("-", "_")
        if name in ("mattr", "keys", "libs"):
            value = ",".join(
                filter(None, map(str.strip, f"{options.get(name, '')},{value}".split(",")))
            )
        options[name] = value
    options.setdefault("mtriple", options.get("target", ""))  # its name in older strings
    target: dict[str, Json] = {
        name: v
        for name, v in options.items()
        if name not in _APART
        and v not in ("", "unknown")
        and v.lower() not in _USUAL.get(name, "").split()
    }
    threads = target.pop("num_threads", "")
    if threads.isdecimal() and len(threads) < 10:
        target["num_threads"] = int(threads)
    usual = ["cpu"] if kind in ("llvm", "c") else [kind, "gpu"]
    keys = list(filter(None, options.get("keys", "").split(","))) or usual
    keys = list(dict.fromkeys(filter(None, [options.get("device"), *keys])))
    if not {kind, "cpu", "gpu"}.issuperset(keys):
        target["keys"] = keys
    return {"kind": kind, **target}


def _failure(error_no: int, costs: list[float], origin: str) -> dict[str, str] | None:
    if error_no == 0 and costs and max(costs) < _SENTINEL:
        return None
    kind, text = ERRORS.get(error_no, (ErrorKind.RUN_ERROR, "unknown error"))
    return {
        "kind": kind.value,
        "text": f"{text} ({origin} error {error_no}; its text was not kept)",
    }
