"""Instructions, blocks, lanes and masks of a function, and what a module's functions share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable

from loopwright.codegen.code import Bytes, CodePart
from loopwright.codegen.llvm.ops import MathSource, Operations, Value, literal, llvm_type
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, Select, Unary
from loopwright.ir.node import StructuralKey
from loopwright.runtime import architecture
from loopwright.target import (
    Target,
    has_instruction,
    permuted_bytes,
    permutes_memory,
    stores_too_wide,
)

#: Expressions whose code depends on that of their operands alone.
Operation = Const | Binary | Cast | Select | Unary | Call


class ModuleWriter:
    def __init__(self, name: str, target: Target) -> None:
        self.name, self.fastmath = name, target.options["fastmath"]
        self.vector_bytes, self.threads = target.vector_bytes, target.options["num_threads"]
        self.declares: dict[str, str] = {}
        self.functions: list[str] = []
        self.parallel_workspace: Bytes = 0
        self.squares: set[str] = set()
        self.uses_pool = False
        self.checks: list[str] = []
        self.packed: list[str] = []
        self.inputs: frozenset[Buffer] = frozenset()
        self.check_words = 0
        self.parts: tuple[CodePart, ...] = ()
        self.counter = 0
        self.metadata: list[str] = []
        self._once: dict[str, str] = {}
        self.math: set[str] = set()
        self.define: MathSource | None = None
        cpu = target.options["mcpu"], target.options["mattr"]
        self.has_fma = has_instruction(*cpu, "fma")
        self.has_float16 = has_instruction(*cpu, "float16")
        #: Whether the CPU has stores that go past the caches, and a fence that waits for them.
        self.streams = architecture() == "x86_64"
        #: Bytes of the vectors of which it can pick lanes by numbers; 0: none.
        self.permuted_bytes = permuted_bytes(*cpu)
        self.hides_masks = stores_too_wide(*cpu)
        self.hides_load_masks = permutes_memory(*cpu)
        #: Lanes of a dot product on the CPU, by its result; 0: it has no instructions for them.
        self.dot_lanes = target.dot_lanes
        #: Whether those of bytes are two instructions for products of pairs of 16 bits.
        self.has_dots_by_pairs = target.has_dots_by_pairs
        self.offsets: dict[StructuralKey, Affine | None] = {}

    def text(self) -> str:
        return "\n".join([*self.declares.values(), *self.functions, *self.metadata]) + "\n"

    def unroll_hint(self) -> str:
        """A new loop's metadata that asks LLVM to unroll it."""
        enable = self._metadata('!{!"llvm.loop.unroll.enable"}')
        n = len(self.metadata)
        self.metadata.append(f"!{n} = distinct !{{!{n}, {enable}}}")
        return f"!{n}"

    def nontemporal(self) -> str:
        """The metadata of a store that goes past the caches."""
        return self._metadata("!{i32 1}")

    def _metadata(self, text: str) -> str:
        """The name of metadata that the module has once."""
        if text not in self._once:
            self._once[text] = f"!{len(self.metadata)}"
            self.metadata.append(f"{self._once[text]} = {text}")
        return self._once[text]


