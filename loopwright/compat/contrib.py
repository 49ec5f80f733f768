"""Folders that go again, the system's linker, and what a compute capability brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from loopwright.errors import RunError, TargetError, UsageError
from loopwright.runtime import Module, cuda
from loopwright.target import Target


class TempDirectory:
    """A folder that is removed with the object, or by `remove`; ``temp_dir`` is its path."""

    def __init__(self) -> None:
        self.temp_dir = tempfile.mkdtemp()
        self._removal = weakref.finalize(self, shutil.rmtree, self.temp_dir, ignore_errors=True)

    def relpath(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        """Names of what is in the folder, sorted."""
        return sorted(os.listdir(self.temp_dir))

    def remove(self) -> None:
        """Remove the folder with all in it."""
        self._removal()


def tempdir() -> TempDirectory:
    """A new folder among the system's temporary ones.

    Example:
        >>> folder = lw.contrib.utils.tempdir()
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], "llvm")
        >>> path = f.save(folder.relpath("add.o"))
        >>> print(folder.listdir())
        ['add.o', 'add.o.json']
    """
    return TempDirectory()


def create_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Link object files into a shared library.

    The one file that `Module.save` wrote becomes what `Module.export_library` writes, which
    `load_module` reads. Other files are linked as they are, so that the function may stand as
    ``fcompile`` of `Module.export_library`.

    Args:
        output: the library.
        objects: object files, or one.
        options: of the linker, behind the files.
        cc: the compiler that links; None: the first of cc, gcc and clang.

    Raises:
        TargetError: there is no such compiler.
        RunError: linking failed.
        UsageError: no file is given; others as of `Module.export_library`.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> f = lw.build([A, te.compute((4,), lambda i: A[i] + 1, name="B")], "llvm")
        >>> path = f.save("add.o")
        >>> lw.contrib.cc.create_shared("add.so", ["add.o"])
        >>> b = np.empty(4, "float32")
        >>> lw.runtime.load_module("add.so")(np.zeros(4, "float32"), b)
        >>> print(b)
        [1. 1. 1. 1.]
    """
    files = [objects] if isinstance(objects, str | os.PathLike) else list(objects)
    if not files:
        raise UsageError("create_shared: there is no object file to link")
    if len(files) == 1 and Path(f"{files[0]}.json").exists():
        Module.load(files[0]).export_library(output, cc)
        return
    names = (cc,) if cc else ("cc", "gcc", "clang")
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        raise TargetError(
            f"create_shared: there is no C compiler {names[0]!r}; install one (apt-get install gcc)"
        )
    command = [compiler, "-shared", "-fPIC", "-o", os.fspath(output), *files, *(options or ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        text = done.stderr.strip() or f"it ended with {done.returncode}"
        raise RunError(f"create_shared: {Path(compiler).name} failed: {text}")


def cross_compiler(cc: str, options: Sequence[str] | None = None) -> Callable[..., None]:
    """`create_shared` by a compiler for another machine, as ``fcompile`` takes it:
    ``f.export_library("f.so", fcompile=cross_compiler("aarch64-linux-gnu-gcc"))``.

    ``options`` stand before those that the library needs.
    """

    def link(
        output: str | os.PathLike[str],
        objects: str | Sequence[str],
        options: Sequence[str] | None = None,
    ) -> None:
        create_shared(output, objects, [*own, *(options or ())], cc)

    own = list(options or ())
    return link


def get_target_compute_version(target: Target | str | None = None) -> str:
    """The compute capability, such as ``"9.0"``, of the target's architecture, else of the first
    card; UsageError where there is neither.

    ``target`` None: the target in force.
    """
    chosen = Target.current(allow_none=True) if target is None else Target(target)
    arch = "" if chosen is None else str(chosen.canonical.get("arch") or "")
    digits = "".join(filter(str.isdigit, arch.partition("_")[2]))
    if digits:
        return f"{digits[:-1]}.{digits[-1]}"
    card = cuda()
    card.require()
    return str(card.compute_version)


def _since(verb: str, first: tuple[int, int]) -> Callable[..., bool]:
    def have(compute_version: str | None = None) -> bool:
        version = compute_version or get_target_compute_version()
        numbers = re.fullmatch(r"(\d+)\.(\d+)", version)
        if numbers is None:
            raise UsageError(
                f"{verb}: a compute capability is a text such as '8.0', got {version!r:.40}"
            )
        return (int(numbers[1]), int(numbers[2])) >= first

    have.__name__ = verb
    have.__doc__ = (
        f"Whether the compute capability is {first[0]}.{first[1]} or later; None: that of "
        "`get_target_compute_version`."
    )
    return have


have_fp16 = _since("have_fp16", (5, 3))
have_int8 = _since("have_int8", (6, 1))
have_tensorcore = _since("have_tensorcore", (7, 0))
have_bf16 = _since("have_bf16", (8, 0))
