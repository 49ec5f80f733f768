"""Caches of Kernel Tuner, results in the T4 format and logs of Ansor are read as records."""

from __future__ import annotations

import gzip
import json
import math
import os
import threading
import tracemalloc
from contextlib import nullcontext

import pytest

import loopwright as lw
from loopwright.errors import RecordError
from loopwright.inspection.dashboard import LiveReport
from loopwright.records import check_has_records, foreign, load, merge, pick
from loopwright.records.follow import Follower
from loopwright.records.reports.curve import best_so_far
from loopwright.records.reports.importance import importance
from loopwright.records.reports.standings import standings
from loopwright.records.validation import LineKind, validate

PARAMS = {"block": [16, 32, 64, 128], "tile": [1, 2, 4], "method": ["a", "b"], "pad": [True, False]}
CONFIGS = [
    {"block": block, "tile": tile, "method": method, "pad": pad}
    for block in PARAMS["block"]
    for tile in PARAMS["tile"]
    for method in PARAMS["method"]
    for pad in PARAMS["pad"]
]
#: What stands in the place of a time, and the kind of error that it is.
FAILURES = {
    "InvalidConfig": "INSTANTIATION",
    "CompilationFailedConfig": "COMPILE",
    "RuntimeFailedConfig": "RUN_ERROR",
    "ErrorConfig": "RUN_ERROR",
    math.nan: "RUN_ERROR",
    math.inf: "RUN_ERROR",
    None: "RUN_ERROR",
    0: "RUN_ERROR",
    -1.5: "RUN_ERROR",
    1e20: "RUN_ERROR",
    True: "RUN_ERROR",
}


def milliseconds(config):
    return 3.0 + abs(config["block"] - 64) / 16 + config["tile"] / 7 + 0.01 * config["pad"]


def entry(config, time=None, **more):
    time = milliseconds(config) if time is None else time
    return {
        **config, "time": time, "times": [time, time], "compile_time": 440.5,
        "verification_time": 0, "benchmark_time": 1.5, "GFLOP/s": 12.0, "strategy_time": 0,
        "framework_time": 1.7, "timestamp": "2022-12-23 12:11:26.411558+00:00", **more,
    }  # fmt: skip


def cache(entries, **fields):
    """The text of a cache of Kernel Tuner while its run goes on: a header, then a line each."""
    header = {
        "device_name": "NVIDIA A100", "kernel_name": "vector_add", "problem_size": [4096, 4096],
        "tune_params_keys": list(PARAMS), "tune_params": PARAMS, "objective": "time",
        **fields, "cache": {},
    }  # fmt: skip
    text = json.dumps(header, indent="")[:-3]
    for one in entries:
        key = ",".join(str(value) for value in list(one.values())[: len(PARAMS)])
        text += "\n" + json.dumps({key: one})[1:-1] + ","
    return text


def closed(text):
    return text.rstrip(",") + "}\n}"


def t4(results, **metadata):
    return {"results": results, "schema_version": "1.0.0", "metadata": metadata}


def t4_result(config, value=None, invalidity="correct", unit="", **more):
    value = milliseconds(config) if value is None else value
    return {
        "timestamp": "2022-12-23 12:11:26.411558+00:00", "configuration": config,
        "times": {"compilation": 440.5, "benchmark": 1.5, "framework": 1.7, "runtimes": [value]},
        "invalidity": invalidity, "correctness": 1,
        "measurements": [{"name": "time", "value": value, "unit": unit}], "objectives": ["time"],
        **more,
    }  # fmt: skip


def written(path, text):
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def figures(log):
    return [(record.config, record.times, record.error) for record in log]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "A100.json"


@pytest.fixture
def whole(path):
    return written(path, closed(cache(map(entry, CONFIGS))))


def test_a_cache_is_read_with_its_names_and_numbers(whole):
    log = load(whole)
    assert not log.skipped
    assert figures(log) == [(c, (milliseconds(c) / 1000,), None) for c in CONFIGS]
    first = log.records[0]
    assert (first.op, first.args, first.trial) == ("vector_add", [4096, 4096], 1)
    assert first.hardware.startswith("NVIDIA A100")
    assert (first.build_s, first.run_s, first.ts) == (0.4405, 0.0015, 1671797486.411558)
    assert first.extra["kernel_tuner"]["GFLOP/s"] == 12.0
    (header,) = log.headers
    assert header["kernel_tuner"]["tune_params"] == PARAMS
    assert lw.records.load_expressions(whole).headers == [header]
    assert validate(whole).lines[LineKind.KERNEL_TUNER] == len(CONFIGS)


