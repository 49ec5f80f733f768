"""Kernels as text of a C-like language for devices; the languages differ in few hooks."""

# Accesses of vectorized loops are vectors. Buffers are flat, and loops over registers are unrolled,
# since arrays with indices that are not constant lie in memory.

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loopwright import dtypes
from loopwright.codegen.c.expressions import ATOM, UNARY, Prelude, Text, join, literal
from loopwright.codegen.c.statements import CFamilyWriter, Identifiers
from loopwright.codegen.gpu.split import SplitKernel, SplitProgram
from loopwright.errors import CodegenError
from loopwright.ir.affine import NARROW, Affine, Interval, interval, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import DIVISIONS, Binary, Cast, Const, Expr, IfThenElse, Unary, Var, const
from loopwright.ir.node import Node, StructuralKey, same
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import UNROLL_HINT, Barrier, For, If, IntrinsicCall, Seq, Stmt, Store
from loopwright.ir.visitor import contains, free_vars, nodes, substitute

# ---------------------------------------------------------------- vectors
#
# Accesses of a vectorized loop that are vectors: neighbours in memory that threads share. A device
# computes each lane by itself; it moves the lanes of one access at once.

#: Lanes of the vector types of OpenCL; CUDA's are made for any of these.
LANES = (2, 4, 8, 16)
#: Bytes that a thread moves at once.
MOST_BYTES = 16

#: The offset of an element as an affine form, where it is one.
Offset = Callable[[Buffer, tuple[Expr, ...]], Affine | None]
#: An element by its buffer and its indices.
Element = tuple[Buffer, tuple[Expr, ...]]


@dataclass(frozen=True)
class VectorStore:
    store: Store
    is_vector: bool  #: whether its lanes are neighbours
    loads: tuple[Element, ...]  #: elements of the first lane whose lanes are neighbours


def vector_loop(
    s: For, offset: Offset, aligned: bool
) -> tuple[list[Expr], list[VectorStore]] | None:
    """A vectorized loop as conditions, each of which holds for all lanes or for none, and vectors,
    which lie at multiples of their size if ``aligned``; None where no access of it is one."""

    def is_vector(b: Buffer, indices: tuple[Expr, ...]) -> bool:
        if b.scope == "local" or s.count * dtypes.nbytes(b.dtype) > MOST_BYTES:
            return False
        form = offset(b, indices)
        if form is None or form.terms.get(s.var) != 1:
            return False
        others = [c for v, c in form.terms.items() if v is not s.var]
        return not aligned or all(c % s.count == 0 for c in (form.const, *others))

    if s.count not in LANES:
        return None
    conditions: list[Expr] = []
    body: Stmt = s.body
    while isinstance(body, If) and body.orelse is None and s.var not in free_vars(body.cond):
        conditions.append(body.cond)
        body = body.then
    picked = body.stmts if isinstance(body, Seq) else (body,)
    stores = [x for x in picked if isinstance(x, Store)]
    if not stores or len(stores) < len(picked) or _depend(stores):
        return None
    out = [VectorStore(x, is_vector(x.buffer, x.indices), _loads(x, is_vector)) for x in stores]
    return (conditions, out) if any(x.is_vector or x.loads for x in out) else None


def one_choice(s: For, form: Callable[[Expr], Affine | None]) -> If | None:
    """A vectorized loop whose lanes all make one choice, as that choice between two such loops.

    ``A[i * 4 + lane] if i * 4 + lane < 1000 else 0.0`` of four lanes, for any ``i``, is the first
    value for all lanes where ``i * 4 < 1000``, and the second one for all lanes elsewhere.
    """

    def first(cond: Expr) -> Expr:
        return substitute(cond, {s.var: const(0, s.var.dtype)})

    match s.body:
        case If(cond=c, then=then, orelse=other) if s.var in free_vars(c) and _agree(c, s, form):
            return If(first(c), s.with_body(then), None if other is None else s.with_body(other))
        case Store(buffer=b, indices=i, value=IfThenElse(cond=c, a=x, b=y)) if _agree(c, s, form):
            return If(first(c), s.with_body(Store(b, i, x)), s.with_body(Store(b, i, y)))
    return None


