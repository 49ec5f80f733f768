"""Results of other tuners as lines of a log: Kernel Tuner, files in the T4 format, KTT, Ansor.

A cache, T4 or KTT file is one JSON object, which may be cut off or gzip'd. Each of its results
becomes a line of its own, which `loopwright.records.log.read_line` reads as it does the lines of
AutoTVM.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, Final

from loopwright.errors import RecordError
from loopwright.records.error_kinds import ErrorKind
from loopwright.records.line import (
    BEGINNING,
    BOM,
    MAX_DIGITS,
    Json,
    UnknownVersionError,
    begins_log,
    check_limits,
)
from loopwright.records.record import VERSION, Record, task_key

#: Fields of a record that keep what another tuner stored, with the name of the tuner or format.
ORIGINS = {
    "autotvm": "AutoTVM",
    "ansor": "Ansor",
    "kernel_tuner": "Kernel Tuner",
    "t4": "T4",
    "ktt": "KTT",
}
#: What can be read, in the words of errors.
READABLE = (
    "a file that `loopwright tune` wrote, a log of AutoTVM (0.1, 0.2) or Ansor (v0.2 to v0.6), a "
    "cache of Kernel Tuner, results in the T4 format, or the JSON of KTT; each may be gzip'd"
)

GZIP = b"\x1f\x8b"
_MAX_FILE = 1 << 29  # bytes of the largest file that is read as one JSON object
_BLOCK = 1 << 20  # bytes of one read of it
#: The field that holds the results, with the field of a record for what else they store.
_HOLDERS = {"cache": "kernel_tuner", "results": "t4", "Results": "ktt"}
_BETWEEN = re.compile(r"[\s,:]*")
_MOST_TORN = 100  # results that are passed over: each may be searched to the end of the text
#: Where the next result begins, among those of an object (Kernel Tuner) and of an array.
_NEXT = {
    "}": re.compile(r'(?:\n|\},?\s*)(?=")'),
    "]": re.compile(r'(?=\{\s*"(?:timestamp|conf|ComputationResults))'),
}


def origin_of(record: Record) -> str:
    """Name of the tuner or format that a record comes from; empty for loopwright's own."""
    return next((name for field, name in ORIGINS.items() if field in record.extra), "")


def is_lines(beginning: bytes) -> bool:
    """Whether a file that begins so is read line by line: not gzip'd, and no object that may hold
    results.
    """
    text = beginning.removeprefix(BOM).lstrip()
    if beginning.startswith(GZIP):
        return False
    if not text.startswith(b"{") or begins_log(text):
        return True
    first, *others = text.split(b"\n")
    try:
        fields = json.loads(first)
    except (ValueError, RecursionError):
        return any(map(_LINE.match, others))  # the first one was cut off
    return not _HOLDERS.keys() & fields.keys()


_LINE = re.compile(rb'\{"(?:v|input|i)": ?[1-9\[]')


