"""Lines that damage, other programs or ill will may put into a log."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence

from loopwright.errors import RecordError
from loopwright.records import Record
from loopwright.records.line import sealed


def nested(depth, kind=list):
    """An array or object with so many levels."""
    value = kind()
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


#: What may stand where something else should.
VALUES = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**39, 10**40, 10**400, -(10**400)),
    *(0.0, -0.0, -1.5, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "llvm",
        "\x00",
        "\x1b]0;owned\x07",
        "\x1b[2J",
        "[red]",
        "[/]",
        "\r",
        "\u202e",
        "\\[",
    ),
    *("\udc80", "a\nb", "\u2028", "NaN", "1e400", "9" * 400, "[" * 400, "x" * 5000),
    *([], [[]], [None], [1, 2], ["x"], [[1], "x"], {}, {"a": 1}, {"": None}, {"kind": "llvm"}),
    *({"kind": ["llvm"]}, {"kind": "\x1b[31m"}, {"cpu": ["x"], "isa": {}, "cores": -1}),
    *({"kind": "WRONG_ANSWER", "text": 3}, {"kind": "[red]\x1b[1m", "text": "\r\x00"}),
    *(nested(50), nested(200), nested(200, dict), [["split", 2]], [["x"] * 50]),
]
#: Fields that a line may have beside its own.
NAMES = ["sum", "v", "extra", "\x1b[1m", "header", "expression", "i", "input", "checked"]
#: Texts that JSON, or a parser that is too kind, may take for something.
TEXTS = [
    *(
        "NaN",
        "-Infinity",
        "1e400",
        "1" * 5000,
        "1" * 400,
        "[" * 100_000,
        "[" * 400 + "]" * 400,
        "0x1",
        "01",
        "'",
        "//",
    ),
    *('"\\ud800"', '{"a":1,"a":2}', "\x00", "\ufeff", "\r", "\t", ",", "}", "{", "]", '"'),
]


def paths(value, at=()):
    """Where something stands inside of a value."""
    yield at
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(part, (*at, key))


def changed(source: random.Random, data: dict) -> dict:
    """The fields of a line with one or two of them changed, missing, or added."""
    data = copy.deepcopy(data)
    for _ in range(source.randrange(1, 3)):
        path = source.choice([p for p in paths(data) if p] or [("x",)])
        place, value = data, copy.deepcopy(source.choice(VALUES))
        for key in path[:-1]:
            place = place[key]
        match source.randrange(5):
            case 0 if isinstance(place, dict):
                place.pop(path[-1], None)
            case 1 if isinstance(place, dict):
                place[source.choice(NAMES)] = value
            case _:
                place[path[-1]] = value
    return data


def damaged(source: random.Random, text: bytes) -> bytes:
    """A line with a part of it lost, doubled, flipped or replaced."""
    at, end = sorted(source.randrange(len(text) + 1) for _ in range(2))
    match source.randrange(5):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[end:]
        case 2:
            return text[:end] + text[at:]
        case 3 if at < len(text):
            return text[:at] + bytes([text[at] ^ 1 << source.randrange(8)]) + text[at + 1 :]
    return text[:at] + source.choice(TEXTS).encode("utf-8", "surrogatepass") + text[at:]


def hostile_line(source: random.Random, lines: Sequence[str]) -> bytes:
    """A line made of one of ``lines``, without its end."""
    line = source.choice(lines)
    if source.random() < 0.3:
        return damaged(source, line.encode()).replace(b"\n", b" ")
    data = json.loads(line)
    data.pop("sum", None)
    data = changed(source, data)
    if source.random() < 0.1:
        data = source.choice(VALUES)
    text = json.dumps(data)
    if source.random() < 0.2:
        value = source.choice(TEXTS)
        text = text.replace(source.choice(["null", "0", "1", '"', "[]"]), value, 1)
    if source.random() < 0.8 and text.endswith("}"):
        try:
            text = sealed(text.encode("ascii", "backslashreplace").decode())
        except RecordError:
            return text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")
    return text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")


AUTOTVM = json.dumps(
    {
        "input": ["llvm -mcpu=znver4", "matmul", [16, 16, 16, False, False, "float32"], {}],
        "config": {"index": 3, "entity": [["tile_i", "sp", [-1, 1, 8]], ["pack", "ot", "none"]]},
        "result": [[0.004, 0.005], 0, 1.25, 1600000000.5],
        "version": 0.2,
    }
)


def of_all_kinds(log: Sequence[str], records: Sequence[Record]) -> list[str]:
    """Lines to start from: those of a log, and records of every kind."""
    return [*log, AUTOTVM, *(record.to_line() for record in records)]
