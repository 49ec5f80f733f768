"""Lines of this version take a shorter way: it reads nothing that the other would not."""

from __future__ import annotations

import json
import pickle
import random
import threading
import zlib
from dataclasses import replace

import pytest

from loopwright.errors import RecordError
from loopwright.records import Record, load, load_lines, read_line
from loopwright.records.line import body_of, sealed
from loopwright.records.own_lines import SharedValues, own_record
from tests.unit.records.logs import record, write

WHOLE = replace(
    record(1), seed=7, max_error=0.5, check_reason="x", phase="playoff", program="p", code="c",
    same_as="s", times_of="t", resources={"registers": 9}, prepare_s=0.25, dag="d", build="b",
    error={"kind": "RUN_TIMEOUT", "text": "late"},
)  # fmt: skip
#: JSON, and what is none, to stand for the value of each field.
TEXTS = (
    *("null", "true", "0", "1", "-1", "2", "1.5", "-0.0", "1E5", "0.10", "1e400", "1e-400", "NaN"),
    *("-Infinity", "253402300800", "9223372036854775808", "1" * 40, "1" * 41, "0." + "1" * 60),
    *('""', '"x"', '"yes"', r'"\ud800"', r'"\ud83d\ude00"', r'"\/"', '"' + "1" * 50 + '"', "01"),
    *(
        "[]",
        "[1]",
        "[0]",
        "[1,2.5]",
        "[true]",
        "[[1],[]]",
        "[[1],2]",
        "[1e400]",
        "[NaN]",
        "[" * 301,
    ),
    *("{}", '{"a":1,"a":2}', '{"kind":"k"}', '{"kind":1}', '{"text":"t"}', '{"kind":"k","n":1}'),
    *('{"mcpu":null,"mattr":["a"]}', '{"mattr":[1]}', '{"num_threads":-1}', '{"cores":2.0}'),
    *('{"device":{"kind":1}}', '{"device":null,"isa":"a"}', '{"registers":-1}', "", " 1 ", "1,2"),
)


def of_body(body: str) -> bytes:
    """A line with its checksum, which does not ask what the body is."""
    try:
        return sealed(body).encode()
    except RecordError:
        return body.encode()


def bodies() -> list[str]:
    data = WHOLE.to_json()
    out = []
    for name, value in data.items():
        text = f'"{name}":{json.dumps(value, separators=(",", ":"))}'
        whole = body_of(data, "a record")
        assert whole.count(text) == 1, name
        out += [whole.replace(text, f'"{name}":{other}') for other in TEXTS]
        out.append(body_of({n: v for n, v in data.items() if n != name}, "a record"))
        out.append(f"{whole[:-1]},{text}}}")
    out += [f'{whole[:-1]},"{name}":1}}' for name in ("new", "sum", "extra", "verdict")]
    out += [whole[:-1], whole + " ", whole.replace(",", ", "), '{"v":1,"header":{}}']
    return out


def outcome(read) -> tuple:
    try:
        line = read()
    except RecordError as exc:
        return "refused", str(exc)
    if not isinstance(line, Record):
        return type(line), line
    names = (*Record.__dataclass_fields__, "id", "candidate", "hardware", "threads")
    return type(line.times), repr({name: getattr(line, name) for name in names})


def same(line: bytes) -> None:
    """Read a line in a log, where the shorter way is tried first, and alone."""

    def in_log():
        log = load_lines([line])
        if log.skipped:
            raise RecordError(log.skipped[0].reason)
        return next(iter((*log.records, *log.headers)), None)

    assert outcome(in_log) == outcome(lambda: read_line(line)), line


def test_the_shorter_way_is_taken():
    small = {"times": (2.5e-5, 7e-9), "max_error": 3e-7, "run_s": 1e-12, "build_s": 0.0}
    failed = record(2, None, error={"kind": "COMPILE", "text": "no"})
    for one in (WHOLE, record(1), replace(WHOLE, **small), failed):
        line = one.to_line().encode()
        assert own_record(line, SharedValues()) == one
        assert own_record(line[:-1], SharedValues()) is None


def test_each_field_with_each_value():
    lines = [of_body(body) for body in bodies()]
    assert sum(own_record(line, SharedValues()) is not None for line in lines) > 100
    for line in lines:
        same(line)