def test_reports_agree_with_what_the_cache_says(whole):
    times = [milliseconds(config) / 1000 for config in CONFIGS]
    log = load(whole)
    assert best_so_far(log.records, log.headers).best.tolist() == [
        min(times[: n + 1]) for n in range(len(times))
    ]
    (table,) = standings(log.records, 5)
    assert [place.record.median for place in table.places] == sorted(times)[:5]
    assert [knob.knob for knob in importance(log.records).knobs][:2] == ["block", "tile"]


def test_forms_of_one_cache_give_the_same(path, whole, tmp_path):
    same = figures(load(whole))
    data = json.loads(whole.read_text())
    reordered = {"cache": data.pop("cache"), **data}
    for text in (
        cache(map(entry, CONFIGS)),  # a run that goes on
        cache(map(entry, CONFIGS)) + "\n",
        json.dumps(reordered),
        json.dumps(reordered, indent=4),
        "\ufeff\r\n " + json.dumps(reordered),
        json.dumps({"comment": "x", **reordered}),
        json.dumps({"comment": {"x": 1}, **reordered}, indent=1),
        json.dumps(t4(list(map(t4_result, CONFIGS)))),
        json.dumps(t4([*map(t4_result, CONFIGS)]), indent=2),
    ):
        assert figures(load(written(path, text))) == same
        packed = tmp_path / "packed"
        packed.write_bytes(gzip.compress(text.encode()))
        assert figures(load(packed)) == same


@pytest.mark.parametrize("text", [cache([]), closed(cache([])), cache([])[:-1]])
def test_a_cache_without_results_has_no_record_yet(path, text):
    log = load(written(path, text))
    if text.endswith(("{", "}")):
        with pytest.raises(RecordError, match=r"no record yet \(1 run began"):
            check_has_records(log)
    else:
        with pytest.raises(
            RecordError, match="is a JSON object with the keys device_name, kernel_name"
        ):
            check_has_records(log)


def test_what_was_cut_off_is_read_as_far_as_it_goes(path, tmp_path):
    """Every cut gives the results before it, and counts one that is torn."""
    text = closed(cache(map(entry, CONFIGS[:2])))
    same = figures(load(written(path, text)))
    ends = [text.index('\n"' + key) for key in ("16,1,a,T", "16,1,a,F")]
    for cut in range(ends[0], len(text), 3):
        log = load(written(path, text[:cut]))
        whole = sum(text[end:cut].count("}") > 0 for end in ends)
        assert figures(log) == same[:whole]
        end = text.count("\n", 0, cut)
        assert [line for line, _ in log.skipped] in ([], [end + 1], [end + 2])
    packed = tmp_path / "packed"
    data = gzip.compress(text.encode())
    for cut in range(30, len(data), 17):
        packed.write_bytes(data[:cut])
        log = load(packed)
        assert figures(log) == same[: len(log)]
    # Between results.
    text = json.dumps({"results": list(map(t4_result, CONFIGS[:2])), "schema_version": "1.0.0"})
    for end in (text.index(', {"timestamp"'), text.index(', "schema')):
        assert len(load(written(path, text[:end])).skipped) == (text[end - 1] == "}")
    assert validate(written(path, closed(cache(map(entry, CONFIGS[:2])))[:-4])).bad == 1


def test_a_damaged_result_costs_only_itself(path):
    text = closed(cache(map(entry, CONFIGS[:4])))
    place = text.index('"16,1,a,False"')
    for damaged in (
        text[:place] + "\0" * 40 + text[place + 40 :],
        text[:place] + text[place:].replace('"compile_time":', "", 1),
        text[:place] + '"torn": {"block": 1, "ti\n' + text[place:],
    ):
        log = load(written(path, damaged))
        assert {reason for _, reason in log.skipped} == {"torn line"}
        assert len(log.skipped) == 1
        assert len(log) == 4 - ("torn" not in damaged)
    for one in (json.loads(text), t4(list(map(t4_result, CONFIGS[:4])))):  # in a single line
        log = load(written(path, json.dumps(one).replace('"benchmark', "benchmark", 1)))
        assert (len(log), len(log.skipped)) == (3, 1)


