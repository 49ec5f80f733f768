"""Tutorial 19: one matmul, written as a graph and as a tensor expression.

Run it with ``python tutorials/19_relay_and_te.py``. The way of graphs (Relay's) says which
operators a model has; everything else follows. The way of tensor expressions says what an element
is, and may say in which order loops run. Both meet in the same expression: a graph's kernel is one.
"""

import numpy as np

import loopwright as lw
from loopwright import graph, te

M, N, K = 32, 48, 64


def by_graph(weight):
    """Six steps: inputs, operators, a module, passes and kernels, an executor, a run."""
    x = graph.var("x", (M, K))  # 1. inputs have a name and a type
    y = graph.op.matmul(x, graph.const(weight, name="weight"))  # 2. operators are called
    module = graph.IRModule.from_expr(y)  # 3. free variables become parameters
    model = graph.compile(module, "llvm")  # 4. simplified, fused, built
    executor = model.executor()  # 5. memory for one run at a time

    def run(a):
        executor.run(x=a)  # 6. set inputs, run, get outputs
        return executor.get_output(0).numpy()

    return module, model, run


def by_expression(weight):
    """Five steps: placeholders, the expression, a schedule, a build, a call."""
    A = te.placeholder((M, K), name="A")  # 1. inputs
    B = te.placeholder((K, N), name="B", constant=True)
    k = te.reduce_axis((0, K), name="k")
    C = te.compute(  # 2. what an element is
        (M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C"
    )
    s = te.create_schedule(C.op)  # 3. in which order, on which threads
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, 4, 16)
    s[C].reorder(io, jo, k, ii, ji)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[C].parallel(io)
    f = lw.build(s, [A, B, C], "llvm", name="matmul")  # 4. machine code
    bound = f.with_constants(B=weight)

    def run(a):
        c = np.empty((M, N), "float32")
        bound(a, c)  # 5. outputs are arguments
        return c

    return s, [A, B, C], run


def main():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((M, K)).astype("float32")
    weight = rng.standard_normal((K, N)).astype("float32")
    expected = a @ weight

    module, model, run = by_graph(weight)
    print("1. as a graph\n")
    print(module)
    np.testing.assert_allclose(run(a), expected, rtol=1e-4, atol=1e-4)
    print(f"\n   its kernel, whose schedule nobody wrote: {', '.join(model.kernels)}")

    s, args, run = by_expression(weight)
    print("\n2. as an expression with a schedule\n")
    print(lw.lower(s, args, name="matmul"))
    np.testing.assert_allclose(run(a), expected, rtol=1e-4, atol=1e-4)

    # 3. In between: the expression alone. It is scheduled, and tuned, as kernels of graphs are.
    f = lw.build(args, "llvm")
    c = np.empty((M, N), "float32")
    f(a, weight, c)
    np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)
    print("\n3. the expression without a schedule computes the same")

    # 4. What a graph's kernel computes is an expression as well, and that is what is tuned.
    (task,) = graph.extract_tasks(module, "llvm")
    print(f"\n4. the task of the graph's kernel: {task.task}, {task.weight} call(s) in a run")


if __name__ == "__main__":
    main()
