"""Decompositions of operators that PyTorch fuses for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopwright.graph.frontend.torch.arrays import torch_package


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Decomposition functions by operator.

    The two operators are what ``torch.nn.TransformerEncoderLayer`` and
    ``torch.nn.MultiheadAttention`` call in inference.
    """
    aten = torch_package().ops.aten
    return {
        aten._transformer_encoder_layer_fwd.default: _encoder_layer,
        aten._native_multi_head_attention.default: _attention,
    }


def _attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    """Multi-head attention, and its weights, or an empty tensor in their place.

    As in the operator, non-zero elements of the mask are left out, whatever its dtype; a fully
    masked row gives NaN.
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
    found = torch.matmul(weights, v).transpose(1, 2).flatten(2)
    found = linear(found, proj_weight, proj_bias)
    if not need_weights:
        return found, query.new_empty(0)
    return found, weights.mean(1) if average_attn_weights else weights


def _encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
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

    def first_norm(x: Any) -> Any:
        return nn.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Any) -> Any:
        return nn.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attended(first_norm(src))
        return src + fed(second_norm(src))
    src = first_norm(src + attended(src))
    return second_norm(src + fed(src))
