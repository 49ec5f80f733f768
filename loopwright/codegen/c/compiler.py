"""The C target: loop IR to one C file for GCC and Clang, with calls of packed functions and
instructions."""

# The entry ``int32_t name(void **args, void *ws)`` calls a function with typed parameters that
# holds the nest; the body of a parallel loop is a function that the thread pool calls through
# ``lw_parallel_launch``.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopwright import dtypes
from loopwright.codegen.c.expressions import Prelude
from loopwright.codegen.c.statements import RESERVED, CFamilyWriter, Identifiers
from loopwright.codegen.c.system_compiler import Source, compile_c
from loopwright.codegen.code import (
    C_FUNCTIONS,
    Bytes,
    Code,
    CodePart,
    SizeDefinitions,
    has_guarded_accesses,
    kept_offsets,
    larger,
    variables_of_extents,
    whole_workspace,
)
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var
from loopwright.ir.instructions import DOT_PRODUCTS, DotProduct
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import (
    PREPARE,
    PREPARED,
    CallPacked,
    Check,
    For,
    Func,
    IntrinsicCall,
    SplitFunc,
    Store,
    buffers_of,
)
from loopwright.ir.visitor import free_vars, nodes
from loopwright.runtime import FIRST_CODE, host_triple, packed_calls, record_name
from loopwright.target import Target, has_instruction
from loopwright.version import __version__

# ---------------------------------------------------------------- calls of packed functions
#
# `CallPacked` as C: DLPack tensors on the stack, and a call of ``lw_call_packed``.

DECLARED = f"""
/* A row-major array: DLPack's DLTensor. */
typedef struct {{
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
}} lw_tensor;
typedef union {{
  int64_t integer;
  double number;
  const char *text;
  lw_tensor *tensor;
}} lw_value;
/* Calls a function that the process knows by name; sets values[count] to 0 when it has run. */
void {packed_calls.CALL}(const char *name, lw_value *values, const int32_t *kinds, int32_t count);
"""


def _argument(w: CFamilyWriter, arg: Buffer | Expr | str, k: int) -> tuple[int, str]:
    """Kind of an argument, and its initializer; a buffer's tensor is declared before."""
    if isinstance(arg, str):
        return packed_calls.TEXT, f"{{.text = {_text(arg)}}}"
    if isinstance(arg, Buffer):
        _tensor(w, arg, k)
        kind = packed_calls.INPUT if arg in w.inputs else packed_calls.TENSOR
        return kind, f"{{.tensor = &lw_tensor{k}}}"
    text = w.expr(arg).text
    if dtypes.is_float(arg.dtype):
        return packed_calls.FLOAT, f"{{.number = {text}}}"
    word = f"{{.integer = (int64_t)({text})}}"
    if arg.dtype == "bool":
        return packed_calls.BOOL, word
    return packed_calls.UINT if dtypes.is_unsigned(arg.dtype) else packed_calls.INT, word


def _tensor(w: CFamilyWriter, b: Buffer, k: int) -> None:
    extents = ", ".join(w.count(n).text for n in b.shape) or "0"
    w.put(f"int64_t lw_shape{k}[] = {{{extents}}};")
    dtype = f"{packed_calls.type_code(b.dtype)}, {packed_calls.type_bits(b.dtype)}, 1"
    w.put(
        f"lw_tensor lw_tensor{k} = {{(void *){w.name(b)}, 1, 0, {len(b.shape)}, {dtype}, "
        f"lw_shape{k}, 0, 0}};"
    )


def _text(text: str) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'


# ---------------------------------------------------------------- instructions
#
# `IntrinsicCall` as C: intrinsics of the compiler, where the target's CPU has the instruction.
# Products of bytes of one sign are explained in `loopwright.codegen.llvm.instructions`.

#: Type, prefix of functions and suffix of loads and stores of a vector by its lanes of int32.
_VECTORS = {
    4: ("__m128i", "_mm", "si128"),
    8: ("__m256i", "_mm256", "si256"),
    16: ("__m512i", "_mm512", "si512"),
}
_POINTERS = {"bfloat16": "uint16_t", "float32": "float"}


