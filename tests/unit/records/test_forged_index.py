"""What somebody wrote into the index of a log: it is noticed, or it changes nothing."""

from __future__ import annotations

import hashlib
import json
import random
from array import array

import pytest

from loopwright.errors import RecordError
from loopwright.records import Checked, Store, best, load, open_log
from loopwright.records.index import open as opening
from loopwright.records.index.block import COLUMNS, SharedValues, decode, encode, index_path
from tests.unit.records.index_logs import from_index, record, same, write


@pytest.fixture(autouse=True)
def index_everything(monkeypatch):
    """An index for the smallest log, of small blocks, always up to date."""
    monkeypatch.setattr(opening, "SMALL", 0)
    monkeypatch.setattr(opening, "_BLOCK", 16384)
    monkeypatch.setattr(opening, "_NEWS", 0)


def forge(path, edit):
    """Change an index as somebody would who knows its form: all its digests are right."""
    first, rest = index_path(path).read_bytes().split(b"\n", 1)
    out = [first, b"\n"]
    while rest:
        frame, rest = rest.split(b"\n", 1)
        _, head_size, size = frame.split()
        middle, end = int(head_size), int(head_size) + int(size)
        head, body, rest = json.loads(rest[:middle]), rest[middle:end], rest[end + 1 :]
        parts, at = {}, 0
        for name, length in head["parts"].items():
            parts[name] = body[at : at + length]
            at += length
        edit(head, parts)
        if isinstance(head["parts"], dict):
            sizes = {name: len(part) for name, part in parts.items()}
            head["parts"] = {**sizes, **head.get("forged sizes", {})}
        text, body = json.dumps(head).encode(), b"".join(parts.values())
        digest = hashlib.sha256(text + body).hexdigest()
        out += [f"{digest} {len(text)} {len(body)}\n".encode(), text, body, b"\n"]
    index_path(path).write_bytes(b"".join(out))
    assert index_path(path).stat().st_size < path.stat().st_size


def count_of(head, parts):
    return len(parts["lengths"]) // 8 - len(head["others"])


def decoded(head, parts, name):
    return decode(name, memoryview(parts[name]), count_of(head, parts), SharedValues())


def refuted(path):
    """A log whose fastest candidate gave a wrong answer afterwards."""
    write(path)
    with Store(path) as store:
        store.append(record(70, 1e-5))
        store.append(record(70, None, error={"kind": "WRONG_ANSWER", "text": "differs"}, ts=2e9))
    same(path)
    return path


def hide_failure(head, parts):
    for name in ("wrong", "failed_again"):
        parts[name] = encode(name, [False] * count_of(head, parts))


def hide_kind(head, parts):
    hide_failure(head, parts)
    errors = decoded(head, parts, "error")
    parts["error"] = encode("error", [e and {**e, "kind": "RUN_CRASH"} for e in errors])


def other_candidate(head, parts):
    wrong, names = decoded(head, parts, "wrong"), decoded(head, parts, "candidate")
    changed = ["0" * 64 if w else name for w, name in zip(wrong, names, strict=True)]
    parts["candidate"] = encode("candidate", changed)


@pytest.mark.parametrize("edit", [hide_failure, hide_kind, other_candidate])
def test_a_prepared_index_does_not_bring_back_a_refuted_candidate(tmp_path, edit):
    path = refuted(tmp_path / "log.jsonl")
    wanted = best(load(path)).id
    forge(path, edit)
    assert best(open_log(path)).id == wanted


def leave_out(head, parts):
    """The last line of a block joins the one before."""
    columns = {name: decoded(head, parts, name)[:-1] for name in COLUMNS}
    *lengths, one, two = array("Q", parts["lengths"])
    parts["lengths"] = array("Q", [*lengths, one + two]).tobytes()
    parts.update({name: encode(name, values) for name, values in columns.items()})


def call_it_a_comment(head, parts):
    leave_out(head, parts)
    *lengths, last = array("Q", parts["lengths"])
    parts["lengths"] = array("Q", [*lengths, last - 10, 10]).tobytes()
    head["others"].append(len(lengths) + 1)


@pytest.mark.parametrize("edit", [leave_out, call_it_a_comment])
def test_a_prepared_index_leaves_out_no_line(tmp_path, edit):
    path = refuted(tmp_path / "log.jsonl")
    forge(path, edit)
    same(path)


