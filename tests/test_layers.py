"""Imports of the package only go down: the floors of ARCHITECTURE.md, checked on the sources.

Every import counts, also one inside a function, under TYPE_CHECKING, or through
`importlib.import_module` with a constant name. Only `loopwright/__init__.py` may import anything.
Some rooms have floors inside, of folders and files; and no two files know each other, not even by
way of others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.import_graph import FACADES, Graph, cycles, import_graph
from tests.sources import Source, read

PACKAGE = Path(__file__).parents[1] / "loopwright"

# What anybody may import; among each other these import only what stands before them.
BASE = (
    "version",
    "errors",
    "lazy",
    "presenting",
    "time_limit",
    "files",
    "env",
    "dtypes",
    "extras",
    "target",
)

FLOORS = {
    **dict.fromkeys(BASE, 0),
    "runtime": 0,
    "records": 0,
    "ir": 1,
    "te": 2,
    "schedule": 2,
    "lowering": 3,
    "codegen": 3,
    "driver": 4,
    "transform": 4,
    "task": 4,
    "executors": 4,
    "measure": 5,
    "cost": 5,
    "history": 5,
    "tuner": 6,
    "space": 6,
    "ops": 6,
    "automatic": 7,
    "inspection": 7,
    "graph": 7,
    "compat": 8,
    "testing": 8,
    "auto_scheduler": 9,
    "autotvm": 9,
    "contrib": 9,
    "cli": 9,
    "tir": 9,
    "topi": 9,
    "__main__": 10,
}

SIDEWAYS = {("schedule", "te"), ("codegen", "lowering"), ("ops", "space"), ("graph", "automatic")}

# Floors inside rooms, lowest first: files and folders of a room. What is not named here, such as a
# room's `__init__.py`, stands above the others. Those of one floor do not import each other.
INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "runtime": (
        ("caches",),
        ("linker",),
        ("pool", "artifacts"),
        ("thread_pool", "guarded_memory", "devices"),
        ("memory", "checker"),
        ("arrays",),
        ("ndarray",),
        ("packed", "kernels"),
        ("packed_calls", "params"),
        ("objects",),
        ("libraries",),
        ("module",),
        ("peak", "profiling"),
        ("executors",),
    ),
    "executors": (
        ("c_headers", "program"),
        ("callees", "saved"),
        ("places",),
        ("executor",),
        ("whole_program",),
        ("graph_executor",),
        ("debug_executor", "device_executor", "partitioned_executor"),
        ("model",),
        ("batched_model",),
    ),
    "ir": (
        ("node", "kinds"),
        ("expr",),
        ("affine", "visitor", "buffer"),
        ("sizes", "reduction"),
        ("stmt",),
        ("printer", "structural", "instructions"),
        ("verify",),
        ("math",),
        ("interp",),
    ),
    "schedule": (
        ("state",),
        ("bounds",),
        ("steps",),
        ("primitives",),
        ("apply",),
        ("resolution",),
        ("stage",),
        ("schedule",),
    ),
    "lowering": (
        ("nest", "context"),
        ("gpu_limits", "passes"),
        ("pipeline",),
    ),
    "codegen": (
        ("code",),
        ("llvm", "c"),
        ("gpu", "kernel_cache"),
        ("manifests",),
        ("backends",),
        ("build",),
    ),
    "space": (
        ("expression",),
        ("analysis",),
        ("kernels",),
        ("structure",),
        ("registry",),
        ("kept", "rules"),
        ("derivation", "ranking"),
        ("tasks",),
    ),
    "ops": (
        ("gpu", "topi"),
        ("operator",),
        ("tiles", "tensor_core"),
        ("elementwise", "gemm", "rows", "windows", "matmul_int8"),
        ("matmul",),
    ),
    "cost": (("symbolic",), ("cpu",), ("gpu",), ("features", "analytical")),
    "graph": (
        ("ir", "rounding"),
        ("fallbacks", "registry", "serial"),
        ("infer", "op"),
        ("dataflow_pattern", "layout", "passes", "plan"),
        ("fuse_ops",),
        ("kernels",),
        ("transform",),
        ("building",),
        ("sized",),
        ("frontend",),
        ("batches", "layout_tuning"),
        ("compile", "tuning"),
        ("quantize", "torch_backend"),
    ),
    "records": (
        ("line", "error_kinds"),
        ("provenance", "verdict"),
        ("record",),
        ("foreign", "own_lines", "store"),
        ("file_kinds",),
        ("log",),
        ("bulk", "follow", "validation"),
        ("reuse",),
        ("ranking",),
        ("query",),
        ("files", "reports"),
        ("notebook",),
    ),
    "task": (
        ("entities",),
        ("knobs",),
        ("policies",),
        ("template_config",),
        ("template",),
        ("space",),
        ("sampling", "task", "union"),
        ("dispatch",),
    ),
    "history": (
        ("call_overhead", "contexts", "fit", "rebuilding"),
        ("choice", "selection"),
        ("apply_best",),
    ),
    "measure": (
        ("result", "options", "devices", "comparison", "paired_ratios"),
        ("interfaces", "inputs"),
        ("space_file", "workers"),
        ("runner",),
        ("candidate",),
        ("building", "machine_limit"),
        ("reference", "device_limit"),
        ("session",),
        ("playoff",),
        ("measurer",),
    ),
    "tuner": (
        ("run", "options", "candidate_checks"),
        ("model",),
        ("base",),
        ("range_tuners", "breeding"),
        ("droplet_tuner", "evolution"),
        ("ga_tuner", "xgb_tuner"),
        ("registry", "structures"),
        ("tasks",),
    ),
    "inspection": (
        ("bench", "choosing", "doctor", "kernel_file", "log_statistics"),
        ("speed", "ties"),
        ("emission", "export", "schedules", "watch"),
        ("rerun", "report"),
        ("dashboard",),
    ),
    "cli": (
        ("console",),
        ("display", "options", "tables"),
        ("devices", "doctor", "logs", "watch", "workload"),
        ("kernel_files", "model", "numpy_process", "records", "workloads"),
        ("inspect", "report"),
        ("bench", "build", "explain", "run", "tune_tasks"),
        ("tune",),
        ("app",),
    ),
}


class Import(NamedTuple):
    """One import of loopwright by loopwright: the unit is the first name below the root."""

    line: int
    unit: str
    nested: bool  # inside a function


def resolve(path: Path, level: int, module: str | None) -> list[str] | None:
    """The dotted parts of an imported module below `loopwright`, None for another package."""
    parts = module.split(".") if module else []
    if level == 0:
        return parts[1:] if parts[:1] == ["loopwright"] else None
    folder = path.parent.parts
    return [*folder[: len(folder) - (level - 1)], *parts]


def imported(path: Path, node: ast.AST) -> Iterator[str]:
    """Units that one syntax node imports; "" stands for the root package itself.

    Args:
        path: the file, relative to the package.
        node: an import of it, or a call of `import_module`.
    """
    match node:
        case ast.Import(names):
            for alias in names:
                if (parts := resolve(path, 0, alias.name)) is not None:
                    yield parts[0] if parts else ""
        case ast.ImportFrom(module, names, level):
            if (parts := resolve(path, level or 0, module)) is None:
                return
            if parts:
                yield parts[0]
                return
            yield from (alias.name if alias.name in FLOORS else "" for alias in names)
        case ast.Call(args=[ast.Constant(str() as name), *_]):
            level = len(name) - len(name.lstrip("."))
            if (parts := resolve(path, level, name.lstrip(".") or None)) is not None:
                yield parts[0] if parts else ""


def imports(path: Path, source: Source) -> Iterator[Import]:
    """All imports of loopwright in one file of it."""
    for node, nested in source.imports:
        for unit in imported(path, node):
            yield Import(getattr(node, "lineno", 0), unit, nested)


def allowed(path: Path, unit: str, item: Import) -> bool:
    """Whether `unit`, the owner of the file `path`, may have this import."""
    if item.unit == unit or (unit, item.unit) in SIDEWAYS:
        return True
    if (path.as_posix(), item.unit) in FACADES:
        return item.nested
    if item.unit not in FLOORS:
        return False
    if unit in BASE:
        return item.unit in BASE[: BASE.index(unit)]
    return item.unit in BASE or FLOORS[item.unit] < FLOORS[unit]


def violations(path: Path, source: Source) -> list[str]:
    """What is wrong with the imports of one file; empty when all is well."""
    unit = path.parts[0].removesuffix(".py")
    if unit not in FLOORS:
        return [f"{path}: '{unit}' has no floor; give it one here and in ARCHITECTURE.md"]
    return [
        f"{path}:{item.line}: {unit} (floor {FLOORS[unit]}) imports "
        + (f"{item.unit} (floor {FLOORS.get(item.unit, '?')})" if item.unit else "the root package")
        for item in imports(path, source)
        if not allowed(path, unit, item)
    ]


def sources() -> list[Path]:
    found = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return sorted(path for path in found if path != Path("__init__.py"))


def test_the_package_was_found() -> None:
    assert {"ir", "schedule", "measure", "tuner", "runtime", "records"} <= {
        path.parts[0] for path in sources()
    }


def test_imports_only_go_down() -> None:
    wrong = [line for path in sources() for line in violations(path, read(PACKAGE / path))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("ir/nodes.py", "from loopwright.te import Tensor"),
        ("ir/nodes.py", "import loopwright.schedule.steps as steps"),
        ("ir/nodes.py", "from loopwright import schedule"),
        ("ir/nodes.py", "from .. import schedule"),
        ("ir/nodes.py", "from ..te.tensor import Tensor"),
        ("ir/deep/nodes.py", "from ...te import Tensor"),
        ("ir/nodes.py", "def f():\n    from loopwright.cli import main"),
        ("ir/nodes.py", "if TYPE_CHECKING:\n    from loopwright.te import Tensor"),
        ("ir/nodes.py", "import importlib\nimportlib.import_module('loopwright.te')"),
        ("ir/nodes.py", "import_module('..te', __package__)"),
        ("runtime/module.py", "from loopwright.records import Record"),
        ("records/store.py", "from loopwright.runtime import Module"),
        ("runtime/module.py", "from loopwright.ir import Func"),
        ("te/tensor.py", "from loopwright.schedule import Schedule"),
        ("te/__init__.py", "from loopwright.schedule import Schedule"),
        ("lowering/nest.py", "from loopwright.codegen import llvm"),
        ("codegen/build.py", "from loopwright.task import Task"),
        ("tuner/grid.py", "from loopwright.ops import matmul"),
        ("measure/worker.py", "from loopwright.ops import matmul"),
        ("errors.py", "from loopwright import target"),
        ("errors.py", "from loopwright import dtypes"),
        ("tuner/grid.py", "from loopwright import build"),
        ("tuner/grid.py", "import loopwright"),
        ("tuner/grid.py", "import loopwright.cli"),
        ("helpers.py", "x = 1"),
    ],
)
def test_the_checker_catches(path: str, source: str) -> None:
    assert len(violations(Path(path), Source.of(source))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("te/tensor.py", "from loopwright.ir import Expr\nfrom ..errors import TensorError"),
        ("te/tensor.py", "from .axis import IterVar\nfrom . import axis"),
        ("te/__init__.py", "def __getattr__(name):\n    from loopwright.schedule import x"),
        ("schedule/state.py", "from loopwright.te import Dag\nfrom loopwright import ir, te"),
        ("runtime/module.py", "from loopwright.target import Target\nimport numpy"),
        ("target.py", "from loopwright.errors import TargetError"),
        ("cli/tune.py", "from loopwright import ops, tuner\nfrom loopwright.records import load"),
        ("lowering/pipeline.py", "import loopwrights\nfrom loopwright_extra import cli"),
    ],
)
def test_the_checker_accepts(path: str, source: str) -> None:
    assert violations(Path(path), Source.of(source)) == []


#: Modules that other rooms may import beside the faces: those of `ir`, which is nodes and what is
#: done with them, documented ones, and such whose names tests replace.
OPEN = (
    "ir",
    "codegen.build",
    "compat.facade",
    "driver.build",
    "graph.op",
    "graph.transform",
    "runtime.profiling",
    "task.template",
    "testing",
    "tuner.run.callbacks",
    "tuner.run.loop",
)


def past_faces(path: Path, source: Source) -> list[str]:
    """Imports of another room that do not go through its ``__init__``."""
    unit, rooms = path.parts[0].removesuffix(".py"), {*FLOORS} - {*BASE}
    wrong = []
    for node, _ in source.imports:
        if not isinstance(node, ast.ImportFrom):
            continue
        parts = resolve(path, node.level, node.module) or []
        full = [*parts, *(alias.name for alias in node.names[:1])]
        opened = any(full[: len(o)] == o for o in (name.split(".") for name in OPEN))
        if len(parts) > 1 and parts[0] in rooms - {unit} and not opened:
            wrong.append(f"{path}:{node.lineno}: {node.module} is a part of another room")
    return wrong


def test_other_rooms_are_imported_by_their_faces() -> None:
    wrong = [line for path in sources() for line in past_faces(path, read(PACKAGE / path))]
    assert not wrong, "\n".join(wrong)


def test_the_checker_of_faces_catches() -> None:
    source = Source.of(
        "from loopwright.task.space import ConfigSpace\nfrom loopwright.ir.expr import Expr"
    )
    assert len(past_faces(Path("tuner/grid.py"), source)) == 1
    assert past_faces(Path("task/union.py"), source) == []


def floor_inside(room: str, unit: str) -> int:
    """The floor of a file or folder inside its room."""
    floors = INSIDE[room]
    return next((i for i, units in enumerate(floors) if unit in units), len(floors))


def inside_violations(room: str, graph: Graph) -> list[str]:
    """Imports between the files of one room that do not go down."""
    home = f"loopwright.{room}."
    wrong = []
    for name, targets in graph.items():
        unit = name.removeprefix(home).split(".")[0]
        for target in targets if name.startswith(home) else ():
            other = target.removeprefix(home).split(".")[0]
            lower = floor_inside(room, other) < floor_inside(room, unit)
            if target.startswith(home) and other != unit and not lower:
                wrong.append(f"{name} imports {target}, which is not below it")
    return sorted(wrong)


def test_imports_inside_a_room_only_go_down() -> None:
    for room, floors in INSIDE.items():
        named = {unit for floor in floors for unit in floor}
        there = {path.name.removesuffix(".py") for path in (PACKAGE / room).iterdir()}
        assert named <= there, f"a floor of {room} names a file that is gone"
    wrong = [line for room in INSIDE for line in inside_violations(room, import_graph(PACKAGE))]
    assert not wrong, "\n".join(wrong)


def test_the_checker_of_rooms_catches() -> None:
    graph = {
        "loopwright.cost.symbolic.x": frozenset({"loopwright.cost.cpu.y"}),
        "loopwright.cost.cpu.y": frozenset({"loopwright.cost.symbolic.x", "loopwright.ir.expr"}),
        "loopwright.cost": frozenset({"loopwright.cost.features.z"}),
    }
    assert len(inside_violations("cost", graph)) == 1


def test_no_two_files_know_each_other() -> None:
    assert cycles(import_graph(PACKAGE)) == []


def test_cycles_are_found() -> None:
    graph = {name: frozenset(to) for name, to in {"a": "b", "b": "cd", "c": "a", "d": "e"}.items()}
    graph |= {"e": frozenset("d"), "f": frozenset("a")}
    assert cycles(graph) == [["d", "e"], ["a", "b", "c"]]
