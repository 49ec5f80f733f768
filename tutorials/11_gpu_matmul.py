"""Tutorial 11: a matrix multiplication on a GPU, from one thread an element to a tuned kernel.

Run it with ``python tutorials/11_gpu_matmul.py``. It takes a GPU by CUDA where one is, else the
first OpenCL device, which may be the CPU through PoCL; where neither is, it says what to install,
and the interpreter runs the same kernels on tiny matrices. Every step is checked against NumPy, and
its time is shown as a share of the first step's. Shares of PoCL and of the interpreter mean nothing
for a GPU: shared memory is not faster there, and a barrier is a loop over the threads of a block.
Set ``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run with small matrices.
"""

import difflib
import os
import re
import tempfile
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright import te

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
TRIALS = 3 if SMALL else 24


def choose():
    """The target, and how many rows the matrices have: for the best device of this machine."""
    for name, rows in (("cuda", 1024), ("opencl", 256)):
        device = lw.device(name)
        if device.exist:
            print(f"{device}: {device.device_name}")
            return lw.Target(name), 64 if SMALL else rows
        print(f"{device} cannot be used: {device.why_absent()}")
    print("so the interpreter runs the kernels, block by block and thread by thread")
    return lw.Target("interp"), 32


TARGET, N = choose()
DEVICE = lw.device(TARGET.kind.name)
ON_DEVICE = TARGET.kind.name != "interp"
# In steps 1 and 2 a block has SIDE x SIDE threads, which compute an element each. From step 3 on
# each thread computes EACH x EACH elements, and all of them a tile of TILE x TILE.
SIDE, TILE = (8, 32) if N < 128 else (16, 64)
EACH, STEP, VECTOR = 8, 8, 4

rng = np.random.default_rng(0)
a = rng.standard_normal((N, N), dtype=np.float32)
b = rng.standard_normal((N, N), dtype=np.float32)
expected = a @ b


