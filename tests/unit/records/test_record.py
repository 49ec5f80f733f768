"""A record survives its line, and nothing malformed passes for one."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from loopwright.errors import RecordError
from loopwright.records import Checked, Record, canonical_json, task_key
from loopwright.records.line import MAX_DEPTH, MAX_DIGITS, sealed

KEY = '["demo/matmul",[64,64,"float32"],"llvm"]'


def make(**changes):
    fields = {
        "task": KEY,
        "op": "demo/matmul",
        "args": [64, 64, "float32"],
        "target": {"kind": "llvm", "mcpu": "znver4", "num_threads": 2},
        "config": {"tile_i": [-1, 8], "mode": "fast"},
        "times": (0.3, 0.1, 0.2),
        "dag": "d1",
        "trace": [["split", 2, "i", 8], ["vectorize", 2, "i.1"]],
        "space": "s1",
        "build": "b1",
        "run": "r1",
        "trial": 3,
        "seed": 7,
        "ts": 100.5,
        "env": {"cpu": "EPYC", "isa": "avx2", "cores": 4},
    }
    return Record(**(fields | changes))


def fields_of(record):
    """The fields of a record's line without the checksum."""
    data = json.loads(record.to_line())
    del data["sum"]
    return data


def line_of(data):
    """A line with a checksum that fits, whatever it holds."""
    return sealed(json.dumps(data))


def test_a_line_holds_the_documented_fields_and_reads_back_equal():
    record = make(max_error=1e-6)
    line = record.to_line()
    assert "\n" not in line
    data = json.loads(line)
    assert data["v"] == 1
    assert data["times"] == [0.3, 0.1, 0.2]
    assert data["error"] is None
    assert data["config"] == {"tile_i": [-1, 8], "mode": "fast"}
    assert Record.from_line(line) == record
    assert Record.from_line(line.encode()).max_error == 1e-6


def test_tuples_and_numpy_numbers_are_written_as_json():
    record = make(args=[64, (np.int64(1), 2)], times=(np.float64(0.5),))
    assert json.loads(record.to_line())["args"] == [64, [1, 2]]
    assert Record.from_line(record.to_line()) == record
    assert type(record.times[0]) is float


def test_fields_of_a_later_minor_version_are_kept():
    record = Record.from_line(line_of(fields_of(make()) | {"colour": ["red"]}))
    assert record.extra == {"colour": ["red"]}
    assert json.loads(record.to_line())["colour"] == ["red"]


def test_median_valid_and_usable():
    assert make().median == 0.2
    assert make(times=(0.4, 0.2)).median == pytest.approx(0.3)
    assert make().usable
    dropped = make(dropped=True)
    assert dropped.valid
    assert not dropped.usable
    failed = make(times=(), error={"kind": "COMPILE", "text": "no"})
    assert not failed.valid
    assert failed.median is None
    assert not make(times=()).valid


def test_text_of_an_error_cannot_break_the_line():
    text = 'line one\nline two "quoted" \u2028 \udc80'
    failed = make(times=(), error={"kind": "RUN_CRASH", "text": text})
    assert "\n" not in failed.to_line()
    assert failed.to_line().isascii()
    assert Record.from_line(failed.to_line()).error == {"kind": "RUN_CRASH", "text": text}


@pytest.mark.parametrize(
    "times", [(0.0,), (-1.0,), (float("nan"),), (float("inf"),), ("1",), (True,)]
)
def test_times_that_are_no_times_are_refused(times):
    with pytest.raises(RecordError, match="times"):
        make(times=times)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": 2}, "version 2 is newer than 1"),
        ({"v": True}, "no version"),
        ({"v": 0}, "version 0"),
        ({"task": 5}, "'task' is malformed"),
        ({"times": [1e999]}, "Infinity is no number"),
        ({"times": [10**39, -1]}, "times"),
        ({"times": None}, "'times' is malformed"),
        ({"trial": "1"}, "'trial' is malformed"),
        ({"error": {"text": "x"}}, "'error' is malformed"),
        ({"error": {"kind": "COMPILE", "text": ["x"]}}, "'error' is malformed"),
        ({"trial": -1}, "'trial' is malformed"),
        ({"round": 2**63}, "'round' is malformed"),
        ({"ts": -1.0}, "'ts' is malformed"),
        ({"ts": 1e300}, "'ts' is malformed"),
        ({"build_s": -0.5}, "'build_s' is malformed"),
        ({"build_s": 1e308}, "'build_s' is malformed"),
        ({"run_s": 2**63}, "'run_s' is malformed"),
        ({"times": [1e308]}, "'times' holds '1e\\+308'"),
        ({"trace": ["split"]}, "'trace' is malformed"),
        ({"env": {"cpu": ["EPYC"]}}, "'env' is malformed"),
        ({"env": {"cores": -1}}, "'env' is malformed"),
        ({"target": {"kind": ["llvm"]}}, "'target' is malformed"),
        ({"checked": "maybe"}, "'checked' is malformed"),
        ({"verdict": {"outcome": "faster"}}, "'verdict' is malformed"),
        ({"config": []}, "'config' is malformed"),
        ({"dropped": 1}, "'dropped' is malformed"),
    ],
)
def test_malformed_lines_say_what_is_wrong(change, words):
    with pytest.raises(RecordError, match=words):
        Record.from_line(line_of(fields_of(make()) | change))