def unpacked(file: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    return gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file


class Filled(io.RawIOBase):
    """A pipe or gzip'd file whose reads give all that was asked for, up to its end.

    Attributes:
        broken: why a gzip'd file ends before its end; None where it does not.
    """

    def __init__(self, file: io.BufferedReader | gzip.GzipFile) -> None:
        self._file, self.name = file, str(file.name)
        self.broken: Exception | None = None
        self._some = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = 0
        try:
            while not self.broken and count < len(buffer):
                if not (part := self._file.read1(len(buffer) - count)):
                    break
                buffer[count : count + len(part)] = part
                count += len(part)
        except (EOFError, gzip.BadGzipFile, zlib.error) as exc:
            self.broken = exc
            if not (self._some or count or isinstance(exc, EOFError)):
                raise RecordError(f"the gzip'd file {self.name!r} is damaged: {exc}") from exc
        self._some = self._some or count > 0
        return count


def filled(file: io.BufferedReader) -> tuple[io.BufferedReader, Filled | None]:
    """An open file, unpacked, of which `peek` gives `BEGINNING` bytes if it has so many."""
    if not file.seekable():
        file = io.BufferedReader(Filled(file), BEGINNING)
    if (unzipped := unpacked(file)) is file:
        return file, None
    whole = Filled(unzipped)
    return io.BufferedReader(whole, BEGINNING), whole


def data_of(file: io.BufferedReader) -> bytes:
    """The rest of a file; RecordError where it is too large."""
    parts, size = [], 0
    while part := file.read(_BLOCK):  # a read takes the memory of all that it asks for
        parts.append(part)
        size += len(part)
        if size > _MAX_FILE:
            raise RecordError(
                f"{str(file.name)!r} holds a JSON object larger than {_MAX_FILE >> 20} MiB"
            )
    return b"".join(parts)


def _finite(text: str) -> float | str:
    value = float(text)
    return text if value in (float("inf"), -float("inf")) else value


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= MAX_DIGITS else text


#: What is no number of a record, such as NaN, stays text.
_decode = json.JSONDecoder(parse_float=_finite, parse_int=_integer, parse_constant=str).raw_decode


class Document:
    """A JSON object with results, read as far as it goes.

    Attributes:
        fields: the fields beside the results.
        holder: name of the field that holds the results; empty where there is none.
        results: the results with their places in the text; None for one that is torn.
        kind: field of a record that stores what else a result has; empty for an unknown document.
    """

    def __init__(self, text: str) -> None:
        self.fields: dict[str, Json] = {}
        self.holder = ""
        self.results: list[tuple[int, Json]] = []
        self._text = text
        self._at = 0
        try:
            self._skip()
            self._at += 1
            while self._skip() not in ("", "}"):
                self._take_field()
        except (ValueError, RecursionError):
            self.results.append((self._at, None))

    @property
    def kind(self) -> str:
        whole = {
            "results": ["schema_version"],
            "cache": ["kernel_name", "tune_params"],
            "Results": ["Metadata"],
        }
        known = any(name in self.fields for name in whole.get(self.holder, ()))
        configured = any(isinstance(r, dict) and "configuration" in r for _, r in self.results)
        return _HOLDERS[self.holder] if known or (self.holder == "results" and configured) else ""

    def _skip(self) -> str:
        """Skip what stands between two values; returns the next character, empty at the end."""
        match = _BETWEEN.match(self._text, self._at)
        assert match is not None  # it may be empty
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _value(self) -> Json:
        value, self._at = _decode(self._text, self._at)
        return value

    def _take_field(self) -> None:
        name = self._value()
        if not isinstance(name, str):
            raise ValueError("the name of a field is no text")
        if self._skip() in ("{", "[") and name in _HOLDERS:
            self.holder = name
            self._take_results()
        else:
            self.fields[name] = self._value()

    def _take_results(self) -> None:
        closing = "}" if self._text[self._at] == "{" else "]"
        self._at += 1
        torn = 0
        while self._skip() not in ("", closing):
            place = self._at
            try:
                if closing == "}":
                    self._value()
                    self._skip()
                self.results.append((place, self._value()))
            except (ValueError, RecursionError):
                self.results.append((place, None))
                following = _NEXT[closing].search(self._text, place + 1)
                torn += 1
                on = following is not None and torn <= _MOST_TORN
                self._at = following.end() if following and on else len(self._text)
        goes_on = closing == "}" and self._text.rstrip().endswith(
            (",", "{")
        )  # a run of Kernel Tuner
        if self._at >= len(self._text) and not torn and not goes_on:
            self.results.append((self._at, None))
        self._at += 1

    def lines(self, name: str) -> Iterator[bytes]:
        """The results as lines of a log, each at its place in the file as far as possible; ``name``
        is that of the task where the file has none.
        """
        kind = self.kind
        header = {"v": VERSION, "header": {"run": "", kind: self.fields}}
        yield _line(header)
        common = _COMMON[kind](self.fields, name)
        count, line, before = 1, 1, 0  # of lines so far, and where the last result stood
        for trial, (place, result) in enumerate(self.results, 1):
            line += self._text.count("\n", before, place)
            before = place
            for _ in range(line - count - 1):
                count += 1
                yield b"\n"
            count += 1
            whole = {kind: common, "trial": trial, "result": result}
            yield TORN if result is None else _line(whole)


TORN = b"{\n"  #: A line that counts as torn.


def _line(data: Json) -> bytes:
    try:
        return json.dumps(data).encode() + b"\n"
    except RecursionError:
        return TORN


def result_lines(data: bytes, path: str) -> Iterator[bytes] | None:
    """The lines of a cache of Kernel Tuner, of T4 or of KTT; None for any other."""
    document = Document(data.removeprefix(BOM).decode("utf-8", "replace"))
    if not document.kind:
        return None
    return document.lines(PurePath(path).name.removesuffix(".gz").removesuffix(".json"))


def is_result(line: bytes) -> bool:
    """Whether a line may be one of `Document.lines`."""
    return line.startswith(tuple(f'{{"{kind}": '.encode() for kind in _READERS))


def fields_of_result(data: Mapping[str, Json]) -> dict[str, Json] | None:
    """The fields of the record of a result, given its line; None for any other line."""
    if "v" in data or "result" not in data:
        return None
    return next((read(data) for kind, read in _READERS.items() if kind in data), None)


def _kernel_tuner_common(fields: Mapping[str, Json], name: str) -> dict[str, Json]:
    names = fields.get("tune_params_keys")
    if not isinstance(names, list):
        params = fields.get("tune_params")
        names = list(params) if isinstance(params, dict) else []
    size = fields.get("problem_size", [])
    return {
        "op": _name(fields.get("kernel_name")) or name,
        "args": size if isinstance(size, list) else [size],
        "device": _name(fields.get("device_name")),
        "knobs": [knob for knob in names if isinstance(knob, str)],
        "objective": fields.get("objective", "time"),
    }


def _name(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _t4_common(fields: Mapping[str, Json], name: str) -> dict[str, Json]:
    metadata = fields.get("metadata")
    unit = metadata.get("timeunit") if isinstance(metadata, dict) else None
    return {"op": name, "unit": unit}


def _ktt_common(fields: Mapping[str, Json], name: str) -> dict[str, Json]:
    metadata = fields.get("Metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return {
        "op": name,
        "unit": metadata.get("TimeUnit"),
        "device": _name(metadata.get("Device")),
        "ts": _moment(metadata.get("Timestamp")),
    }


_COMMON: Final[dict[str, Callable[[Mapping[str, Json], str], dict[str, Json]]]] = {
    "kernel_tuner": _kernel_tuner_common,
    "t4": _t4_common,
    "ktt": _ktt_common,
}

#: Words of Kernel Tuner for failures, which stand in the place of a time, those of T4 and of KTT.
_KERNEL_TUNER_FAILURES = {
    "InvalidConfig": ErrorKind.INSTANTIATION,
    "CompilationFailedConfig": ErrorKind.COMPILE,
    "RuntimeFailedConfig": ErrorKind.RUN_ERROR,
    "ErrorConfig": ErrorKind.RUN_ERROR,
}
_T4_FAILURES = {
    "constraints": ErrorKind.INSTANTIATION,
    "compile": ErrorKind.COMPILE,
    "runtime": ErrorKind.RUN_ERROR,
    "timeout": ErrorKind.RUN_TIMEOUT,
    "correctness": ErrorKind.WRONG_ANSWER,
}
_KTT_FAILURES = {
    "ComputationFailed": ErrorKind.RUN_ERROR,
    "ValidationFailed": ErrorKind.WRONG_ANSWER,
    "CompilationFailed": ErrorKind.COMPILE,
    "DeviceLimitsExceeded": ErrorKind.INSTANTIATION,
}
_SENTINEL = 1e20  # the time by which early versions of Kernel Tuner mark a failure


def _from_kernel_tuner(data: Mapping[str, Json]) -> dict[str, Json]:
    common, result = data["kernel_tuner"], data["result"]
    if not isinstance(result, dict):
        raise RecordError("not a result of Kernel Tuner (not a JSON object)")
    config = {name: result[name] for name in common["knobs"] if name in result}
    rest = {name: value for name, value in result.items() if name not in config}
    seconds = _seconds(rest.get("time"), "ms")
    # Beside a time any other text may be a remark.
    words = [rest.get(_name(common["objective"])), *(rest.values() if seconds is None else ())]
    failed = (w for w in words if isinstance(w, str) and w in _KERNEL_TUNER_FAILURES)
    word = next(failed, rest.get("__error__"))
    if word is None and "time" not in rest:
        raise RecordError(f"no time is among its values (the objective is {common['objective']})")
    error = None
    if word is not None:
        error = _failure("Kernel Tuner", word, _KERNEL_TUNER_FAILURES)
    elif seconds is None:
        error = _no_time(rest["time"])
    return {
        **_task(common["op"], common["args"], data["trial"], config, seconds, error),
        "env": {"device": {"name": common["device"]}} if common["device"] else {},
        "build_s": _seconds(rest.get("compile_time"), "ms") or 0.0,
        "run_s": _seconds(rest.get("benchmark_time"), "ms") or 0.0,
        "ts": _moment(rest.get("timestamp")),
        "kernel_tuner": rest,
    }


def _from_t4(data: Mapping[str, Json]) -> dict[str, Json]:
    common, result = data["t4"], data["result"]
    if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
        raise RecordError("not a result of T4 (without a configuration)")
    times = result.get("times")
    times = times if isinstance(times, dict) else {}
    validity = result.get("invalidity", "correct")
    if validity == "correct" and result.get("correctness") in (0, False):
        validity = "correctness"
    error, seconds = None, None
    if validity != "correct":
        error = _failure("T4", validity, _T4_FAILURES)
    else:
        value, unit = _t4_time(result, times, common["unit"])
        seconds = _seconds(value, unit)
        if seconds is None:
            error = _no_time(value)
    config, unit = result["configuration"], common["unit"]
    compilation = times.get("compilation", times.get("compilation_time"))
    return {
        **_task(common["op"], [], data["trial"], config, seconds, error),
        "build_s": _amount(compilation, unit),
        "run_s": _amount(times.get("benchmark"), unit),
        "ts": _moment(result.get("timestamp")),
        "t4": {name: value for name, value in result.items() if name != "configuration"},
    }


def _from_ktt(data: Mapping[str, Json]) -> dict[str, Json]:
    common, result = data["ktt"], data["result"]
    try:
        config = {pair["Name"]: pair["Value"] for pair in result["Configuration"]}
        status, time = result["Status"], result["TotalDuration"]
        if not all(isinstance(name, str) for name in config):
            raise TypeError("the name of a knob is no text")
    except (KeyError, TypeError) as exc:
        raise RecordError("not a result of KTT (without a configuration, status or time)") from exc
    error, seconds = None, None
    if status != "Ok":
        error = _failure("KTT", status, _KTT_FAILURES)
    elif (seconds := _seconds(time, common["unit"])) is None:
        error = _no_time(time)
    op = _name(result.get("KernelName")) or common["op"]
    return {
        **_task(op, [], data["trial"], config, seconds, error),
        "env": {"device": {"name": common["device"]}} if common["device"] else {},
        "run_s": _amount(result.get("TotalOverhead"), common["unit"]),
        "ts": common["ts"],
        "ktt": {name: value for name, value in result.items() if name != "Configuration"},
    }


def _failure(origin: str, word: Json, kinds: Mapping[str, ErrorKind]) -> dict[str, str]:
    kind = kinds.get(str(word), ErrorKind.RUN_ERROR)
    return {"kind": kind.value, "text": f"{origin} says {str(word)[:60]}; its text was not kept"}


def _no_time(value: Json) -> dict[str, str]:
    return {"kind": ErrorKind.RUN_ERROR.value, "text": f"its time is {str(value)[:60]}"}


def _t4_time(
    result: Mapping[str, Json], times: Mapping[str, Json], unit: Json
) -> tuple[Json, Json]:
    """The time of a valid result and its unit: what was measured, or the mean of the samples."""
    listed = result.get("measurements")
    measured = [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
    goals = result.get("objectives")
    for name in ("time", *(goals if isinstance(goals, list) else ())):
        for item in measured:
            own = _unit(item.get("unit"))
            if item.get("name") == name and (name == "time" or own in _UNITS):
                return item.get("value"), own or unit
    samples = times.get("runtimes")
    if not measured and isinstance(samples, list) and samples:
        try:
            return sum(map(float, samples)) / len(samples), unit
        except (TypeError, ValueError, OverflowError):
            return samples, unit
    raise RecordError(f"no time is among its values (the objectives are {goals})")


def _task(
    op: str, args: list[Json], trial: int, config: Json, seconds: float | None, error: Json
) -> dict[str, Json]:
    """The fields that say what was measured, and the outcome; the kind of target is not known."""
    return {
        "v": VERSION,
        "task": task_key(op, args, ""),
        "op": op,
        "args": args,
        "target": {"kind": ""},
        "config": config,
        "times": [] if error else [seconds],
        "error": error,
        "trial": trial,
    }


#: Units as seconds, or as the parts of a second: of both numbers one is 1, which rounds once.
_UNITS = {
    name: unit
    for names, *unit in (
        ("d day days", 86_400, 1),
        ("h hr hrs hour hours", 3_600, 1),
        ("min mins minute minutes", 60, 1),
        ("s sec secs second seconds", 1, 1),
        ("ms msec msecs millis millisecond milliseconds miliseconds", 1, 1_000),
        ("us µs μs usec usecs micros microsecond microseconds", 1, 1_000_000),
        ("ns nsec nsecs nanos nanosecond nanoseconds", 1, 1_000_000_000),
        ("ps picosecond picoseconds", 1, 1_000_000_000_000),
    )
    for name in names.split()
}


def _unit(text: Json) -> str:
    return "" if text is None else str(text).strip().lower()


def _seconds(value: Json, unit: Json) -> float | None:
    """A time in seconds, of milliseconds where no unit is given; None where it is no time above 0,
    RecordError where the unit is not known.
    """
    known = _UNITS.get(_unit(unit) or "ms")
    if known is None:
        raise RecordError(f"its time is in {str(unit)[:60]!a}, which is no known unit of time")
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not 0 < value < _SENTINEL:
        return None
    return value * known[0] / known[1] or None


def _amount(value: Json, unit: Json) -> float:
    """A time that may be missing, as seconds."""
    return (_seconds(value, unit) or 0.0) if (_unit(unit) or "ms") in _UNITS else 0.0


def _moment(text: Json) -> float:
    """A time stamp in seconds since the epoch; 0 where it is none."""
    try:
        moment = datetime.fromisoformat(text)
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (TypeError, ValueError, OverflowError):
        return 0.0


_READERS: Final[dict[str, Callable[[Mapping[str, Json]], dict[str, Json]]]] = {
    "kernel_tuner": _from_kernel_tuner,
    "t4": _from_t4,
    "ktt": _from_ktt,
}


#: Steps of Ansor that name a loop behind the stage: annotations, pragmas, splits and the like.
_STEPS_OF_LOOPS = ("AN", "PR", "SP", "FSP", "FFSP", "RF", "SA")


def ansor_as_autotvm(data: Mapping[str, Json]) -> dict[str, Json]:
    """A line of Ansor in the form of AutoTVM's: the steps of its state take the place of knobs."""
    if not re.fullmatch(r"v0\.[2-6]", data["v"]):
        version = ascii(data["v"])[1:20].rstrip("'")
        raise UnknownVersionError(f"Ansor record of version {version} (v0.2 to v0.6 can be read)")
    try:
        (workload, target, *_), (_, steps) = data["i"]
        result = data["r"]
        op, args = _workload(workload)
        knobs: dict[str, Json] = {}
        for kind, stage, *values in steps:
            if not isinstance(kind, str) or type(stage) is not int:
                raise TypeError("a step begins with its name and a stage")
            name = f"{kind} {stage}"
            if kind in _STEPS_OF_LOOPS:
                name, values = f"{name}.{values[0]}", values[1:]
            if kind == "SP":
                values = values[1:2]  # without the extent of the loop, which follows from the rest
            same = sum(1 for other in knobs if other.partition(" #")[0] == name)
            name = f"{name} #{same + 1}" if same else name
            knobs[name] = values[0] if len(values) == 1 else values
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as exc:
        raise RecordError("malformed Ansor record") from exc
    entity = [[name, "ot", value] for name, value in knobs.items()]
    return {
        "input": [target, op, args, {}],
        "config": {"index": None, "entity": entity},
        "result": result,
        "version": 0.2,
    }


def _workload(key: str) -> tuple[str, list[Json]]:
    """Name and arguments of a workload: its key is a JSON array of both, unless a user chose it."""
    try:
        words = json.loads(key)
    except (TypeError, ValueError):
        return key, []
    if not isinstance(words, list) or not words or not isinstance(words[0], str):
        return key, []
    check_limits(f"[[{key}]]".encode("utf-8", "surrogatepass"))  # as part of a record
    return words[0], words[1:]