def declare():
    """The definition: what is computed, and nothing about how."""
    A = te.placeholder((N, N), "float32", name="A")
    B = te.placeholder((N, N), "float32", name="B")
    k = te.reduce_axis((0, N), name="k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C, te.create_schedule(C.op)


def outline(s, args):
    """A loop nest without indices: loops, conditions, buffers, barriers and statements."""
    kept = re.compile(r"\s*(for|if|barrier|async|wait|[\w.]+ = alloc|[\w.]+\[)")
    nest = "\n".join(x for x in str(lw.lower(s, args)).splitlines() if kept.match(x))
    nest = re.sub(r"(?<=[\w.])\[[^\[\]=]*\](?!,)", "[..]", nest)
    return re.sub(r"for ([a-z]+\d*)[.\w]* in (?!thread)", r"for \1 in ", nest).splitlines()


def seconds(s, args):
    """Build a schedule, check its result, and return its time."""
    f = lw.build(s, args, TARGET, name="matmul")
    arrays = [lw.nd.array(x, device=DEVICE) for x in (a, b, np.full_like(expected, np.nan))]
    f(*arrays)
    np.testing.assert_allclose(arrays[2].numpy(), expected, rtol=1e-3, atol=1e-3)
    number = 10 if ON_DEVICE else 1
    return f.time_evaluator("matmul", DEVICE, number=number, repeat=3)(*arrays).median


def bind_tile(s, C, side):
    """Bind tiles of C to the blocks of a launch; returns the loops within a tile."""
    by, bx, i, j = s[C].tile(*C.op.axis, side, side)
    s[C].bind(by, te.thread_axis("blockIdx.y"))
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    return i, j


def naive():
    """One thread an element: each reads a row of A and a column of B from global memory."""
    A, B, C, s = declare()
    i, j = bind_tile(s, C, SIDE)
    s[C].bind(i, te.thread_axis("threadIdx.y"))
    s[C].bind(j, te.thread_axis("threadIdx.x"))
    return s, [A, B, C]


def shared():
    """Tiles of A and B in shared memory: read from global memory once a block, not once a thread.

    All threads of a block fill them together, and the barriers come by themselves. The sum gets a
    buffer of its own, which is a register.
    """
    A, B, C, s = declare()
    total = s.cache_write(C, "local")
    tiles = [s.cache_read(t, "shared", [total]) for t in (A, B)]
    y, x = te.thread_axis("threadIdx.y"), te.thread_axis("threadIdx.x")
    i, j = bind_tile(s, C, SIDE)
    s[C].bind(i, y)
    s[C].bind(j, x)
    s[total].compute_at(s[C], j)
    step, _ = s[total].split(s[total].op.reduce_axis[0], factor=SIDE)
    for tile in tiles:  # SIDE x SIDE elements, one for each thread
        s[tile].compute_at(s[total], step)
        row, column = s[tile].op.axis
        s[tile].bind(row, y)
        s[tile].bind(column, x)
    return s, [A, B, C]


def registers(vector=1, pad=False, double=False):
    """EACH x EACH elements a thread: what it reads of a tile, it uses EACH times.

    Virtual threads put one half of its rows and columns half a tile away from the other, so that
    neighbouring threads read neighbouring columns.
    """
    A, B, C, s = declare()
    total = s.cache_write(C, "local")
    tiles = [s.cache_read(t, "shared", [total]) for t in (A, B)]
    parts = [s.cache_read(t, "local", [total]) for t in tiles]
    y, x = te.thread_axis("threadIdx.y"), te.thread_axis("threadIdx.x")
    threads = TILE // EACH

    rows, columns = bind_tile(s, C, TILE)
    vy, rows = s[C].split(rows, nparts=2)
    vx, columns = s[C].split(columns, nparts=2)
    ty, i = s[C].split(rows, nparts=threads)
    tx, j = s[C].split(columns, nparts=threads)
    s[C].reorder(vy, vx, ty, tx, i, j)
    s[C].bind(vy, te.thread_axis("vthread"))
    s[C].bind(vx, te.thread_axis("vthread"))
    s[C].bind(ty, y)
    s[C].bind(tx, x)

    s[total].compute_at(s[C], tx)
    step, k = s[total].split(s[total].op.reduce_axis[0], factor=STEP)
    s[total].reorder(step, k, *s[total].op.axis)
    for loop in s[total].op.axis:
        s[total].unroll(loop)
    for tile, part in zip(tiles, parts, strict=True):
        s[tile].compute_at(s[total], step)
        s[part].compute_at(s[total], k)
        elements = s[tile].fuse(*s[tile].op.axis)
        if vector > 1:
            elements, lanes = s[tile].split(elements, factor=vector)
            s[tile].vectorize(lanes)
        rest, column = s[tile].split(elements, factor=threads)
        _, row = s[tile].split(rest, factor=threads)
        s[tile].bind(row, y)
        s[tile].bind(column, x)
        if double:
            s[tile].double_buffer()
    if vector > 1:
        s[parts[1]].vectorize(s[parts[1]].op.axis[1])
        s[C].vectorize(j)
    if pad:
        s[tiles[0]].storage_align(s[tiles[0]].op.axis[0], factor=STEP, offset=VECTOR)
    return s, [A, B, C]


def vectors():
    """16 bytes at once, where elements lie side by side: copies to the tiles, rows of B and C."""
    return registers(vector=VECTOR)


def padded():
    """Rows of A's tile lie apart, so that threads that read a column meet different banks."""
    return registers(vector=VECTOR, pad=True)


def doubled():
    """Two halves of every tile: one is filled while the other is read, with one barrier a step.

    GPUs from sm_80 on copy without registers and beside other work: what stands in `async` need not
    be there before the `wait` of the next step. `double_buffer(stages=3)` fills two steps ahead.
    """
    return registers(vector=VECTOR, pad=True, double=True)


def by_hand():
    """Each step: its nest, or how it differs from that of the step before, and its time."""
    first, before = None, []
    for number, step in enumerate((naive, shared, registers, vectors, padded, doubled), 1):
        s, args = step()
        print(f"\n{number}. {step.__name__}: {step.__doc__.partition(chr(10))[0]}\n")
        nest = outline(s, args)
        lines = [x.strip() for x in nest]
        changes = [f"  {x}" for x in difflib.ndiff(before, lines) if x[0] in "+-"]
        print("\n".join(nest if number <= 3 else changes))
        time = seconds(s, args)
        first, before = first or time, lines
        print(f"\n   right, in {time / first:.2f} of the time of step 1")
    return first


def resources():
    """What the last kernel takes of a GPU. The compiler tells it, and needs none."""
    target = TARGET if TARGET.kind.name == "cuda" else lw.Target("cuda -arch=sm_90")
    print(f"\nOf a GPU ({target.options['arch']}) kernel {doubled.__name__!r} takes:")
    try:
        f = lw.build(*doubled(), target, name="matmul")
    except lw.LoopwrightError as error:
        print(f"   not known here: {error}")
        return
    for taken in f["matmul"].code.resources.values():
        print(
            f"   {taken.registers} registers a thread, {taken.spill_bytes} bytes spilled,", end=""
        )
        print(f" {taken.shared_bytes} bytes of shared memory a block")


def tuned(first):
    """The operator's own template makes such choices by knobs, and a tuner tries them."""
    if not ON_DEVICE:
        print("\nWithout a device there is nothing to tune for.")
        return
    log = Path(tempfile.mkdtemp()) / "gpu_matmul.jsonl"
    task = lw.create_task("matmul", (N, N, N), TARGET)
    print(f"\n{task.config_space}\n")
    runner = lw.LocalRunner(device=str(DEVICE))
    lw.tuner.XGBTuner(task, seed=0).tune(
        n_trial=TRIALS,
        measure_option=lw.measure_option(builder=lw.LocalBuilder(), runner=runner),
        callbacks=[lw.callback.log_to_file(str(log))],
    )
    with TARGET, lw.apply_history_best(str(log)) as history:
        s, args = lw.ops.matmul(N, N, N)
        time = seconds(s, args)
        print(history.report())
    print(f"with the log: {time / first:.2f} of the time of step 1")


if __name__ == "__main__":
    first = by_hand()
    resources()
    tuned(first)
