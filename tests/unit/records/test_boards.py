"""Boards that the target strings of AutoTVM name, as parts of the key of a record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

import loopwright as lw
from loopwright.records import best, canonical_json, distill, distill_file, load, pick, top_k
from loopwright.records.reports.differences import compare_logs, machines
from loopwright.records.reports.setups import by_setup, hardware_names, setup_titles

OP, ARGS = "conv2d_nchw.cuda", [["TENSOR", [1, 3, 8, 8], "float32"]]
#: Options that no field is of.
OTHERS = [
    ("mfloat-abi=soft", "mfloat-abi=hard"),
    ("libs=mkl", "libs=cblas"),
    ("num-cores=4", "num-cores=8"),
    ("system-lib", "runtime=c"),
]
BOARDS = [
    ("cuda -model=1080ti", "cuda -model=v100"),
    ("cuda -model=v100", "cuda"),
    ("llvm -model=boardA", "llvm -model=boardB"),
    ("llvm -mcpu=znver3", "llvm -mcpu=znver4"),
    ("llvm -mcpu=znver3 -num-threads=1", "llvm -mcpu=znver3 -num-threads=16"),
    ("llvm -model=rk3399 -mattr=+neon", "llvm -model=rk3399"),
    ("llvm -keys=arm_cpu,cpu -model=a", "llvm -keys=cpu -model=a"),
    ("opencl -device=mali", "opencl -device=adreno"),
    ("llvm -mtriple=aarch64-linux-gnu", "llvm -mtriple=armv7l-linux-gnueabihf"),
    ("cuda -arch=sm_70", "cuda -arch=sm_80"),
    ("rocm -mcpu=gfx900", "rocm -mcpu=gfx906"),
    ("vulkan -model=a", "vulkan -model=b"),
    ("ext_dev -device=vta -model=pynq", "ext_dev -device=vta -model=ultra96"),
    ("llvm -model='my a'", "llvm -model='my b'"),
    ('llvm -model="it\'s a"', "llvm -model='it'"),
    ("llvm -device arm_cpu -model rk3399", "llvm -device arm_cpu -model rk3328"),
    ("llvm -mattr=+a -mattr=+b", "llvm -mattr=+b"),
    *((f"llvm -{one}", f"llvm -{other}") for one, other in OTHERS),
    ('{"kind": "llvm", "model": "c"}', "{'kind': 'llvm', 'model': 'd'}"),
]
JSON = (
    '{"kind": "llvm", "tag": "", "keys": ["arm_cpu", "cpu"], "mattr": ["+a"], "model": "a", '
    '"num-threads": 4, "link-params": false}'
)
SAME = [
    ("opencl -model=rk3399 -device=mali", "opencl -device=mali -model=rk3399"),
    ("llvm -device=arm_cpu -target=a-b-c", "llvm -keys=arm_cpu,cpu -device=arm_cpu -mtriple=a-b-c"),
    ("llvm", "llvm -keys=cpu -link-params=0 -model=unknown"),
    ("cuda -model=v100", "cuda -keys=cuda,gpu -max_num_threads=1024 -model=v100"),
    ("llvm -mattr=+a,+b", 'llvm -mattr="+a,+b"'),
    ("llvm -mattr=+a,+b", "llvm -mattr='+a, +b'"),
    ("llvm -mattr=+a,+b", "llvm -mattr=+a -mattr=+b"),
    ("llvm -device=arm_cpu -model=rk3399", "llvm -device arm_cpu -model rk3399"),
    ("llvm -keys=arm_cpu,cpu -mattr=+a -num-threads=4 -model=a", JSON),
    (JSON, str(json.loads(JSON))),
]


def line(target, seconds, op=OP, args=ARGS, kwargs=None):
    knobs = [["tile_f", "sp", [6, 1, 32, 1]], ["unroll", "ot", int(seconds * 1e4)]]
    return json.dumps(
        {
            "input": [target, op, args, kwargs or {}],
            "config": {"index": 1, "code_hash": None, "entity": knobs},
            "result": [[seconds], 0, 14.1, 1535423916.7],
            "version": 0.2,
            "tvm_version": "0.7.dev0",
        }
    )


@pytest.fixture
def log(tmp_path):
    def log(*targets, name="autotvm.log"):
        path = tmp_path / name
        path.write_text("".join(f"{line(t, 1e-4 * n)}\n" for n, t in enumerate(targets, 1)))
        return path

    return log


@pytest.mark.parametrize(("one", "other"), BOARDS)
def test_boards_stay_apart(log, tmp_path, one, other):
    path = log(one, other, one)  # the third is the slower one of its board
    records = load(path).records
    for write in (pick, distill_file):
        out = tmp_path / f"{write.__name__}.jsonl"
        assert write([path], out) == records[:2]
        # What was written is read, and picked from, as the lines of AutoTVM are.
        assert load(out).records == records[:2]
        assert write([out], tmp_path / f"again.{write.__name__}") == records[:2]
    assert [len(group) for group in by_setup(records).values()] == [2, 1]
    assert len(set(setup_titles(records))) == 2 or records[0].threads != records[1].threads
    assert len(machines(records)) == 2
    rows = compare_logs(records[:2], records[:2])
    assert [row.ratio.value for row in rows] == [1.0, 1.0]
    for record in records[:2]:
        conditions = {"hardware": record.hardware, "threads": record.threads}
        assert best(records, **conditions) == record
        assert len(top_k(records, 9, **conditions)) == (1 + (record is records[0]))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_board_is_one(log, tmp_path, one, other):
    records = load(log(one, other)).records
    assert pick([log(one, other)], tmp_path / "out.jsonl") == records[:1]
    assert records[0].target == records[1].target
    assert records[0].hardware == records[1].hardware


def test_the_best_of_each_board_is_kept_of_many(log, tmp_path):
    targets = [target for pair in BOARDS for target in pair]
    assert len(pick([log(*targets, *targets)], tmp_path / "out.jsonl")) == len(set(targets))


def test_hardware_goes_by_the_name_of_the_board(log):
    records = load(
        log("cuda -model=v100", "llvm -mcpu=znver3", "llvm -model=a -mattr=+neon")
    ).records
    names = hardware_names(record.hardware for record in records)
    assert list(names.values()) == ["v100", "znver3", "a"]
    records = load(
        log("llvm -model=a -mattr=+neon", "llvm -model=a", "opencl -device=mali")
    ).records
    names = hardware_names(record.hardware for record in records)
    assert list(names.values()) == ["a (+neon)", "a (none of these)", "mali opencl gpu"]


def test_a_board_of_ours_is_hardware_and_no_part_of_a_candidate():
    record = lw.records.load_lines([line("llvm -mcpu=znver3", 1e-4)]).records[0]
    own = replace(record, env={"cpu": "EPYC", "isa": ["avx2"]}, extra={})
    named = replace(own, target={**own.target, "model": "a"})
    assert own.hardware == "EPYC | avx2 | znver3 | "
    assert named.hardware == "EPYC | avx2 | znver3 |  | a | "
    assert len(distill([own, named])) == 2
    # Verdicts of earlier logs name candidates by a hash of this text.
    parts = [named.task, "", named.target, named.config, [], "EPYC | avx2 | znver3 | "]
    assert named.candidate == hashlib.sha256(canonical_json(parts).encode()).hexdigest()
    (read,) = lw.records.load_lines([named.to_line()]).records
    assert (read.candidate, read.hardware) == (named.candidate, named.hardware)


def test_numbers_of_threads_that_are_none_are_left_out():
    for text in ("many", "-1", "9" * 30, ""):
        (record,) = lw.records.load_lines([line(f"llvm -num-threads={text}", 1e-4)]).records
        assert record.target == {"kind": "llvm"}


def test_arguments_by_name_are_part_of_the_task():
    lines = [line("llvm", 1e-4, "matmul", [8, 8, 8], kwargs) for kwargs in ({}, {"trans_a": True})]
    one, other = lw.records.load_lines(lines).records
    assert one.task != other.task
    task = lw.create_task("matmul", (8, 8, 8), "llvm")
    assert [task.is_of(record) for record in (one, other)] == [True, False]
