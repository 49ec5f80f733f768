"""Modules that import others, formats that are saved, static libraries, the system library."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import loopwright as lw
from loopwright import te, tir
from loopwright.errors import RunError, UsageError
from loopwright.runtime import Module, load_module, register_func, remove_global_func, system_lib
from loopwright.runtime.libraries import members
from tests.unit.runtime import kernels

has_tools = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("ar")), reason="no C compiler or archiver here"
)


def parallel(name: str, addend: int, target: str = "llvm") -> Module:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + addend, name="B")
    s = te.create_schedule(B.op)
    s[B].parallel(B.op.axis[0])
    return lw.build(s, [A, B], target, name=name)


#: Of modules that a test only reads.
built = cache(parallel)


def runs(module: Module, addend: int) -> None:
    b = np.zeros(64, "float32")
    module(np.arange(64, dtype="float32"), b)
    np.testing.assert_array_equal(b, np.arange(64) + addend)


def three() -> tuple[Module, Module, Module]:
    a, b, c = (parallel(name, k) for k, name in enumerate(("a", "b", "c")))
    a.import_module(b)
    b.import_module(c)
    return a, b, c


def test_functions_of_imported_modules_are_found_on_request() -> None:
    a, b, c = three()
    assert a.imported_modules == (b,)
    assert a.get_function("c", query_imports=True) is c["c"]
    assert a.get_function("a", query_imports=True) is a["a"]
    assert a.functions == ("a",)
    with pytest.raises(AttributeError, match=r"no function 'c'.*has one: pass query_imports=True"):
        a.get_function("c")
    with pytest.raises(AttributeError, match=r"no function 'd'.*it has a, b, c$"):
        a.get_function("d", query_imports=True)


def test_the_nearest_of_several_functions_is_taken() -> None:
    a, first, second = parallel("a", 0), parallel("same", 1), parallel("same", 2)
    a.import_module(first)
    a.import_module(second)
    assert a.get_function("same", query_imports=True) is first["same"]


def test_modules_import_each_other_in_one_direction() -> None:
    a, b, c = three()
    for module in (a, b):
        with pytest.raises(UsageError, match="imports it already"):
            c.import_module(module)
    with pytest.raises(UsageError, match="expected a module, got 3"):
        a.import_module(3)  # type: ignore[arg-type]
    a.import_module(c)  # also seen by way of b
    assert a.get_function("c", query_imports=True) is c["c"]


def test_metadata_is_the_manifest_and_ones_own() -> None:
    module = kernels.add_one()
    data = module.metadata
    assert data["kind"] == "llvm-object"
    (function,) = data["functions"]
    assert [(x["name"], x["shape"], x["dtype"], x["output"]) for x in function["args"]] == [
        ("A", [2, 3], "float32", False),
        ("B", [2, 3], "float32", True),
    ]
    function["args"].clear()
    assert len(module.metadata["functions"][0]["args"]) == 2


@pytest.mark.parametrize(
    ("fmt", "text"),
    [("ll", "define i32 @f"), ("asm", "f:"), ("s", "f:"), ("ir", "def f(A: float32[64]")],
)
def test_texts_are_saved(fmt: str, text: str, tmp_path: Path) -> None:
    path = built("f", 1).save(tmp_path / "f", fmt)
    assert text in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


@has_tools
@pytest.mark.parametrize(("fmt", "target"), [("o", "llvm"), ("so", "c"), ("a", "c"), ("", "c")])
def test_what_is_saved_as_code_is_loaded_again(fmt: str, target: str, tmp_path: Path) -> None:
    runs(load_module(built("f", 5, target).save(tmp_path / "file", fmt)), 5)


def test_a_format_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no format 'ptx' .*; it has o, so, a, ll, asm"):
        built("f", 1).save(tmp_path / "f", "ptx")
    with pytest.raises(UsageError, match=r"without its texts; it has o, so, a$"):
        load_module(built("f", 1).save(tmp_path / "f.o")).save(tmp_path / "f.ll", "ll")
    with pytest.raises(RunError, match="cannot write"):
        built("f", 1).save(tmp_path / "no" / "folder", "ll")


@has_tools
def test_a_static_library_is_loaded(tmp_path: Path) -> None:
    path = built("f", 3).export_library(tmp_path / "f.a")
    assert [name for name, _ in members(path.read_bytes()) if name] == [
        "kernel.o",
        "manifest.o",
        "pool.o",
    ]
    loaded = load_module(path)
    assert loaded.metadata["functions"][0]["uses_pool"]
    runs(loaded, 3)


MAIN = """
#include <stdint.h>
#include <stdio.h>
int32_t f(void **args, void *ws);
int32_t g(void **args, void *ws);
int main(void) {
  float a[64], b[64], c[64];
  for (int i = 0; i < 64; ++i) a[i] = i;
  void *one[] = {a, b}, *two[] = {b, c};
  int32_t rc = f(one, 0) | g(two, 0);
  printf("%d %g %g\\n", rc, c[0], c[63]);
  return 0;
}
"""


@has_tools
@pytest.mark.parametrize(  # the objects of both have one form
    "target", ["llvm", pytest.param("c", marks=pytest.mark.slow)]
)
def test_a_c_program_links_two_static_libraries(target: str, tmp_path: Path) -> None:
    """Both have parallel loops; the program gets one pool."""
    for name, addend in (("f", 10), ("g", 100)):
        built(name, addend, target).export_library(tmp_path / f"lib{name}.a")
    (tmp_path / "main.c").write_text(MAIN)
    libraries = ["-L.", "-lf", "-lg", "-lm", "-lpthread"]
    subprocess.run(["cc", "main.c", *libraries, "-o", "main"], cwd=tmp_path, check=True)
    run = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert run.stdout == "0 110 173\n"


@has_tools
def test_damaged_static_libraries_are_refused(tmp_path: Path) -> None:
    good = built("f", 3).export_library(tmp_path / "f.a").read_bytes()
    at = good.index(b"kernel.o") + 300
    bad = {
        "its checksum differs": good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :],
        "damaged or cut short": good[:-100],
        "not one that export_library wrote": b"!<arch>\n",
    }
    for why, data in bad.items():
        (tmp_path / "bad.a").write_bytes(data)
        with pytest.raises(UsageError, match=why):
            load_module(tmp_path / "bad.a")


@has_tools
def test_a_library_is_made_of_what_was_built_here(tmp_path: Path) -> None:
    loaded = load_module(built("f", 3).export_library(tmp_path / "f.so"))
    with pytest.raises(UsageError, match=r"a static library .* is made of a module that was built"):
        loaded.export_library(tmp_path / "f.a")


@has_tools
def test_a_static_library_that_calls_packed_functions(tmp_path: Path) -> None:
    x, y = (tir.decl_buffer((4,), "float32", name) for name in "xy")
    body = lambda ins, outs: tir.call_packed("tests.copy", ins[0], outs[0])  # noqa: E731
    module = lw.build(tir.prim_func(body, [x], [y], "f"), target="llvm")
    loaded = load_module(module.export_library(tmp_path / "f.a"))
    register_func("tests.copy", lambda a, b: b.copyfrom(a))
    out = np.zeros(4, "float32")
    loaded(np.ones(4, "float32"), out)
    remove_global_func("tests.copy")
    assert (out == 1).all()


SYSTEM = """
import ctypes, sys
import numpy as np
import loopwright as lw
from loopwright.runtime import system_lib
try:
    system_lib()
