"""Tutorial 06: export a kernel as a shared object, and run it where no compiler is.

Run it with ``python tutorials/06_export_and_deploy.py``; it needs a C compiler, which links. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run with small matrices. docs/export.md has the details.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import loopwright as lw
from loopwright import te

N = 32 if os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL") else 512

#: What runs where the kernel is deployed: the runtime, and nothing of the compiler.
DEPLOYED = """
import sys
import numpy as np
from loopwright.runtime import load_module

f = load_module(sys.argv[1])
n = f["matmul"].args[0].shape[0]
a, b = np.ones((n, n), "float32"), np.full((n, n), 2, "float32")
c = np.zeros((n, n), "float32")
f(a, b, c)
assert (c == 2 * n).all()
print("  it computes; LLVM is loaded:", "llvmlite" in sys.modules)
"""


def schedule():
    """A matmul with a register tile, parallel over its rows."""
    A = te.placeholder((N, N), "float32", name="A")
    B = te.placeholder((N, N), "float32", name="B")
    k = te.reduce_axis((0, N), name="k")
    C = te.compute((N, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, 4, 32)
    s[C].reorder(io, jo, k, ii, ji)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[C].parallel(io)
    return s, [A, B, C]


def main():
    s, args = schedule()
    if shutil.which(lw.Target("c").cc) is None:
        print("There is no C compiler here; apt-get install gcc libc6-dev, then run this again.")
        return
    folder = Path(tempfile.mkdtemp(prefix="loopwright-tutorial-"))

    # 1. One schedule, three targets. The interpreter is slow and says what is right.
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (N, N)).astype("float32") for _ in range(2))
    print("1. one schedule for several targets")
    for target in ("llvm", "c") if N > 32 else ("llvm", "c", "interp"):
        f = lw.build(s, args, target, name="matmul")
        c = np.zeros((N, N), "float32")
        f(a, b, c)
        np.testing.assert_array_equal(c, a @ b)
        times = f.time_evaluator("matmul", number=1, repeat=3)(a, b, c)
        print(f"  {target:<8}{times.median * 1e3:10.3f} ms")

    # 2. The c target shows what a schedule is, in a language that many read.
    print("\n2. the C of the target c, its hot part:\n")
    source = lw.build(s, args, "c", name="matmul").get_source()
    lines = source.splitlines()
    first = next(i for i, line in enumerate(lines) if "matmul_par1_nest" in line)
    print("\n".join(lines[first : first + 22]))

    # 3. A shared object: code, thread pool and manifest in one file. For machines that you do not
    #    know, name a CPU level instead of taking this machine's.
    print("\n3. export for any x86-64 CPU with AVX2, or for this machine elsewhere")
    x86 = os.uname().machine == "x86_64"
    target = "llvm -mcpu=x86-64-v3" if x86 else "llvm"
    path = lw.build(s, args, target, name="matmul").export_library(folder / "matmul.so")
    print(f"  {path.name}: {path.stat().st_size} bytes")

    # 4. On the other machine: the manifest says what the file holds and needs; loading checks it,
    #    and a CPU that lacks a feature is refused with a message.
    manifest = lw.load_module(path).artifact.manifest
    print("\n4. its manifest")
    print("  " + json.dumps({k: manifest[k] for k in ("entry", "cpu", "needs", "num_threads")}))
    subprocess.run([sys.executable, "-c", DEPLOYED, str(path)], check=True)

    # 5. A file that was cut short on its way is noticed before anything runs.
    damaged = folder / "damaged.so"
    damaged.write_bytes(path.read_bytes()[:5000])
    print("\n5. a damaged copy")
    try:
        lw.load_module(damaged)
    except lw.LoopwrightError as error:
        print(f"  refused: {str(error).replace(str(folder), '...')}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
