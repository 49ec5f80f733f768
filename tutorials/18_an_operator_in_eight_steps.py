"""Tutorial 18: an operator of your own, in eight steps.

Run it with ``python tutorials/18_an_operator_in_eight_steps.py``. TVM asks for eight steps to add
an operator to Relay: attributes, type relation, arity and attributes in C++, the computation, a
Python hook, a Python call, and documentation of it, then a test. Here the same eight things are
said in one function and what is done with it. The operator is GLU, a gated linear unit: a half of
the input, times the sigmoid of the other half.
"""

import numpy as np

from loopwright import graph, te
from loopwright.errors import GraphError
from loopwright.graph import Pattern, op, register_op


# Step 1, attributes: parameters by keyword, with their defaults.
# Step 2, how many inputs: parameters by position.
# Step 3, the type relation: the types of its results are those of the tensors that it returns, and
#         what it refuses by an error has no type.
# Step 4, the name, under which graphs, files and `op_names` know it.
# Step 5, how it is fused: INJECTIVE means that every element is of some elements of the inputs, so
#         that it becomes part of a kernel with its neighbours.
@register_op("example.glu", Pattern.INJECTIVE)
def glu(data, *, axis=-1):
    """Half of a tensor, times the sigmoid of the other half."""
    axis %= len(data.shape)
    if data.shape[axis] % 2:
        raise GraphError(f"glu halves axis {axis}, which has the extent {data.shape[axis]}")
    half = data.shape[axis] // 2
    shape = (*data.shape[:axis], half, *data.shape[axis + 1 :])

    def other(i):
        return (*i[:axis], i[axis] + half, *i[axis + 1 :])

    # Step 6, the computation. No schedule: that follows from the expression, and can be tuned.
    return te.compute(shape, lambda *i: data(*i) * te.sigmoid(data(*other(i))), name="glu")


# Step 7, a call for those who write graphs: the operator itself is one.
def gated_layer(x, weight):
    return glu(op.nn.dense(x, weight), axis=1)


# Step 8, a test against something independent.
def numpy_glu(x, axis):
    a, b = np.split(x, 2, axis)
    return a / (1 + np.exp(-b))


def main():
    rng = np.random.default_rng(0)
    x = graph.var("x", (4, 16))
    weight = rng.standard_normal((8, 16)).astype("float32")
    module = graph.IRModule.from_expr(gated_layer(x, weight))

    print("1. in a graph; types follow from what it computes\n")
    print(module)
    print("\n   its result:", graph.infer_types(module)[module["main"].body])

    print("\n2. among all operators:", graph.get_op("example.glu").summary)

    # Errors in types name the place in the program.
    try:
        graph.infer_types(graph.IRModule.from_expr(glu(graph.var("odd", (4, 5)))))
    except GraphError as error:
        print("\n3. what has no type:", str(error).splitlines()[0])

    model = graph.compile(module, "llvm")
    data = rng.standard_normal((4, 16)).astype("float32")
    np.testing.assert_allclose(model(data)[0], numpy_glu(data @ weight.T, 1), rtol=1e-4, atol=1e-5)
    print(f"\n4. compiled, {len(model.program.steps)} kernel(s): {', '.join(model.kernels)}")

    # Files know it by its name: where they are read, the operator has to be registered, too.
    again = graph.load_json(graph.save_json(module))
    print("\n5. through a file and back:", graph.structural_equal(module, again))

    # A converter takes an operator of ONNX to it, here one of a domain of its own:
    #     @lw.graph.frontend.onnx.converter("my.domain::Glu")
    #     def convert(node):
    #         return glu(node[0], axis=node.attr("axis", -1))
    graph.remove_op("example.glu")


if __name__ == "__main__":
    main()