@pytest.mark.parametrize("value", FAILURES, ids=str)
def test_failures_are_errors_of_ours(path, value):
    one = {**entry(CONFIGS[0]), "time": value}
    (record,) = load(written(path, closed(cache([one]))))
    assert (record.times, record.error["kind"]) == ((), FAILURES[value])
    assert str(value).replace("nan", "NaN").replace("inf", "Inf") in record.error["text"]
    if isinstance(value, str):  # newer versions say so beside a time
        two = {**CONFIGS[0], "__error__": value, "timestamp": "yesterday"}
        (record,) = load(written(path, closed(cache([two]))))
        assert (record.error["kind"], record.ts) == (FAILURES[value], 0.0)


def test_a_remark_beside_a_time_is_no_failure(path):
    odd = {"kernel_name": ["a"], "device_name": None}
    text = closed(cache([entry(CONFIGS[0], note="InvalidConfig")], **odd))
    (record,) = load(written(path, text))
    assert (record.op, record.env, record.error) == ("A100", {}, None)


def test_a_huge_number_is_no_time(path):
    text = closed(cache([{**entry(CONFIGS[0]), "time": 123456.75}]))
    for number in ("1e999", "9" * 50, "9" * 5000, "-1e999"):
        (record,) = load(written(path, text.replace("123456.75", number)))
        assert record.error["kind"] == "RUN_ERROR"


@pytest.mark.parametrize(
    ("invalidity", "kind"),
    [
        ("timeout", "RUN_TIMEOUT"),
        ("compile", "COMPILE"),
        ("runtime", "RUN_ERROR"),
        ("correctness", "WRONG_ANSWER"),
        ("constraints", "INSTANTIATION"),
        ("of a later schema", "RUN_ERROR"),
    ],
)
def test_invalid_results_of_t4(path, invalidity, kind):
    (record,) = load(written(path, t4([t4_result(CONFIGS[0], 1.0, invalidity)])))
    assert (record.times, record.error["kind"]) == ((), kind)
    assert record.op == "A100"


@pytest.mark.parametrize(
    ("metadata", "unit", "seconds"),
    [
        ({}, "", 2e-3),
        ({"timeunit": "miliseconds"}, "", 2e-3),  # as Kernel Tuner spells it
        ({"timeunit": "microseconds"}, "", 2e-6),
        ({"timeunit": "microseconds"}, "ms", 2e-3),
        ({}, "seconds", 2.0),
        ({}, "ns", 2e-9),
        ({"timeunit": "cycles"}, "Minutes ", 120.0),
        ({"timeunit": "hours"}, " ", 7200.0),
    ],
)
def test_units_of_t4(path, metadata, unit, seconds):
    (record,) = load(written(path, t4([t4_result(CONFIGS[0], 2.0, unit=unit)], **metadata)))
    assert record.times == (seconds,)
    for odd in ("cycles", 5, ["ms"]):
        log = load(written(path, t4([t4_result(CONFIGS[0], 2.0, unit=odd)], **metadata)))
        assert [reason for _, reason in log.skipped] == [
            f"its time is in {str(odd)!a}, which is no known unit of time"
        ]
    without = t4_result(CONFIGS[0], measurements=[])
    without["times"]["runtimes"] = [1.0, 3.0]
    (record,) = load(written(path, t4([without])))
    assert record.times == (2e-3,)


def test_an_objective_that_is_no_time_is_said(path):
    score = {"name": "score", "value": 1.5, "unit": ""}
    for text in (
        closed(cache([{**CONFIGS[0], "score": 1.5}], objective="score")),
        t4([t4_result(CONFIGS[0], measurements=[score], objectives=["score"])]),
    ):
        with pytest.raises(RecordError, match=r"no time is among its values .*score"):
            check_has_records(load(written(path, text)))