def _helper(name: str, dot: DotProduct, native: int, by_pairs: bool) -> str:
    ty, mm, whole = _VECTORS[native]
    c, a, b = (_POINTERS.get(t, f"{t}_t") for t in (dot.result, dot.data, dot.kernel))
    lines = [
        f"static inline void {name}({c} *c, const {a} *a, const {b} *b) {{",
        "  int32_t group;",
        "  __builtin_memcpy(&group, a, 4);",
        f"  const {ty} x = {mm}_set1_epi32(group);",
    ]
    of_bytes = dot.result == "int32" and dot.group == 4
    added = _added_by_pairs if by_pairs and of_bytes else _added
    for first in range(0, dot.lanes, native):
        kernel = f"{mm}_loadu_{whole}((const {ty} *)(b + {dot.group * first}))"
        lines += ["  {", f"    const {ty} y = {kernel};", *added(dot, native, first), "  }"]
    return "\n".join([*lines, "}"])


def _added(dot: DotProduct, native: int, first: int) -> list[str]:
    ty, mm, whole = _VECTORS[native]
    if dot.result == "float32":
        at, pair = f"c + {first}", ty.replace("i", "bh")
        sums = f"{mm}_dpbf16_ps({mm}_loadu_ps({at}), ({pair})x, ({pair})y)"
        return [f"    {mm}_storeu_ps({at}, {sums});"]
    at = f"({ty} *)(c + {first})"
    if dot.data == "int16":
        sums = f"{mm}_add_epi32({mm}_loadu_{whole}({at}), {mm}_madd_epi16(x, y))"
        return [f"    {mm}_storeu_{whole}({at}, {sums});"]
    old, highest = f"{mm}_loadu_{whole}({at})", f"{mm}_set1_epi32(INT32_C(-0x7f7f7f80))"
    x, y, more = "x", "y", ""
    if dot.data == dot.kernel == "int8":
        more, x = f"{highest}, y", f"{mm}_xor_{whole}(x, {highest})"
    elif dot.data == dot.kernel:
        more, y = f"x, {highest}", f"{mm}_xor_{whole}(y, {highest})"
    elif dot.data == "int8":
        x, y = y, x
    lines = []
    if more:
        lines.append(f"    const {ty} more = {mm}_dpbusd_epi32({mm}_setzero_{whole}(), {more});")
        old = f"{mm}_sub_epi32({old}, more)"
    return [*lines, f"    {mm}_storeu_{whole}({at}, {mm}_dpbusd_epi32({old}, {x}, {y}));"]


def _added_by_pairs(dot: DotProduct, native: int, first: int) -> list[str]:
    """Lines as of `_added`, by two products of pairs of numbers of 16 bits."""
    ty, mm, whole = _VECTORS[native]
    at = f"({ty} *)(c + {first})"
    lines = []
    for name, dtype in (("x", dot.data), ("y", dot.kernel)):
        shift = f"{mm}_sra" if dtype == "int8" else f"{mm}_srl"
        even = f"{shift}i_epi16({mm}_slli_epi16({name}, 8), 8)"
        lines += [
            f"    const {ty} {name}_even = {even};",
            f"    const {ty} {name}_odd = {shift}i_epi16({name}, 8);",
        ]
    even, odd = (f"{mm}_madd_epi16(x_{n}, y_{n})" for n in ("even", "odd"))
    total = f"{mm}_add_epi32({mm}_loadu_{whole}({at}), {mm}_add_epi32({even}, {odd}))"
    return [*lines, f"    {mm}_storeu_{whole}({at}, {total});"]


_LAUNCH = """
/* Runs fn over [0, n) on the threads of the pool, each with a workspace of its own. */
int32_t lw_parallel_launch(int32_t (*fn)(int64_t begin, int64_t end, void *closure, void *ws),
                           void *closure, int64_t n, int64_t workspace_bytes, void *ws);
"""
#: Names that math.h declares; a kernel of such a name has another one in C.
_MATH_H = re.compile(
    "(a?(cos|sin|tan)h?|atan2|exp(2|m1|10)?|log(10|2|1p|b)?|l?gamma|lgamma_r|tgamma|[jy][01n]|erfc?"
    "|fabs|ceil|floor|trunc|l?l?r(ound|int)|nearbyint|round|rint|sqrt|cbrt|hypot|pow|fmod|modf"
    "|frexp|ldexp|scalbl?n?|ilogb|significand|remquo|remainder|drem|fmax|fmin|fdim|fma|copysign"
    "|nan|nextafter|nexttoward|finite|isnan|isinf|signgam|sincos)[fl]?"
)
#: The largest loop that is unrolled on request; GCC counts in 16 bits.
_UNROLL_LIMIT = 65534
#: Unrolling factor of a loop of an unknown extent.
_UNROLL_UNKNOWN = 8

