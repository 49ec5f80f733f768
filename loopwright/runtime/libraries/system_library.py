"""The system library: functions that are linked into this process, as a module.

A program that embeds Python may link a static library of `Module.export_library`, and a process may
have loaded an exported library for others to see. Both bring the symbol ``lw_manifest``, which
lists their functions.
"""

from __future__ import annotations

import ctypes
import json

from loopwright.errors import UsageError
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.manifest import Manifest
from loopwright.runtime.libraries.library import LIBRARY, link_loaded
from loopwright.runtime.linker import Linked
from loopwright.runtime.module import Module

_SYMBOL = "lw_manifest"


def system_lib(library: ctypes.CDLL | None = None) -> Module:
    """A module of the functions that are linked into this process.

    Args:
        library: the library; default the process itself, with libraries that were loaded for all
            to see (``ctypes.CDLL(path, ctypes.RTLD_GLOBAL)``). Of several libraries the first.

    Raises:
        UsageError: nothing of loopwright is linked in, or its manifest is damaged.
        TargetError: the code is for another CPU.

    Example:
        >>> import ctypes
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B], name="add_one")
        >>> path = f.export_library("system.so")
        >>> module = lw.runtime.system_lib(ctypes.CDLL("./system.so"))
        >>> b = np.empty(4, "float32")
        >>> module["add_one"](np.zeros(4, "float32"), b)
        >>> print(b)
        [1. 1. 1. 1.]
    """
    where = ctypes.CDLL(None) if library is None else library
    try:
        text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(where, _SYMBOL)))
    except ValueError:
        raise UsageError(
            "system_lib: no function of loopwright is linked into this process; link a static "
            'library of export_library("x.a") into it with the option --whole-archive, or load '
            "the file with load_module"
        ) from None
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"system_lib: the symbol {_SYMBOL} is no manifest") from None
    if not isinstance(manifest, dict):
        raise UsageError(f"system_lib: the symbol {_SYMBOL} is no manifest")
    artifact = Artifact({**manifest, "kind": LIBRARY.name}, b"")

    def link(contents: Manifest, _: bytes) -> Linked:
        return link_loaded(contents, where)

    return Module(artifact, link=link)
