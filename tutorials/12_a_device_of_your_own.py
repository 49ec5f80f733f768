"""Tutorial 12: a device of your own, with its memory, its streams, its code and its target.

Run it with ``python tutorials/12_a_device_of_your_own.py``. The device exists in this process: its
memory are arrays of bytes, a stream is a thread that does one thing after the other, and its
kernels are Python text in which each thread of a block is a generator that yields at a barrier.
It is slow and complete: what is bound to blocks and threads runs on it, shared memory and size
variables included. Nothing in loopwright knows of it before it is registered here; a real one
differs in what the methods call. Tuning needs processes of its own, which know the devices of
loopwright only. `loopwright.testing.simulated_device` is a stricter one, which counts and checks
every call: whoever writes something against the interface of devices tests it on that.
"""

import ctypes
import itertools
import math
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import loopwright as lw
from loopwright import te
from loopwright.codegen import Code
from loopwright.codegen.gpu.split import split_host_device
from loopwright.driver import Backend, register_backend
from loopwright.driver.device_plan import device_code
from loopwright.errors import CodegenError, OutOfMemoryError, RunError
from loopwright.ir.buffer import Load
from loopwright.ir.expr import Binary, Call, Cast, Const, IfThenElse, Select, Var
from loopwright.ir.stmt import Allocate, AsyncGroup, AsyncWait, Barrier, For, If, Let, Seq, Store
from loopwright.lowering.gpu_limits import limits_of
from loopwright.runtime import (
    ArtifactKind,
    DeviceAPI,
    Event,
    Memory,
    Program,
    Stream,
    register_artifact_kind,
    register_device_api,
)
from loopwright.runtime.devices.interface import HOST, check_copy, check_request
from loopwright.runtime.memory import device_allocator
from loopwright.target import Kind, Option

EXT_DEV = 12  # DLPack's code of devices that are an extension
MEMORY = 1 << 20

# ------------------------------------------------------------------ 1. the device


class Queue:
    """The work of one stream, and what of it nobody has waited for."""

    def __init__(self):
        self.thread = ThreadPoolExecutor(1)
        self.waiting = []

    def put(self, work):
        self.waiting.append(self.thread.submit(work))
        return self.waiting[-1]

    def wait(self):
        done, self.waiting = self.waiting, []
        for future in done:
            future.result()  # raises what went wrong


class PythonDevice(DeviceAPI):
    """What the runtime needs of a kind of devices; arrays, pools and functions stand above it."""

    device_type, name = EXT_DEV, "pydev"
    has_addresses = False  # a handle is a number by which memory is known

    def __init__(self):
        self.blocks, self.numbers = {}, itertools.count(1)
        self.default = Stream(EXT_DEV, 0, 0, Queue())
        self.streams, self.current = [self.default], threading.local()

    def count(self):
        return 1

    def why_absent(self):
        return ""

    def attribute(self, device_id, name):
        known = {"device_name": "generators of Python", "total_global_memory": MEMORY}
        return known.get(name)

    # Memory. `check_request` and `check_copy` refuse what makes no sense.

    def allocate(self, device_id, nbytes, alignment=256, scope="global"):
        check_request("pydev(0)", nbytes, alignment)
        free = MEMORY - sum(block.size for block in self.blocks.values())
        if nbytes > free:
            raise OutOfMemoryError(f"pydev(0): {nbytes} bytes were asked, {free} are free")
        handle = next(self.numbers)
        self.blocks[handle] = np.empty(nbytes, np.uint8)
        return Memory(EXT_DEV, device_id, handle, nbytes, scope=scope)

    def free(self, memory):
        del self.blocks[memory.handle]  # work that is queued holds the array itself

    def bytes_of(self, memory, offset, nbytes):
        if memory.device_type == HOST:
            there = (ctypes.c_uint8 * nbytes).from_address(memory.address + offset)
            return np.frombuffer(there, np.uint8)
        start = memory.offset + offset
        return self.blocks[memory.handle][start : start + nbytes]

    def copy(self, source, source_offset, target, target_offset, nbytes, stream=None):
        check_copy(source, source_offset, target, target_offset, nbytes)
        read = self.bytes_of(source, source_offset, nbytes)
        write = self.bytes_of(target, target_offset, nbytes)
        self.queue(stream).put(lambda: np.copyto(write, read))

    # Streams and events. Each thread of the host has a current stream.

    def create_stream(self, device_id):
        self.streams.append(Stream(EXT_DEV, device_id, next(self.numbers), Queue()))
        return self.streams[-1]

    def free_stream(self, stream):
        stream.owner.wait()
        self.streams.remove(stream)

    def set_stream(self, device_id, stream):
        self.current.stream = stream

    def current_stream(self, device_id):
        return getattr(self.current, "stream", None) or self.default

    def queue(self, stream):
        return (stream or self.current_stream(0)).owner

    def synchronize(self, device_id, stream=None):
        for each in list(self.streams) if stream is None else [stream]:
            each.owner.wait()

    def sync_stream_from_to(self, device_id, first, then):
        come = first.owner.put(lambda: None)
        then.owner.put(come.result)

    def record_event(self, device_id, stream=None):
        return Event(EXT_DEV, device_id, self.queue(stream).put(time.perf_counter))

    def wait_event(self, event):
        event.owner.result()

    def elapsed(self, first, then):
        return then.owner.result() - first.owner.result()

    def load(self, device_id, image, kernels):
        names = {"np": np}
        exec(image.decode(), names)
        return PythonProgram(self, names)