@pytest.mark.parametrize(
    "text",
    [
        '{"cache": {"1": 5, "2": []}, "kernel_name": [], "tune_params_keys": 7}',
        '{"cache": {"1": {"time": {}}}, "tune_params": 4, "problem_size": null}',
        '{"results": [1, {"configuration": {}}, {"configuration": 3}]}',
        '{"results": {"a": {"configuration": {"x": 1}, "times": 3, "measurements": 4}}}',
        '{"results": [{"configuration": {}, "measurements": [{"name": []}], "objectives": 5}]}',
        '{"results": [{"configuration": {"k": [[[]]]}, "times": {"runtimes": ["x"]}}]}',
        '{"metadata": {}, "results": ' + "[" * 10_000,
        '{"kernel_name": 1, "cache": {"a": ' + '{"b": ' * 10_000,
        '{"kernel_name": "\\ud800", "cache": {"a": {"time": 1, "\\ud800": 1}}}',
        '{"cache"',
        '{"results": [',
        '{"results": [}',
        '{"cache": {]',
        '{"cache": {1: {}}, "kernel_name": 1}',
        '{"$schema": 1, "tune_params": 1, "cache": {"a": {"__error__": ["x"]}, "b": {"time": []}}}',
        '{"results": [], 5: 1}',
        '{"i": [["[]", "llvm"], [[], []]], "v": "v0.6"}',
        '{"i": [["[]", "llvm"], [[], [["SP"]]]], "r": [[1], 0, 1, 1], "v": "v0.6"}',
        '{"i": [["[]", "llvm"], [[], [["AN", 1]]]], "r": [[1], 0, 1, 1], "v": "v0.6"}',
        '{"i": [["[]", "llvm"], [[], [[["SP"], 1]]]], "r": [[1], 0, 1, 1], "v": "v0.6"}',
        '{"i": [["' + "[" * 20_000 + '", "llvm"], [[], []]], "r": [[1], 0, 1, 1], "v": "v0.6"}',
        '{"kernel_name": "k", "x": ' + "[" * 900 + "]" * 900 + ', "cache": {"a": {"time": 1}}}',
        '{"i": [[5, null], 7], "r": [], "v": "v0.2"}',
    ],
)
def test_malformed_results_are_counted(path, text):
    log = load(written(path, text))
    assert all(record.error is not None or record.times for record in log)
    assert log.records or log.skipped or log.headers
    with pytest.raises(RecordError) if not log.records else nullcontext():
        check_has_records(log)


def test_logs_are_made_of_results(whole, tmp_path):
    (best,) = pick([whole], tmp_path / "best.jsonl")
    assert load(tmp_path / "best.jsonl").records == [best]
    assert best.median == min(milliseconds(config) / 1000 for config in CONFIGS)
    _, twice = merge([whole, tmp_path / "best.jsonl"], tmp_path / "all.jsonl")
    assert (load(tmp_path / "all.jsonl").records, twice) == (load(whole).records, 1)
    assert lw.records.read_line(best.to_line().encode()) == best
    with pytest.raises(RecordError, match="is no log"):
        lw.records.Store(whole)


def test_a_cache_is_followed(path):
    follower = Follower(path)
    assert not follower.look().exists
    written(path, cache(map(entry, CONFIGS[:3])))
    news = follower.look()
    assert (news.restarted, len(news.log)) == (True, 3)
    assert (follower.look().restarted, len(follower.look().log)) == (False, 0)
    written(path, cache(map(entry, CONFIGS)))
    assert len(follower.look().log) == len(CONFIGS)
    written(path, load(path).records[0].to_line() + "\n")
    news = follower.look()
    assert (news.restarted, len(news.log)) == (True, 1)
    path.unlink()
    assert follower.look().restarted


#: Lines of Ansor, shortened, with their versions.
ANSOR = {
    "v0.2": [r'["matmul_add", 512, 512]', "llvm -keys=cpu -mcpu=core-avx2"],
    "v0.6": [r'["matmul_add", 512, 512]', "llvm -mcpu=core-avx2", [6, 64, 64], "", 1, []],
}
STEPS = [
    ["CHW", 2, "local"], ["SP", 2, 0, 512, [1, 64, 8], 1], ["RE", 2, [0, 1]], ["CA", 2, 3, 3],
    ["FSP", 3, 0, 1, 2], ["FU", 3, [0, 1]], ["AN", 3, 0, 3], ["AN", 3, 0, 2], ["CI", 1],
    ["PR", 2, 0, "auto_unroll_max_step$64"],
]  # fmt: skip


