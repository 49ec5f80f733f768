"""Every verb that reads a log, on what is none, on half of one, and on one that means harm.

Each says in one line on standard error what is wrong, where, and what to do; it fails, and nothing
is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import loopwright as lw
from loopwright.measure.candidate import Candidate, describe
from loopwright.records import Store, load
from tests.cli.conftest import WORKLOAD, Cli
from tests.unit.inspection.logs import record_of, write
from tests.unit.records.reports.made_logs import record as made

#: The words behind ``loopwright``, for a log and a record of it.
Words = Callable[[str, str], list[str]]


def _records(verb: str, *more: str) -> Words:
    return lambda log, record: ["records", verb, log, *more]


def _named(verb: str, *more: str) -> Words:
    return lambda log, record: ["records", verb, log, record, *more]


def _workload(verb: str, *more: str) -> Words:
    return lambda log, record: [verb, *WORKLOAD, "--history", log, "--record", record, *more]


#: Verbs that take one record.
NAMED: dict[str, Words] = {
    "show": _named("show"),
    "compare": _named("compare"),
    "export": _named("export", "-o", "out.py"),
    "rerun": _named("rerun", "--emit", "nest"),
    "lower": _workload("lower"),
    "build": _workload("build", "-o", "out.o"),
    "bench": _workload("bench", "--rounds", "3"),
}
VERBS: dict[str, Words] = {
    **{v: _records(v) for v in ("list", "best", "top", "curve", "errors", "importance")},
    **{v: _records(v, "-o", "out.jsonl") for v in ("merge", "pick", "distill")},
    "split": _records("split", "-o", "out"),
    "validate": _records("validate"),
    **NAMED,
    "lower the best": lambda log, _: ["lower", *WORKLOAD, "--history", log],
    "build the best": lambda log, _: ["build", *WORKLOAD, "--history", log, "-o", "out.o"],
}
#: Those that take the number of a trial.
BY_TRIAL = ("rerun", "lower", "build", "bench")
#: What each file says that is no log, or has no record.
FILES: dict[str, tuple[bytes | None, str]] = {
    "missing.jsonl": (None, "no log at 'missing.jsonl'; tune first, or check the path"),
    "empty.jsonl": (b"", "'empty.jsonl' is empty; tune into it: loopwright tune"),
    "blank.jsonl": (b"\n\n# a comment\n", "'blank.jsonl' is empty; tune into it"),
    "torn.jsonl": (b'{"v":1,"task":"[\\"matmul\\",[32', "is no log (1 line skipped"),
    "picture.png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01" * 50, "is no log (101 lines"),
    "README.md": (b"# Tuning\n\nRun `make tune`.\n", "(1 x not JSON)): it is text"),
    "array.json": (b"[1, 2]\n", "1 line skipped, the first is line 1"),
    "pretty.json": (b'{\n  "v": 1\n}\n', "3 lines skipped, the first is line 1"),
    "table.csv": (b"id,seconds\na,1\n", "2 lines skipped, the first is line 1 (2 x not JSON)"),
    "future.jsonl": (
        b'{"v": 99, "header": {}}\n{"v": 99}\n',
        "was written by a newer loopwright (version 99 is newer than 1, the last one known here): "
        "upgrade loopwright, or name another log",
    ),
    "header.jsonl": (
        b'{"header":{"run":"r1"},"v":1}\n',
        "header.jsonl has no record yet (1 run began, and no trial has ended): wait, or go on",
    ),
    "damaged.jsonl": (
        made().to_line().replace("r1", "r2").encode() + b"\n",
        "is no log (1 line skipped, the first is line 1 (1 x damaged line",
    ),
    "half.jsonl": (
        b'{"header":{"run":"r1"},"v":1}\n{"v": 99}\n',
        "half.jsonl has no record that can be read (1 line skipped, the first is line 2 (1 x "
        "version 99 is newer than 1, the last one known here)); `loopwright records validate half",
    ),
}


def _snapshot() -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in sorted(Path().rglob("*"))}


@pytest.fixture
def unchanged(cli: Cli) -> Iterator[Callable[..., None]]:
    """A function that writes files; whatever is there then is the same at the end."""
    before: dict[str, bytes] = {}

    def keep() -> None:
        before.update(_snapshot())

    yield keep
    assert _snapshot() == before


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of ``WORKLOAD`` with its expression, in which a digit is the beginning of two ids."""
    task = lw.create_task("matmul", (32, 32, 32), "llvm -num-threads=1")
    path = tmp_path_factory.mktemp("good") / "good.jsonl"
    log = write(path, [task])
    with Store(path) as store:
        for trial in range(1, 20):
            record = log.records[0]
            store.append(replace(record, trial=trial, times=(1e-3 + trial,)))
    return path


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_log_is_an_error_of_one_line(
    cli: Cli, unchanged: Callable[[], None], verb: str, name: str
) -> None:
    data, text = FILES[name]
    if data is not None:
        Path(name).write_bytes(data)
    unchanged()
    if name == "header.jsonl" and verb in ("list", "validate", "merge"):
        return  # a run that has just begun is a sound log of no records
    if name == "half.jsonl" and verb in ("validate", "merge"):
        return  # whole, and may be kept for the loopwright that wrote it
    ran = cli(*VERBS[verb](name, "best"))
    assert ran.code == (2 if data is None else 1)
    assert text in ran.error
    assert ran.out == ""


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_is_no_log(cli: Cli, unchanged: Callable[[], None], verb: str) -> None:
    Path("empty").mkdir()
    Path("logs").mkdir()
    Path("logs/a.jsonl").touch()
    unchanged()
    ran = cli(*VERBS[verb]("empty", "best"))
    assert ran.code == 1
    assert re.search(r"'empty' .*holds no (log|\*\.jsonl)", ran.error)
    assert "name a log file" in ran.error
    assert ran.out == ""
    ran = cli(*VERBS[verb]("logs", "best"))
    assert ran.code == 1
    assert "a.jsonl" in ran.error