class PythonProgram(Program):
    """Kernels that were loaded onto the device."""

    def __init__(self, device, names):
        self.device, self.names = device, names

    def launch(self, kernel, grid, block, arguments, shared_bytes=0, stream=None):
        device = self.device
        taken = [device.bytes_of(x, 0, x.nbytes) if isinstance(x, Memory) else x for x in arguments]

        def work():
            try:
                new_block = self.names[kernel](*taken)
                for position in positions(grid):
                    run_block(new_block(position), block)
            except Exception as error:
                raise RunError(f"{kernel} failed on pydev(0): {error}") from error

        device.queue(stream).put(work)


def positions(extents):
    """All (x, y, z) of a grid or of a block."""
    return itertools.product(*map(range, extents))


def run_block(new_thread, extents):
    """Run the threads of a block from barrier to barrier."""
    running = [new_thread(position) for position in positions(extents)]
    while running:
        running = [thread for thread in running if next(thread, "ended") != "ended"]


# ------------------------------------------------------------------ 2. its code


class KernelWriter:
    """Writes a kernel: a function of its arguments, in it one of a block, in it one of a thread."""

    def __init__(self):
        self.lines, self.names = [], {}

    def name(self, x):
        """The identifier of a variable or buffer, whose own names need not be unique."""
        word = re.sub(r"\W", "_", x.name)
        while x not in self.names and word in ("np", *self.names.values()):
            word += "_"
        return self.names.setdefault(x, word)

    def put(self, depth, text):
        self.lines.append("    " * depth + text)

    def expr(self, e):
        match e:
            case Var():
                return self.name(e)
            case Const(value=v):
                return f"float('{v}')" if isinstance(v, float) and not math.isfinite(v) else repr(v)
            case Load(buffer=b, indices=i):
                return self.element(b, i)
            case Cast(value=v, dtype=to):
                return f"np.{to}({self.expr(v)})"
            case Binary(op="max" | "min" as op, a=a, b=b):
                return f"np.{op}imum({self.expr(a)}, {self.expr(b)})"
            case Binary(op=op, a=a, b=b) if not op.startswith("t"):  # tdiv, tmod
                return f"({self.expr(a)} {op} {self.expr(b)})"
            case Select(cond=c, a=a, b=b) | IfThenElse(cond=c, a=a, b=b):
                return f"({self.expr(a)} if {self.expr(c)} else {self.expr(b)})"
            case Call(fn=fn, args=args) if hasattr(np, fn):
                return f"np.{fn}({', '.join(map(self.expr, args))})"
        raise CodegenError(f"pydev: no code for {e}")

    def dim(self, n):
        """An extent: a number, or an expression of sizes that are known when it is called."""
        return str(n) if isinstance(n, int) else self.expr(n)

    def shape(self, extents):
        return f"({''.join(f'{self.dim(n)},' for n in extents)})"

    def element(self, b, indices):
        return f"{self.name(b)}[{', '.join(map(self.expr, indices)) or '()'}]"

    def stmt(self, s, depth):
        match s:
            case Seq(stmts=stmts):
                for x in stmts:
                    self.stmt(x, depth)
            case Store(buffer=b, indices=i, value=v):
                self.put(depth, f"{self.element(b, i)} = {self.expr(v)}")
            case For(var=v, extent=n, body=body):
                self.put(depth, f"for {self.name(v)} in range({self.dim(n)}):")
                self.stmt(body, depth + 1)
            case If(cond=c, then=then, orelse=orelse):
                self.put(depth, f"if {self.expr(c)}:")
                self.stmt(then, depth + 1)
                if orelse is not None:
                    self.put(depth, "else:")
                    self.stmt(orelse, depth + 1)
            case Let(var=v, value=e, body=body):
                self.put(depth, f"{self.name(v)} = {self.expr(e)}")
                self.stmt(body, depth)
            case Allocate(buffer=b, body=body):
                self.put(depth, self.new(b))
                self.stmt(body, depth)
            case Barrier():
                self.put(depth, "yield  # a barrier")
            case AsyncGroup(body=body):  # copies that may be late are done at once
                self.stmt(body, depth)
            case AsyncWait():
                pass
            case _:
                raise CodegenError(f"pydev: no code for {type(s).__name__}")

    def new(self, b):
        return f"{self.name(b)} = np.empty({self.shape(b.shape)}, '{b.dtype}')"

    def text(self, k):
        given = [*k.parameters, *k.sizes]
        self.put(0, f"def {k.name}({', '.join(map(self.name, given))}):")
        for b in k.parameters:
            shape = self.shape(b.shape)
            self.put(1, f"{self.name(b)} = {self.name(b)}.view('{b.dtype}').reshape({shape})")
        self.put(1, "def block(blockIdx):")
        for b in k.shared:
            self.put(2, self.new(b))
        self.put(2, "def thread(threadIdx):")
        for loop in (*k.blocks, *k.threads):
            which, axis = loop.tag.split(".")
            self.put(3, f"{self.name(loop.var)} = {which}[{'xyz'.index(axis)}]")
        self.stmt(k.body, 3)
        self.put(3, "yield  # so that every thread is a generator")
        self.put(2, "return thread")
        self.put(1, "return block")
        return "\n".join(self.lines) + "\n"


