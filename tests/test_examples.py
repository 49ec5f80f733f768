"""Every public function, class and primitive has an example, and every example is true.

An example is a block ``Example:`` in doctest form. It may use ``lw``, ``te`` and ``np`` without
importing them, runs in a folder that holds the log ``matmul.jsonl``, and prints what it says.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import loopwright as lw
from loopwright.schedule import Step
from loopwright.transform import Pass

#: Modules whose `__all__` is what users schedule, tune, build and inspect with.
ROOMS = """
    ir te tir schedule lowering transform target driver runtime runtime.memory runtime.profiling
    executors task space automatic graph graph.frontend.onnx graph.frontend.torch
    measure tuner
    tuner.run.callbacks records ops inspection testing testing.simulated_device
    auto_scheduler auto_scheduler.loop_state auto_scheduler.search_policy
    auto_scheduler.task_scheduler auto_scheduler.workload_registry
    autotvm autotvm.record autotvm.measure autotvm.utils autotvm.database autotvm.env autotvm.task
    autotvm.tuner
"""

#: What one asks a log or this machine by name, in modules whose other names are parts of it.
ASKED = """
    records.reports.curve.best_so_far records.reports.differences.compare_logs
    records.reports.differences.machines records.reports.differences.record_differences
    records.reports.differences.time_ratio records.reports.errors.failures
    records.reports.importance.importance records.reports.knobs.config_text
    records.reports.knobs.varying_knobs records.reports.neighbours.neighbours
    records.reports.setups.by_setup records.reports.setups.task_text
    records.reports.spread.spread records.reports.standings.default_record
    records.reports.standings.standings records.validation.line_reports
    records.validation.validate inspection.schedules.applies_here
    inspection.doctor.examine inspection.report.page_of inspection.report.report_html
    inspection.ties.ties_of inspection.watch.Watcher inspection.watch.writers_of
"""

#: The log that examples find in their folder.
LOG = "matmul.jsonl"

#: Classes that have the primitives as methods, and these: each has an example, too.
SCHEDULES = ("schedule.Schedule", "schedule.Stage")
PRIMITIVES = {*Step.registry, "tile", "vectorize", "unroll", "parallel"} - {"annotate"}

#: Classes that users hold: examples of their methods run, where there are any.
HELD = """
    te.BufferView te.Dag te.IRBuilder te.Operation te.Tensor te.TensorIntrin
    schedule.Schedule schedule.Stage schedule.stage.Group
    target.Target transform.PassContext
    runtime.memory.AsyncMemoryCopier runtime.memory.DeviceCommunicator
    runtime.memory.MemoryPrefetcher runtime.memory.NaiveAllocator runtime.memory.PooledAllocator
    runtime.memory.WorkspacePool
    runtime.Module runtime.Function runtime.NDArray runtime.Device runtime.Artifact
    runtime.RuntimeCache runtime.RuntimeChecker runtime.ThreadPool
    runtime.profiling.PerformanceMonitor
    task.ApplyHistoryBest task.ConfigSpace task.Task graph.dataflow_pattern.DFPattern
    measure.LocalRunner measure.MeasuredSpace
    tuner.Tuner
    records.Log records.Ranking records.Record records.Store
