"""A model as a library for C: one function, its kernels and its weights, and a header.

The weights lie in the library as the kernels read them, packed already, in memory that processes
share and that is read from the disk at its first use.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from loopwright.errors import UsageError
from loopwright.executors.program import ALIGNMENT, Array
from loopwright.executors.whole_program import WholeProgram
from loopwright.files import FileKind, Output, check, marked, write
from loopwright.runtime import libraries as export
from loopwright.runtime import linker

#: Bytes of weights at most: code reaches them by distances of 32 bits.
_MOST = 1 << 31
_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
}
#: Reserved names of parameters: names in the header, and keywords of C and C++.
_TAKEN = frozenset(
    [
        *("args", "workspace", "auto", "bool", "break", "case", "catch", "char", "class", "const"),
        *("continue", "default", "delete", "do", "double", "else", "enum", "extern", "false"),
        *("float", "for", "friend", "goto", "if", "inline", "int", "long", "namespace", "new"),
        *("operator", "private", "protected", "public", "register", "restrict", "return", "short"),
        *("signed", "sizeof", "static", "struct", "switch", "template", "this", "throw", "true"),
        *("try", "typedef", "typename", "union", "unsigned", "using", "virtual", "void"),
        *("volatile", "while"),
    ]
)
HEADER = FileKind("a header", marked(b": a model as one function. Written by loopwright"))
_HEADER = """\
/* {name}: a model as one function. Written by loopwright {version}.

   It computes, of arrays that are row-major without gaps,
{args}
   `workspace` is memory of {upper}_WORKSPACE_BYTES bytes that begins at a multiple of 64, such as
   aligned_alloc gives it. Calls that run at one time need one each. Outputs must not overlap
   anything. The result is 0, or a code when it failed. */
#ifndef {upper}_H
#define {upper}_H
#include <stdint.h>

#define {upper}_WORKSPACE_BYTES {workspace}

#ifdef __cplusplus
extern "C" {{
#endif

/* `args`: a pointer to each input, then to each output. */
int32_t {name}(void **args, void *workspace);
{threads}
static inline int32_t {name}_run({params}, void *workspace) {{
  void *args[] = {{{values}}};
  return {name}(args, workspace);
}}

#ifdef __cplusplus
}}
#endif
#endif
"""
_THREADS = """
/* Threads of its loops, the caller included, and how often one looks for work before it sleeps. */
void lw_pool_configure(int32_t threads, int32_t spin);
"""


def c_name(path: Path) -> str:
    """C identifier of a library's function: the file's name without its ending.

    UsageError where no character of it is left.
    """
    name = re.sub(r"\W", "_", path.name.partition(".")[0], flags=re.ASCII)
    if not name.strip("_"):
        raise UsageError(f"export_library: {path.name!r} gives no name for a function of C")
    return f"model_{name}" if name[0].isdigit() else name


def export_model(
    whole: WholeProgram,
    path: Path,
    cc: str | None = None,
    fcompile: Callable[..., object] | None = None,
    *,
    force: bool = False,
) -> Path:
    header = path.with_suffix(".h")
    check((header, HEADER), force=force)
    with tempfile.TemporaryDirectory(prefix="loopwright-weights-") as folder:
        weights = _weights_object(whole.constants, Path(folder) / "weights.bin")
    kernels = {
        f"kernel_{n}.o": module.artifact.objects for n, module in enumerate(whole.kernels.values())
    }
    more = {"weights.o": weights, **kernels}
    written = export.export(whole.artifact(), path, cc, fcompile, more=more, force=force)
    write(Output(header, _header(whole).encode(), HEADER), force=force)
    return written


def _weights_object(constants: Mapping[str, Array], room: Path) -> bytes:
    """An object file with the elements of arrays under their symbols.

    LLVM's assembler takes them from a file, so that they are never text.
    """
    lines, at = ['.section .rodata.lw_weights,"a",@progbits'], 0
    with room.open("wb") as file:
        for symbol, a in constants.items():
            lines += [f".balign {ALIGNMENT}", f".globl {symbol}", f"{symbol}:"]
            lines += [f'.incbin "{room}",{at},{a.nbytes}'] if a.nbytes else []
            file.write(np.ascontiguousarray(a).tobytes())
            at += a.nbytes
    if at >= _MOST:
        raise UsageError(
            f"export_library: the model has {at} bytes of weights; a library holds up to {_MOST}. "
            "Use save, which has no limit"
        )
    escaped = (line.replace("\\", "\\5C").replace('"', "\\22") for line in lines)
    text = "".join(f'module asm "{line}"\n' for line in escaped)
    return linker.compile_text(text, optimise=False, portable=True)


def _header(whole: WholeProgram) -> str:
    spec, version = whole.manifest.functions[0], whole.manifest.loopwright
    params, values, lines, names = [], [], [], list[str]()
    for a in spec.args:
        name = re.sub(r"\W", "_", a.name, flags=re.ASCII) or "value"
        if name[0].isdigit() or name in names or name in _TAKEN:  # all differ
            name = f"{'out' if a.output else 'in'}{len(names)}_{name}"
        names.append(name)
        c_type = _C_TYPES.get(a.dtype, f"{a.dtype}_t")
        params.append(f"{c_type} *{name}" if a.output else f"const {c_type} *{name}")
        values.append(name if a.output else f"(void *){name}")
        written = ", which it writes" if a.output else ""
        lines.append(f"     {name}: {a.dtype}{list(a.shape)}{written}")
    return _HEADER.format(
        name=spec.name,
        upper=spec.name.upper(),
        version=version,
        args="\n".join(lines),
        workspace=spec.workspace_bytes,
        threads=_THREADS if spec.uses_pool else "",
        params=", ".join(params),
        values=", ".join(values),
    )