except lw.LoopwrightError as error:
    print(error)
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
module = system_lib()
b = np.zeros(64, "float32")
module(np.arange(64, dtype="float32"), b)
print(module.functions, b[63], "llvmlite" in sys.modules)
"""


@has_tools
def test_the_system_library_has_what_is_linked_in(tmp_path: Path) -> None:
    """The archive becomes part of a shared object by the system's linker, with all its symbols."""
    built("f", 7).export_library(tmp_path / "f.a")
    whole = ["-Wl,--whole-archive", "f.a", "-Wl,--no-whole-archive"]
    command = ["cc", "-shared", *whole, "-lm", "-lpthread", "-o", "program.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = subprocess.run(
        [sys.executable, "-c", SYSTEM, str(tmp_path / "program.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = run.stdout.splitlines()
    assert "no function of loopwright is linked into this process" in first
    assert second == "('f',) 70.0 False"


@has_tools
def test_the_system_library_of_one_that_is_loaded(tmp_path: Path) -> None:
    path = built("f", 2).export_library(tmp_path / "f.so")
    runs(system_lib(ctypes.CDLL(str(path))), 2)


def test_a_tar_of_objects_takes_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = parallel("add_three", 3).export_library(str(tmp_path / "f.tar"))
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["kernel.o", "kernel.o.json"]
    a = np.arange(64, dtype="float32")
    b = np.empty_like(a)
    load_module(path)(a, b)
    np.testing.assert_array_equal(b, a + 3)
    parallel("add_four", 4).export_library(path)  # replaces its own kind
    data = path.read_bytes()
    damaged = bytearray(data)
    damaged[600] ^= 1
    for bad, text in ((data[:700], "export it again"), (bytes(damaged), "build it again")):
        path.write_bytes(bad)
        with pytest.raises(UsageError, match=text):
            load_module(path)
    with tarfile.open(path, "w") as tar:
        tar.add(__file__, arcname="other.py")
    with pytest.raises(UsageError, match="not one that export_library wrote"):
        load_module(path)
    with tarfile.open(path, "w") as tar:
        for name in ("kernel.o", "kernel.o.json"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, name
            tar.addfile(link)
    with pytest.raises(UsageError, match="not one that export_library wrote"):
        load_module(path)
    path.write_bytes(Path(__file__).read_bytes())
    with pytest.raises(UsageError, match="a file is there that is not a library"):
        parallel("add_five", 5).export_library(path)
    with pytest.raises(UsageError, match=r"f\.tar\.gz would be compressed"):
        parallel("add_five", 5).export_library(tmp_path / "f.tar.gz")
    with pytest.raises(UsageError, match="unlinked"):
        parallel("add_six", 6).export_library(tmp_path / "g.tar", fcompile=lambda *_, **__: None)
