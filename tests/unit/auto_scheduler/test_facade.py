"""Ansor's names: which there are, and what is said of those that are not."""

from __future__ import annotations

import pytest

import loopwright as tvm
from loopwright import auto_scheduler
from loopwright.errors import TargetError, UsageError

#: Names that scripts use and that cannot be had, with what the message names instead.
REFUSED = {
    "RPCRunner": "LocalRunner",
    "feature": "loopwright explain",
    "measure.ProgramMeasurer": "TuningOptions",
    "measure.ProgramRunner": "LocalRunner",
    "measure.RPCRunner": "LocalRunner",
    "register_task_input_check_func": "task_inputs",
    "rewrite_compute_body": "declared",
}


def look_up(dotted: str) -> object:
    found: object = auto_scheduler
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


def test_other_names_are_plain_attribute_errors() -> None:
    for home in (auto_scheduler, auto_scheduler.measure):
        with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
            home.nothing  # noqa: B018


def test_names_stand_in_the_modules_of_ansor() -> None:
    places = {
        "compute_dag": "ComputeDAG LayoutRewriteOption",
        "cost_model": "RandomModel XGBModel",
        "dispatcher": "ApplyHistoryBest ApplyHistoryBestOrSample",
        "loop_state": "State",
        "measure": "LocalBuilder LocalRunner LocalRPCMeasureContext MeasureInput MeasureResult",
        "relay_integration": "extract_tasks",
        "measure_record": "RecordReader RecordToFile load_best_record load_records save_records",
        "search_policy": "EmptyPolicy PreloadCustomSketchRule PreloadMeasuredStates SketchPolicy",
        "search_task": "HardwareParams SearchTask TuningOptions auto_schedule create_task",
        "task_scheduler": "TaskScheduler",
        "workload_registry": "make_workload_key register_workload register_workload_tensors",
    }
    for module, names in places.items():
        for name in names.split():
            assert look_up(f"{module}.{name}") is look_up(name)
    assert tvm.auto_scheduler is auto_scheduler
    assert auto_scheduler.LocalRunner is tvm.LocalRunner


def test_facts_of_hardware_become_options_of_the_target() -> None:
    target = tvm.Target("llvm -mcpu=skylake-avx512")
    params = auto_scheduler.HardwareParams(num_cores=3, vector_unit_bytes=16)
    made = params.applied_to(target)
    assert (made.num_threads, made.vector_bytes) == (3, 16)
    line = auto_scheduler.HardwareParams(cache_line_bytes=128).applied_to(target)
    assert line.hardware.cache_line_bytes == 128
    assert auto_scheduler.HardwareParams(target=target).applied_to(target).options == {
        **target.options,
        "prefer_vector_width": 0,
    }
    device = auto_scheduler.HardwareParams(max_shared_memory_per_block=4096, warp_size=16)
    made = device.applied_to(tvm.Target("cuda -arch=sm_90"))
    assert (made.max_shared_memory_per_block, made.thread_warp_size) == (4096, 16)


def test_facts_that_are_missing_are_those_of_a_target() -> None:
    params = auto_scheduler.HardwareParams(num_cores=5, target="llvm -mcpu=skylake-avx512")
    assert (params.num_cores, params.vector_unit_bytes, params.warp_size) == (5, 64, None)
    device = auto_scheduler.HardwareParams(target="cuda -arch=sm_90")
    assert (device.warp_size, device.max_threads_per_block) == (32, 1024)


def test_facts_that_say_nothing_of_a_target_are_refused() -> None:
    params = auto_scheduler.HardwareParams(warp_size=32)
    with pytest.raises(UsageError, match=r"warp_size .* leave it out"):
        params.applied_to(tvm.Target("llvm"))
    with pytest.raises(UsageError, match="num_cores is a positive integer, got 0"):
        auto_scheduler.HardwareParams(num_cores=0)


def test_runners_have_ansors_meaning_as_soon_as_something_is_given() -> None:
    context = auto_scheduler.LocalRPCMeasureContext
    assert context().runner.windows
    assert context(min_repeat_ms=300).runner.counts == (3, 1, 300)
    assert context(number=7).runner.counts == (7, 1, 0)
    with pytest.raises(UsageError, match="opencl:1"):
        context(device=1)


def test_options_are_checked() -> None:
    options = auto_scheduler.TuningOptions
    for given in ({"num_measure_trials": -1}, {"num_measures_per_round": 0}, {"runner": "remote"}):
        with pytest.raises(UsageError, match=next(iter(given))):
            options(**given)
    with pytest.raises(UsageError, match="no callback"):
        options(measure_callbacks=["log.json"])
    logs = [auto_scheduler.RecordToFile(name) for name in ("a.json", "b.json")]
    with pytest.raises(UsageError, match="2 logs"):
        options(measure_callbacks=logs)
    assert options(early_stopping=-1).early_stopping is None


def test_results_are_made_in_ansors_order() -> None:
    result = auto_scheduler.MeasureResult([1.0, 3.0, 2.0], 0, None, 4.0, 5.0)
    assert (result.costs, result.median, result.error_msg) == ((1.0, 3.0, 2.0), 2.0, "")
    failed = auto_scheduler.MeasureResult([], 6, "too slow", 4.0, 5.0)
    assert (failed.costs, failed.error_no.name, failed.error_msg) == (
        (),
        "BUILD_TIMEOUT",
        "too slow",
    )
    with pytest.raises(UsageError, match="0 to 8"):
        auto_scheduler.MeasureResult([], 99)


def test_layouts_of_networks_are_refused() -> None:
    option = auto_scheduler.LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED
    with pytest.raises(UsageError, match="layout_rewrite_option=2"):
        auto_scheduler.SearchTask(workload_key="[]", layout_rewrite_option=option)


def test_unknown_targets_are_refused() -> None:
    with pytest.raises(TargetError):
        auto_scheduler.create_task("matmul", (4, 4, 4), "no_such_target")
