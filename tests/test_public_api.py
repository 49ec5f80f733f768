"""The names that users were promised exist, under `loopwright` and in AutoTVM's places."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from types import ModuleType

import pytest

import loopwright

TOP = [
    "LocalBuilder",
    "LocalRunner",
    "Target",
    "__version__",
    "apply_history_best",
    "auto_scheduler",
    "autotvm",
    "build",
    "callback",
    "compile",
    "context",
    "cpu",
    "create_schedule",
    "create_task",
    "device",
    "get_config",
    "get_global_func",
    "in_context",
    "ir",
    "lower",
    "measure_option",
    "nd",
    "register_func",
    "te",
    "tir",
    "template",
    "tune",
    "tune_tasks",
    "tuner",
]

INSIDE = {
    "te": """
        abs all any ceil comm_reducer compute create_schedule erf exp floor if_then_else log max
        min placeholder pow prod reduce_axis rsqrt sigmoid sqrt sum tanh
    """,
    "nd": "array empty empty_pinned random_fill",
    "tuner": "DropletTuner GATuner GridSearchTuner RandomTuner XGBTuner",
    "callback": "log_to_file progress_bar",
    "auto_scheduler": """
        ApplyHistoryBest ApplyHistoryBestOrSample ComputeDAG EmptyPolicy HardwareParams
        LayoutRewriteOption LocalBuilder LocalRPCMeasureContext LocalRunner MeasureInput
        MeasureResult PreloadCustomSketchRule PreloadMeasuredStates RandomModel RecordReader
        RecordToFile SearchTask SketchPolicy TaskScheduler TuningOptions XGBModel auto_schedule
        create_task extract_tasks is_auto_scheduler_enabled load_best_record load_records
        make_workload_key register_workload register_workload_tensors save_records
    """,
    "autotvm": """
        BuildResult GLOBAL_SCOPE LocalBuilder LocalRunner apply_graph_best apply_history_best
        callback create_measure_batch database env get_config graph_tuner measure_option record task
        template tuner util utils
    """,
    "autotvm.task": """
        ApplyConfig ApplyFixedConfig ApplyGraphBest ApplyHistoryBest ApplyHistoryBestOrSample
        DispatchContext FallbackContext clear_fallback_cache create extract_from_multiple_program
        extract_from_program
    """,
    "autotvm.task.dispatcher": "ApplyConfig DispatchContext FallbackContext",
    "autotvm.task.space": """
        AnnotateEntity ConfigEntity ConfigSpace FallbackConfigEntity OtherOptionEntity ReorderEntity
        SplitEntity
    """,
    "autotvm.tuner": "DropletTuner GATuner GridSearchTuner RandomTuner XGBTuner",
    "autotvm.callback": "log_to_database log_to_file progress_bar",
    "autotvm.database": "Database DummyDatabase filter_inputs",
    "autotvm.graph_tuner": "DPTuner PBQPTuner",
    "autotvm.measure": "BuildResult MeasureInput MeasureResult create_measure_batch",
    "autotvm.measure.measure_methods": "LocalBuilder LocalRunner",
    "autotvm.utils": "get_const_int get_const_tuple",
    "autotvm.record": """
        decode encode load_from_buffer load_from_file measure_str_key pick_best split_workload
    """,
    "target": "Target create",
    "task": "why_not_applied",
    "tir": """
        Cast Select call_intrin call_packed call_pure_extern const decl_buffer if_then_else
        indexdiv indexmod ir_builder prim_func stmt_seq
    """,
    "tir.ir_builder": "IRBuilder create",
    "ir": "structural_equal structural_hash",
    "runtime": """
        Module PackedFunc TypedPackedFunc get_global_func kind_of list_global_func_names load_module
        load_params random_fill register_func remove_global_func save_params system_lib
    """,
    "errors": "FallbackWarning",
    "graph.torch_backend": "compiled_models",
    "executors": "AotExecutor DebugExecutor GraphExecutor Model Program load_model partition",
}

PRIMITIVES = [
    "compute_at",
    "compute_inline",
    "compute_root",
    "fuse",
    "parallel",
    "pragma",
    "reorder",
    "split",
    "tile",
    "unroll",
    "vectorize",
    "bind",
]

DOCUMENTED = [
    "errors",
    "dtypes",
    "target",
    "runtime",
    "records",
    "ir",
    "te",
    "tir",
    "auto_scheduler",
    "autotvm",
    "schedule",
    "lowering",
    "codegen",
    "driver",
    "task",
    "measure",
    "tuner",
    "ops",
    "inspection",
]


def lookup(dotted: str, *default: object) -> object:
    """What a user reaches by attribute access from `loopwright`."""
    found: object = loopwright
    for name in dotted.split("."):
        found = getattr(found, name, *default)
    return found


def test_every_name_is_in_its_place() -> None:
    inside = [f"{home}.{name}" for home, names in INSIDE.items() for name in names.split()]
    assert not [name for name in (*TOP, *inside) if lookup(name, None) is None]


def test_top_level_names_are_listed() -> None:
    assert set(TOP) - {"__version__"} <= set(dir(loopwright))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        loopwright.no_such_name  # noqa: B018


def test_version_is_that_of_the_distribution() -> None:
    assert lookup("__version__") == importlib.metadata.version("loopwright")


def test_facade_names_are_the_same_objects() -> None:
    for name in ("template", "get_config", "measure_option", "LocalBuilder", "LocalRunner"):
        assert lookup(f"autotvm.{name}") is lookup(name)
    assert lookup("autotvm.tuner.RandomTuner") is lookup("tuner.RandomTuner")
    for name in lookup("executors").__all__:  # type: ignore[attr-defined]
        assert lookup(f"runtime.executors.{name}") is lookup(f"executors.{name}")
    from loopwright.runtime.executors import GraphExecutor

    assert GraphExecutor is lookup("executors.GraphExecutor")


def test_schedule_speaks_the_fields_words() -> None:
    te = lookup("te")
    a = te.placeholder((4, 4), "float32", name="a")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1.0, name="b")
    schedule = te.create_schedule(b.op)
    missing = [name for name in PRIMITIVES if not hasattr(schedule[b], name)]
    assert not missing
    for name in ("cache_read", "cache_write", "rfactor", "transform_layout"):
        assert hasattr(schedule, name) or hasattr(schedule[b], name), name


def public(module: ModuleType) -> list[tuple[str, object]]:
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in vars(module) if not name.startswith("_")]
    found = [(name, getattr(module, name)) for name in names]
    return [
        (name, thing)
        for name, thing in found
        if inspect.isclass(thing) or inspect.isfunction(thing)
        if thing.__module__.startswith("loopwright")
    ]


@pytest.mark.parametrize("package", DOCUMENTED)
def test_public_names_have_docstrings(package: str) -> None:
    module = importlib.import_module(f"loopwright.{package}")
    things = public(module)
    assert things, f"loopwright.{package} exports nothing"
    bare = [name for name, thing in things if not (inspect.getdoc(thing) or "").strip()]
    assert not bare


def test_top_level_callables_have_docstrings() -> None:
    things = {name: lookup(name) for name in TOP}
    assert not [
        n for n, x in things.items() if callable(x) and not (inspect.getdoc(x) or "").strip()
    ]
