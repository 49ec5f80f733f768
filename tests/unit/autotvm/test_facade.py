"""Names of AutoTVM beside tasks, tuners and logs; and what is said of those that are not there."""

from __future__ import annotations

import importlib
import logging

import pytest

import loopwright as tvm
from loopwright import autotvm, te
from loopwright.errors import TensorError, UsageError

#: Names that scripts of AutoTVM use and that cannot be had, with what the message names instead.
REFUSED = {
    "autotvm.RPCRunner": "LocalRunner",
    "autotvm.feature": "loopwright explain",
    "autotvm.measure.Builder": "MeasurerLike",
    "autotvm.measure.measure_methods.RPCRunner": "LocalRunner",
    "autotvm.measure.measure_methods.set_cuda_target_arch": "-arch=sm_90",
    "autotvm.register_topi_compute": "@autotvm.template",
    "autotvm.task.args_to_workload": "task.args",
    "autotvm.task.TaskExtractEnv": "extract_from_program",
    "autotvm.task.register_topi_schedule": "@autotvm.template",
    "autotvm.tophub": "apply_history_best",
    "autotvm.util.get_func_name": "__name__",
    "autotvm.utils.sample_ints": "config_space.sample_ints",
    "compute": "te.compute",
    "contrib.cblas": "tir.call_packed",
    "contrib.clang": "tir.ir_builder",
    "contrib.graph_executor": "loopwright.compile",
    "placeholder": "te.placeholder",
    "relay": "loopwright.graph.from_onnx",
    "rpc": "LocalRunner",
    "target.arm_cpu": "llvm -mcpu",
    "target.cuda": "-arch=sm_90",
    "te.create_prim_func": "loopwright.lower",
    "te.extern": "te.compute",
    "te.hybrid": "te.compute",
    "tir.IntImm": "tir.const",
    "tir.stmt_functor": "loopwright.transform",
    "topi.nn.sparse_dense": "loopwright.graph",
}


def look_up(dotted: str) -> object:
    """What a script reaches by attribute access."""
    found: object = tvm
    for part in dotted.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("name", "instead"), REFUSED.items())
def test_a_name_that_is_not_there_says_what_is(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as error:
        look_up(name)
    said = str(error.value)
    assert repr(name.rpartition(".")[2]) in said
    assert instead in said.partition(": ")[2]
    assert "\n" not in said


@pytest.mark.parametrize(
    "module",
    [
        "", ".te", ".tir", ".target", ".autotvm", ".autotvm.task", ".autotvm.measure",
        ".autotvm.measure.measure_methods", ".autotvm.utils",
    ],
)  # fmt: skip
def test_other_names_are_plain_attribute_errors(module: str) -> None:
    home = importlib.import_module(f"loopwright{module}")
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        home.nothing  # noqa: B018


def test_the_global_scope_is_never_in_tuning() -> None:
    assert autotvm.GLOBAL_SCOPE is autotvm.env.GLOBAL_SCOPE
    seen = []

    @autotvm.template("test/asks_for_tuning")
    def asks(n: int) -> object:
        seen.append(autotvm.GLOBAL_SCOPE.in_tuning)
        return tvm.ops.matmul(n, n, n)

    autotvm.task.create(asks, args=(16,), target="llvm").instantiate(0)
    assert set(seen) == {False}
    autotvm.GLOBAL_SCOPE.in_tuning = False
    with pytest.raises(UsageError, match=r"in_tuning stays False: .*; leave the assignment out"):
        autotvm.GLOBAL_SCOPE.in_tuning = True


def test_a_silent_scope_warns_of_nothing() -> None:
    log = logging.getLogger("loopwright")
    before = log.level
    assert not autotvm.GLOBAL_SCOPE.silent
    try:
        autotvm.GLOBAL_SCOPE.silent = True
        assert autotvm.GLOBAL_SCOPE.silent
        assert not log.isEnabledFor(logging.WARNING)
        autotvm.GLOBAL_SCOPE.silent = False
        assert log.isEnabledFor(logging.WARNING)
    finally:
        log.setLevel(before)


def test_shapes_are_numbers_already() -> None:
    a = te.placeholder((4, 8.0), name="a")
    assert autotvm.utils.get_const_tuple(a.shape) == (4, 8)
    assert autotvm.util.get_const_int(te.const(3)) == 3
    for wrong in (te.var("n"), te.const(1.5), True):
        with pytest.raises(TensorError, match=r"get_const_int: .* is no number"):
            autotvm.utils.get_const_int(wrong)


def test_a_fallback_is_chosen_with_the_entities_of_autotvm() -> None:
    space = autotvm.task.space
    cfg = autotvm.task.create("matmul", args=(16, 16, 16), target="llvm").fallback()
    assert isinstance(cfg, space.FallbackConfigEntity)
    cfg["unroll_k"] = space.OtherOptionEntity(2)
    cfg["tile_i"] = space.SplitEntity([-1, 2, 4])
    assert (cfg["unroll_k"].val, cfg["tile_i"].size) == (2, (-1, 2, 4))
    dispatcher = autotvm.task.dispatcher
    with dispatcher.ApplyConfig(cfg) as context:
        assert dispatcher.DispatchContext.current is context