_WORKSPACE = "unsigned char *restrict ws"


@dataclass
class Unit:
    name: str
    target: Target
    prelude: Prelude
    #: `Target.dot_lanes`, which takes long to find.
    dot_lanes: Mapping[str, int]
    written: frozenset[Buffer] = frozenset()
    functions: list[str] = field(default_factory=list)
    loops: int = 0
    parallel_workspace: Bytes = 0
    checks: list[str] = field(default_factory=list)
    inputs: frozenset[Buffer] = frozenset()
    packed: list[str] = field(default_factory=list)
    check_words: int = 0
    parts: tuple[CodePart, ...] = ()

    def names(self) -> Identifiers:
        own = {self.name, f"{self.name}_nest", *(f"{self.name}_par{k}" for k in range(64))}
        for part in (PREPARE, PREPARED):
            own |= {f"{self.name}{part}", f"{self.name}{part}_nest"}
        return Identifiers(RESERVED | C_FUNCTIONS | own)


class CWriter(CFamilyWriter):
    def __init__(self, unit: Unit, inside_parallel: bool) -> None:
        super().__init__(unit.prelude, unit.names())
        self.unit, self.inside_parallel = unit, inside_parallel
        self.inputs = unit.inputs

    def hint(self, s: For) -> str | None:
        """Pragmas of GCC, which Clang understands as well."""
        if s.kind == "vectorized":
            return "#pragma omp simd"
        most = s.extent if isinstance(s.extent, int) else _UNROLL_UNKNOWN
        return f"#pragma GCC unroll {min(most, _UNROLL_LIMIT)}"

    def prefetch(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        """Compute the address as an integer: C has no pointers outside of an array."""
        offset = self.flat(b, indices).text
        at = f"(uintptr_t){self.name(b)} + ({offset}) * {dtypes.nbytes(b.dtype)}"
        self.put(f"__builtin_prefetch((const void *)({at}), 0, 3);")

    def instruction(self, s: IntrinsicCall) -> bool:
        """Call a helper that takes pointers; inside vector code write the plain form."""
        dot = None if self.in_vector else DOT_PRODUCTS.get(s.name)
        native = 0 if dot is None else min(dot.lanes, self.unit.dot_lanes[dot.result])
        if dot is None or not native:
            return False
        self.prelude.put("immintrin.h", "#include <immintrin.h>")
        helper = f"lw_{s.name}"
        if helper not in self.prelude:
            by_pairs = self.unit.target.has_dots_by_pairs
            self.prelude.put(helper, _helper(helper, dot, native, by_pairs))
        at = ", ".join(f"&{self.element(x.buffer, x.indices)}" for x in s.operands)
        self.put(f"{helper}({at});")
        return True

    def call_packed(self, s: CallPacked) -> None:
        """Call through ``lw_call_packed``, which the runtime binds, and leave the function with a
        code where the packed one has not run."""
        if s.name not in self.unit.packed:
            self.unit.packed.append(s.name)
        with self.block(""):
            arguments = [_argument(self, arg, k) for k, arg in enumerate(s.args)]
            values = [*(v for _, v in arguments), f"{{.integer = {packed_calls.INTERRUPTED}}}"]
            kinds = ", ".join(str(kind) for kind, _ in arguments) or "0"
            self.put(f"lw_value lw_values[] = {{{', '.join(values)}}};")
            self.put(f"static const int32_t lw_kinds[] = {{{kinds}}};")
            self.put(f"{packed_calls.CALL}({_text(s.name)}, lw_values, lw_kinds, {len(s.args)});")
            status = f"lw_values[{len(s.args)}].integer"
            self.put(f"if ({status}) return (int32_t){status};")

    def check(self, s: Check) -> None:
        """Let one of the threads that fail at once take the record, see `failed_check`."""
        unit = self.unit
        code = FIRST_CODE + len(unit.checks)
        unit.checks.append(s.text)
        unit.check_words = max(unit.check_words, 1 + len(s.values))
        record = record_name(unit.name)
        take = f"if (__sync_bool_compare_and_swap(&{record}[0], 0, {code}))"
        with self.block(f"if (!({self.expr(s.cond).text}))"):
            with self.block(take):
                for k, e in enumerate(s.values):
                    self.put(f"{record}[{k + 1}] = {self.index(e).text};")
            self.put(f"return {code};")

    def parameter(self, b: Buffer) -> str:
        first, *rest = self.extents(b)
        const = "" if b in self.unit.written else "const "
        rows = f"[restrict {first}]" + "".join(f"[{n}]" for n in rest)
        return f"{const}{self.prelude.dialect.memory_type(b.dtype)} {self.name(b)}{rows}"

    def field(self, b: Buffer) -> str:
        """A buffer in a closure, where types cannot depend on sizes."""
        const = "" if b in self.unit.written else "const "
        return const + (f"void *{self.name(b)}" if b.symbolic else self.pointer(b, self.name(b)))

    def launch(self, s: For) -> bool:
        """Hand a loop to the pool; its body sees buffers and outer variables through a closure."""
        if self.inside_parallel or self.unit.target.options["num_threads"] == 1:
            return False
        unit = self.unit
        unit.loops += 1
        name = f"{unit.name}_par{unit.loops}"
        buffers = [b for b in buffers_of(s.body) if b in self.buffers]
        free = free_vars(s.body) | variables_of_extents(buffers_of(s.body))
        outer = [v for v in self.bound if v in free]
        inner = CWriter(unit, inside_parallel=True)
        inner.ranges = {v: self.ranges[v] for v in outer if v in self.ranges}
        inner.bound = {v: self.bound[v] for v in outer}
        inner.sizes = SizeDefinitions(self.sizes.by_variable)
        _write_parallel(inner, s, name, buffers, outer)
        size = inner.workspace
        unit.parallel_workspace = larger(unit.parallel_workspace, self.sizes.definition(size))
        values = ", ".join([*map(self.name, outer), *map(self.name, buffers)]) or "0"
        spare = self.spare(size)
        with self.block(""):
            self.put(f"struct {name} closure = {{{values}}};")
            self.put(
                f"int32_t rc = lw_parallel_launch({name}, &closure, {self.count(s.extent).text}, "
                f"{self.count(size).text}, {spare});"
            )
            self.put("if (rc) return rc;")
        return True


def write_c(f: Func, target: Target) -> tuple[str, Unit, Bytes]:
    """The C text of a function, the state shared by its parts, and the entry's workspace bytes."""
    options = target.options
    prelude = Prelude(has_instruction(options["mcpu"], options["mattr"], "fma"))
    unit = Unit(f.name, target, prelude, target.dot_lanes)
    entry, workspace = _split(unit, f) if isinstance(f, SplitFunc) else _entry(unit, f)
    head = f"/* {f.name}: C made by loopwright {__version__}. */\n"
    head += "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n"
    head += _LAUNCH if unit.loops else ""
    head += DECLARED if unit.packed else ""
    if unit.checks:
        head += f"\nint64_t {record_name(unit.name)}[{unit.check_words}];\n"
    helpers = unit.prelude.text()
    parts = [head, *([f"{helpers}\n"] if helpers else []), *unit.functions, *entry]
    return "\n".join(parts), unit, workspace


def _entry(unit: Unit, f: Func) -> tuple[list[str], Bytes]:
    unit.written, unit.inputs = _written(f), frozenset(f.inputs)
    writer = CWriter(unit, inside_parallel=False)
    writer.buffers = dict.fromkeys(f.params)
    ranges = Sizes.of_function(f.sizes, [n for b in f.params for n in b.shape]).ranges
    writer.ranges = {v: ranges[v] for v in f.sizes}
    writer.bound = dict.fromkeys(f.sizes, "int64_t")
    # The sizes come first: types of the others depend on them.
    params = [f"const int64_t {writer.name(v)}" for v in f.sizes]
    params += [*map(writer.parameter, f.params), _WORKSPACE]
    writer.stmt(f.body)
    nest = _function(signature(f"static int32_t {f.name}_nest", params), writer.lines)
    count = len(f.params)
    values = [f"(int64_t)args[{count + k}]" for k in range(len(f.sizes))]
    arguments = ", ".join([*values, *(f"args[{k}]" for k in range(count)), "ws"])
    entry = _exported(f.name, [f"  return {f.name}_nest({arguments});"])
    return [nest, *entry], writer.sizes.definition(writer.workspace)


def _exported(function: str, lines: list[str]) -> list[str]:
    """An exported function; one whose name means something else in C has another name there."""
    known = function in RESERVED or _MATH_H.fullmatch(function)
    name = f"{function}_" if known else function
    label = f' __asm__("{function}")' if known else ""
    entry = [f"int32_t {name}(void **args, void *ws){label};"] if label else []
    return [*entry, _function(f"int32_t {name}(void **args, void *ws)", lines, "")]


def _split(unit: Unit, f: SplitFunc) -> tuple[list[str], Bytes]:
    """Both parts of a function and the whole, which calls them in turn, as texts, and the workspace
    bytes of the whole."""
    texts: list[str] = []
    parts = []
    for part in (f.prepare, f.main):
        code, workspace = _entry(unit, part)
        texts += code
        parts.append(CodePart(part, workspace, unit.parallel_workspace))
    unit.parts = tuple(parts)
    *offsets, rest = kept_offsets(f.kept)
    at = {b: f"args[{k}]" for k, b in enumerate(f.params)}
    at |= {b: f"space + {n}" for b, n in zip(f.kept, offsets, strict=True)}
    sizes = [f"args[{len(f.params) + k}]" for k in range(len(f.sizes))]
    arguments = ([at[b] for b in f.prepare.params], [*(at[b] for b in f.main.params), *sizes])
    lists = [", ".join(those) for those in arguments]
    lines = [
        "  unsigned char *space = ws;",
        f"  void *first[] = {{{lists[0]}}}, *second[] = {{{lists[1]}}};",
        f"  int32_t rc = {f.prepare.name}(first, space + {rest});",
        f"  return rc ? rc : {f.main.name}(second, space + {rest});",
    ]
    return [*texts, *_exported(f.name, lines)], whole_workspace(f.kept, parts)


def compile_func(f: Func, target: Target) -> Code:
    """Compile a function to an object file with the system's compiler; sources ``c`` and ``asm``.
    Refuses what the target cannot run, such as thread axes."""
    text, unit, workspace = write_c(f, target)
    source = Source(text, has_guarded_accesses(f.body), unit.prelude.strict)
    objects = compile_c(source, target)
    return Code(
        objects,
        {"c": text, "asm": lambda: compile_c(source, target, "-S").decode()},
        workspace,
        unit.parallel_workspace,
        unit.loops > 0,
        tuple(unit.checks),
        triple=host_triple(),
        packed=tuple(unit.packed),
        parts=unit.parts,
    )


def _written(f: Func) -> frozenset[Buffer]:
    """Buffers that a function may write, also through the packed functions that it calls."""
    below = list(nodes(f.body))
    written = {n.buffer for n in below if isinstance(n, Store)}
    written = written.union(*(n.buffers for n in below if isinstance(n, CallPacked)))
    return frozenset(written.difference(f.inputs))


def _write_parallel(
    w: CWriter, s: For, name: str, buffers: Sequence[Buffer], outer: Sequence[Var]
) -> None:
    """Write the nest of one iteration, the closure, and the function over a range."""
    w.buffers = dict.fromkeys(buffers)
    i = w.name(s.var)
    named = [*(w.name(v) for v in outer), *(w.name(b) for b in buffers)]
    params = [f"int64_t {i}"] + [f"const {w.bound[v]} {w.name(v)}" for v in outer]
    params += [*map(w.parameter, buffers), _WORKSPACE]
    w.enter(s)
    w.stmt(s.body)
    w.lines.append("  return 0;")
    head = signature(f"static int32_t {name}_nest", params)
    fields = [f"  {w.bound[v]} {w.name(v)};" for v in outer]
    fields += [f"  {w.field(b)};" for b in buffers]
    struct = "\n".join([f"struct {name} {{", *(fields or ["  char none;"]), "};\n"])
    arguments = ", ".join([i, *(f"c->{field}" for field in named), "ws"])
    lines = [
        f"  const struct {name} *c = closure;",
        f"  for (int64_t {i} = begin; {i} < end; ++{i}) {{",
        f"    int32_t rc = {name}_nest({arguments});",
        "    if (rc) return rc;",
        "  }",
        "  return 0;",
    ]
    over = f"static int32_t {name}(int64_t begin, int64_t end, void *closure, void *ws)"
    w.unit.functions += [_function(head, w.lines, ""), struct, _function(over, lines, "")]


def signature(head: str, params: list[str]) -> str:
    """The first line of a function, cut where it would be too long."""
    line = f"{head}({', '.join(params)})"
    if len(line) < 100:
        return line
    between = ",\n" + " " * (len(head) + 1)
    return f"{head}({between.join(params)})"


def _function(head: str, lines: list[str], last: str = "  return 0;") -> str:
    return "\n".join([f"{head} {{", *lines, *([last] if last else []), "}\n"])