@pytest.mark.parametrize("value", [(), (("split",),), {"a"}, frozenset(), [("split",)]])
def test_lists_are_lists(value):
    for name in ("times", "args", "trace") if type(value) is not list else ("trace",):
        with pytest.raises(RecordError, match=f"'{name}' is malformed"):
            Record.from_json(fields_of(make()) | {name: value})


@pytest.mark.parametrize("line", ["", "{", "[1]", "3", "null", "[" * 100_000])
def test_what_is_no_object_is_no_record(line):
    with pytest.raises(RecordError):
        Record.from_line(line)


def test_a_missing_field_is_named():
    data = fields_of(make())
    del data["config"]
    with pytest.raises(RecordError, match="'config' is missing"):
        Record.from_line(line_of(data))


def test_what_json_cannot_say_is_refused_when_writing():
    with pytest.raises(RecordError, match="cannot be written"):
        make(config={"x": object()}).to_line()
    with pytest.raises(RecordError, match="cannot be written"):
        make(max_error=float("nan")).to_line()


@pytest.mark.parametrize("at", range(0, 600, 7))
def test_a_flipped_bit_anywhere_is_noticed(at):
    line = bytearray(make(code="c1").to_line().encode())
    line[at % len(line)] ^= 1 << at % 8
    with pytest.raises(RecordError):
        Record.from_line(bytes(line))


def test_the_checksum_is_that_of_the_documentation():
    line = make().to_line()
    body, _, rest = line.rpartition(',"sum":"')
    assert rest == f'{zlib.crc32(body.encode()):08x}"}}'


def test_a_line_without_checksum_is_of_before_unless_it_says_checked():
    data = fields_of(make(checked=Checked.YES))
    with pytest.raises(RecordError, match="damaged line"):
        Record.from_line(json.dumps(data))
    del data["checked"]
    old = Record.from_line(json.dumps(data))
    assert old.checked is Checked.NO
    assert old.id == Record.from_line(old.to_line()).id
    with pytest.raises(RecordError, match="damaged line"):
        Record.from_line(json.dumps(data | {"sum": "00000000", "v": 1}, sort_keys=True))


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "-Infinity", "1e400", "-1e999", '"\x00"'),
        *("1" + "0" * 400, "1" * (MAX_DIGITS + 1), "1" * 5000),
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
    ],
)
def test_values_that_no_field_may_hold(text):
    line = json.dumps({"v": 1, "task": "t"})[:-1] + f',"config":{{"a":{text}}}}}'
    data = line.encode()
    with pytest.raises(RecordError):
        Record.from_line(line)
    with pytest.raises(RecordError):
        Record.from_line(data[:-1] + b',"sum":"%08x"}' % zlib.crc32(data[:-1]))


def test_what_no_reader_would_take_is_not_written():
    deep = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    for value in (deep, 10**MAX_DIGITS):
        with pytest.raises(RecordError):
            make(config={"x": value}).to_line()
    text = {"kind": "RUN_CRASH", "text": "[" * 1000 + "1" * 1000 + '"]{'}
    failed = make(times=(), error=text)
    assert Record.from_line(failed.to_line()).error == text


def test_task_key_is_canonical():
    assert task_key("demo/matmul", (64, 64, "float32"), "llvm") == KEY
    assert task_key("a", [(1, 2)], "llvm") == task_key("a", [[1, 2]], "llvm")
    assert task_key("a", [1], "llvm") != task_key("a", [1.0], "llvm")
    assert task_key("a", [1], "llvm") != task_key("a", [True], "llvm")
    assert canonical_json({"b": 1, "a": [1, 2]}) == '{"a":[1,2],"b":1}'


def test_hardware_threads_and_identity():
    record = make()
    assert record.threads == 2
    assert make(target={"kind": "llvm", "num_threads": 0}).threads == 4
    assert make(target={"kind": "llvm"}, env={}).threads == 0
    assert record.hardware == make(env={"cpu": "EPYC", "isa": "avx2", "cores": 64}).hardware
    assert record.hardware != make(env={"cpu": "Xeon", "isa": "avx2"}).hardware
    assert make(target={"kind": "llvm"}, env={}).hardware == ""
    assert record.candidate == make(ts=5.0, times=(9.0,), run="other").candidate
    assert record.candidate != make(config={"tile_i": [-1, 4]}).candidate
    assert record.id == make().id != make(ts=5.0).id
    assert len(record.id) == 10


def test_what_constants_take_is_written_where_there_are_some():
    assert "prepare_s" not in make().to_line()
    record = make(prepare_s=0.002)
    again = Record.from_line(record.to_line())
    assert again == record
    assert again.prepare_s == 0.002
    with pytest.raises(RecordError, match="field 'prepare_s' is malformed"):
        Record.from_json({**json.loads(record.to_line()), "prepare_s": -1})
