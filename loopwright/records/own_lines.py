"""Reading of lines that are written as this version writes them, several times faster than
`Record.from_line`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from loopwright.errors import RecordError
from loopwright.records.line import (
    MAX_DEPTH,
    MAX_LINE,
    Json,
    body_of,
    body_of_sealed,
    canonical_json,
    check_limits,
    is_own_line,
)
from loopwright.records.provenance import hardware, machine_of, threads
from loopwright.records.record import FIELD_TYPES, LEFT_OUT, WRITTEN, Count, Record, fits, id_of

#: Fields of which many lines of a log hold the same text.
_SHARED = ("task", "op", "args", "target", "dag", "space", "build", "run", "env")
_LARGEST = 10**15  # of amounts in lines that are read fast: larger floats have exponents in JSON
_OwnAmount = Annotated[int, Meta(ge=0, le=_LARGEST)] | Annotated[float, Meta(ge=0, le=_LARGEST)]
#: Types of the fields of lines that this version writes, in their order. Lines with a verdict,
#: which are few, are left to `Record.from_line`.
_OWN_TYPES: dict[str, object] = {
    "v": Literal[1],
    **{name: FIELD_TYPES[name] for name in WRITTEN if name != "verdict"},
    **dict.fromkeys(_SHARED, Raw),
    **dict.fromkeys(("build_s", "run_s"), _OwnAmount),
    "max_error": _OwnAmount | None,
    "prepare_s": Annotated[float, Meta(gt=0, le=_LARGEST)],
    "resources": Annotated[dict[str, Count], Meta(min_length=1)] | None,
    "times": tuple[Annotated[float, Meta(gt=0, le=_LARGEST)], ...],
    "config": dict[str, Raw],
    "trace": list[Raw],
    "error": dict[str, str] | None,
}
_shared_texts = attrgetter(*_SHARED)
_OwnLine = msgspec.defstruct(
    "_OwnLine",
    [*_OWN_TYPES.items(), ("sum", str)],
    # The defaults of fields that such a line may lack.
    namespace={n: getattr(Record, n) for n in (*LEFT_OUT, "max_error") if n in _OWN_TYPES},
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
)
_decode_own = msgspec.json.Decoder(_OwnLine).decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_SMALL = 1e-4  # msgspec spells smaller numbers in another way


def _own_value(text: bytes, decode: Callable[[bytes], Json] = msgspec.json.decode) -> Json:
    """The value of a part of a line, if `json` writes it so and it is shallow; else RecordError."""
    check_limits(text)
    value = decode(text)
    deep = text.count(b"[") + text.count(b"{") > MAX_DEPTH // 2
    if deep or body_of(value, "").encode() != text:
        raise RecordError("written in another way")
    return value


class _Parts(dict[bytes, Json]):
    """Values by their texts, for those that `json` and msgspec write as the text is."""

    _MOST = 1 << 16

    def __init__(self, kind: Any) -> None:
        self._decode = msgspec.json.Decoder(kind).decode

    def __missing__(self, text: bytes) -> Json:
        value = _own_value(text, self._decode)
        if _encode(value) != text:
            raise RecordError("written in another way")
        if len(self) < self._MOST:
            self[text] = value
        return value


class _Common:
    """Values that the records of a task and run have in common."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self.values: dict[str, Json] = {}
        for name, text in zip(_SHARED, texts, strict=True):
            self.values[name] = _own_value(text)
            if not fits(FIELD_TYPES[name], self.values[name]):
                raise RecordError(f"field {name!r} is malformed")
        own = self.values
        own["hardware"] = hardware(own["env"], own["target"])
        own["threads"] = threads(own["target"], own["env"])
        head = canonical_json([own["task"], own["dag"], own["target"]])
        self._head = head[:-1].encode() + b","
        self._tail = f",{canonical_json(machine_of(own['env'], own['target']))}]".encode()
        own["_common"] = self

    def candidate(self, record: Record) -> str:
        """`Record.candidate`, around whose configuration and trace the text stays the same."""
        middle = _encode_sorted((record.config, record.trace))[1:-1]  # spelled as `json` does
        return hashlib.sha256(self._head + middle + self._tail).hexdigest()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # only a shorter way to `Record.candidate`


class SharedValues:
    """Values that the records of a log have in common, by their texts."""

    def __init__(self) -> None:
        self.common: dict[tuple[bytes, ...], _Common] = {}
        self.knobs, self.steps = _Parts(Any), _Parts(list[Any])


def own_record(line: bytes, shared: SharedValues) -> Record | None:
    """Read a line that is written as this version writes it, several times faster than
    `Record.from_line`.

    None for every other line, some records among them: `from_line` reads them, or has the words for
    what is wrong. ``shared`` collects values that the records of a log have in common.
    """
    if len(line) > MAX_LINE or not is_own_line(line):
        return None
    try:
        parsed: Any = _decode_own(line)
        texts = tuple(map(bytes, _shared_texts(parsed)))
        common = shared.common.get(texts) or _Common(texts)
        values = msgspec.structs.asdict(parsed) | common.values
        knob = shared.knobs
        values["config"] = {name: knob[bytes(raw)] for name, raw in parsed.config.items()}
        values["trace"] = list(map(shared.steps.__getitem__, map(bytes, parsed.trace)))
    except (msgspec.MsgspecError, RecordError, RecursionError):
        return None
    without_kind = parsed.error is not None and "kind" not in parsed.error
    if without_kind or not _is_rewritten(parsed, line):
        return None
    shared.common[texts] = common
    del values["sum"]
    values["_id"] = id_of(body_of_sealed(line))
    values["extra"] = {}
    record = object.__new__(Record)  # the types say all that its constructor checks
    object.__setattr__(record, "__dict__", values)
    return record


def _is_rewritten(parsed: Any, line: bytes) -> bool:
    """Whether a line is the text that its record is written as, so that this gives the id."""
    if min(parsed.times, default=1.0) < _SMALL:
        parsed.times = Raw(body_of(parsed.times, "").encode())
    for name in ("build_s", "run_s", "ts", "max_error", "prepare_s"):
        value = getattr(parsed, name)
        if value and value < _SMALL:
            setattr(parsed, name, Raw(repr(value).encode()))
    return bool(_encode(parsed) == line)
