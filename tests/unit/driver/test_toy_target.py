"""A target of a third party in one file: loop IR as Python text, registered from outside.

This is the worked example of a backend. The compiler's entry (`Backend`) says how a function is
compiled, the runtime's (`ArtifactKind`) how it is linked, where it runs and how it is timed. They
meet by the name of the artifact kind, and nothing in the package knows of either.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.codegen import Code
from loopwright.codegen.backends import compile_func
from loopwright.driver import Backend, LoweredProgram, register_backend, unregister_backend
from loopwright.errors import (
    BuildError,
    CodegenError,
    LowerError,
    RunError,
    TargetError,
    UsageError,
)
from loopwright.ir.buffer import Load
from loopwright.ir.expr import Binary, Const, Expr, Var
from loopwright.ir.stmt import For, Func, Seq, Stmt, Store
from loopwright.lowering.gpu_limits import GpuLimits
from loopwright.runtime import (
    ArtifactKind,
    Manifest,
    load_module,
    register_artifact_kind,
    unregister_artifact_kind,
)
from loopwright.runtime.linker import Linked
from loopwright.schedule import create_schedule
from loopwright.target import KINDS, Kind, Option, Target, register_target_kind

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)

# ------------------------------------------------------------------ the compiler's part


def expression(e: Expr) -> str:
    """An expression as Python text."""
    match e:
        case Var():
            return e.name
        case Const(value=v):
            return repr(v)
        case Binary(op="+" | "-" | "*" as op, a=a, b=b):
            return f"({expression(a)} {op} {expression(b)})"
        case Load(buffer=b, indices=indices):
            return f"{b.name}[{', '.join(map(expression, indices))}]"
    raise CodegenError(f"toy: no code for {type(e).__name__}")


def statement(s: Stmt, depth: int = 1) -> Iterator[str]:
    """The lines of a statement."""
    indent = "    " * depth
    match s:
        case Seq(stmts=stmts):
            for x in stmts:
                yield from statement(x, depth)
        case Store(buffer=b, indices=indices, value=v):
            yield f"{indent}{b.name}[{', '.join(map(expression, indices))}] = {expression(v)}"
        case For(kind="thread"):
            raise CodegenError("toy: there are no threads; leave bind out")
        case For(var=v, extent=n, body=body):
            yield f"{indent}for {v.name} in range({n}):"
            yield from statement(body, depth + 1)
        case _:
            raise CodegenError(f"toy: no code for {type(s).__name__}")


def write_python(f: Func, greeting: str) -> str:
    """A function as Python text."""
    params = ", ".join(b.name for b in f.params)
    return "\n".join([f"# {greeting}", f"def {f.name}({params}):", *statement(f.body)]) + "\n"


def compile_toy(program: LoweredProgram, target: Target) -> Code:
    """Compile a function: the artifact holds its text."""
    text = write_python(program.func, target.options["greeting"])
    return Code(text.encode(), {"py": text})


TOY_KIND = Kind(
    "toy",
    ("cpu", "toy"),
    {"greeting": Option(str, "the first line of the code"), "level": Option(int, "", ("1", "2"))},
    {"greeting": "hello", "level": 1},
)
TOY = Backend(TOY_KIND, "toy-text", compile_toy)

# ------------------------------------------------------------------ the runtime's part

#: How many calls the timer was asked for.
timed: list[int] = []


def link_toy(manifest: Manifest, objects: bytes) -> Linked:
    """Run the text, and give the function an address that behaves like that of machine code."""
    names: dict[str, Callable[..., None]] = {}
    exec(objects.decode(), names)
    (spec,) = manifest.functions
    shapes = [tuple(int(str(n)) for n in a.shape) for a in spec.args]
    errors: list[Exception] = []

    def call(pointers: list[int], _: int | None) -> int:
        arrays = []
        for k, (arg, shape) in enumerate(zip(spec.args, shapes, strict=True)):
            room = ctypes.c_char * (prod(shape) * np.dtype(arg.dtype).itemsize)
            arrays.append(np.frombuffer(room.from_address(pointers[k]), arg.dtype).reshape(shape))
        try:
            names[spec.name](*arrays)
        except Exception as error:
            errors.append(error)
            return 2
        return 0

    def complaint(code: int) -> Exception | None:
        return RunError(f"{spec.name}: Python says: {errors.pop()}") if errors else None

    entry = _ENTRY(call)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    assert address is not None
    return Linked({spec.name: address}, entry, complaint)


def time_toy(run: Callable[[], None], number: int) -> float:
    """Seconds of so many calls."""
    timed.append(number)
    start = time.perf_counter()
    for _ in range(number):
        run()
    return time.perf_counter() - start


TOY_TEXT = ArtifactKind("toy-text", "toy", "py", "program", link=link_toy, timer=time_toy)

# ------------------------------------------------------------------ tests


@pytest.fixture
def toy() -> Iterator[None]:
    register_backend(TOY)
    register_artifact_kind(TOY_TEXT)
    yield
    unregister_artifact_kind("toy-text")
    unregister_backend("toy")
    timed.clear()


def doubled() -> tuple[te.Tensor, te.Tensor]:
    A = te.placeholder((3, 4), name="A")
    return A, te.compute((3, 4), lambda i, j: A[i, j] * 2.0 + 1.0, name="B")


def built(target: str = "toy") -> lw.runtime.Module:
    A, B = doubled()
    return lw.build(create_schedule(B), [A, B], target, name="twice")


def test_it_is_built_and_called(toy: None) -> None:
    a, b = np.arange(12, dtype="float32").reshape(3, 4), np.zeros((3, 4), "float32")
    module = built()
    module(a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)
    assert (module.type_key, module.format, module.is_binary) == ("toy", "py", False)
    with Target("toy"):
        A, B = doubled()
        assert lw.build(create_schedule(B), [A, B]).type_key == "toy"


def test_its_sources_are_shown(toy: None) -> None:
    module = built("toy -greeting=good-day")
    assert module.get_source().startswith("# good-day\ndef twice(A, B):\n    for i in range(3):")
    assert module.get_source("py") == module.get_source()
    assert "for" in module.get_ir()
    with pytest.raises(UsageError, match="no source of kind 'asm'; available: py, ir"):
        module.get_source("asm")


def test_its_time_is_taken_by_its_timer(toy: None) -> None:
    a, b = np.ones((3, 4), "float32"), np.zeros((3, 4), "float32")
    result = built().time_evaluator("twice", number=2, repeat=3)(a, b)
    assert timed == [2, 2, 2]
    assert len(result.results) == 3
    assert 0 < result.min < 1
    assert (b == 3).all()


def test_its_arguments_are_checked_and_its_failures_reported(toy: None) -> None:
    module = built()
    a, b = np.ones((3, 4), "float32"), np.zeros((3, 4), "float32")
    with pytest.raises(lw.errors.ArgumentError, match="twice: argument 0"):
        module(a[:2], b)
    manifest = module.artifact.manifest
    broken = lw.runtime.Module(lw.runtime.Artifact(manifest, b"def twice(A, B):\n    A[5]\n"))
    with pytest.raises(RunError, match="twice: Python says: index 5 is out of bounds"):
        broken(a, b)
    with pytest.raises(RunError, match="Python says"):
        broken.time_evaluator("twice", number=1)(a, b)


def test_a_saved_one_runs_again(toy: None, tmp_path: Path) -> None:
    path = built().save(tmp_path / "twice.py")
    a, b = np.ones((3, 4), "float32"), np.zeros((3, 4), "float32")
    load_module(path)(a, b)
    assert (b == 3).all()
    with pytest.raises(UsageError, match="the target toy makes no code that a linker takes"):
        load_module(path).export_library(tmp_path / "twice.so")
    unregister_artifact_kind("toy-text")
    with pytest.raises(UsageError, match="holds a 'toy-text'; this runtime runs llvm-object, "):
        load_module(path)


def test_a_trace_compiles_without_the_schedule(toy: None) -> None:
    A, B = doubled()
    s = create_schedule(B)
    artifact = lw.driver.compile(s.dag, s.trace_json(), s.arg_ids([A, B]), Target("toy"), "twice")
    assert artifact == built().artifact


def test_it_is_among_the_targets_and_devices_while_it_is_registered(toy: None) -> None:
    for name in ("you", "toi"):
        with pytest.raises(TargetError, match="known: llvm, c, interp, opencl, cuda, toy"):
            Target(name)
    assert lw.runtime.device("toy") == lw.runtime.cpu(0)
    assert Target("toy -greeting=hi") == Target(Target("toy -greeting=hi").canonical)
    assert str(Target("toy -greeting=hi")) == "toy -greeting=hi"
    assert Target("toy").keys == ("cpu", "toy")
    with pytest.raises(TargetError, match=r"unknown target option 'greting' of 'toy' \(did you"):
        Target("toy -greting=hi")
    with pytest.raises(TargetError, match="target option level: expected 1 or 2, got '3'"):
        Target("toy -level=3")
    with pytest.raises(TargetError, match=r"a host is a target .* CPU, llvm or c, not 'toy'"):
        Target("llvm", host="toy")


def test_afterwards_nothing_is_left_of_it() -> None:
    assert "toy" not in KINDS
    with pytest.raises(
        TargetError, match=r"unknown target 'toy'; known: llvm, c, interp, opencl, cuda$"
    ):
        Target("toy")
    with pytest.raises(UsageError, match="unknown device 'toy'"):
        lw.runtime.device("toy")


def test_what_it_cannot_do_is_refused(toy: None) -> None:
    A, B = doubled()
    s = create_schedule(B)
    s[B].bind(s[B].op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(CodegenError, match="toy: there are no threads; leave bind out"):
        lw.build(s, [A, B], "toy")
    C = te.compute((3, 4), lambda i, j: te.exp(A[i, j]), name="C")
    with pytest.raises(CodegenError, match="toy: no code for Call"):
        lw.build(create_schedule(C), [A, C], "toy")


def test_tuning_for_it_is_refused_before_the_first_trial(toy: None, tmp_path: Path) -> None:
    """Builders are processes of their own, which know nothing of what was registered here."""
    log = tmp_path / "log.jsonl"
    tuner = lw.tuner.RandomTuner(lw.create_task("matmul", (8, 8, 8), "toy"))
    option = lw.measure_option(lw.LocalBuilder(n_parallel=1), lw.LocalRunner(number=1, repeat=1))
    with pytest.raises(UsageError) as refused:
        tuner.tune(4, measure_option=option, callbacks=[lw.tuner.log_to_file(log)])
    assert str(refused.value).startswith("candidates for the target 'toy' cannot be measured")
    assert "which know llvm, c, interp, opencl, cuda; tune for one of these" in str(refused.value)
    assert not lw.records.load(log).records


def test_limits_of_its_device_are_checked_before_it_is_compiled(toy: None) -> None:
    unregister_backend("toy")
    limits = GpuLimits(max_threads_per_block=2)
    register_backend(Backend(TOY_KIND, "toy-text", compile_toy, limits=lambda target: limits))
    A, B = doubled()
    s = create_schedule(B)
    s[B].bind(s[B].op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(LowerError, match=r"max_threads_per_block|2 threads"):
        lw.build(s, [A, B], "toy")


def test_a_name_is_registered_once(toy: None) -> None:
    with pytest.raises(TargetError, match="the target 'toy' has a backend already"):
        register_backend(TOY)
    other = Kind("toy", ("cpu",))
    with pytest.raises(TargetError, match="there is a target 'toy' already"):
        register_target_kind(other)
    with pytest.raises(UsageError, match="there is an artifact kind 'toy-text' already"):
        register_artifact_kind(ArtifactKind("toy-text", "toy", "txt", "program"))
    unregister_backend("toy")
    unregister_backend("toy")
    register_target_kind(TOY_KIND)
    with pytest.raises(BuildError, match="the target 'toy' has no backend; there are llvm, c"):
        built()
    register_backend(TOY)


def test_a_function_alone_is_compiled(toy: None) -> None:
    A, B = doubled()
    code = compile_func(lw.lower(create_schedule(B), [A, B]), Target("toy"))
    assert code.source("py").startswith("# hello\ndef main(A, B):")