class Emitter:
    """Writes instructions in order; within a scope, equal ones that have no effect are shared."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.lanes = 1
        self.mask: Value | None = None
        self.count = 0
        self.scopes: list[dict[Hashable, str]] = [{}]
        self.ops = Operations(
            self.pure, self.declare, module.fastmath, self.splat, module.define, module.has_float16
        )

    def emit(self, text: str) -> str:
        """Write an instruction that gives a value; returns its register."""
        self.count += 1
        reg = f"%v{self.count}"
        self.lines.append(f"  {reg} = {text}")
        return reg

    def pure(self, text: str) -> str:
        """Write an instruction that its operands determine, unless it is in scope already. Unrolled
        iterations and the pieces of a vector loop repeat most of each other's arithmetic on
        indices; LLVM would find that out, at 20 microseconds a line."""
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        self.scopes[-1][text] = reg = self.emit(text)
        return reg

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def declare(self, name: str, text: str) -> None:
        self.module.declares.setdefault(name, text)

    def cached(self, key: Hashable, write: Callable[[], str]) -> str:
        """A register that is computed once in this scope or one around it."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        self.scopes[-1][key] = reg = write()
        return reg

    def leave_with(self, code: str) -> None:
        """Leave the function with a code, an i32, unless it is 0."""
        bad = self.emit(f"icmp ne i32 {code}, 0")
        fail, ok = self.label("fail"), self.label("ok")
        self.put(f"br i1 {bad}, label %{fail}, label %{ok}")
        self.start(fail)
        self.put(f"ret i32 {code}")
        self.start(ok)

    @abstractmethod
    def expr(self, e: Expr) -> Value:
        """The value of an expression; its leaves depend on the kind of function."""

    def operation(self, e: Operation) -> Value:
        match e:
            case Const(value=v, dtype=d):
                return Value(literal(v, d), d)
            case Binary(op=op, a=a, b=b, dtype=d):
                return self.ops.binary(op, self.expr(a), self.expr(b), d)
            case Cast(value=v, dtype=d):
                return self.ops.cast(self.expr(v), d)
            case Select(cond=c, a=a, b=b):
                return self.ops.select(self.expr(c), self.expr(a), self.expr(b))
            case Unary(op="not", a=a):
                return self.ops.invert(self.expr(a))
            case Unary(op="~", a=a):
                return self.ops.flip(self.expr(a))
            case Unary(a=a):
                return self.ops.negate(self.expr(a))
            case Call(fn="reinterpret", args=(a,), dtype=d):
                return self.ops.reinterpret(self.expr(a), d)
            case Call(fn=fn, args=args):
                return self.ops.call(fn, [self.expr(a) for a in args])

    def splat(self, v: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        ty = llvm_type(v.dtype, lanes)
        if not v.ref.startswith("%"):
            one = llvm_type(v.dtype)
            return Value("<" + ", ".join([f"{one} {v.ref}"] * lanes) + ">", v.dtype, lanes)
        return Value(self._splat(v.ref, llvm_type(v.dtype), ty, lanes), v.dtype, lanes)

    def splat_memory(self, v: Value, ty: str) -> Value:
        """As `splat`, of a value in its memory type."""
        vty = f"<{self.lanes} x {ty}>"
        if not v.ref.startswith("%"):
            return Value("<" + ", ".join([f"{ty} {v.ref}"] * self.lanes) + ">", v.dtype, self.lanes)
        return Value(self._splat(v.ref, ty, vty, self.lanes), v.dtype, self.lanes)

    def _splat(self, ref: str, one: str, many: str, lanes: int) -> str:
        x = self.pure(f"insertelement {many} poison, {one} {ref}, i64 0")
        return self.pure(
            f"shufflevector {many} {x}, {many} poison, <{lanes} x i32> zeroinitializer"
        )

    def vector_mask(self) -> str:
        """The mask, one bit for each lane."""
        assert self.mask is not None
        return self.splat(self.mask, self.lanes).ref if self.mask.lanes == 1 else self.mask.ref

    def hidden_mask(self) -> str:
        """The mask in a form that LLVM can find neither constant nor equal to the mask itself. It
        is joined with a condition that never holds: whether a zero is another number after an empty
        piece of assembly, which LLVM does not look into (`stores_too_wide`, `permutes_memory`)."""
        zero = self.pure('call i8 asm "", "=r,0"(i8 0)')
        ty = f"<{self.lanes} x i8>"
        never = self.pure(
            f"icmp ne {ty} {self._splat(zero, 'i8', ty, self.lanes)}, zeroinitializer"
        )
        return self.pure(f"or <{self.lanes} x i1> {never}, {self.vector_mask()}")

    def any_active(self) -> str:
        """Whether any lane is active, as an i1."""
        assert self.mask is not None
        return self.mask.ref if self.mask.lanes == 1 else self.any_lane(self.mask)

    def any_lane(self, mask: Value) -> str:
        """Whether a vector of conditions holds in any lane, as an i1."""
        name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
        ty = f"<{mask.lanes} x i1>"
        self.declare(name, f"declare i1 @{name}({ty})")
        return self.pure(f"call i1 @{name}({ty} {mask.ref})")

    def under(self, cond: Value, write: Callable[[], Value]) -> Value:
        """Write a value with ``cond`` added to the mask."""
        old = self.mask
        self.mask = cond if old is None else self.ops.binary("and", old, cond, "bool")
        try:
            return write()
        finally:
            self.mask = old
