"""Conversion of models of PyTorch by ``torch.export``, and its decompositions of operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.fallback import Carried, Deferred
from loopwright.graph.frontend.torch.importer import TorchImporter, tensor_type_of
from loopwright.graph.frontend.torch.memory import as_array, torch_package
from loopwright.graph.ir.expr import Expr, Function, Tuple, Var, const
from loopwright.graph.ir.module import MAIN, IRModule

if TYPE_CHECKING:
    import torch


def decompositions(fallback: bool) -> dict[Any, Callable[..., Any]]:
    """Decomposition functions by operator: of what ``torch.nn.TransformerEncoderLayer``,
    ``torch.nn.MultiheadAttention`` and ``torch.nn.LSTM`` call in inference. Without ``fallback``
    also of what PyTorch does faster: ``grid_sample``, and more steps of an LSTM.
    """
    torch = torch_package()
    aten = torch.ops.aten
    return {
        **({} if fallback else torch._decomp.get_decompositions([aten.grid_sampler_2d])),
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        aten._native_multi_head_attention.default: _attention,
        aten.mkldnn_rnn_layer.default: partial(
            _lstm_layer, _STEPS if fallback else _STEPS_WITHOUT_FALLBACK
        ),
    }


#: Steps of a recurrent layer that are unrolled at most: longer ones take PyTorch less time. Where
#: it may not take them, as many as of ONNX's, joined in groups: kernels nest what one joins.
_STEPS, _STEPS_WITHOUT_FALLBACK = 32, 256
_LSTM = 2  # a mode of oneDNN


def _lstm_layer(
    most: int, data: Any, input_weight: Any, hidden_weight: Any, input_bias: Any, hidden_bias: Any,
    hidden: Any, cell: Any, reverse: bool, batch_sizes: Sequence[int], mode: int,
    hidden_size: int, num_layers: int, has_biases: bool, *rest: Any,
) -> Any:  # fmt: skip
    """One layer in one direction, over data of shape (steps, batch, features)."""
    torch = torch_package()
    steps = data.shape[0]
    if mode != _LSTM or batch_sizes or not isinstance(steps, int) or steps > most:
        return NotImplemented
    linear = torch.nn.functional.linear
    if not has_biases:  # zeros of another shape stand there
        input_bias = hidden_bias = None
    inputs = linear(data, input_weight, input_bias)
    outputs = [None] * steps
    for step in reversed(range(steps)) if reverse else range(steps):
        gates = inputs[step : step + 1] + linear(hidden, hidden_weight, hidden_bias)
        let_in, keep, new, let_out = gates.chunk(4, 2)
        cell = keep.sigmoid() * cell + let_in.sigmoid() * new.tanh()
        outputs[step] = hidden = let_out.sigmoid() * cell.tanh()
    groups = [torch.cat(outputs[n : n + _STEPS]) for n in range(0, steps, _STEPS)]
    joined = groups[0] if len(groups) == 1 else torch.cat(groups)
    return joined, hidden, cell, data.new_empty(0)


def _attention(
    query: Any, key: Any, value: Any, embed_dim: int, num_head: int, qkv_weight: Any,
    qkv_bias: Any, proj_weight: Any, proj_bias: Any, mask: Any = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Multi-head attention, and its weights, or an empty tensor in their place. As in the operator,
    non-zero elements of the mask are left out, whatever its dtype; a fully masked row gives NaN.
    """
    torch = torch_package()
    linear = torch.nn.functional.linear
    parts = zip(qkv_weight.chunk(3), qkv_bias.chunk(3), (query, key, value), strict=True)
    projected = [linear(x, w, b) for w, b, x in parts]
    q, k, v = (x.reshape(x.shape[0], x.shape[1], num_head, -1).transpose(1, 2) for x in projected)
    width = q.shape[-1]
    scores = torch.matmul(q * width**-0.5, k.transpose(-2, -1))
    if mask is not None:
        left_out = mask if mask.dtype == torch.bool else mask != 0
        if mask_type == 1:  # of keys, for each example
            left_out = left_out[:, None, None, :]
        scores = scores.masked_fill(left_out, float("-inf"))
    weights = torch.softmax(scores, -1)
    heads = torch.matmul(weights, v).transpose(1, 2).flatten(2)
    heads = linear(heads, proj_weight, proj_bias)
    if not need_weights:
        return heads, query.new_empty(0)
    return heads, weights.mean(1) if average_attn_weights else weights