"""

#: Public names that are no tools of a user, by the reason why they need no example.
EXEMPT = {
    "what others return: their fields say it": """
        schedule.Bounds schedule.StageBounds schedule.State schedule.Step te.OpNode ir.Stmt
        ir.Buffer target.VectorUnit runtime.Arg runtime.CacheStatistics
        runtime.profiling.DeviceTotal
        runtime.profiling.Metrics runtime.profiling.ProfiledCall runtime.memory.PoolStatistics
        runtime.memory.Prefetch runtime.DeviceCall runtime.DeviceFunction runtime.Parts
        runtime.profiling.CopiedBytes driver.LoweredProgram
        task.AsCalled task.Match
        measure.FinalistResult measure.PlayoffPlan measure.PlayoffResult
        tuner.Failure tuner.RunState tuner.Summary tuner.TaskRow tuner.TasksSummary tuner.Trial
        measure.BuildResult measure.MeasureBatch inspection.DataPlan inspection.Rerun
        auto_scheduler.loop_state.StateStage space.OperandUse space.Ranked space.StageAnalysis
        space.StageClass space.TensorProgram
    """,
    "types of what one may write oneself; `loopwright.testing` has contracts": """
        runtime.memory.MemoryPool runtime.DeviceAPI runtime.Memory runtime.Stream runtime.Event
        runtime.Program runtime.register_device_api runtime.unregister_device_api
        measure.MeasurerLike measure.TaskLike records.Json records.Measurement
        tuner.Callback tuner.TasksMonitor tuner.TunerLike tuner.run.callbacks.Database
        auto_scheduler.search_policy.SearchCallback auto_scheduler.search_policy.SearchPolicy
    """,
    "errors, and what makes one": """
        lowering.too_deep tuner.NothingRan tuner.TuningInterrupted
        graph.frontend.onnx.UnboundInputsError
    """,
    "names of devices, as `runtime.cpu`": "runtime.cuda runtime.metal runtime.opencl runtime.rocm",
    "seams for targets of one's own: tests/unit/driver/test_toy_target.py is the example": """
        driver.Backend driver.register_backend driver.unregister_backend
        runtime.ArtifactKind runtime.register_artifact_kind runtime.unregister_artifact_kind
    """,
    "seams for devices of one's own: tests/unit/runtime/profiling/simulated.py is the example": """
        runtime.profiling.MetricCollector runtime.profiling.observe_calls_of
        runtime.profiling.recorded
    """,
    "nodes of graphs, which operators and functions make": """
        graph.Call graph.Constant graph.Expr graph.Function graph.GlobalVar graph.If graph.OpRef
        graph.Tuple graph.Var graph.frontend.onnx.Node
        graph.frontend.torch.Node
    """,
}
#: Packages that examples need and tests may lack.
PACKAGES = {"graph.from_onnx": "onnx", "graph.from_torch": "torch"}
NEEDS_NONE = {name for names in EXEMPT.values() for name in names.split()}


def public() -> dict[str, object]:
    """Every public callable by its name below `loopwright`, each object once."""
    found: dict[str, object] = {}
    for room in ROOMS.split():
        module = importlib.import_module(f"loopwright.{room}")
        for name in getattr(module, "__all__", own_names(module)):
            thing = getattr(module, name)
            if callable(thing) and not any(thing is other for other in found.values()):
                found[f"{room}.{name}"] = thing
    found |= {name: named(name) for name in ASKED.split()}
    for name in HELD.split():
        cls = named(name)
        assert isinstance(cls, type)
        found.setdefault(name, cls)
        found |= {f"{name}.{method}": f for method, f in methods(cls)}
    return found


def named(name: str) -> object:
    """What has a dotted name below `loopwright`."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"loopwright.{module}"), attribute)


def own_names(module: ModuleType) -> list[str]:
    """The public names that a module without `__all__` defines itself."""
    own = {n: x for n, x in vars(module).items() if not n.startswith("_")}
    return [n for n, x in own.items() if getattr(x, "__module__", "") == module.__name__]


def methods(cls: type) -> Iterator[tuple[str, object]]:
    """The public methods of a class, with those that it inherits from classes of ours."""
    for name in dir(cls):
        raw = inspect.getattr_static(cls, name)
        function = getattr(raw, "__func__", raw)  # of a class method or a static one
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if function.__module__.startswith("loopwright."):
            yield name, function


METHODS = {f"{name}.{method}" for name in HELD.split() for method, _ in methods(named(name))}
PUBLIC = public()


def documentation(thing: object) -> str:
    """Its own docstring: that of a pass is that of the function that it runs."""
    doc = getattr(thing.run if isinstance(thing, Pass) else thing, "__doc__", None)
    return inspect.cleandoc(doc) if doc else ""


def is_primitive(method: str) -> bool:
    holder, _, name = method.rpartition(".")
    return holder in SCHEDULES and name in PRIMITIVES


def has_example(thing: object) -> bool:
    return "Example:\n" in documentation(thing)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six measured configurations of a small matmul."""
    path = tmp_path_factory.mktemp("examples") / LOG
    task = lw.create_task("matmul", (64, 64, 64), "llvm")
    option = lw.measure_option(
        runner=lw.LocalRunner(number=1, repeat=1, min_repeat_ms=1, racing=False)
    )
    tuner = lw.tuner.RandomTuner(task, seed=0)
    tuner.tune(n_trial=6, measure_option=option, callbacks=[lw.callback.log_to_file(path)])
    return path


@pytest.mark.docs
@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if has_example(thing)])
def test_example(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name], reason=f"needs the package {PACKAGES[name]}")
    monkeypatch.chdir(tmp_path)
    text = documentation(PUBLIC[name]).partition("Example:\n")[2]
    if LOG in text:  # made for those only that need it
        shutil.copy(request.getfixturevalue("log"), tmp_path)
    report = run(text, name)
    assert not report, report


def run(text: str, name: str) -> str:
    """Run the examples of a text; what is wrong with them."""
    names = {"lw": lw, "te": lw.te, "np": np}
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert test.examples, "an example in words is none"
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    return "".join(report)


def test_every_public_callable_has_an_example() -> None:
    assert {m.rpartition(".")[2] for m in METHODS if is_primitive(m)} == PRIMITIVES
    free = NEEDS_NONE | {m for m in METHODS if not is_primitive(m)}
    missing = [n for n, x in PUBLIC.items() if not has_example(x) and n not in free]
    assert not missing, f"{len(missing)} of {len(PUBLIC)} need one"


def test_exceptions_are_few_and_true() -> None:
    assert set(PUBLIC) >= NEEDS_NONE
    assert not [name for name in NEEDS_NONE if has_example(PUBLIC[name])]
    assert len(NEEDS_NONE) < len(PUBLIC) / 10