def _agree(cond: Expr, s: For, form: Callable[[Expr], Affine | None]) -> bool:
    """Whether a condition is known to have one value for all lanes."""
    # ``lane + r < 0`` does where the number of lanes divides r: then r is at most minus that
    # number, or not negative.
    if s.var not in free_vars(cond):
        return True
    match cond:
        case Binary(op="and" | "or", a=a, b=b):
            return _agree(a, s, form) and _agree(b, s, form)
        case Binary(op="<" | ">=" | "<=" | ">" as op, a=a, b=b):
            x, y = form(a), form(b)
            if x is None or y is None:
                return False
            least = x - y - (1 if op in ("<=", ">") else 0)
            others = (least.const, *(c for v, c in least.terms.items() if v is not s.var))
            return least.terms.get(s.var) == 1 and all(c % s.count == 0 for c in others)
    return False


def _depend(stores: list[Store]) -> bool:
    """Whether a lane may read or write what another lane writes."""
    written = [(x.buffer, x.indices) for x in stores]
    if len({b for b, _ in written}) < len(written):
        return True
    parts = [e for x in stores for e in (x.value, *x.indices)]
    loads = [n for e in parts for n in nodes(e) if isinstance(n, Load)]
    read = [(n.buffer, n.indices) for n in loads]
    targets = dict(written)
    return any(b in targets and (len(stores) > 1 or not same(targets[b], i)) for b, i in read)


def _loads(s: Store, is_vector: Callable[[Buffer, tuple[Expr, ...]], bool]) -> tuple[Element, ...]:
    """Elements that a store reads for certain, and whose lanes are neighbours."""
    elements: dict[StructuralKey, None] = {}

    def visit(n: Node) -> None:
        if isinstance(n, IfThenElse):
            visit(n.cond)
            return
        if isinstance(n, Load) and is_vector(n.buffer, n.indices):
            elements[StructuralKey((n.buffer, n.indices))] = None
        for c in n.children():
            visit(c)

    visit(s.value)
    return tuple(key.node for key in elements)


# ---------------------------------------------------------------- indices
#
# Index arithmetic of kernels: in 32 bits where intervals prove that these suffice, else in 64,
# which take two registers of a GPU and several instructions each.


def is_narrow(bounds: Interval | None) -> bool:
    return bounds is not None and bounds[0] >= -NARROW and bounds[1] < NARROW


