"""Converters of products of matrices."""

from __future__ import annotations

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.node import Node, converter
from loopwright.graph.ir.expr import Call, Expr
from loopwright.graph.ir.visitor import called
from loopwright.graph.rounding import WIDE


@converter("linear")
def linear(node: Node, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """Rows times the transposed weight, with a bias."""
    require_one_dtype(node, x, weight, bias)
    if bias is None:
        return node.call("nn.dense", x, weight)
    found = node.call("nn.dense", x, weight, out_dtype=wide_sums(node, x))
    return node.as_result(node.call("add", found, node.cast(bias, node.dtype(found))))


@converter("mm", "bmm", "matmul")
def product(node: Node, x: Expr, y: Expr) -> Expr:
    require_one_dtype(node, x, y)
    return _product(node, x, y)


def _product(node: Node, x: Expr, y: Expr, out_dtype: str = "") -> Expr:
    """The product of matrices; with a transposed matrix as a dense layer."""
    original = _untransposed(node, y) if node.rank(x) == 2 else None
    if original is not None:
        return node.call("nn.dense", x, original, out_dtype=out_dtype)
    return node.call("matmul", x, y, out_dtype=out_dtype)


def require_one_dtype(node: Node, *operands: Expr | None) -> None:
    """Raise GraphError unless operands have one dtype, as PyTorch does."""
    found = sorted({node.dtype(e) for e in operands if e is not None})
    if len(found) > 1:
        raise GraphError(f"its operands are of different dtypes: {', '.join(found)}")


def wide_sums(node: Node, x: Expr) -> str:
    """The dtype in which a 16-bit product is added to something before it is rounded."""
    return WIDE if node.dtype(x) in dtypes.HALVES else ""


def _untransposed(node: Node, y: Expr) -> Expr | None:
    """The matrix that another is the transpose of; None where it is none."""
    if not isinstance(y, Call) or called(y) != "transpose" or node.rank(y) != 2:
        return None
    axes = y.attrs["axes"]
    return y.args[0] if axes is None or tuple(a % 2 for a in axes) == (1, 0) else None


@converter("addmm", "baddbmm")
def added_product(
    node: Node, added: Expr, x: Expr, y: Expr, beta: float = 1, alpha: float = 1
) -> Expr:
    """beta * added + alpha * x y."""
    require_one_dtype(node, added, x, y)
    found: Expr = _product(node, x, y, wide_sums(node, x))
    if alpha != 1:
        found = node.call("multiply", found, alpha)
    if beta == 0:
        return node.as_result(found)
    added = node.cast(added, node.dtype(found))
    if beta != 1:
        added = node.call("multiply", added, beta)
    return node.as_result(node.call("add", found, added))


@converter("dot", "mv")
def of_vector(node: Node, x: Expr, y: Expr) -> Expr:
    require_one_dtype(node, x, y)
    return node.call("matmul", x, y)