def compile_python(program, target):
    """A lowered function becomes kernels, and the plan of their launches."""
    split = split_host_device(program.func, "pydev")
    text = "\n".join(KernelWriter().text(kernel) for kernel in split.kernels)
    return Code(device_code(split, text.encode()).to_bytes(), {"py": text})


# ------------------------------------------------------------------ 3. both are registered

# A kind of target: the key "gpu" lets the operators take their templates for blocks and threads.
KIND = Kind(
    "pydev",
    ("pydev", "gpu"),
    {"max_threads_per_block": Option(int, "threads of a block")},
    {"max_threads_per_block": 64},
)
# The compiler's entry and the runtime's meet by the name of the artifacts; the latter meets the
# device by the name of its DLPack code.
BACKEND = Backend(KIND, "pydev-text", compile_python, lambda target: limits_of(target.options))
ARTIFACTS = ArtifactKind("pydev-text", "pydev", "pyprog", "program", device="ext_dev")


def register():
    register_device_api(EXT_DEV, PythonDevice)
    register_artifact_kind(ARTIFACTS)
    register_backend(BACKEND)


# ------------------------------------------------------------------ 4. and used like any other


def refused(call):
    """Run what must fail, and print why."""
    try:
        call()
    except lw.LoopwrightError as error:
        print(f"   refused: {error}")


def add_one(n, threads):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    block, thread = s[B].split(B.op.axis[0], factor=threads)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    return s, [A, B]


def main():
    register()
    dev = lw.device("pydev")
    print(f"{dev}: {dev.device_name}, {dev.total_memory} bytes")

    print("\nA kernel:\n")
    f = lw.build(*add_one(20, 8), "pydev", name="add_one")
    print(f.get_source())
    a, b = lw.nd.array(np.arange(20, dtype="float32"), device=dev), lw.nd.empty((20,), device=dev)
    f(a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(20) + 1)
    print(b.numpy())

    print("\nA matmul with tiles in shared memory, by the operator's template:")
    with lw.Target("pydev"):
        s, args = lw.ops.matmul(128, 64, 32)
        matmul = lw.build(s, args, name="matmul")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape, dtype=np.float32) for shape in ((128, 32), (32, 64)))
    arrays = [lw.nd.array(v, device=dev) for v in (x, y, np.zeros_like(x @ y))]
    matmul(*arrays)
    np.testing.assert_allclose(arrays[2].numpy(), x @ y, rtol=1e-4, atol=1e-4)
    launch = matmul["matmul"].code.launches[0]
    times = matmul.time_evaluator("matmul", dev, number=1, repeat=1)(*arrays)
    assert times.min > 0  # by the events of the device
    print(f"   right, with {launch.grid} blocks of {launch.block} threads")

    print("\nA stream runs beside the others; a pool keeps what was freed for the next array:")
    with dev.stream():
        f(b, a)
    np.testing.assert_array_equal(a.numpy(), np.arange(20) + 2)
    del arrays
    lw.nd.empty((64, 64), device=dev)
    pool = device_allocator(dev).statistics()
    print(f"   {pool.allocations} arrays were made of {pool.device_allocations} pieces of memory")

    print("\nWhat it cannot do is said before it is tried, or where one waits for it:")
    refused(lambda: lw.build(*add_one(1000, 100), "pydev"))
    refused(lambda: f(np.zeros(20, "float32"), b))
    refused(lambda: lw.nd.empty((1 << 20,), device=dev))


if __name__ == "__main__":
    main()