class NarrowIndices(CFamilyWriter):
    """Writes arithmetic on axes in int where that suffices, and elements of flat buffers."""

    def index_type(self, bounds: Interval) -> str:
        return self.prelude.dialect.type("int32" if is_narrow(bounds) else "int64")

    def narrow(self, e: Expr) -> bool:
        match e:
            case Cast(value=v):
                return self.narrow(v)
            case Unary(a=a):
                return self.narrow(a) and is_narrow(interval(e, {}, self.ranges))
            case Binary(a=a, b=b):
                return self.narrow(a) and self.narrow(b) and is_narrow(interval(e, {}, self.ranges))
        return is_narrow(interval(e, {}, self.ranges))

    def plain(self, e: Expr) -> Text:
        match e:
            case Const(value=v):
                return literal(v, "int32" if self.narrow(e) else "int64", self.prelude.dialect)
            case Cast(value=v):
                return self.plain(v)
            case Unary(op="-", a=a):
                widened = self.narrow(a) and not self.narrow(e)
                x = self.convert(self.plain(a), "int64") if widened else self.plain(a)
                return Text(f"-{x.inside(ATOM)}", UNARY)
            case Binary(op=op, a=a, b=b):
                narrow = self.narrow(e)
                dtype = "int32" if narrow else "int64"
                x, y = self.plain(a), self.plain(b)
                if not narrow and self.narrow(a) and self.narrow(b):
                    x = self.convert(x, "int64")
                if op in ("+", "-", "*"):
                    return join(op, x, y)
                if op not in DIVISIONS:
                    return self.operation(op, x, y, dtype)
                return self.division(e, x, y, dtype)
        return super().plain(e)

    def element(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        return f"{self.name(b)}[{self.flat(b, indices).text}]"

    def place(self, i: Expr, small: bool) -> Text:
        wide = not small or (self.is_plain(i) and not self.narrow(i))
        return self.convert(self.index(i), "int64") if wide else self.index(i)

    def is_small(self, b: Buffer) -> bool:
        """Whether every offset in a buffer is an int32, somewhat outside of it too."""
        if not b.symbolic:
            return b.size < NARROW // 2
        most = 1
        for n in b.shape:
            bounds = (n, n) if isinstance(n, int) else interval(n, {}, self.ranges)
            if bounds is None:
                return False
            most *= bounds[1]
        return most < NARROW // 2

    def form(self, e: Expr) -> Affine | None:
        return to_affine(e, {}, self.ranges) if self.is_plain(e) else None

    def offset(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | None:
        """The offset of an element as an affine form; None where it is none that is known."""
        if b.symbolic and len(b.shape) > 1:
            return None
        out = Affine(0)
        for d, i in enumerate(indices):
            form = self.form(i)
            if form is None:
                return None
            if b.strides is not None:
                out = out + form * b.strides[d]
            else:
                out = (out * b.extents[d] if d else out) + form
        return out


# ---------------------------------------------------------------- kernels

#: Most copies of a loop's body that are made so that registers have constant indices.
UNROLL_LIMIT = 1024
#: Bytes to which buffers of a block are aligned.
ALIGNMENT = 16


class KernelWriter(NarrowIndices):
    #: The language's words for memory of all threads, and of a block.
    global_space = ""
    shared_space = ""
    #: The qualifier of a parameter to whose memory no other one points.
    restrict = "restrict"
    #: Whether vectors must lie at multiples of their size.
    aligned_vectors = True

    def __init__(self, prelude: Prelude, kernel: SplitKernel, taken: frozenset[str]) -> None:
        super().__init__(prelude, Identifiers(taken | {kernel.name}), prelude.dialect.name)
        self.kernel = kernel
        self.contracts = True
        #: The language's name of the memory of each buffer.
        self.spaces: dict[Buffer, str] = {}
        self._lanes: dict[Var, int] = {}
        self._vectors: dict[StructuralKey, str] = {}
        self._unrolled = 1

    @abstractmethod
    def head(self, parameters: Sequence[str]) -> str: ...
    @abstractmethod
    def axis(self, tag: str) -> str: ...
    @abstractmethod
    def share(self) -> None: ...
    @abstractmethod
    def aligned(self, declaration: str, alignment: int) -> str: ...
    @abstractmethod
    def vector_load(self, b: Buffer, lanes: int, offset: str, name: str) -> None: ...
    @abstractmethod
    def vector_store(self, b: Buffer, lanes: int, offset: str, values: Sequence[str]) -> None: ...

    @abstractmethod
    def component(self, vector: str, lane: int) -> str: ...

    def hint(self, s: For) -> str | None:
        return "#pragma unroll"

    def launch(self, s: For) -> bool:
        return False

    def prefetch(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        """Write nothing: devices hide the time of memory by other threads."""

    def instruction(self, s: IntrinsicCall) -> bool:
        return False

    def text(self, ranges: Mapping[Var, Interval]) -> str:
        """The kernel as a function; ``ranges`` bound the sizes."""
        k = self.kernel
        parameters = [self.parameter(b) for b in k.parameters]
        for v in k.sizes:
            # A size is passed in 64 bits, whatever the kernel makes of it.
            self.ranges[v] = ranges[v]
            self.bound[v] = ty = self.index_type(ranges[v])
            passed = self.names.fresh(f"{v.name}_given") if is_narrow(ranges[v]) else self.name(v)
            parameters.append(f"const {self.prelude.dialect.type('int64')} {passed}")
            if is_narrow(ranges[v]):
                self.put(f"const {ty} {self.name(v)} = ({ty}){passed};")
        for x in (*k.blocks, *k.threads):
            self.enter(x)
            ty = self.bound[x.var]
            self.put(f"const {ty} {self.name(x.var)} = ({ty}){self.axis(x.tag)};")
        self.share()
        self.stmt(k.body)
        return "\n".join([f"{self.head(parameters)} {{", *self.lines, "}\n"])

    def parameter(self, b: Buffer) -> str:
        self.spaces[b] = self.global_space
        self.buffers[b] = None
        const = "" if b in self.kernel.written else "const "
        return f"{self.pointer_type(b, const)} {self.restrict} {self.name(b)}"

    def pointer_type(self, b: Buffer, const: str = "") -> str:
        space = f"{self.spaces[b]} " if self.spaces[b] else ""
        return f"{space}{const}{self.prelude.dialect.memory_type(b.dtype)} *"

    def array(self, b: Buffer) -> str:
        return f"{self.prelude.dialect.memory_type(b.dtype)} {self.name(b)}[{b.size}]"

    def stored(self, e: Expr) -> Text:
        """A value as memory holds it; floats of 16 bits that are only moved keep their bits."""
        if isinstance(e, Load) and e.dtype in dtypes.HALVES:
            return Text(self.element(e.buffer, e.indices))
        return super().stored(e)

    def allocate(self, b: Buffer, body: Stmt) -> None:
        if b.symbolic:
            raise CodegenError(
                f"{self.language}: the size of {b.name!r}, a buffer of each thread, depends on "
                "sizes; compute its stage at root, or in a loop inside of which its extents are "
                "numbers"
            )
        if b.scope == "warp":
            raise CodegenError(
                f"{self.language}: {b.name!r} is exchanged between the lanes of a warp, which "
                "instructions of tensor cores do, on CUDA; leave the passes of phase 0 enabled and "
                "build for a target cuda"
            )
        self.spaces[b] = ""
        self.buffers[b] = None
        text = self.array(b)
        self.put(f"{self.aligned(text, ALIGNMENT) if b.dtype == 'uint8' else text};")
        self.stmt(body)
        self.leave(b)

    def view(self, b: Buffer, of: Buffer, offset: int) -> None:
        self.spaces[b] = self.spaces[of]
        self.buffers[b] = None
        ty = self.pointer_type(b)
        self.put(f"{ty}{self.name(b)} = ({ty})({self.name(of)} + {offset});")

    def for_loop(self, s: For) -> None:
        if s.kind == "thread":
            raise CodegenError(
                f"{self.language}: the {s.tag} loop {s.var.name!r} stands inside of a kernel; "
                "leave the passes of phase 0 enabled"
            )
        if s.kind == "vectorized" and self._vector_loop(s):
            return
        wanted = s.kind in ("unrolled", "vectorized") or UNROLL_HINT in s.pragmas
        before = self._unrolled
        if wanted or self._indexes_registers(s):
            self._unrolled *= s.count if isinstance(s.extent, int) else 1
            self.put(self.hint(s) or "")
        self.loop(s, "0", self.count(s.extent).text)
        self._unrolled = before

    def _indexes_registers(self, s: For) -> bool:
        """Whether a loop has to be unrolled so that arrays of a thread become registers."""
        # One with barriers inside is not: its body is long, and compilers that run the threads of a
        # block one after the other (PoCL) take very long for many barriers.
        if not isinstance(s.extent, int) or self._unrolled * s.extent > UNROLL_LIMIT:
            return False
        if contains(s.body, Barrier):
            return False
        common = (*self.kernel.parameters, *self.kernel.shared)
        return any(
            isinstance(n, Load | Store)
            and n.buffer not in common
            and any(s.var in free_vars(i) for i in n.indices)
            for n in nodes(s.body)
        )

    def _vector_loop(self, s: For) -> bool:
        """Write a vectorized loop as vectors; False: no access of it is one."""
        self.enter(s)
        choice = one_choice(s, self.form)
        if choice is not None:
            self.bound.pop(s.var)
            self.stmt(choice)
            return True
        vectors = vector_loop(s, self.offset, self.aligned_vectors)
        if vectors is not None:
            conditions, stores = vectors
            head = " && ".join(self.expr(c).inside(UNARY) for c in conditions)
            with self.block(f"if ({head})" if head else ""):
                for x in stores:
                    self._vector_statement(x, s.var, s.count)
        self.bound.pop(s.var)
        return vectors is not None

    def _vector_statement(self, x: VectorStore, lane: Var, lanes: int) -> None:
        for b, indices in x.loads:
            name = self.names.fresh(f"{b.name}_lanes")
            self._lanes[lane] = 0
            self.vector_load(b, lanes, self.flat(b, indices).text, name)
            self._vectors[StructuralKey((b, indices))] = name
        store = x.store
        if x.is_vector:
            values = []
            for k in range(lanes):
                self._lanes[lane] = k
                values.append(self.stored(store.value).text)
            self._lanes[lane] = 0
            at = self.flat(store.buffer, store.indices).text
            self.vector_store(store.buffer, lanes, at, values)
        else:
            for k in range(lanes):
                self._lanes[lane] = k
                at = self.element(store.buffer, store.indices)
                self.put(f"{at} = {self.stored(store.value).text};")
        self._lanes.pop(lane)
        self._vectors.clear()

    def name(self, x: Var | Buffer) -> str:
        """The identifier of a variable or buffer; the number of the lane that is being written."""
        return str(self._lanes[x]) if isinstance(x, Var) and x in self._lanes else super().name(x)

    def element(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        """An element of a buffer, or the lane of a vector that was loaded."""
        vector = self._vectors.get(StructuralKey((b, indices))) if self._vectors else None
        if vector is not None and self._lanes:
            return self.component(vector, next(iter(self._lanes.values())))
        return super().element(b, indices)


def write_kernels(program: SplitProgram, prelude: Prelude, writers: Sequence[KernelWriter]) -> str:
    f = program.func
    ranges = Sizes.of_function(f.sizes, [n for b in f.params for n in b.shape]).ranges
    kernels = [w.text(ranges) for w in writers]
    helpers = prelude.text()
    return "\n".join([*([f"{helpers}\n"] if helpers else []), *kernels])
