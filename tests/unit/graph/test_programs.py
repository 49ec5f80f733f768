"""Programs: walks, text, types, equality and JSON, on written and on random graphs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from fuzzing.random.damage import places
from loopwright import graph
from loopwright.errors import GraphError, LoopwrightError
from loopwright.graph import op
from tests.compatibility.write_files import FILES
from tests.unit.graph.random_graphs import SHAPE, functions
from tests.unit.graph.values import drawn


def _module(e: graph.Expr) -> graph.IRModule:
    return graph.IRModule.from_expr(e)


def _value(e: graph.Expr, env: dict[graph.Expr, object]) -> object:
    """The value of an expression by recursion over the tree: slow, and simple."""
    if e in env:
        return env[e]
    match e:
        case graph.Constant():
            return e.data
        case graph.Tuple():
            return tuple(_value(f, env) for f in e.fields)
        case graph.TupleGetItem():
            return _value(e.tuple_value, env)[e.index]  # type: ignore[index]
        case graph.Let():
            return _value(e.body, {**env, e.var: _value(e.value, env)})
        case graph.If():
            return _value(e.then if _value(e.condition, env) else e.otherwise, env)
    assert isinstance(e, graph.Call)
    if isinstance(e.op, graph.Function):
        args = [_value(a, env) for a in e.args]
        return _value(e.op.body, dict(zip(e.op.params, args, strict=True)))
    assert isinstance(e.op, graph.OpRef)
    functions: dict[str, Callable[..., object]] = {
        "nn.relu": lambda x: np.maximum(x, 0),
        **{n: getattr(np, n) for n in ("tanh", "negative", "exp", "add", "multiply", "maximum")},
    }
    with np.errstate(all="ignore"):
        return functions[e.op.name](*(_value(a, env) for a in e.args))


def _run(f: graph.Function, flag: bool) -> object:
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(SHAPE)
    return _value(f.body, dict(zip(f.params, (x, x[::-1] * 2, flag), strict=True)))


@drawn(functions())
def test_random_functions_survive_json_and_rewriting(f: graph.Function) -> None:
    module = _module(f)
    again = graph.load_json(graph.save_json(module))
    assert graph.structural_equal(module, again)
    assert graph.structural_hash(module) == graph.structural_hash(again)
    assert str(module) == str(again)
    for flag in (False, True):
        np.testing.assert_array_equal(_run(f, flag), _run(again["main"], flag))
    assert graph.rewrite(f, lambda e: e) is f


@drawn(functions())
def test_types_of_random_functions_are_those_of_their_values(f: graph.Function) -> None:
    types = graph.infer_types(_module(f))
    found = types[f.body]
    value = np.asarray(_run(f, True))
    assert found == graph.TensorType(value.shape, str(value.dtype))


@drawn(functions(), functions())
def test_different_hashes_mean_different_programs(a: graph.Function, b: graph.Function) -> None:
    equal = graph.structural_equal(a, b)
    assert equal == (graph.structural_hash(a) == graph.structural_hash(b))
    if equal:
        np.testing.assert_array_equal(_run(a, True), _run(b, True))


def test_the_nodes_are_walked_once_and_children_first() -> None:
    x = graph.var("x", (4,))
    y = op.tanh(x)
    order = graph.post_order(op.add(y, y))
    assert len(order) == len(set(order)) == 5
    at = {e: n for n, e in enumerate(order)}
    assert all(at[c] < at[e] for e in order for c in e.children)


def test_a_chain_of_thousands_needs_no_recursion() -> None:
    e: graph.Expr = graph.var("x", (2,))
    for n in range(3000):
        e = op.tanh(e) if n % 2 else graph.Let(v := graph.Var("v"), e, op.exp(v))
    module = _module(e)
    assert graph.infer_types(module)[e] == graph.TensorType((2,))
    assert graph.structural_equal(module, graph.load_json(graph.save_json(module)))
    assert str(module).count("\n") >= 4500


def test_the_text_has_one_line_for_each_call() -> None:
    x, w = graph.var("x", (1, 8)), graph.var("x", (4, 8))
    y = op.nn.dense(x, w)
    c = graph.var("c", (), "bool")
    e = graph.If(c, op.nn.relu(y), op.add(op.tanh(y), graph.const(1.5)))
    assert str(_module(e)) == "\n".join(
        [
            "def @main(%c: bool[], %x: float32[1, 8], %x_1: float32[4, 8]) {",
            '  %0 = nn.dense(%x, %x_1, out_dtype="");',
            "  if (%c) {",
            "    nn.relu(%0)",
            "  } else {",
            "    %1 = tanh(%0);",
            "    add(%1, 1.5)",
            "  }",
            "}",
        ]
    )


def test_a_fault_of_types_shows_its_place() -> None:
    x, w = graph.var("x", (1, 8)), graph.var("w", (4, 9))
    y = op.nn.dense(op.tanh(x), w, span="layer1")
    with pytest.raises(GraphError, match=r"@main \(layer1\).*last extents.*8 and 9") as caught:
        graph.infer_types(_module(op.nn.relu(y)))
    lines = str(caught.value).split("\n")
    assert lines[-1].startswith("> ")
    assert "nn.dense(%0, %w" in lines[-1]
    assert lines[-2].endswith("/* float32[1, 8] */")


def test_functions_call_each_other_by_name() -> None:
    x, y = graph.var("x", (4,)), graph.var("y", (4,))
    inner = graph.Function((x,), op.tanh(x))
    main = graph.Function((y,), graph.Call(graph.GlobalVar("inner"), (y,)))
    module = graph.IRModule({"main": main, "inner": inner})
    assert str(graph.infer_types(module)[main]) == "fn(float32[4]) -> float32[4]"
    assert "@inner(%y)" in str(module)
    wrong = graph.Function((y,), graph.Call(graph.GlobalVar("inner"), (graph.const(1.0),)))
    with pytest.raises(GraphError, match=r"is called with \(float32\[\]\)"):
        graph.infer_types(module.with_function("main", wrong))


def test_a_function_that_calls_itself_declares_its_result() -> None:
    x, c = graph.var("x", (4,)), graph.var("c", (), "bool")
    again = graph.Call(graph.GlobalVar("f"), (op.tanh(x), c))
    f = graph.Function((x, c), graph.If(c, x, again))
    with pytest.raises(GraphError, match="must declare its result"):
        graph.infer_types(graph.IRModule({"f": f}))
    declared = graph.Function((x, c), f.body, graph.TensorType((4,)))
    types = graph.infer_types(graph.IRModule({"f": declared}))
    assert types[again] == graph.TensorType((4,))
    false = graph.Function((x, c), f.body, graph.TensorType((5,)))
    with pytest.raises(GraphError, match="differ"):
        graph.infer_types(graph.IRModule({"f": false}))


def test_modules_are_whole() -> None:
    x = graph.var("x", (4,))
    with pytest.raises(GraphError, match="reads 'x'"):
        graph.IRModule({"main": graph.Function((), op.tanh(x))})
    call = graph.Call(graph.GlobalVar("iner"), (x,))
    inner = graph.Function((x,), op.tanh(x))
    with pytest.raises(GraphError, match="did you mean 'inner'"):
        graph.IRModule({"main": graph.Function((x,), call), "inner": inner})
    with pytest.raises(GraphError, match="one variable as two"):
        graph.Function((x, x), x)


@pytest.mark.parametrize("bind", [lambda x: graph.Function((x,), x), lambda x: graph.Let(x, x, x)])
def test_variables_alone_are_bound(bind: Callable[[graph.Expr], graph.Expr]) -> None:
    with pytest.raises(GraphError, match="a Constant stands where a variable is bound; put a Var"):
        bind(graph.const(1.0))


def test_nodes_may_be_given_in_lists() -> None:
    x = graph.var("x", (4,))
    call = graph.Call(op.tanh(x).op, [x])  # type: ignore[arg-type]
    f = graph.Function([x], graph.Tuple([call, x]))  # type: ignore[arg-type]
    (found, same) = graph.compile(_module(f), "llvm")(np.zeros(4, "float32"))
    np.testing.assert_array_equal(found, same)


def test_equality_is_of_the_graph_and_not_of_names() -> None:
    x, y = graph.var("x", (4,)), graph.var("y", (4,))
    assert not graph.structural_equal(op.tanh(x), op.tanh(y))
    assert graph.structural_equal(op.tanh(x), op.tanh(y), map_free_vars=True)
    once = op.tanh(x)
    assert not graph.structural_equal(op.add(once, once), op.add(op.tanh(x), op.tanh(x)))
    assert not graph.structural_equal(op.sum(x, keepdims=True), op.sum(x, keepdims=False))
    assert not graph.structural_equal(graph.const(1.0), graph.const(1))


@pytest.mark.parametrize("owner", [bytes, bytearray])
def test_only_what_nobody_can_write_is_not_copied(owner: type) -> None:
    memory = owner(np.arange(6, dtype="float32").tobytes())
    array = np.frombuffer(memory, "float32").reshape(2, 3)
    array.flags.writeable = False
    constant = graph.const(array)
    assert np.shares_memory(constant.data, array) == (owner is bytes)
    for other in (graph.const(array.T), graph.const(array, "float64")):
        assert other.data.flags.c_contiguous
        assert not other.data.flags.writeable
    np.testing.assert_array_equal(graph.const(array.T).data, array.T)
    unaligned = np.frombuffer(memory, "float32", count=5, offset=1)
    assert graph.const(unaligned).data.flags.aligned


def test_constants_are_held_against_changes() -> None:
    array = np.zeros(3, "float32")
    constant = graph.const(array)
    array[0] = 1
    assert constant.data[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        constant.data[0] = 1


def test_sizes_that_are_not_known() -> None:
    n = lw.te.size_var("n")
    x, w = graph.var("x", (n, 8)), graph.var("w", (4, 8))
    module = _module(op.nn.relu(op.nn.dense(x, w)))
    assert str(graph.infer_types(module)[module["main"].body]) == "float32[n, 4]"
    again = graph.load_json(graph.save_json(module))
    assert str(again) == str(module)


CHANGES: dict[str, Callable[[dict], object]] = {  # type: ignore[type-arg]
    "format": lambda d: d.update(format="other"),
    "version": lambda d: d.update(version=99),
    "kind": lambda d: d["nodes"][0].update(kind="Print"),
    "child": lambda d: d["nodes"][-1].update(children=[99]),
    "cycle": lambda d: d["nodes"][-1].update(children=[len(d["nodes"]) - 1]),
    "missing": lambda d: d["nodes"][0].pop("kind"),
    "function": lambda d: d.update(functions={"main": 0}),
    "size": lambda d: d["nodes"][0]["type"].update(shape=[-4]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_json_is_refused(change: str) -> None:
    x = graph.var("x", (4,))
    data = json.loads(graph.save_json(_module(graph.Function((x,), op.tanh(x)))))
    CHANGES[change](data)
    with pytest.raises(GraphError):
        graph.load_json(json.dumps(data))


GONE = object()


def test_any_part_of_json_may_be_changed() -> None:
    """Each value of a graph with every kind of node, replaced by each of some, or taken away."""
    text = (FILES / "every_node.json").read_text()
    count = len(list(places(json.loads(text))))
    refused = 0
    for at, value in itertools.product(range(count), (GONE, None, -1, 1 << 70, "x", [], {}, [[0]])):
        data = json.loads(text)
        holder, key = list(places(data))[at]
        if value is GONE:
            del holder[key]
        else:
            holder[key] = value
        try:
            module = graph.load_json(json.dumps(data))
            graph.infer_types(module)
            str(module)
        except LoopwrightError:
            refused += 1
    assert refused > 0.8 * 8 * count


def test_a_constant_has_the_bytes_of_its_type() -> None:
    data = json.loads(graph.save_json(_module(graph.Function((), graph.const([1.0, 2.0])))))
    node = next(d for d in data["nodes"] if d["kind"] == "Constant")
    node["type"]["shape"] = [1 << 40]
    with pytest.raises(GraphError, match=r"the constant '' of this graph has 8 bytes for float32"):
        graph.load_json(json.dumps(data))


@pytest.mark.parametrize(
    ("name", "count", "attrs", "text"),
    [
        ("transpose", 1, {"axes": 0}, r"transpose: attribute 'axes' is 0; give Sequence\[int\] \|"),
        ("nn.max_pool", 1, {"pool_size": "2"}, "attribute 'pool_size' is '2'; give Numbers"),
        ("sum", 1, {"axis": (0, None)}, "attribute 'axis'"),
        ("multiply", 3, {}, "multiply takes 2 inputs, got 3"),
        ("strided_slice", 1, {"begin": (0,), "end": (1, 2)}, "1 begins, 2 ends, 1 strides, 1 axes"),
        ("nn.pad", 1, {"pad_width": ((0, 0), (1,))}, "give 2 pairs"),
    ],
)
def test_attributes_and_inputs_of_calls_are_checked(
    name: str, count: int, attrs: dict[str, Any], text: str
) -> None:
    x = graph.var("x", (4, 4))
    call = graph.Call(graph.OpRef(name), (x,) * count, attrs)
    with pytest.raises(GraphError, match=text):
        graph.infer_types(_module(graph.Function((x,), call)))


def test_an_operator_is_no_value() -> None:
    x, ref = graph.var("x", (4,)), graph.OpRef("nn.relu")
    for body in (ref, graph.Tuple((x, ref)), graph.Call(ref, (ref,))):
        with pytest.raises(GraphError, match=r"'nn.relu' stands where a value is needed"):
            graph.infer_types(_module(graph.Function((x,), body)))


def test_changed_bindings_are_named() -> None:
    x, v = graph.var("x", (4,)), graph.var("v", (4,))
    text = graph.save_json(_module(graph.Function((x,), graph.Let(v, op.tanh(x), v))))
    data = json.loads(text)
    let = next(d for d in data["nodes"] if d["kind"] == "Let")
    value, _, body = let["children"]
    for children, message in (
        ([value, value, body], "binds no variable"),
        ([value, body], "a Let, has 2 children"),
    ):
        let["children"] = children
        with pytest.raises(GraphError, match=message):
            graph.load_json(json.dumps(data))


def test_types_and_attributes_are_not_nested_deeply() -> None:
    x = graph.var("x", (4,))
    for key in ("type", "attrs"):
        data = json.loads(graph.save_json(_module(graph.Function((x,), op.tanh(x)))))
        node = next(d for d in data["nodes"] if key in d)
        for _ in range(40):
            node[key] = {"fields": [node[key]]}
        with pytest.raises(
            GraphError, match="more than 32 types or lists of this graph are nested"
        ):
            graph.load_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", None, 3])
def test_other_text_is_refused(text: Any) -> None:
    with pytest.raises(GraphError):
        graph.load_json(text)


def test_an_operator_of_ones_own() -> None:
    @graph.register_op("test.cube", graph.Pattern.ELEMENTWISE)
    def cube(data, *, factor=1.0):  # type: ignore[no-untyped-def]
        """The third power, times a factor."""
        return lw.te.compute(data.shape, lambda *i: data(*i) * data(*i) * data(*i) * factor)

    x = graph.var("x", (2,))
    assert graph.infer_types(_module(cube(x, factor=2)))[x] == graph.TensorType((2,))
    assert graph.get_op("test.cube").summary == "The third power, times a factor."
    with pytest.raises(GraphError, match="did you mean 'factor'"):
        cube(x, facto=2)
    with pytest.raises(GraphError, match="registered already"):
        graph.register_op("test.cube", graph.Pattern.OPAQUE)(lambda data: data)
    graph.remove_op("test.cube")
    with pytest.raises(GraphError, match="no operator"):
        graph.get_op("test.cube")


def test_operators_of_ones_own_are_found_by_name() -> None:
    with pytest.raises(AttributeError, match=r"no operator 'nn\.own'"):
        _ = op.nn.own
    own = graph.register_op("nn.own", graph.Pattern.ELEMENTWISE)(lambda data: data)
    assert op.nn.own is own
    assert "own" in dir(op.nn)
    graph.remove_op("nn.own")
    assert not hasattr(op.nn, "own")
