"""Read lines that AutoTVM 0.2 wrote, so that existing logs need no conversion.

AutoTVM keeps the knob values but no trace, no text of an error, and nothing about the machine;
those fields stay empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from loopwright.errors import RecordError
from loopwright.records.error_kinds import ErrorKind
from loopwright.records.line import Json, UnknownVersionError
from loopwright.records.record import VERSION, task_key

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
#: The cost by which AutoTVM marks a failure.
_SENTINEL = 1e9
_KINDS = ("sp", "re", "an", "ot")


def is_foreign(data: Mapping[str, Json]) -> bool:
    """Whether a line is in the form of TVM: AutoTVM's ``input`` or the older ``i``."""
    return ("v" not in data and "input" in data) or isinstance(data.get("i"), list)


def read(data: Mapping[str, Json]) -> dict[str, Json]:
    """Convert a parsed AutoTVM line to the fields that ``Record.from_json`` takes."""
    if data.get("version") != 0.2:
        version = ascii(data.get("version", data.get("v"))).strip("'")[:20]
        raise UnknownVersionError(f"TVM record of version {version} (only AutoTVM 0.2 can be read)")
    try:
        target, op, args, kwargs = data["input"]
        costs, error_no, all_cost, stamp = data["result"]
        entity = data["config"]["entity"]
        config = {name: value for name, kind, value in entity if kind in _KINDS}
        if not all(isinstance(name, str) for name in config):
            raise TypeError("the name of a knob is no text")
        parsed = _target(str(target))
        failure = _failure(int(error_no), list(map(float, costs)))
        extra = {"target": target, "index": data["config"].get("index")}
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
            "autotvm": extra,
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise RecordError("malformed AutoTVM record") from exc


def _target(text: str) -> dict[str, Json]:
    """Kind, CPU and model of a target string such as ``llvm -keys=cpu -mcpu=skylake``."""
    words = text.split()
    if not words:
        raise ValueError("empty target")
    target: dict[str, Json] = {"kind": words[0]}
    for word in words[1:]:
        name, _, value = word.lstrip("-").partition("=")
        if name in ("mcpu", "model") and value not in ("", "unknown"):
            target[name] = value
    return target


def _failure(error_no: int, costs: list[float]) -> dict[str, str] | None:
    if error_no == 0 and costs and max(costs) < _SENTINEL:
        return None
    kind, text = ERRORS.get(error_no, (ErrorKind.RUN_ERROR, "unknown error"))
    return {"kind": kind.value, "text": f"{text} (AutoTVM error {error_no}; its text was not kept)"}
