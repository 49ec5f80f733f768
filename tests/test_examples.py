"""Every public class, every primitive and every entry point has an example; all examples are true.

An example is a block ``Example:`` in doctest form. It may use ``lw``, ``te`` and ``np`` without
importing them, runs in a folder that holds the log ``matmul.jsonl``, and prints what it says.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import loopwright as lw
from loopwright.schedule import Step

PACKAGE = Path(lw.__file__).parent

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

#: Functions that a user calls first.
ENTRY_POINTS = """
    te.placeholder te.compute te.reduce_axis te.var te.sum te.comm_reducer te.decl_tensor_intrin
    schedule.create_schedule schedule.replay lowering.lower lowering.func_pass
    automatic.build automatic.auto_schedule driver.compile target.register_target_kind
    runtime.array runtime.device runtime.load_module runtime.register_func runtime.save_params
    runtime.profiling.profile
    task.template task.get_config task.create_task task.apply_history_best
    space.create_task space.workload space.space_rule space.structures
    measure.measure_option tuner.tune tuner.tune_tasks tuner.log_to_file tuner.register_check
    records.load records.best inspection.rerun inspection.export inspection.emit
    graph.compile graph.from_onnx graph.from_torch graph.extract_tasks graph.quantize
    executors.load_model ops.matmul ops.conv2d
    auto_scheduler.auto_schedule auto_scheduler.register_workload autotvm.task.extract_from_program
    tir.prim_func
"""

#: The log that examples find in their folder.
LOG = "matmul.jsonl"

#: Classes that have the primitives as methods, and these: each has an example, too.
SCHEDULES = (lw.schedule.Schedule, lw.schedule.Stage)
PRIMITIVES = {*Step.registry, "tile", "vectorize", "unroll", "parallel"} - {"annotate"}

#: Public classes that are no tools of a user, by the reason why they need no example.
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
        runtime.Program
        measure.MeasurerLike measure.TaskLike records.Json records.Measurement
        tuner.TasksMonitor tuner.TunerLike tuner.run.callbacks.Database
        auto_scheduler.search_policy.SearchCallback auto_scheduler.search_policy.SearchPolicy
    """,
    "errors": "tuner.NothingRan tuner.TuningInterrupted graph.frontend.onnx.UnboundInputsError",
    "seams for targets of one's own: tests/unit/driver/test_toy_target.py is the example": (
        "driver.Backend runtime.ArtifactKind"
    ),
    "seams for devices of one's own: tests/unit/runtime/profiling/simulated.py is the example": (
        "runtime.profiling.MetricCollector"
    ),
    "nodes of graphs, which operators and functions make": """
        graph.Call graph.Constant graph.Expr graph.Function graph.GlobalVar graph.If graph.OpRef
        graph.Tuple graph.Var graph.frontend.onnx.Node
        graph.frontend.torch.Node
    """,
}
NEEDS_NONE = {name for names in EXEMPT.values() for name in names.split()}


def examples(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each example of a file: in docstrings and texts that become docstrings."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            own = getattr(child, "name", "")
            yield from walk(child, f"{name}.{own}" if own and name else own or name)
            match child:
                case ast.FunctionDef() | ast.ClassDef():
                    yield f"{name}.{own}".lstrip("."), ast.get_docstring(child) or ""
                case ast.Assign([ast.Attribute(ast.Name(thing), "__doc__")], ast.Constant(text)):
                    yield thing, text

    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name, text in [("", ast.get_docstring(tree) or ""), *walk(tree, "")]:
        if "Example:\n" in text:
            yield name, text.partition("Example:\n")[2]


EXAMPLES = {
    f"{path.relative_to(PACKAGE)}:{name}": text
    for path in sorted(PACKAGE.rglob("*.py"))
    for name, text in examples(path)
}


def named(name: str) -> object:
    """What has a dotted name below `loopwright`."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"loopwright.{module}"), attribute)


def classes() -> dict[str, type]:
    """Every public class by its name below `loopwright`, each once."""
    named: dict[type, str] = {}
    for room in ROOMS.split():
        module = importlib.import_module(f"loopwright.{room}")
        for name in getattr(module, "__all__", own_names(module)):
            thing = getattr(module, name)
            if isinstance(thing, type):
                named.setdefault(thing, f"{room}.{name}")
    return {name: cls for cls, name in named.items()}


def own_names(module: ModuleType) -> list[str]:
    """The public names that a module without `__all__` defines itself."""
    own = {n: x for n, x in vars(module).items() if not n.startswith("_")}
    return [n for n, x in own.items() if getattr(x, "__module__", "") == module.__name__]


def has_example(thing: object) -> bool:
    return "Example:\n" in (inspect.cleandoc(thing.__doc__) if thing.__doc__ else "")


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
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EXAMPLES[name]
    for package in re.findall(r">>> (?:import|from) (onnx|torch)\b", text):
        pytest.importorskip(package, reason=f"needs the package {package}")
    monkeypatch.chdir(tmp_path)
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


def test_classes_primitives_and_entry_points_have_an_example() -> None:
    wanted = {name: cls for name, cls in classes().items() if name not in NEEDS_NONE}
    wanted |= {name: named(name) for name in ENTRY_POINTS.split()}
    methods = {n: getattr(cls, n) for cls in SCHEDULES for n in PRIMITIVES if hasattr(cls, n)}
    assert methods.keys() == PRIMITIVES
    missing = [name for name, thing in (wanted | methods).items() if not has_example(thing)]
    assert not missing, f"{len(missing)} of {len(wanted | methods)} need one"


def test_exceptions_are_few_and_true() -> None:
    public = classes()
    assert public.keys() >= NEEDS_NONE
    assert not [name for name in NEEDS_NONE if has_example(public[name])]
    assert len(NEEDS_NONE) < len(public) / 3
