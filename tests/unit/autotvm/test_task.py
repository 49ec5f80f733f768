"""The contexts of AutoTVM's scripts, under its names."""

from __future__ import annotations

import pytest

import loopwright as tvm
from loopwright import autotvm
from loopwright.errors import UsageError

ARGS = (16, 16, 16, False, False, "float32")


def test_contexts_are_queried_and_updated_as_in_autotvm():
    task = autotvm.task.create("matmul", args=ARGS, target="llvm")
    target, workload = task.target, task.workload
    dispatch = autotvm.task.DispatchContext
    default = dispatch.current.query(target, workload)
    assert default.is_fallback
    chosen = task.config_space.get(7)
    with autotvm.task.ApplyConfig(chosen):
        assert dispatch.current.query(target, workload) == chosen
    with autotvm.task.ApplyFixedConfig([task], "matmul") as fixed:
        assert fixed.query(target, workload) == task.config_space.get(0)
    with autotvm.task.ApplyHistoryBest([]) as history:
        history.update(target, workload, chosen)
        assert dispatch.current.query(target, workload) == chosen
        with target:
            s, args = tvm.ops.matmul(16, 16, 16)
    assert s.trace_json() == task.instantiate(chosen)[0].trace_json()
    assert len(args) == 3
    with pytest.raises(UsageError, match="FallbackContext has no configurations"):
        dispatch.current.update(target, workload, chosen)
    autotvm.task.clear_fallback_cache(target, workload)


def test_what_scripts_read_of_a_task():
    task = autotvm.task.create("matmul", args=ARGS, target="llvm", target_host="c")
    assert task.target_host == tvm.Target("c")
    assert autotvm.task.create("matmul", args=ARGS, target="llvm").target_host is None
    sizes = [len(knob.entities) for knob in task.config_space.space_map.values()]
    assert sizes == list(task.config_space.dims)
    again = autotvm.task.create(task.name, task.args, task.target, task.target_host)
    assert (again.key, again.target) == (task.key, task.target)