def test_lines_of_one_log_are_read_as_each_alone():
    lines = [line for body in bodies() if b"\n" not in (line := of_body(body))]
    log = load_lines([WHOLE.to_line(), *lines])
    alone = [load_lines([line]) for line in lines]
    read = [outcome(lambda one=one: one) for part in alone for one in part.records]
    assert [outcome(lambda one=one: one) for one in log.records[1:]] == read
    assert [skip.reason for skip in log.skipped] == [s.reason for p in alone for s in p.skipped]


@pytest.mark.parametrize("knob", [1e-5, 1e-7, 1e16, "e-5,", "1e-5]", "\u00fc", {"b": 1, "a": 2}])
def test_values_that_json_and_msgspec_write_differently(knob):
    one = replace(
        WHOLE, config={"b": knob, "a": [knob]}, trace=[["split", knob]], check_reason="-5,"
    )
    same(one.to_line().encode())
    same(of_body(body_of(one.to_json(), "a record").replace("1e-05", "0.00001")))
    same(of_body(body_of(one.to_json(), "a record").replace("1e+16", "1e16")))


@pytest.mark.parametrize("name", ["args", "config", "trace", "env", "error"])
def test_deep_lines(name):
    data = WHOLE.to_json()
    body = body_of(data | {name: {"a": "HERE"} if isinstance(data[name], dict) else ["HERE"]}, "x")
    for depth in (1, 149, 151, 297, 298, 299, 300, 100_000):
        open_line = body.replace('"HERE"', "[" * depth + "]" * depth)[:-1]
        same(f'{open_line},"sum":"{zlib.crc32(open_line.encode()):08x}"}}'.encode())


def test_flipped_bits_and_cut_lines():
    rng, body = random.Random(0), body_of(WHOLE.to_json(), "a record")
    for _ in range(500):
        data = bytearray(body.encode())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(7)
        same(of_body(data.decode()))
        cut = WHOLE.to_line().encode()[: rng.randrange(len(body))]
        same(cut)


def test_values_are_shared_within_a_log_where_their_texts_are_equal(tmp_path):
    path = write(tmp_path / "log.jsonl", 12)
    one, other = load(path).records[0], load(path).records[0]
    assert one.env is not other.env
    records = load(path).records
    assert records[0].env is records[6].env
    assert records[0].env is not records[1].env
    assert records[0].trace is not records[6].trace


def test_records_of_a_log_are_records(tmp_path):
    one = load(write(tmp_path / "log.jsonl", 4)).records[3]
    plain = Record.from_line(one.to_line())
    assert (one, hash(one), repr(one)) == (plain, hash(plain), repr(plain))
    copied = pickle.loads(pickle.dumps(one))
    assert (copied, copied.candidate) == (plain, plain.candidate)
    changed = replace(one, times=(7.0,), ts=5.0)
    assert (changed.median, changed.ts, changed.candidate) == (7.0, 5.0, plain.candidate)
    assert (changed.usable, changed.id != one.id) == (True, True)


def test_a_log_is_read_while_it_grows(tmp_path):
    path = write(tmp_path / "log.jsonl", 5)
    lengths, skipped = [], []

    def read():
        for _ in range(12):
            log = load(path)
            lengths.append(len(log))
            skipped.extend(item for item in log.skipped if item.reason != "torn line")

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    write(path, 120)
    for reader in readers:
        reader.join()
    assert len(lengths) == 36
    assert not skipped
    assert len(load(path)) == 125


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_mark_of_unicode_before_a_line_that_is_no_record_is_passed_over(tmp_path, end):
    """An editor of Windows puts it there; the first line of a log is a header as a rule."""
    path = tmp_path / "log.jsonl"
    path.write_text(f'\ufeff{{"header":{{"run":"feedfacecafe"}},"v":1}}{end}')
    assert len(load(path).headers) == 1


def test_ids_are_those_of_this_version_whoever_wrote_the_lines():
    ours = [record(3, ts=float(ts)) for ts in range(3)]
    theirs = [dict(reversed(one.to_json().items())) for one in ours]
    theirs = [{"v": 1, **{n: v for n, v in one.items() if n != "v"}} for one in theirs]
    mixed = [sealed(body_of(theirs[2], "a record"))]
    for lines in (
        [one.to_line() for one in ours[:2]] + mixed,  # the first does not tell of the others
        [one.to_line() for one in ours],
        [sealed(body_of(one, "a record")) for one in theirs],
        [sealed(body_of(one.to_json(), "a record").replace("0.001,", "1e-3,")) for one in ours],
    ):
        records = load_lines(lines).records
        assert records == ours
        assert [one.id for one in records] == [one.id for one in ours]
