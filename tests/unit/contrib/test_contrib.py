"""TVM's `contrib`: folders that go, libraries that are linked, what devices can do."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loopwright as tvm
from loopwright import te
from loopwright.contrib import cc, nvcc, utils
from loopwright.errors import RunError, TargetError, UsageError


def doubled(target: str = "llvm") -> tvm.runtime.Module:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2, name="B")
    s = te.create_schedule(B.op)
    if target != "llvm":
        s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    return tvm.build(s, [A, B], target, name="doubled")


def test_a_folder_goes_with_its_object() -> None:
    folder = utils.tempdir()
    path = folder.relpath("x.txt")
    Path(path).write_text("x")
    assert (folder.listdir(), os.path.dirname(path)) == (["x.txt"], folder.temp_dir)
    folder.remove()
    assert not os.path.exists(path)
    folder = utils.tempdir()
    name = folder.temp_dir
    assert os.path.isdir(name)
    del folder
    assert not os.path.exists(name)


def test_an_object_file_is_linked_and_loaded(tmp_path: Path) -> None:
    f = doubled()
    assert f.imported_modules == ()
    f.save(tmp_path / "f.o")
    cc.create_shared(tmp_path / "f.so", [str(tmp_path / "f.o")])
    a, b = np.arange(64, dtype="float32"), np.empty(64, "float32")
    tvm.runtime.load_module(tmp_path / "f.so")(a, b)
    np.testing.assert_array_equal(b, a * 2)
    f.export_library(tmp_path / "g.so", fcompile=cc.create_shared)
    tvm.runtime.load_module(tmp_path / "g.so")(b, a)
    np.testing.assert_array_equal(a, b * 2)
    f.export_library(tmp_path / "h.so", fcompile=cc.cross_compiler("cc", ["-O2"]))


def test_other_files_are_linked_as_they_are(tmp_path: Path) -> None:
    source = tmp_path / "three.c"
    source.write_text("int three(void) { return WANTED; }\n")
    cc.create_shared(str(tmp_path / "three.so"), str(source), ["-DWANTED=3"])
    assert ctypes.CDLL(str(tmp_path / "three.so")).three() == 3
    with pytest.raises(RunError, match=r"(?s)create_shared: \S+ failed: .*WANTED"):
        cc.create_shared(tmp_path / "no.so", [str(source)])
    with pytest.raises(TargetError, match="no C compiler 'no-such-cc'"):
        cc.create_shared(tmp_path / "no.so", [str(source)], cc="no-such-cc")
    with pytest.raises(UsageError, match="no object file"):
        cc.create_shared(tmp_path / "no.so", [])
    (tmp_path / "other.so").write_text("not ours")
    doubled().save(tmp_path / "f.o")
    with pytest.raises(UsageError):  # another's file stays
        cc.create_shared(tmp_path / "other.so", [str(tmp_path / "f.o")])


@pytest.mark.parametrize(("target", "kernel"), [("opencl", "__kernel"), ("cuda", "__global__")])
def test_kernels_of_devices_are_an_imported_module(
    target: str, kernel: str, tmp_path: Path
) -> None:
    f = doubled(target)
    (code,) = f.imported_modules
    assert (code.type_key, code.imported_modules) == (target, ())
    assert code.get_source() == f.get_source()
    assert kernel in code.get_source()
    suffix = {"opencl": "cl", "cuda": "cu"}[target]
    assert kernel in code.save(tmp_path / f"f.{suffix}").read_text()
    with pytest.raises(UsageError, match="no format 'hsaco'"):
        code.save(tmp_path / "f.hsaco")
    host = doubled()
    f.import_module(host)
    assert f.imported_modules[1:] == (host,)
    assert f.get_function("doubled", query_imports=True)


def test_what_a_compute_capability_brings() -> None:
    assert [nvcc.have_tensorcore(v) for v in ("6.1", "7.0", "9.0", "12.0")] == [False, *[True] * 3]
    assert (nvcc.have_fp16("5.2"), nvcc.have_int8("6.1"), nvcc.have_bf16("7.5")) == (0, 1, 0)
    assert nvcc.get_target_compute_version("cuda -arch=sm_86") == "8.6"
    with tvm.Target("cuda -arch=sm_120"):
        assert nvcc.get_target_compute_version() == "12.0"
        assert nvcc.have_tensorcore()
    with pytest.raises(UsageError, match="compute capability is a text"):
        nvcc.have_tensorcore("new")


def test_nothing_of_it_is_loaded_with_the_package() -> None:
    code = (
        "import sys, loopwright; print([m for m in sys.modules if 'contrib' in m or 'topi' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
