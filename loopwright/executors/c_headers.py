"""Headers for programs in C that call an exported library."""

from __future__ import annotations

import re
import zlib

from loopwright.files import FileKind, marked
from loopwright.runtime import Manifest

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
HEADER = FileKind("a header", marked(b" as one function. Written by loopwright"))
_HEADER = """\
/* {name}: {what} as one function. Written by loopwright {version}.

   It computes, of arrays that are row-major without gaps,
{args}
   `workspace` is memory of {upper}_WORKSPACE_BYTES bytes, and for each thread beyond the first of
   {upper}_THREAD_WORKSPACE_BYTES more. It begins at a multiple of 64, such as aligned_alloc gives
   it. Calls that run at one time need one each. Outputs must not overlap
   anything. The result is 0, or a code when it failed. */
#ifndef {guard}
#define {guard}
#include <stdint.h>

#define {upper}_WORKSPACE_BYTES {workspace}
#define {upper}_THREAD_WORKSPACE_BYTES {more}

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


def c_header(manifest: Manifest, what: str) -> str:
    """The header of a library of one function of fixed sizes; ``what`` is said to be that."""
    spec, version = manifest.functions[0], manifest.loopwright
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
    # Of two kernels of one name, both headers count, and a compiler sees that they contradict.
    guard = f"{spec.name.upper()}_{zlib.crc32(repr(spec).encode()):08X}_H"
    return _HEADER.format(
        guard=guard,
        name=spec.name,
        what=what,
        upper=spec.name.upper(),
        version=version,
        args="\n".join(lines),
        workspace=spec.workspace_bytes,
        more=spec.parallel_workspace_bytes,
        threads=_THREADS if spec.uses_pool else "",
        params=", ".join(params),
        values=", ".join(values),
    )
