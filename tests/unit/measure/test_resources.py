"""What a device's compiler says that a kernel takes, from its code to the record."""

from __future__ import annotations

import dataclasses

import pytest

import loopwright as lw
from loopwright.driver import compile_lowered, lower_trace
from loopwright.errors import RecordError
from loopwright.measure.building import resources_of
from loopwright.records import Record
from loopwright.records.record import checked_fields
from loopwright.runtime.artifacts.device_code import KernelResources
from tests.unit.runtime.devices.test_function import TWO_KERNELS, module


def test_the_most_of_all_kernels_is_kept() -> None:
    told = {
        "double_16": KernelResources(registers=40, spill_bytes=0, shared_bytes=1024),
        "add_one_16": KernelResources(registers=12, spill_bytes=8),
    }
    code = dataclasses.replace(TWO_KERNELS, resources=told)
    taken = {"registers": 40, "spill_bytes": 8, "shared_bytes": 1024}
    assert resources_of(module(code).artifact) == taken
    assert resources_of(module(TWO_KERNELS).artifact) is None


def vector(target: str) -> lw.runtime.Artifact:
    a = lw.te.placeholder((64,), name="A")
    b = lw.te.compute((64,), lambda i: a[i] + 1, name="B")
    s = lw.te.create_schedule(b.op)
    if target != "llvm":
        s[b].bind(b.op.axis[0], lw.te.thread_axis("threadIdx.x"))
    program = lower_trace(s.dag, s.trace_json(), s.arg_ids([a, b]))
    return compile_lowered(program, lw.Target(target))


def test_nvrtc_tells_and_cpus_do_not() -> None:
    assert resources_of(vector("llvm")) is None
    pytest.importorskip("cuda")
    taken = resources_of(vector("cuda"))
    assert taken is not None
    assert 0 < taken["registers"] < 64
    assert taken["spill_bytes"] == 0


def test_records_keep_it_and_read_it_again() -> None:
    record = Record("t", "op", [], {"kind": "cuda"}, {}, (1.0,), resources={"registers": 40})
    assert '"resources":{"registers":40}' in record.to_line()
    assert Record.from_line(record.to_line()) == record
    plain = Record("t", "op", [], {"kind": "cuda"}, {}, (1.0,))
    assert "resources" not in plain.to_line()
    for bad in ({"registers": "many"}, {"registers": -1}, [40]):
        with pytest.raises(RecordError, match="resources"):
            checked_fields(
                {
                    "task": "t",
                    "op": "op",
                    "args": [],
                    "target": {"kind": "cuda"},
                    "config": {},
                    "times": [],
                    "resources": bad,
                }
            )