def test_a_run_that_has_just_begun_is_sound(cli: Cli, unchanged: Callable[[], None]) -> None:
    Path("log.jsonl").write_bytes(FILES["header.jsonl"][0] or b"")
    unchanged()
    listed = cli("records", "list", "log.jsonl")
    assert (listed.code, listed.out) == (0, "")
    assert "log.jsonl has no record yet" in listed.err
    assert "no line is damaged" in cli("records", "validate", "log.jsonl").out


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("bench", "build")])
def test_a_torn_last_line_is_said_and_the_rest_is_read(cli: Cli, good: Path, verb: str) -> None:
    data = good.read_bytes()
    Path("log.jsonl").write_bytes(data + data.splitlines()[-1][:200])
    ran = cli(*VERBS[verb]("log.jsonl", "best"))
    assert ran.code == (verb in ("validate", "importance"))  # which no equal knobs explain
    if verb == "validate":
        assert "line 22: torn: cut off in the middle" in ran.out
        return
    if verb == "merge":  # which keeps all lines
        assert len(load("out.jsonl").skipped) == 1
        return
    if verb in ("pick", "distill", "split"):
        assert load(next(Path().rglob("out*/*.jsonl"), Path("out.jsonl"))).records
    assert "log.jsonl: 1 line skipped, the first is line 22 (1 x torn line)" in ran.err


@pytest.mark.parametrize("verb", NAMED)
def test_a_record_that_is_not_there(
    cli: Cli, unchanged: Callable[[], None], good: Path, verb: str
) -> None:
    Path("log.jsonl").write_bytes(good.read_bytes())
    unchanged()
    ran = cli(*NAMED[verb]("log.jsonl", "0123456789"))
    assert ran.code == 2
    assert (
        "log.jsonl has no record '0123456789'; `loopwright records list log.jsonl` shows ids"
    ) in ran.error
    ids = [record.id for record in load(good).records]
    twice = next(i[0] for i in ids if sum(other[0] == i[0] for other in ids) > 1)
    ran = cli(*NAMED[verb]("log.jsonl", twice))
    assert ran.code == 2
    assert re.search(rf"records of log.jsonl have ids that begin with '{twice}': ", ran.error)
    assert "; give more digits" in ran.error
    if verb in BY_TRIAL:
        by_trial = [
            "--trial" if word == "--record" else word for word in NAMED[verb]("log.jsonl", "99")
        ]
        at = by_trial.index("99")
        words = by_trial if "--trial" in by_trial else [*by_trial[:at], "--trial", *by_trial[at:]]
        ran = cli(*words)
        assert ran.code == 2
        assert "log.jsonl has no trial 99; its trials go from 0 to 19" in ran.error


