# ruff: noqa: E501  (the tables have a line for each case)
"""Models of PyTorch: each operator beside PyTorch's own, and what falls back to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph
from loopwright.errors import GraphError
from tests.unit.graph.values import run

torch = pytest.importorskip("torch")
F = torch.nn.functional


class _Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _floats(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


X, Y, SQUARE = _floats(2, 3, 4), _floats(2, 3, 4, seed=1), _floats(5, 5)
INTS = torch.arange(-6, 6).reshape(3, 4)
IMAGE = _floats(2, 4, 7, 6)
INDEX = torch.tensor([2, 0, 1])

_ELEMENTWISE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "unary": (lambda x: torch.sin(x) + torch.cos(x) + torch.exp(x) + torch.tanh(x), (X,)),
    "roots": (lambda x: torch.sqrt(x.abs()) + torch.rsqrt(x.abs() + 1) + x.reciprocal(), (X,)),
    "logarithms": (lambda x: x.abs().log() + x.abs().log2() + x.abs().log10() + x.abs().log1p(), (X,)),
    "arcs": (lambda x: x.tanh().asin() + x.tanh().acos() + x.atan() + x.asinh() + x.tanh().atanh(), (X,)),
    "hyperbolic": (lambda x: x.sinh() + x.cosh() + (x.abs() + 1).acosh() + x.tan() + x.expm1(), (X,)),
    "rounding": (lambda x: x.ceil() + x.floor() + (3 * x).round() + x.trunc() + x.sign(), (X,)),
    "of whole numbers": (lambda x: (x.ceil(), x.abs(), -x, x.sqrt(), x.sigmoid(), x.bitwise_not()), (INTS,)),
    "activations": (lambda x: F.relu6(x) + F.silu(x) + F.elu(x, 0.5) + F.leaky_relu(x, 0.2) + F.gelu(x), (X,)),
    "more activations": (lambda x: F.gelu(x, approximate="tanh") + F.hardswish(x) + F.selu(x) + F.softplus(x) + F.mish(x), (X,)),
    "even more": (lambda x: F.hardsigmoid(x) + F.logsigmoid(x) + F.celu(x, 0.3) + F.softsign(x) + F.prelu(x, torch.ones(1) / 3), (X,)),
    "sums": (lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=3), 2 - x, x * y, x + 1), (X, Y)),
    "promotion": (lambda x, i: (i + x[0], i * 2.5, i + 2, i > 1.5, i.to(torch.int32) + i, i / 2), (X, INTS)),
    "quotients": (lambda i: (i / 4, torch.div(i, 4, rounding_mode="floor"), torch.div(i, 4, rounding_mode="trunc"), i % 4, torch.fmod(i, 4)), (INTS,)),
    "quotients of floats": (lambda x, y: (x / y, torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x % y, torch.fmod(x, y)), (X, Y)),
    "powers": (lambda x: (x**2, x**3, x.abs() ** 0.5, x.abs() ** -0.5, x**-1, x.abs() ** 1.7, 2**x, x**1), (X,)),
    "power of tensors": (lambda x, y: x.abs() ** y, (X, Y)),
    "comparisons": (lambda x, y: (x < y, x <= y, x > 0, x >= 0, x == y, x != 0), (X, Y)),
    "logic": (lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0), torch.logical_xor(x > 0, y), torch.logical_not(x)), (X, Y)),
    "bits": (lambda i: (i & 5, i | 3, i ^ 6), (INTS,)),
    "choices": (lambda x, y: (torch.where(x > 0, x, y), x.masked_fill(y > 0, -1.0), torch.maximum(x, y), torch.minimum(x, y)), (X, Y)),
    "bounds": (lambda x, y: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), torch.clamp(x, -y.abs(), y.abs())), (X, Y)),
    "bounds of whole numbers": (lambda i: i.clamp(-2, 3), (INTS,)),
    "special numbers": (lambda x: ((x / 0).isinf(), (x - x / 0).isnan(), x.isfinite()), (X,)),
    "16 bits": (lambda x: (x.half() * 2, x.bfloat16() + 1, x.half().float()), (X,)),
}  # fmt: skip
_REDUCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sums and means": (lambda x: (x.sum(), x.sum(1), x.mean((0, 2), keepdim=True), x.mean(), x.prod(1)), (X,)),
    "of whole numbers": (lambda i: (i.sum(), i.to(torch.int32).sum(1), i.prod(0), i.amax(), i.argmin(1)), (INTS,)),
    "extremes": (lambda x: (x.amax(1), x.amin((0, 1)), x.max(), x.min(), *x.max(2), *x.min(0, keepdim=True)), (X,)),
    "places": (lambda x: (x.argmax(), x.argmax(1), x.argmin(-1, keepdim=True)), (X,)),
    "truths": (lambda x: ((x > 0).any(), (x > 0).all(1), x.any(2, keepdim=True)), (X,)),
    "variances": (lambda x: (x.var(), x.var(1, correction=0), x.std(2), *torch.var_mean(x, 1)), (X,)),
    "running": (lambda x: (x.cumsum(1), x.cumprod(2)), (X,)),
    "norms": (lambda x: (x.norm(), x.norm(dim=1), x.norm(1, 2), x.norm(float("inf"), 0), x.logsumexp(2), F.normalize(x, dim=1)), (X,)),
    "order": (lambda x: (*x.topk(2, 2), *x.sort(1), *x.topk(2, 1, largest=False), *x.sort(-1, descending=True)), (X,)),
}  # fmt: skip
_LAYERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda x: (x.softmax(1), x.log_softmax(-1)), (X,)),
    "products": (lambda x, y: (x @ y.transpose(1, 2), x[0] @ y[0].t(), x[0, 0] @ y[0, 0], torch.einsum("bij,bkj->bik", x, y)), (X, Y)),
    "dense": (lambda x, w, b: (F.linear(x, w, b), torch.addmm(b, x[0], w.t(), beta=2, alpha=0.5), torch.baddbmm(x[..., :3], x, x.mT)), (X, _floats(3, 4), _floats(3))),
    "layer norm": (lambda x, w, b: (F.layer_norm(x, (4,), w, b), F.layer_norm(x, (3, 4)), F.layer_norm(x.half(), (4,)).float()), (X, _floats(4), _floats(4))),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (IMAGE, _floats(4), _floats(4))),
    "batch norm": (lambda x, m, v: F.batch_norm(x, m, v.abs()), (IMAGE, _floats(4), _floats(4))),
    "embedding": (lambda w: F.embedding(INDEX, w), (SQUARE,)),
    "convolutions": (lambda x, w, b: (F.conv2d(x, w, b, 2, 1), F.conv2d(x, w, dilation=(1, 2)), F.conv1d(x[:, :, 0], w[:, :, 0])), (IMAGE, _floats(3, 4, 3, 3), _floats(3))),
    "grouped": (lambda x, w: F.conv2d(x, w, groups=4, padding="same"), (IMAGE, _floats(8, 1, 3, 3))),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1, groups=2), (IMAGE, _floats(4, 3, 3, 2))),
    "largest of windows": (lambda x: (F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True), F.max_pool1d(x[0], 2), F.max_pool3d(x[None], 2)), (IMAGE,)),
    "means of windows": (lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, padding=1, count_include_pad=False), F.avg_pool2d(x, 2, divisor_override=3), F.avg_pool1d(x[0], 2)), (IMAGE,)),
    "adaptive": (lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (7, 3))), (IMAGE,)),
    "larger images": (lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, (3, 9), mode="nearest"), F.interpolate(x, (9, 5), mode="bilinear"), F.interpolate(x, (9, 5), mode="bilinear", align_corners=True)), (IMAGE,)),
    "padding": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, -1, 2), value=3.0)), (IMAGE,)),
    "attention": (lambda x, y: (F.scaled_dot_product_attention(x, y, y), F.scaled_dot_product_attention(x, y, y, is_causal=True), F.scaled_dot_product_attention(x, y, y, attn_mask=torch.ones(3, 3).tril()), F.scaled_dot_product_attention(x, y, y, attn_mask=torch.tensor([True, False, True]).expand(3, 3))), (X, Y)),
    "dropout": (lambda x: F.dropout(x, 0.5, training=False), (X,)),
}  # fmt: skip
_SHAPES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "views": (lambda x: (x.view(6, 4), x.reshape(-1), x.unsqueeze(1).squeeze(1), x.flatten(1), x[None].squeeze()), (X,)),
    "order": (lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.movedim(0, 1), x.flip((0, 2)), x.mT.contiguous()), (X,)),
    "parts": (lambda x: (x[:, 1], x[:, ::2], x[..., 1:3], x[-1], *x.split(2, 2), *x.split((1, 2), 1), *x.unbind(1), *x.chunk(2, 2)), (X,)),
    "joined": (lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y], 1), torch.cat([x, torch.zeros(0)], 0)), (X, Y)),
    "repeated": (lambda x: (x.repeat(2, 1, 3), x[:, :1].expand(2, 5, 4), x.repeat_interleave(2, 1), x.tile(2, 1)), (X,)),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), (SQUARE,)),
    "made": (lambda x: (x + torch.arange(4), x * torch.ones_like(x), torch.full((2, 2), 7) + 0, torch.zeros(3), torch.eye(3), torch.linspace(0, 1, 5)), (X,)),
    "written": (lambda x, y: (torch.slice_scatter(x, y[:, :2], 1, 1, 3), torch.select_scatter(x, y[0], 0, 1), x.clone().copy_(y)), (X, Y)),
    "rolled": (lambda x: x.roll(1, 1), (X,)),
    "named elements": (lambda x: (x.index_select(0, INDEX), x[INDEX], x[:, INDEX], x[INDEX, INDEX], x[INDEX[:, None], INDEX]), (SQUARE,)),
    "inner names": (lambda x: (x[:, INDEX, INDEX], x[:, torch.tensor([-1, 0, 1])]), (X,)),
    "scattered": (lambda x, y: (x.scatter(1, torch.tensor([[0, 2], [1, 4]]), y), x.scatter_add(0, torch.tensor([[0, 0], [1, 1]]), y), x.scatter(1, torch.tensor([[3]]), 7.0), x.scatter_reduce(1, torch.tensor([[0, 0, 2]]), y, "amax")), (SQUARE, _floats(5, 5, seed=4))),
    "mirrored": (lambda x: (F.pad(x, (1, 2), mode="reflect"), F.pad(x[None], (1, 2, 0, 1), mode="replicate")), (X,)),
    "gathered": (lambda x: x.gather(1, torch.tensor([[0, 2], [1, 1]])), (SQUARE,)),
}  # fmt: skip
_KINDS = {
    "elementwise": _ELEMENTWISE,
    "reductions": _REDUCTIONS,
    "layers": _LAYERS,
    "shapes": _SHAPES,
}


def _tensors(outputs: Any) -> list[Any]:
    return [outputs] if isinstance(outputs, torch.Tensor) else [*outputs]


def _agree(found: list[Any], wanted: list[Any]) -> None:
    for a, t in zip(found, wanted, strict=True):
        b = t.detach().float().numpy() if t.is_floating_point() else t.numpy()
        assert a.shape == b.shape
        assert str(t.dtype) == f"torch.{a.dtype}"
        np.testing.assert_allclose(a.astype(b.dtype), b, rtol=1e-4, atol=2e-5)


def _imported(function: Callable[..., Any], args: Any, **options: Any) -> graph.IRModule:
    return graph.from_torch(_Calls(function).eval(), args, **options)


@pytest.mark.parametrize("kind", _KINDS)
def test_operators_are_what_pytorch_has(kind: str) -> None:
    """All cases of a kind are one model: most of the time of one is that of its export."""
    cases = _KINDS[kind]

    def whole(*inputs: Any) -> tuple[Any, ...]:
        at, outputs = 0, []
        for function, own in cases.values():
            outputs += _tensors(function(*inputs[at : at + len(own)]))
            at += len(own)
        return tuple(outputs)

    inputs = tuple(x.clone() for _, own in cases.values() for x in own)
    outputs = run(_imported(whole, inputs, fallback=False), *(x.numpy() for x in inputs))
    at, wrong = 0, {}
    for name, (function, own) in cases.items():
        wanted = _tensors(function(*own))
        try:
            _agree(outputs[at : at + len(wanted)], wanted)
        except AssertionError as error:
            wrong[name] = str(error)
        at += len(wanted)
    assert at == len(outputs)
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())


def test_weights_are_constants_and_inputs_are_named() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).eval()
    module = graph.from_torch(model, (_floats(2, 4),), fallback=False)
    named = [e.name for e in graph.post_order(module["main"]) if isinstance(e, graph.Constant)]
    assert {"0.weight", "0.bias", "1.running_mean"} <= set(named)
    (x,) = module["main"].params
    assert (x.name, str(x.type)) == ("input", "float32[2, 4]")
    exported = torch.export.export(model, (_floats(2, 4),))
    again = graph.from_torch(exported, fallback=False)
    given = _floats(2, 4, seed=3).numpy()
    np.testing.assert_array_equal(run(module, given)[0], run(again, given)[0])


def _folded(x: Any) -> Any:
    return F.relu(torch.fft.fft(x).abs()) + F.adaptive_avg_pool2d(x, (2, 4))[..., :1, :]


def test_what_is_not_supported_falls_back_to_pytorch() -> None:
    x = _floats(1, 2, 3, 4)
    model = lw.compile(_Calls(_folded).eval(), "llvm -num-threads=1", example_inputs=(x,))
    np.testing.assert_allclose(model(x.numpy())[0], _folded(x).numpy(), rtol=1e-5, atol=1e-5)
    listed = {f.node.partition(" ")[0]: f for f in model.report.fallbacks}
    assert set(listed) == {"aten::_fft_r2c", "aten::_adaptive_avg_pool2d"}
    assert all(f.by == "PyTorch" and 0 < f.share < 1 for f in listed.values())
    assert "2 nodes have no kernel" in str(model.report)
    assert "_fft_r2c" in str(model.report)


def test_without_fallback_all_nodes_are_named_at_once() -> None:
    message = (
        r"2 nodes cannot be converted: aten::_fft_r2c .*; aten::_adaptive_avg_pool2d .*several"
    )
    with pytest.raises(GraphError, match=message):
        _imported(_folded, (_floats(1, 2, 3, 4),), fallback=False)


def test_a_model_with_a_fallback_is_not_saved(tmp_path: Any) -> None:
    x = _floats(3, 4)
    model = lw.compile(_Calls(lambda x: x.kthvalue(2, 1).values), "llvm", example_inputs=(x,))
    np.testing.assert_array_equal(model(x.numpy())[0], x.kthvalue(2, 1).values.numpy())
    with pytest.raises(lw.LoopwrightError, match=r"cannot be saved: .*kthvalue.*PyTorch"):
        model.save(tmp_path / "model.lw")
    with pytest.raises(GraphError, match="kthvalue is computed by PyTorch in Python"):
        graph.save_json(_imported(lambda x: x.kthvalue(2, 1).values, (x,)))


def test_bad_models_are_refused_in_words() -> None:
    linear, x = torch.nn.Linear(4, 3), _floats(2, 4)
    with pytest.raises(GraphError, match="needs example_inputs="):
        lw.compile(linear)
    with pytest.raises(GraphError, match=r"torch.export cannot export the model: .*reduction dim"):
        graph.from_torch(linear, (_floats(2, 5),))
    with pytest.raises(GraphError, match=r"changes .*running_mean.*model.eval\(\)"):
        graph.from_torch(torch.nn.BatchNorm1d(4), (x,))
    with pytest.raises(GraphError, match=r"input 'args_0' is torch.complex64\[2\] of layout"):
        _imported(lambda x: x.real, (torch.ones(2, dtype=torch.complex64),))
    with pytest.raises(GraphError, match=r"output 0 .*no program holds it"):
        _imported(torch.fft.fft, (x,))
    with pytest.raises(GraphError, match=r"output 0 .*no program holds it"):
        _imported(lambda x: x.nonzero(), (x,))
    with pytest.raises(GraphError, match="a list is no model of PyTorch"):
        graph.from_torch([1])
    batch = torch.export.Dim("batch", min=2, max=64)
    dynamic = torch.export.export(linear, (x,), dynamic_shapes=({0: batch},))
    with pytest.raises(GraphError, match="export the model without dynamic_shapes"):
        graph.from_torch(dynamic)


def test_tasks_are_those_of_the_kernels_that_are_built() -> None:
    model, x = (
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).eval(),
        _floats(2, 8),
    )
    (task,) = graph.extract_tasks(model, "llvm", example_inputs=(x,))
    assert (task.weight, task.ops) == (2, ("nn.dense", "add"))
    with pytest.raises(GraphError, match=r"example_inputs are for a torch.nn.Module"):
        graph.extract_tasks(graph.from_torch(model, (x,)), "llvm", example_inputs=(x,))
