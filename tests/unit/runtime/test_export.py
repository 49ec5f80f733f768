"""Exported libraries: they stand alone, say what they are, and refuse what they cannot run on."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import env, te
from loopwright.driver import build
from loopwright.errors import ArgumentError, RunError, TargetError, UsageError
from loopwright.runtime import Module, linker, load_module
from loopwright.runtime import libraries as library
from loopwright.schedule import create_schedule
from tests.unit.lowering.programs import packed_matmul
from tests.unit.runtime import kernels

ROOT = Path(__file__).parents[3]
has_cc = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler here links libraries"
)
x86 = pytest.mark.skipif(linker.architecture() != "x86_64", reason="features of x86-64")
LOAD = """
import sys, numpy as np
import loopwright as lw
a, b = np.ones((64, 32), "float32"), np.full((32, 48), 2, "float32")
for path in sys.argv[1:]:
    c = np.zeros((64, 48), "float32")
    lw.load_module(path)(a, b, c)
    if not (c == 64).all():
        print(path)
column = {"te", "ir", "schedule", "lower", "codegen", "driver", "target"}
names = [m.split(".") for m in sys.modules]
print([".".join(n) for n in names if n[0] == "llvmlite"
      or n[0] == "loopwright" and n[1:2] and n[1] in column])