def faster(head, parts):
    medians = decoded(head, parts, "median")
    medians[7] = 1e-9  # of a row that no opening compares
    parts["median"] = encode("median", medians)


def test_a_prepared_index_that_changes_a_time_is_found_when_the_record_is_used(tmp_path):
    path = refuted(tmp_path / "log.jsonl")
    forge(path, faster)
    with pytest.raises(RecordError, match=r"not what its index says.*remove '.*log.jsonl.index'"):
        _ = best(open_log(path)).trace


JUNK = [None, True, -1, 10**30, "x", [], [[]], {}, [1], {"a": 1}, 1e400]


@pytest.mark.parametrize("seed", range(4))
def test_a_prepared_index_of_any_form_raises_nothing_else(tmp_path, seed):
    path = refuted(tmp_path / "log.jsonl")
    sound, draw = index_path(path).read_bytes(), random.Random(seed)

    def spoil(head, parts):
        name = draw.choice(list(parts))
        count = count_of(head, parts)
        match draw.randrange(7):
            case 0:
                head[draw.choice(list(head))] = draw.choice(JUNK)
            case 1:
                head["forged sizes"] = {name: draw.choice([*JUNK, len(parts[name]) + 1])}
            case 2:
                part = bytearray(parts[name])
                part[draw.randrange(len(part))] = draw.randrange(256)
                parts[name] = bytes(part)
            case 3:
                parts[name] = parts[name][: draw.randrange(len(parts[name]))]
            case 4:
                texts = json.dumps([draw.choice(JUNK) for _ in range(count)])
                parts[name] = b"j" + texts.encode()
            case 5:
                parts[name] = b"B" + bytes(count) + json.dumps(draw.choice(JUNK)).encode()
            case 6:
                parts[name] = draw.choice([b"d", b"q"]) + b"\xff" * (8 * count)

    for _ in range(15):
        index_path(path).write_bytes(sound)
        forge(path, spoil)
        try:
            for one in open_log(path):
                one.to_line()
        except RecordError as error:
            assert "index" in str(error)  # noqa: PT017 -- it need not raise


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ts", [0.5, 1.0, 2.0]),
        ("ts", [0.5, 1, 2.0]),
        ("median", [None, 1e-3, 5e-324, 1.7e308]),
        ("max_error", [None, 0, 0.0, -0.0, 0.1]),
        ("trial", [0, 2**63 - 1]),
        ("seed", [None, 10**39, -1]),
        ("times", [(), (1e-3,), (0.1, 0.2, 0.3), ()]),
        ("config", [{}, {}]),
        ("config", [{"a": [1, 2.0]}, {"a": [1.0, 2]}, {"a": True}, {"a": 1}]),
        ("config", [{"b": 1, "a": 2}, {}, {"a": 2, "b": 1}, {"x\ny": "\ud800\n"}]),
        ("op", [f"\u2028 line\nbreak {n}" for n in range(300)]),
        ("candidate", ["", "a", "a"]),
        ("checked", [Checked.YES, Checked.OFF, Checked.NO, Checked.YES]),
        ("error", [None, {"kind": "x", "text": "a\nb"}, None]),
        ("args", [[1, True, 1.0], [True, 1, 1.0], [[], {}]]),
        ("task", []), ("config", []), ("times", []), ("median", []), ("id", []), ("trial", []),
    ],
)  # fmt: skip
def test_a_column_is_read_as_it_was_written(name, values):
    read = decode(name, memoryview(encode(name, values)), len(values), SharedValues())
    assert repr(read) == repr(values)
    assert [type(one) for one in read] == [type(one) for one in values]
    with pytest.raises(RecordError, match=f"column '{name}' of the index is malformed"):
        decode(name, memoryview(encode(name, values)), len(values) + 1, SharedValues())


def test_any_damaged_byte_of_an_index_is_noticed(tmp_path):
    path = write(tmp_path / "log.jsonl", 20)
    same(path)
    sound = index_path(path).read_bytes()
    for at in range(0, len(sound), 97):
        index_path(path).write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        assert from_index(path) < 1.0
    same(path)
    assert from_index(path) == 1.0