@pytest.mark.parametrize("version", ANSOR)
def test_ansor(path, version):
    line = {"i": [ANSOR[version], [[], STEPS]], "r": [[0.002, 0.003], 0, 0.13, 1714270206]}
    failed = {**line, "r": [[1e10], 7, 10.5, 1714270207]}
    newer = json.dumps({**line, "v": "v0.7"})
    short = json.dumps({**line, "v": version, "r": [[0.002]]})
    assert lw.records.load_lines([short]).skipped == [(1, "malformed Ansor record")]
    for key in ('"abc"', '[["a"], 1]', "f(x)"):  # no array that begins with a name
        other = {**line, "v": version, "i": [[key, "llvm"], [[], []]]}
        (record,) = lw.records.load_lines([json.dumps(other)])
        assert (record.op, record.args) == (key, [])
    lines = [*(json.dumps({**one, "v": version}) for one in (line, failed)), newer]
    log = load(written(path, "\n".join(lines)))
    record, failure = log
    assert (record.op, record.args, record.times) == ("matmul_add", [512, 512], (0.002, 0.003))
    assert (record.target["kind"], record.ts, record.run_s) == ("llvm", 1714270206, 0.13)
    assert record.config == {
        "CHW 2": "local", "SP 2.0": [1, 64, 8], "RE 2": [0, 1], "CA 2": [3, 3], "FSP 3.0": [1, 2],
        "FU 3": [0, 1], "AN 3.0": 3, "AN 3.0 #2": 2, "CI 1": [],
        "PR 2.0": "auto_unroll_max_step$64",
    }  # fmt: skip
    assert failure.error["kind"] == "RUN_TIMEOUT"
    assert "Ansor error 7" in failure.error["text"]
    assert log.skipped == [(3, "Ansor record of version v0.7 (v0.2 to v0.6 can be read)")]
    assert "ansor" in record.extra
    assert validate(path).lines[LineKind.ANSOR] == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"block,tile,time\n1,2,3\n", "it is a CSV of 3 columns (block, tile, time)"),
        (b'{"name": "x", "rows": [1]}', "it is a JSON object with the keys name, rows"),
        (b'{\n  "name": "x",\n  "rows": [1', "it is a JSON object with the keys name"),
        (b'[{"name": "x"}]', "it is a JSON array"),
        (b'{"op_code": 0}\n{"op_code": 1}\n', "it is lines of JSON objects with the keys op_code"),
        (b"[0, []]\n[1, []]\n", "it is lines of JSON arrays, as TVM's MetaSchedule writes them"),
        (b'{"results": [{"a": 1}]}', "it is a JSON object with the keys results"),
        (b"\x80\x04\x95\n", "it is a pickle of Python"),
        (b"SQLite format 3\0\x10\0", "it is an SQLite database"),
        (b"PK\x03\x04\x14\0", "it is a zip archive"),
        (b"\x1f\x9d\x00" * 9, "it is binary data"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "it is a CSV of 2 columns (a, b), gzip'd"),
        ("name,\n".encode("utf-16"), "it is text in UTF-16"),
        (b"hello\x1b[31m", r"it is text that begins with 'hello\x1b[31m'"),
    ],
)
def test_an_unknown_format_is_named(path, data, words):
    path.write_bytes(data)
    with pytest.raises(RecordError) as caught:
        check_has_records(load(path))
    assert f"{words}; name a file that `loopwright tune` wrote, a log of AutoTVM" in str(
        caught.value
    )


def test_a_log_in_a_damaged_gzip_is_read_as_far_as_it_goes(path):
    packed = gzip.compress(load_one().encode() * 3)
    for damaged in (packed[:-8] + bytes(8), packed + b"junk", packed[:-4]):
        path.write_bytes(damaged)
        log = load(path)
        assert (len(log), log.skipped) == (3, [(4, "torn line")])


def rest_written(end, data):
    with open(end, "wb") as file:
        file.write(data)


def test_a_pipe_is_waited_for(whole):
    text = json.dumps(json.loads(whole.read_text()), indent=1).encode()
    for data, first in ((text, 2), (gzip.compress(text), 1), (load_one().encode(), 3)):
        end, begin = os.pipe()
        os.write(begin, data[:first])
        writer = threading.Timer(0.01, rest_written, (begin, data[first:]))
        writer.start()
        assert len(load(f"/dev/fd/{end}")) in (len(CONFIGS), 1)
        writer.join()
        os.close(end)


