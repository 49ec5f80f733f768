"""Tutorial 17: a graph pass of your own.

Run it with ``python tutorials/17_a_graph_pass.py``. A pass takes a module and returns another one;
nodes are never changed. This one writes ``x / c`` as ``x * (1 / c)``, since products are faster,
where ``c`` is a constant of powers of two: of no other number the result is the same.
"""

import numpy as np

import loopwright as lw
from loopwright import graph
from loopwright.graph import op, transform


def exact_reciprocal(e):
    """1 / c of a constant whose elements are powers of two; None of anything else."""
    if not isinstance(e, graph.Constant):
        return None
    mantissas, _ = np.frexp(np.abs(e.data))
    return graph.const(1 / e.data) if (mantissas == 0.5).all() else None


# 1. A pass over functions. `rewrite` goes through the nodes from the inputs to the output and gives
#    each to a function that returns the node itself, or what stands in its place. What is shared
#    stays shared, and what did not change is the same object.
@transform.function_pass(opt_level=1, name="DivideByMultiplying")
def divide_by_multiplying(function):
    """``x / c`` as ``x * (1 / c)``, where that is the same to the last bit."""

    def change(e):
        if not isinstance(e, graph.Call) or getattr(e.op, "name", "") != "divide":
            return e
        data, divisor = e.args
        factor = exact_reciprocal(divisor)
        return e if factor is None else op.multiply(data, factor, span=e.span)

    return graph.rewrite(function, change)


def example():
    """Two divisions, of which one can be a product."""
    x = graph.var("x", (2, 3))
    halves = op.divide(x, graph.const(np.full(3, 8, "float32")))
    return graph.IRModule.from_expr(op.divide(halves, graph.const(np.full(3, 3, "float32"))))


def main():
    module = example()
    print("1. before\n")
    print(module)
    changed = divide_by_multiplying(module)
    print("\n2. after: the 8 is gone, the 3 stays, since 1 / 3 is no float\n")
    print(changed)

    # 2. Passes are combined with others, and a context switches them off by their names.
    both = transform.Sequential([divide_by_multiplying, transform.FoldConstant])
    with lw.PassContext(opt_level=2, disabled_pass=["DivideByMultiplying"]):
        untouched = both(module)
    print("\n3. switched off by its name:", graph.structural_equal(module, untouched))

    # 3. A pass is right when the model computes what it did before. Every pass is checked for
    #    types; that values are the same is what a test asks.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3)).astype("float32")
    first = graph.compile(module, "llvm")(x)[0]
    second = graph.compile(changed, "llvm")(x)[0]
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, x / 8 / 3, rtol=1e-6)
    print("\n4. both compute the same to the last bit")

    # 4. And it changes nothing where there is nothing to change: the very same module comes back.
    print("\n5. a second time, nothing changes:", divide_by_multiplying(changed) is changed)


if __name__ == "__main__":
    main()
