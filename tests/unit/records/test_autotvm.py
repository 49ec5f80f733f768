"""Lines that AutoTVM wrote."""

from __future__ import annotations

import json

from loopwright.records import load, task_key

TARGET = "llvm -keys=cpu -mcpu=skylake-avx512 -num-cores=2"


def line(costs, error_no, **changes):
    data = {
        "input": [TARGET, "tutorial/matmul", [512, 512, 512, "float32"], {}],
        "config": {
            "index": 39,
            "code_hash": None,
            "entity": [
                ["tile_y", "sp", [-1, 8]],
                ["order", "re", [0, 2, 1]],
                ["ann", "an", ["none", "vec"]],
                ["unroll", "ot", True],
            ],
        },
        "result": [costs, error_no, 1.25, 1600000000.5],
        "version": 0.2,
        "tvm_version": "0.12.0",
    }
    return json.dumps(data | changes) + "\n"


def read(tmp_path, *lines):
    path = tmp_path / "tvm.log"
    path.write_text("".join(lines))
    return load(path)


def test_a_good_line(tmp_path):
    (record,) = read(tmp_path, line([0.004, 0.005, 0.006], 0)).records
    assert record.op == "tutorial/matmul"
    assert record.task == task_key("tutorial/matmul", [512, 512, 512, "float32"], "llvm")
    assert record.config == {
        "tile_y": [-1, 8],
        "order": [0, 2, 1],
        "ann": ["none", "vec"],
        "unroll": True,
    }
    assert record.times == (0.004, 0.005, 0.006)
    assert record.median == 0.005
    assert record.usable
    assert record.target == {"kind": "llvm", "mcpu": "skylake-avx512", "num_cores": "2"}
    assert record.ts == 1600000000.5
    assert record.trace == []
    assert record.threads == 0


def test_failures_have_a_kind_and_no_time(tmp_path):
    kinds = {
        1: "INSTANTIATION",
        2: "COMPILE",
        3: "COMPILE",
        4: "RUN_ERROR",
        5: "WRONG_ANSWER",
        6: "BUILD_TIMEOUT",
        7: "RUN_TIMEOUT",
        8: "RUN_ERROR",
        99: "RUN_ERROR",
    }
    log = read(tmp_path, *(line([1e9], number) for number in kinds))
    assert [record.error["kind"] for record in log] == list(kinds.values())
    assert all(record.times == () and not record.usable for record in log)
    assert "AutoTVM error 5" in log.records[4].error["text"]


def test_a_sentinel_cost_is_never_a_time(tmp_path):
    (record,) = read(tmp_path, line([1e9], 0)).records
    assert not record.valid
    assert record.times == ()


def test_what_is_read_can_be_written_as_our_own(tmp_path):
    (record,) = read(tmp_path, line([0.5], 0)).records
    path = tmp_path / "ours.jsonl"
    path.write_text(record.to_line() + "\n")
    assert load(path).records == [record]


def old_line(costs, error_no, target="llvm", **point):
    """A line as AutoTVM wrote it up to TVM 0.6: the workload is there, and names are one letter."""
    args = [["TENSOR", [1, 512], "float32"], ["TENSOR", [1000, 512], "float32"], None, "float32"]
    workload = ["dense", [1, 512, "float32"], [1000, 512, "float32"], 0, "float32"]
    point = {"i": 3, "t": "direct", "c": None, "e": [["tile_k", "sp", [-1, 8]]], **point}
    task = [target, "topi_nn_dense", args, {}, workload, point]
    return json.dumps({"i": task, "r": [costs, error_no, 0.9, 1598593289.5], "v": 0.1}) + "\n"


def test_lines_of_version_0_1_are_records(tmp_path):
    entity = [["o", "re", [1, 0]], ["a", "an", ["vec"]], ["u", "ot", False]]
    log = read(
        tmp_path,
        old_line([7e-6, 9e-6], 0),
        old_line([1e9], 1, "cuda -model=1080ti"),
        old_line([1e-3], 0, t="", e=entity),
        old_line([1e-3], 0, e=5),
        old_line([1e-3], 0).replace('"i": 3, ', ""),
        "llvm\tgANd\tgANd\tgANd\n",
        line([0.5], 0, version=0.1),
    )
    first, failed, other = log.records
    assert (first.op, first.times, first.config) == (
        "topi_nn_dense",
        (7e-6, 9e-6),
        {"tile_k": [-1, 8]},
    )
    assert first.args[0] == ["TENSOR", [1, 512], "float32"]
    assert (first.ts, first.run_s, first.extra["autotvm"]["template"]) == (
        1598593289.5,
        0.9,
        "direct",
    )
    assert failed.error["kind"] == "INSTANTIATION"
    assert failed.target == {"kind": "cuda", "model": "1080ti"}
    assert other.config == {"o": [1, 0], "a": ["vec"], "u": False}
    assert "template" not in other.extra["autotvm"]
    assert [reason for _, reason in log.skipped] == [
        "malformed AutoTVM record",
        "malformed AutoTVM record",
        "a pickled record of AutoTVM, which is not read: unpickling can run any code",
        "TVM record of version 0.1 (AutoTVM 0.1 and 0.2 can be read)",
    ]
    path = tmp_path / "ours.jsonl"
    path.write_text(first.to_line() + "\n")
    assert load(path).records == [first]


def test_other_formats_are_counted(tmp_path):
    log = read(
        tmp_path,
        json.dumps({"i": [["llvm", "op"]], "r": [[1], 0, 1, 1], "v": 0.1}) + "\n",
        json.dumps({"i": [["[]", "llvm"]], "r": [[1], 0, 1, 1], "v": "v0.6"}) + "\n",
        line([0.5], 0, version=0.3),
        line([0.5], 0, result=[[0.5]]),
        line([0.5], 0, input=["", "op", [], {}]),
        *(
            line([0.5], 0, input=[t, "op", [], {}])
            for t in (None, ["llvm"], 5, '{"kind": 1}', "{" * 999)
        ),
        line([float("nan")], 0),
        line([0.5], 0, config={"index": 1, "entity": [[None, "ot", 1]]}),
        line([0.5], 0, result=[[0.5], 0, 1.25, -1]),
    )
    assert log.records == []
    reasons = [reason for _, reason in log.skipped]
    assert reasons[:2] == ["malformed AutoTVM record", "malformed Ansor record"]
    assert reasons[2] == "TVM record of version 0.3 (AutoTVM 0.1 and 0.2 can be read)"
    assert set(reasons[3:10]) == {"malformed AutoTVM record"}
    assert reasons[10:] == [
        "NaN is no number",
        "malformed AutoTVM record",
        "field 'ts' is malformed: -1.0",
    ]


def test_the_model_of_the_target_is_kept(tmp_path):
    for text, kept in [("llvm -model=boardA", {"model": "boardA"}), ("llvm -model=unknown", {})]:
        task = [text, "tutorial/matmul", [512, 512, 512, "float32"], {}]
        (record,) = read(tmp_path, line([0.004], 0, input=task)).records
        assert record.target == {"kind": "llvm", **kept}