"""


@cache
def matmul(target: str) -> Module:
    case = packed_matmul(64, 48, 32)
    return build(case.s, case.args, target, name="mm")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return matmul("llvm").export_library(tmp_path_factory.mktemp("export") / "mm.so")


def data() -> list[np.ndarray[Any, Any]]:
    a = np.arange(64 * 32, dtype="float32").reshape(64, 32) % 7
    return [a, np.ones((32, 48), "float32"), np.zeros((64, 48), "float32")]


TARGETS = ["llvm", "llvm -num-threads=2", "c", "c -num-threads=1"]


@has_cc
@pytest.mark.parametrize(
    "targets",
    [
        pytest.param(TARGETS, id="all"),
        *(pytest.param([t], id=t.replace(" ", "_"), marks=pytest.mark.slow) for t in TARGETS),
    ],
)
def test_a_fresh_process_needs_neither_compiler_nor_llvm(
    targets: list[str], tmp_path: Path
) -> None:
    """Of either target, with a pool of their own number of threads and without one.

    Alone, a library finds nothing that another has loaded.
    """
    paths = []
    for target in targets:
        folder = tmp_path / target.replace(" ", "_")
        folder.mkdir()
        paths.append(str(matmul(target).export_library(folder / "mm.so")))
        assert os.listdir(folder) == ["mm.so"]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *paths],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "[]\n", f"{done.stdout}{done.stderr}"


@has_cc
def test_a_loaded_library_is_a_module_like_any_other(exported: Path, tmp_path: Path) -> None:
    f = load_module(exported)
    assert (f.entry_name, f.type_key, f.format) == ("mm", "library", "so")
    a, b, c = data()
    f(a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert f.time_evaluator("mm", number=2)(a, b, c).min > 0
    with pytest.raises(ArgumentError, match=r"mm: argument 1 \('B'\): expected shape \(32, 48\)"):
        f(a, a, c)
    again = load_module(f.export_library(tmp_path / "copy.so"))
    saved = load_module(f.save(tmp_path / "saved"))
    for other in (again, saved):
        c[:] = 0
        other(a, b, c)
        np.testing.assert_array_equal(c, a @ b)


def scaled(factor: float) -> Module:
    a = te.placeholder((4,), "float32", name="A")
    b = te.compute((4,), lambda i: a[i] * factor, name="B")
    return build(create_schedule(b.op), [a, b], "llvm -num-threads=1", name="scaled")


@has_cc
def test_libraries_of_one_process_keep_their_own_code(tmp_path: Path) -> None:
    """They have functions of one name, and are opened one after the other."""
    loaded = {}
    for factor in (2.0, 3.0, 5.0):
        loaded[factor] = load_module(scaled(factor).export_library(tmp_path / f"{factor}.so"))
        a, b = np.ones(4, "float32"), np.zeros(4, "float32")
        loaded[factor](a, b)
        assert (b == factor).all()
    path = scaled(7.0).export_library(tmp_path / "2.0.so")
    loaded[7.0] = load_module(path)
    for factor, f in loaded.items():
        f(a, b)
        assert (b == factor).all()


@has_cc
def test_the_manifest_can_be_read_by_tools(exported: Path) -> None:
    code = ctypes.CDLL(str(exported))
    text = ctypes.string_at(ctypes.cast(code.lw_manifest, ctypes.c_void_p).value)  # type: ignore[arg-type]
    manifest = json.loads(text)
    assert manifest["kind"] == "shared-library"
    assert manifest["made_by"] == "llvm-object"
    assert manifest["entry"] == "mm"
    assert [a["shape"] for a in manifest["functions"][0]["args"]] == [[64, 32], [32, 48], [64, 48]]
    assert len(manifest["sha256"]) == 64
    assert not hasattr(code, "lw_parallel_launch")


@has_cc
def test_the_file_may_go_while_its_code_is_used(tmp_path: Path) -> None:
    path = matmul("llvm -num-threads=1").export_library(tmp_path / "mm.so")
    f = load_module(path)
    path.write_bytes(b"")
    a, b, c = data()
    f(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


@has_cc
def test_damaged_and_foreign_files_are_refused(exported: Path, tmp_path: Path) -> None:
    good = exported.read_bytes()
    path = tmp_path / "x.so"
    flipped = bytearray(good)
    flipped[len(good) // 3] ^= 1
    for bad, text in (
        (good[: len(good) // 2], "damaged or cut short"),
        (good[:64], "damaged or cut short"),
        (good[:30], "damaged or cut short"),
        (bytes(flipped), "damaged: its checksum differs"),
        (good.replace(b"48", b"84"), "damaged"),
        (b"", "the manifest of .* is missing"),
        (b"text", "the manifest of .* is missing"),
    ):
        path.write_bytes(bad)
        with pytest.raises(UsageError, match=text):
            load_module(path)
    other = shutil.which("python3") or sys.executable
    libc = next((Path(x.split()[-1]) for x in Path("/proc/self/maps").read_text().splitlines()
                 if "libc.so" in x), Path(other))  # fmt: skip
    with pytest.raises(UsageError, match="a shared object, but not one that export_library wrote"):
        load_module(libc)
    with pytest.raises(UsageError, match=r"there is no file .*none\.so"):
        load_module(tmp_path / "none.so")


@has_cc
@x86
def test_another_cpu_is_refused_with_both_names(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = env.cpu_flags() - {"avx2", "avx512f"}
    monkeypatch.setattr(env, "cpu_flags", lambda: flags)
    path = matmul("llvm -mcpu=haswell").export_library(tmp_path / "haswell.so")
    with pytest.raises(
        TargetError,
        match=r"built for haswell x86_64 with avx2, which this machine's .* lacks; export it for",
    ):
        load_module(path)
    level = matmul("c -mcpu=x86-64-v2").export_library(tmp_path / "v2.so")
    a, b, c = data()
    load_module(level)(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


@has_cc
@x86
def test_another_architecture_is_refused(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker, "architecture", lambda: "aarch64")
    with pytest.raises(TargetError, match=r"x86_64, this machine is aarch64 .*export it for aarch"):
        load_module(exported)


def test_without_a_compiler_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        TargetError,
        match=r"export_library needs a linker, and there is no C compiler 'nocc' .*apt-get install "
        r"gcc libc6-dev\), or use save\(path\)",
    ):
        kernels.add_one().export_library(tmp_path / "x.so", cc="nocc")


@has_cc
def test_what_cannot_be_written(tmp_path: Path) -> None:
    module = kernels.add_one()
    with pytest.raises(RunError, match=r"cannot write .*: No such file or directory"):
        module.export_library(tmp_path / "none" / "x.so")
    with pytest.raises(RunError, match="it is a folder; name a file"):
        module.export_library(tmp_path)


@has_cc
def test_a_function_of_the_user_may_link(tmp_path: Path) -> None:
    seen = []

    def mine(output: str, files: list[str], options: list[str]) -> None:
        seen.extend(Path(f).name for f in files)
        subprocess.run(["cc", "-o", output, *files, *options], check=True)

    path = matmul("llvm -num-threads=2").export_library(tmp_path / "mm.so", fcompile=mine)
    assert seen == ["manifest.c", "kernel.o", "fastcall.o", "pool.o"]
    a, b, c = data()
    load_module(path)(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_a_function_that_does_not_link_is_told(tmp_path: Path) -> None:
    module = kernels.add_one()
    for junk in (None, b"text", b"\x7fELF"):

        def broken(output: str, files: list[str], options: list[str], junk: Any = junk) -> None:
            if junk is not None:
                Path(output).write_bytes(junk)

        with pytest.raises(RunError, match="fcompile wrote no shared object with all files in it"):
            module.export_library(tmp_path / "x.so", fcompile=broken)
    with pytest.raises(UsageError, match=r"fcompile is a function .* got 'gcc'; .* write cc="):
        module.export_library(tmp_path / "x.so", fcompile="gcc")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_interpreter_makes_no_library(tmp_path: Path) -> None:
    case = packed_matmul(8, 8, 8)
    with pytest.raises(
        UsageError, match="the target interp makes no code that a linker takes; build for"
    ):
        build(case.s, case.args, "interp").export_library(tmp_path / "x.so")


@has_cc
def test_c_calls_it(exported: Path, tmp_path: Path) -> None:
    """From a program without Python: the entry, its arguments, the pool starts by itself."""
    manifest = json.loads((library.elf_section(exported.read_bytes(), b".loopwright") or b"")[:-1])
    need = manifest["functions"][0]["workspace_bytes"]
    source = f"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
int32_t mm(void **args, void *ws);
static float a[64 * 32], b[32 * 48], c[64 * 48];
int main(void) {{
  for (int i = 0; i < 64 * 32; ++i) a[i] = 1;
  for (int i = 0; i < 32 * 48; ++i) b[i] = 2;
  void *args[] = {{a, b, c}};
  int32_t rc = mm(args, aligned_alloc(64, {need + 64 - need % 64}));
  printf("%d %g %g\\n", rc, c[0], c[64 * 48 - 1]);
}}
"""
    (tmp_path / "main.c").write_text(source)
    cc = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))))
    command = [cc, "main.c", str(exported), f"-Wl,-rpath,{exported.parent}", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert done.stdout == "0 64 64\n"