@pytest.mark.parametrize("data", [b"", b"\n", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_called_so(path, data):
    path.write_bytes(data)
    with pytest.raises(RecordError, match="is empty; tune into it"):
        check_has_records(load(path))


def test_a_live_report_waits_for_no_pipe(tmp_path):
    """The log is replaced, removed, and becomes a directory and a pipe without a writer."""
    path = tmp_path / "log.jsonl"
    report = LiveReport([str(path)])

    def state():
        report._next = 0.0
        return report.state()

    assert "no log at" in state().document()
    path.write_text(load_one())
    assert len(state().page.tasks) == 1
    path.unlink()
    path.mkdir()
    assert "is no regular file" in state().document()
    path.rmdir()
    os.mkfifo(path)
    assert "is no regular file" in state().document()
    path.unlink()
    assert "no log at" in state().document()
    path.write_text(load_one())
    assert len(state().page.tasks) == 1


def load_one():
    record = lw.records.Record(
        task='["t",[8],"llvm"]', op="t", args=[8], target={"kind": "llvm"}, config={"x": 1},
        times=(1e-3,), run="r1", ts=1e9,
    )  # fmt: skip
    return record.to_line() + "\n"


def ktt(results, **metadata):
    known = {"ComputeApi": "CUDA", "Device": "NVIDIA A100", "KttVersion": "2.1.0",
             "Timestamp": "2022-12-23 12:11:26", "TimeUnit": "Microseconds"}  # fmt: skip
    return json.dumps({"Metadata": {**known, **metadata}, "Results": results}, indent=2)


def ktt_result(config, time, status="Ok", **more):
    pairs = [{"IsDouble": isinstance(v, float), "Name": k, "Value": v} for k, v in config.items()]
    computation = {"Duration": time, "GlobalSize": {"X": 64, "Y": 1, "Z": 1}, "Overhead": 1.0}
    return {"ComputationResults": [computation], "Configuration": pairs, "ExtraDuration": 0.0,
            "KernelName": "gemm", "Status": status, "TotalDuration": time, "TotalOverhead": 20.0,
            **more}  # fmt: skip


KTT_FAILURES = {
    "ComputationFailed": "RUN_ERROR", "ValidationFailed": "WRONG_ANSWER",
    "CompilationFailed": "COMPILE", "DeviceLimitsExceeded": "INSTANTIATION", "Later": "RUN_ERROR",
}  # fmt: skip


def test_results_of_ktt_are_records(tmp_path):
    path = tmp_path / "out.json"
    results = [ktt_result({"block": n, "ratio": 0.5}, 100.0 - n) for n in range(6)]
    results += [ktt_result({"block": 9}, 0.0, status) for status in KTT_FAILURES]
    results += [ktt_result({"block": 9}, time) for time in (0.0, None)]
    pairs = [{"Name": "x"}], [{"Name": 5, "Value": 1}], 5
    broken = [5, {}, *(ktt_result({}, 1.0, Configuration=one) for one in pairs)]
    path.write_text(ktt([*results, *broken]))
    log = load(path)
    kinds = [r.error["kind"] for r in log.records if r.error]
    assert kinds == [*KTT_FAILURES.values(), "RUN_ERROR", "RUN_ERROR"]
    assert [r.median for r in log.records if r.valid] == [(100 - n) / 1e6 for n in range(6)]
    assert len(log.skipped) == len(broken)
    first = log.records[0]
    assert (first.op, first.config, first.run_s) == ("gemm", {"block": 0, "ratio": 0.5}, 2e-5)
    assert (first.env["device"]["name"], first.ts) == ("NVIDIA A100", 1671797486.0)
    assert validate(path).lines[LineKind.KTT] == 13
    path.write_text(ktt(results[:3])[:-40])  # cut off
    assert [r.median for r in load(path).records] == [1e-4, 9.9e-5]
    path.write_text(ktt(results[:1], TimeUnit="Nanoseconds"))
    assert load(path).records[0].median == 1e-7


def test_reading_takes_no_more_memory_than_the_file(tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text(ktt([ktt_result({"block": 1}, 1.0)]))
    load(path)  # what is imported for it counts for no file
    for packed in (False, True):
        if packed:
            path.write_bytes(gzip.compress(path.read_bytes()))
        tracemalloc.start()
        try:
            assert len(load(path).records) == 1
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
    monkeypatch.setattr(foreign, "_MAX_FILE", 100)
    with pytest.raises(RecordError, match="holds a JSON object larger than"):
        load(path)