def _encoder_layer(
    src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Any,
    norm_bias_1: Any, norm_weight_2: Any, norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any,
    ffn_weight_2: Any, ffn_bias_2: Any, mask: Any = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """An encoder layer: attention, then two linear layers, each added and normalised."""
    nn = torch_package().nn.functional

    def attended(x: Any) -> Any:
        projections = qkv_weight, qkv_bias, proj_weight, proj_bias
        args = (x, x, x, embed_dim, num_heads, *projections, mask, False, False, mask_type)
        return _attention(*args)[0]

    def fed(x: Any) -> Any:
        inner = nn.linear(x, ffn_weight_1, ffn_bias_1)
        inner = nn.gelu(inner) if use_gelu else nn.relu(inner)
        return nn.linear(inner, ffn_weight_2, ffn_bias_2)

    norm = partial(nn.layer_norm, normalized_shape=(embed_dim,), eps=eps)
    first_norm = partial(norm, weight=norm_weight_1, bias=norm_bias_1)
    second_norm = partial(norm, weight=norm_weight_2, bias=norm_bias_2)
    if norm_first:
        src = src + attended(first_norm(src))
        return src + fed(second_norm(src))
    src = first_norm(src + attended(src))
    return second_norm(src + fed(src))


def from_torch(
    model: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Sequence[Any] | None = None,
    *,
    fallback: bool = True,
) -> IRModule:
    """The module of a model of PyTorch; its ``main`` takes the tensors that the model does.

    The model is exported by ``torch.export`` and decomposed to the core operators of ATen; linear
    layers and attention stay whole. Parameters and buffers become constants: later changes of them
    have no effect here. A ``torch.nn.Module`` has to be in inference mode (``model.eval()``).

    Args:
        model: a ``torch.nn.Module``, or an exported program of ``torch.export.export``.
        example_inputs: for a ``torch.nn.Module`` the tensors that it is called with, by position:
            they decide the shapes and dtypes of the module.
        fallback: whether calls of unsupported operators are computed by PyTorch, each as a call of
            a Python function (`HostFunction`); False refuses them.

    Returns:
        A module whose outputs are the tensors that the model returns, in order.

    Raises:
        GraphError: the package torch is missing; the model cannot be exported, changes its buffers
            or inputs, has extents that are not known or no elements, or returns something else than
            tensors; or, with ``fallback=False``, operators are not supported, all told at once.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(4, 2).eval()
        >>> module = lw.graph.from_torch(layer, (torch.ones(3, 4),))
        >>> model = lw.graph.compile(module, "llvm")
        >>> x = np.ones((3, 4), "float32")
        >>> print(np.allclose(model(x)[0], layer(torch.from_numpy(x)).detach(), atol=1e-6))
        True
    """
    torch = torch_package()
    with torch.no_grad(), warnings.catch_warnings():
        # PyTorch 2.13 warns of what its own decomposition does.
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        program = _exported(model, example_inputs)
        table = {**torch.export.default_decompositions(), **decompositions(fallback)}
        for kept in _KEPT:
            table.pop(getattr(torch.ops.aten, kept).default, None)
        program = program.run_decompositions(table)
    return _imported(program, fallback)


#: Composite operators that are converted as one.
_KEPT = ("linear", "scaled_dot_product_attention")


def _exported(model: Any, example_inputs: Sequence[Any] | None) -> Any:
    torch = torch_package()
    if isinstance(model, torch.export.ExportedProgram):
        if example_inputs is not None:
            raise GraphError("an ExportedProgram knows its inputs; leave example_inputs out")
        return model
    if not isinstance(model, torch.nn.Module):
        raise GraphError(
            f"a {type(model).__name__} is no model of PyTorch; give a torch.nn.Module, or what "
            "torch.export.export makes of one"
        )
    if example_inputs is None:
        raise GraphError(
            "a torch.nn.Module needs example_inputs=(...), a tensor for each of its inputs: their "
            "shapes and dtypes are those of the module"
        )
    args = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    try:
        return torch.export.export(model, args)
    except Exception as exc:  # the exporter raises what the model raises, and errors of its own
        text = " ".join(str(exc).split())
        raise GraphError(f"torch.export cannot export the model: {text:.400}") from exc


def _imported(program: Any, fallback: bool) -> IRModule:
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise GraphError(
            f"the model changes {', '.join(map(repr, changed[:8]))} when it is called, as batch "
            "normalisation does in training; export it after model.eval()"
        )
    holders = [n for n in program.graph.nodes if n.op == "placeholder"]
    pairs = zip(holders, signature.input_specs, strict=True)
    bound = {node: _input(program, node, spec) for node, spec in pairs}
    outputs = TorchImporter(fallback).outputs(program.graph_module, bound)
    for n, value in enumerate(outputs):
        if not isinstance(value, Expr):
            problem = f"{value!r:.60}; a module gives tensors alone"
            if isinstance(value, (Carried, Deferred)):
                problem = "a tensor, but no program holds it"
            raise GraphError(f"output {n} of the model is {problem}")
    params = tuple(v for v in bound.values() if isinstance(v, Var))
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    return IRModule({MAIN: Function(params, body)})


def _input(program: Any, node: Any, spec: Any) -> Any:
    if spec.kind.name == "USER_INPUT":
        if not hasattr(node.meta.get("val"), "shape"):
            return spec.arg.value
        return Var(node.name, input_type(node.name, node.meta["val"]))
    if spec.kind.name in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
        tensors = {**program.constants, **program.state_dict}
        return const(as_array(tensors[spec.target]), name=spec.target)
    raise GraphError(f"input {node.name!r} of the model is a {spec.kind.name}; give tensors")


def input_type(name: str, value: Any) -> Any:
    """The type of an input; GraphError where no kernel takes such a tensor."""
    t = tensor_type_of(value)
    if t is not None:
        return t
    shape = ", ".join(map(str, value.shape))
    if not all(isinstance(n, int) for n in value.shape):
        raise GraphError(
            f"input {name!r} has the shape [{shape}], whose extents are not all known; "
            "export the model without dynamic_shapes"
        )
    raise GraphError(
        f"input {name!r} is {value.dtype}[{shape}] of layout {value.layout}; kernels "
        "take dense tensors with elements, of whole numbers, bools and real floats"
    )
