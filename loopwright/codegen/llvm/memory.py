"""Places of buffers, and addresses, loads and stores as LLVM IR text."""

# Buffers of at most `STACK_LIMIT` bytes are stack slots of the function's entry block, which LLVM
# turns into registers where every access has a constant index; larger ones are cut from the
# workspace.

from __future__ import annotations

from collections.abc import Callable

from loopwright import dtypes
from loopwright.codegen.code import Bytes, buffer_bytes, larger
from loopwright.codegen.llvm.emitter import Value, llvm_type
from loopwright.codegen.llvm.indices import LANE, IndexWriter
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import STACK_LIMIT, Buffer

#: Most bytes of all buffers together that are kept on the stack.
STACK_TOTAL = 1 << 16
#: Largest distance of lanes for which whole vectors are loaded and shuffled.
MAX_SHUFFLED = 4
#: Fewest bytes that the CPU stores past the caches as a vector.
LEAST_STREAMED = 16


def memory_type(dtype: str) -> str:
    """The type of an element in memory; a bool is a byte, a 16-bit float its bits."""
    if dtype in dtypes.HALVES:
        return "i16"
    return "i8" if dtype == "bool" else llvm_type(dtype)


class FunctionMemory:
    def __init__(self, writer: IndexWriter) -> None:
        self.w = writer
        #: Bytes of workspace that the function needs.
        self.workspace: Bytes = 0
        self._used: Bytes = 0
        self._stack = 0

    def allocate(self, b: Buffer, body: Callable[[], None]) -> None:
        w = self.w
        if not b.symbolic and b.nbytes <= STACK_LIMIT and self._stack + b.nbytes <= STACK_TOTAL:
            self._stack += b.nbytes
            w.pointers[b] = reg = f"%b{len(w.allocas)}"
            w.allocas.append(f"  {reg} = alloca [{b.size} x {memory_type(b.dtype)}], align 64")
            body()
            return
        start = self._used
        w.pointers[b] = w.pure(f"getelementptr i8, ptr %ws, i64 {w.count_of(start)}")
        self._used = start + buffer_bytes(b)
        self.workspace = larger(self.workspace, self._used)
        body()
        self._used = start

    def view(self, b: Buffer, of: Buffer, offset: int) -> None:
        self.w.pointers[b] = self.w.pure(
            f"getelementptr i8, ptr {self.w.pointers[of]}, i64 {offset}"
        )

    def spare(self, size: Bytes) -> str:
        """Pointer to workspace of a launch that runs inline; free again after it."""
        self.workspace = larger(self.workspace, self._used + size)
        return self.w.pure(f"getelementptr i8, ptr %ws, i64 {self.w.count_of(self._used)}")

    def address(self, b: Buffer, offset: Affine) -> str:
        """Pointer to the element at ``offset`` (without the lane), shared within a scope."""
        w = self.w
        base = w.pointers[b]
        ty = memory_type(b.dtype)
        terms = {v: c for v, c in offset.terms.items() if v is not LANE}
        if terms:
            # By pointer, not by buffer: an unrolled loop allocates one buffer several times.
            start = base
            base = w.cached(
                (start, ty, frozenset(terms.items())),
                lambda: w.pure(
                    f"getelementptr {ty}, ptr {start}, i64 {w.scalar(Affine(0, terms))}"
                ),
            )
        if offset.const == 0:
            return base
        return w.pure(f"getelementptr {ty}, ptr {base}, i64 {offset.const}")

    def load(self, b: Buffer, offset: Affine | Value) -> Value:
        """Load one element, or as many as there are lanes, under the writer's mask."""
        w = self.w
        if isinstance(offset, Value):
            return self._register(b, self._gather(b, offset))
        stride = offset.terms.get(LANE, 0)
        if stride == 0:
            return self._register(b, self._load_scalar(b, offset))
        if stride != 1 or (w.mask is not None and b.dtype == "bool"):
            return self._register(b, self._load_strided(b, offset, stride))
        mask = None if w.mask is None else w.vector_mask()
        ref = self._load_vector(b, self._address_to_read(b, offset), mask)
        return self._register(b, Value(ref, b.dtype, w.lanes))

    def _address_to_read(self, b: Buffer, offset: Affine) -> str:
        """The address of a vector; where no lane is active, one that is there in any case."""
        # A masked load of nothing from a page that is not there, such as that of the padding before
        # a buffer's first element, gives zeros as it should, and takes hundreds of cycles for it.
        w, ptr = self.w, self.address(b, offset)
        if w.mask is None or w.mask.lanes > 1:
            return ptr
        return w.pure(f"select i1 {w.mask.ref}, ptr {ptr}, ptr {w.pointers[b]}")

    def prefetch(self, b: Buffer, offset: Affine | Value) -> None:
        """Bring the line of an element (of the first lane) into all caches, to be read."""
        w = self.w
        if isinstance(offset, Value) and offset.lanes > 1:
            at = w.pure(f"extractelement <{offset.lanes} x i64> {offset.ref}, i32 0")
            offset = Value(at, "int64")
        ptr = self.pointer(b, offset)
        name = "llvm.prefetch.p0"
        w.declare(name, f"declare void @{name}(ptr, i32, i32, i32)")
        w.put(f"call void @{name}(ptr {ptr}, i32 0, i32 3, i32 1)")

    def _load_vector(self, b: Buffer, ptr: str, mask: str | None) -> str:
        """Adjacent elements, one for each lane; zeros where ``mask`` does not hold."""
        w = self.w
        ty, size = f"<{w.lanes} x {memory_type(b.dtype)}>", dtypes.nbytes(b.dtype)
        if mask is None:
            return w.emit(f"load {ty}, ptr {ptr}, align {size}")
        name = f"llvm.masked.load.v{w.lanes}{_suffix(b.dtype)}.p0"
        mty = f"<{w.lanes} x i1>"
        w.declare(name, f"declare {ty} @{name}(ptr, i32, {mty}, {ty})")
        return w.emit(
            f"call {ty} @{name}(ptr {ptr}, i32 {size}, {mty} {mask}, {ty} zeroinitializer)"
        )

    def _register(self, b: Buffer, v: Value) -> Value:
        """Bytes of a bool buffer as i1, bits of 16-bit floats as float32."""
        if b.dtype in dtypes.HALVES:
            return self.w.ops.unpack(v)
        if b.dtype != "bool":
            return v
        ty = "i8" if v.lanes == 1 else f"<{v.lanes} x i8>"
        zero = "0" if v.lanes == 1 else "zeroinitializer"
        return Value(self.w.pure(f"icmp ne {ty} {v.ref}, {zero}"), "bool", v.lanes)

    def _load_scalar(self, b: Buffer, offset: Affine) -> Value:
        w = self.w
        ty, size = memory_type(b.dtype), dtypes.nbytes(b.dtype)
        if w.mask is None:
            ptr = self.address(b, offset)
            return Value(w.emit(f"load {ty}, ptr {ptr}, align {size}"), b.dtype)
        # Element 0 always exists: an inactive load reads it instead of branching.
        index = w.pure(f"select i1 {w.any_active()}, i64 {w.scalar(offset)}, i64 0")
        ptr = w.pure(f"getelementptr {ty}, ptr {w.pointers[b]}, i64 {index}")
        return Value(w.emit(f"load {ty}, ptr {ptr}, align {size}"), b.dtype)

    def _load_strided(self, b: Buffer, offset: Affine, stride: int) -> Value:
        w = self.w
        scalar = Affine(offset.const, {v: c for v, c in offset.terms.items() if v is not LANE})
        # Windows that lie across the vectors of a buffer in registers would put it into memory.
        in_registers = not scalar.terms and w.pointers[b].startswith("%b")
        if 2 <= stride <= min(MAX_SHUFFLED, w.lanes) and not in_registers:
            return Value(self._deinterleave(b, scalar, stride), b.dtype, w.lanes)
        if stride == -1 and not in_registers:
            return Value(self._backwards(b, scalar), b.dtype, w.lanes)
        if w.mask is not None:
            return self._gather(b, w.index_vector(offset))
        ty, size = memory_type(b.dtype), dtypes.nbytes(b.dtype)
        vty, out = f"<{w.lanes} x {ty}>", "poison"
        for i in range(w.lanes):
            x = w.emit(f"load {ty}, ptr {self.address(b, scalar + i * stride)}, align {size}")
            out = w.pure(f"insertelement {vty} {out}, {ty} {x}, i64 {i}")
        return Value(out, b.dtype, w.lanes)

    def _deinterleave(self, b: Buffer, first: Affine, stride: int) -> str:
        """Every stride-th element from ``first``, picked out of whole vectors."""
        # Nothing beyond the last wanted element is touched, so the last vector ends there. With
        # fewer lanes than the stride a vector before it would reach further.
        w, n = self.w, self.w.lanes
        vty, out = f"<{n} x {memory_type(b.dtype)}>", "poison"
        active = None if w.mask is None else self._mask_before_shuffles()
        uniform = w.mask is None or w.mask.lanes == 1
        starts = [*range(0, n * (stride - 1), n), (n - 1) * stride + 1 - n]
        taken = [min(lane * stride // n, stride - 1) for lane in range(n)]
        for p, start in enumerate(starts):
            on = active if active is None or uniform else self._spread(active, start, stride)
            x = self._load_vector(b, self.address(b, first + start), on)
            picks = [
                n + lane * stride - start if taken[lane] == p else lane if taken[lane] < p else -1
                for lane in range(n)
            ]
            mask = ", ".join(f"i32 {k}" if k >= 0 else "i32 poison" for k in picks)
            out = w.pure(f"shufflevector {vty} {out}, {vty} {x}, <{n} x i32> <{mask}>")
        return out

    def _backwards(self, b: Buffer, first: Affine) -> str:
        """Elements from ``first`` on towards the beginning: a vector, turned round."""
        w, n = self.w, self.w.lanes
        picks = ", ".join(f"i32 {k}" for k in reversed(range(n)))
        active = None if w.mask is None else self._mask_before_shuffles()
        if active is not None and w.mask is not None and w.mask.lanes > 1:
            ty = f"<{n} x i1>"
            active = w.pure(f"shufflevector {ty} {active}, {ty} poison, <{n} x i32> <{picks}>")
        x = self._load_vector(b, self.address(b, first - (n - 1)), active)
        vty = f"<{n} x {memory_type(b.dtype)}>"
        return w.pure(f"shufflevector {vty} {x}, {vty} poison, <{n} x i32> <{picks}>")

    def _mask_before_shuffles(self) -> str:
        """The mask for loads whose elements are shuffled, and then selected by the same mask."""
        # AVX-512 has permutations with a mask that read memory. LLVM makes one of the load, the
        # shuffle and the selection, but such an instruction reads memory whatever its mask is: a
        # load that the mask switches off touches what is not there. So the loads get a mask of
        # their own.
        w = self.w
        return w.hidden_mask() if w.module.hides_load_masks else w.vector_mask()

    def _spread(self, mask: str, start: int, stride: int) -> str:
        """The mask of adjacent elements from ``start`` on of which lanes want every stride-th."""
        w, n = self.w, self.w.lanes
        elements = range(start, start + n)
        picks = ", ".join(f"i32 {n if e % stride else e // stride}" for e in elements)
        ty = f"<{n} x i1>"
        return w.pure(f"shufflevector {ty} {mask}, {ty} zeroinitializer, <{n} x i32> <{picks}>")

    def _gather(self, b: Buffer, index: Value) -> Value:
        w = self.w
        ty, size = memory_type(b.dtype), dtypes.nbytes(b.dtype)
        if index.lanes == 1:
            ref = index.ref
            if w.mask is not None:
                ref = w.pure(f"select i1 {w.any_active()}, i64 {ref}, i64 0")
            ptr = w.pure(f"getelementptr {ty}, ptr {w.pointers[b]}, i64 {ref}")
            return Value(w.emit(f"load {ty}, ptr {ptr}, align {size}"), b.dtype)
        ity, vty, out = f"<{w.lanes} x i64>", f"<{w.lanes} x {ty}>", "poison"
        ref = index.ref
        if w.mask is not None:
            mty = f"<{w.lanes} x i1>"
            ref = w.pure(f"select {mty} {w.vector_mask()}, {ity} {ref}, {ity} zeroinitializer")
        for i in range(w.lanes):
            at = w.pure(f"extractelement {ity} {ref}, i64 {i}")
            ptr = w.pure(f"getelementptr {ty}, ptr {w.pointers[b]}, i64 {at}")
            x = w.emit(f"load {ty}, ptr {ptr}, align {size}")
            out = w.pure(f"insertelement {vty} {out}, {ty} {x}, i64 {i}")
        return Value(out, b.dtype, w.lanes)

    def store(
        self, b: Buffer, offset: Affine | Value, value: Value, nontemporal: bool = False
    ) -> None:
        """Store one element, or one for each lane, under the writer's mask; past the caches if
        ``nontemporal``, where whole vectors go to memory."""
        w = self.w
        if b.dtype == "bool":
            ty = "i1" if value.lanes == 1 else f"<{value.lanes} x i1>"
            to = "i8" if value.lanes == 1 else f"<{value.lanes} x i8>"
            value = Value(w.pure(f"zext {ty} {value.ref} to {to}"), "bool", value.lanes)
        elif b.dtype in dtypes.HALVES:
            value = Value(w.ops.pack(value), b.dtype, value.lanes)
        ty, size = memory_type(b.dtype), dtypes.nbytes(b.dtype)
        stride = 0 if isinstance(offset, Value) else offset.terms.get(LANE, 0)
        if w.lanes == 1:
            ptr = self.pointer(b, offset)
            w.put(f"store {ty} {value.ref}, ptr {ptr}, align {size}")
            return
        if value.lanes == 1:
            value = w.splat_memory(value, ty)
        if stride != 1 or isinstance(offset, Value):
            self._scatter(b, offset, value, ty, size)
            return
        ptr = self.address(b, offset)
        vty = f"<{w.lanes} x {ty}>"
        if w.mask is None:
            if nontemporal and self.may_stream(b, w.lanes):
                self._stream(b, offset, f"{vty} {value.ref}", ptr)
            else:
                w.put(f"store {vty} {value.ref}, ptr {ptr}, align {size}")
            return
        name = f"llvm.masked.store.v{w.lanes}{_suffix(b.dtype)}.p0"
        mty = f"<{w.lanes} x i1>"
        w.declare(name, f"declare void @{name}({vty}, ptr, i32, {mty})")
        narrow = w.module.hides_masks and ty in ("i8", "i16", "i32")
        mask = w.hidden_mask() if narrow else w.vector_mask()
        w.put(f"call void @{name}({vty} {value.ref}, ptr {ptr}, i32 {size}, {mty} {mask})")

    def may_stream(self, b: Buffer, lanes: int) -> bool:
        """Whether vectors of a buffer may go past the caches: it is not on the stack."""
        w, size = self.w, lanes * dtypes.nbytes(b.dtype)
        return w.module.streams and size >= LEAST_STREAMED and not w.pointers[b].startswith("%b")

    def _stream(self, b: Buffer, offset: Affine, value: str, ptr: str) -> None:
        """Store a vector past the caches if it lies on a multiple of its size, else as usual."""
        # Where the buffer alone decides that, the test is the same for all vectors of a loop, and
        # is moved out of it.
        w, size = self.w, dtypes.nbytes(b.dtype)
        whole = w.lanes * size
        steps = [c for v, c in offset.terms.items() if v is not LANE]
        even = all(n * size % whole == 0 for n in (*steps, offset.const))
        at = w.pure(f"ptrtoint ptr {w.pointers[b] if even else ptr} to i64")
        low = w.pure(f"and i64 {at}, {whole - 1}")
        aligned = w.pure(f"icmp eq i64 {low}, 0")
        past, through, done = w.label("past"), w.label("through"), w.label("stored")
        w.put(f"br i1 {aligned}, label %{past}, label %{through}")
        w.start(past)
        w.put(f"store {value}, ptr {ptr}, align {whole}, !nontemporal {w.module.nontemporal()}")
        w.put(f"br label %{done}")
        w.start(through)
        w.put(f"store {value}, ptr {ptr}, align {size}")
        w.put(f"br label %{done}")
        w.start(done)

    def pointer(self, b: Buffer, offset: Affine | Value) -> str:
        if isinstance(offset, Affine):
            return self.address(b, offset)
        ty = memory_type(b.dtype)
        return self.w.pure(f"getelementptr {ty}, ptr {self.w.pointers[b]}, i64 {offset.ref}")

    def _scatter(self, b: Buffer, offset: Affine | Value, v: Value, ty: str, size: int) -> None:
        w = self.w
        index = offset if isinstance(offset, Value) else w.index_vector(offset)
        if index.lanes == 1:
            index = w.splat(index, w.lanes)
        mask = w.vector_mask() if w.mask is not None else None
        for i in range(w.lanes):
            at = w.pure(f"extractelement <{w.lanes} x i64> {index.ref}, i64 {i}")
            x = w.pure(f"extractelement <{w.lanes} x {ty}> {v.ref}, i64 {i}")
            ptr = w.pure(f"getelementptr {ty}, ptr {w.pointers[b]}, i64 {at}")
            if mask is None:
                w.put(f"store {ty} {x}, ptr {ptr}, align {size}")
                continue
            on = w.pure(f"extractelement <{w.lanes} x i1> {mask}, i64 {i}")
            then, done = w.label("lane"), w.label("next")
            w.put(f"br i1 {on}, label %{then}, label %{done}")
            w.start(then)
            w.put(f"store {ty} {x}, ptr {ptr}, align {size}")
            w.put(f"br label %{done}")
            w.start(done)


def _suffix(dtype: str) -> str:
    return {"float32": "f32", "float64": "f64", "bool": "i8"}.get(dtype, f"i{dtypes.bits(dtype)}")