@pytest.mark.parametrize("verb", ["merge", "pick", "distill"])
@pytest.mark.parametrize("name", ["picture.png", "README.md", "table.csv", "future.jsonl"])
def test_a_file_that_is_no_log_is_not_replaced_by_one(
    cli: Cli, unchanged: Callable[[], None], good: Path, verb: str, name: str
) -> None:
    Path("log.jsonl").write_bytes(good.read_bytes())
    Path(name).write_bytes(FILES[name][0] or b"")
    unchanged()
    ran = cli("records", verb, "log.jsonl", "-o", name)
    assert ran.code == 1
    assert name in ran.error


@pytest.mark.parametrize("verb", ["merge", "pick", "distill", "split", "export"])
def test_what_cannot_be_written_is_said(
    cli: Cli, unchanged: Callable[[], None], good: Path, verb: str
) -> None:
    Path("log.jsonl").write_bytes(good.read_bytes())
    Path("file").write_text("of mine\n")
    unchanged()
    ran = cli("records", verb, "log.jsonl", "-o", "file/out")
    assert ran.code == 1
    assert "cannot " in ran.error
    assert "file/out" in ran.error


@pytest.mark.parametrize("verb", ["pick", "distill"])
def test_where_nothing_is_usable_nothing_is_picked(
    cli: Cli, unchanged: Callable[[], None], good: Path, verb: str
) -> None:
    failed = {"times": (), "error": {"kind": "COMPILE", "text": "no"}}
    with Store("log.jsonl") as store:
        store.append(replace(load(good).records[0], **failed))
    unchanged()
    ran = cli("records", verb, "log.jsonl", "-o", "out.jsonl")
    assert ran.code == 1
    assert "log.jsonl: no usable record among 1, all failed or were dropped" in ran.error


BAD = "\x1b[31m\x07<script>alert(1)</script>\u202e"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with escapes of a terminal and markup wherever it holds text."""
    task = lw.create_task("matmul", (32, 32, 32), "llvm -num-threads=1")
    schedule, args = task.instantiate(0)
    error = {"kind": f"K{BAD}", "text": f"no {BAD}"}
    own = record_of(task, 0, 0)
    path = tmp_path_factory.mktemp("harmful") / "harmful.jsonl"
    with Store(path) as store:
        store.header({"run": BAD, "ts": 1.0})
        expression = describe(task, Candidate(schedule.dag, [], schedule.arg_ids(args), "main"), 0)
        store.expression(expression)
        for n in range(30):
            bad = bool(n % 3 == 1)
            fields = {
                "trial": n,
                "op": BAD,
                "config": {BAD: BAD * (n % 4), "n": n % 3},
                "times": () if bad else (1e-3 * (1 + n),),
                "error": error if bad else None,
                "run": BAD,
                "phase": BAD if n == 5 else "",
                "check_reason": BAD,
                "checked": "no",
                "env": {**own.env, "cpu": BAD},
            }
            store.append(replace(own, **fields))
    return path


@pytest.fixture
def harmful(cli: Cli, written: Path) -> str:
    """A copy of it in the folder in which commands run."""
    Path(written.name).write_bytes(written.read_bytes())
    return written.name


@pytest.mark.parametrize("verb", VERBS)
def test_escapes_and_markup_in_a_log_stay_text(
    cli: Cli, harmful: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.cli.bench._numpy", lambda *_: None)
    words = VERBS[verb](harmful, "best")
    known = cli(*words[:2], "--help").out
    for form in [[], *([form] for form in ("--json", "--csv") if form in known)]:
        ran = cli(*words, *form)  # the fixture looks for control codes
        assert "Traceback" not in ran.err, form
        assert "internal error" not in ran.err, form
        assert "\u202e" not in ran.out + ran.err, form
        for path in (Path("out.py"), *Path().glob("out*.jsonl")):
            assert not path.exists() or "\x1b" not in path.read_text(), form


@pytest.mark.parametrize("option", ["--task", "--target", "--hardware", "--run"])
def test_names_that_an_error_lists_stay_text(cli: Cli, harmful: str, option: str) -> None:
    ran = cli("records", "list", harmful, option, "nothing")
    assert ran.code in (1, 2)
    assert "; it has " in ran.error
    assert "\u202e" not in ran.error


def test_json_of_a_harmful_log_is_json(cli: Cli, harmful: str) -> None:
    for verb in ("list", "best", "top", "curve", "errors", "importance", "validate"):
        for line in cli("records", verb, harmful, "--json").out.splitlines():
            assert isinstance(json.loads(line), dict)
