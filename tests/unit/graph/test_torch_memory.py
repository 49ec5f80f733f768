# ruff: noqa: E501  (the tables have a line for each case)
"""Memory of what ``torch.compile`` gives: aliases, strides and changes in place, as in eager.

Views are those that PyTorch's documentation lists. Each is taken of what a graph computes and of
its input, with and without its base, before and after it is written into. Cases of one kind are one
graph; each is compared by itself: values, strides, offsets, storages that are shared, and what
everything is after each of the outputs has been changed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from loopwright.graph.frontend.torch.memory import TensorLayout  # noqa: E402
from loopwright.graph.torch_backend import loopwright  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
ONE = {"target": "llvm -num-threads=1"}
Case = Callable[..., Any]


def _numbers(*shape: int) -> Any:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) - 5


X = _numbers(4, 6)
CUBE = _numbers(2, 4, 3)
IMAGE = _numbers(2, 3, 4, 4).to(memory_format=torch.channels_last)
COMPLEX = torch.complex(_numbers(3, 4), _numbers(3, 4) * 2)

#: The operators that make views, by PyTorch's documentation.
VIEWS: dict[str, Case] = {
    "an index": lambda y: y[2],
    "a negative index": lambda y: y[-1],
    "a slice": lambda y: y[1:3],
    "a slice with a step": lambda y: y[:, ::2],
    "slices of both dimensions": lambda y: y[1:, 2:5],
    "an ellipsis": lambda y: y[..., 1],
    "a new axis": lambda y: y[:, None],
    "all": lambda y: y[:],
    "one element": lambda y: y[1, 2],
    "nothing of it": lambda y: y[2:2],
    "adjoint": lambda y: y.adjoint(),
    "as_strided": lambda y: y.as_strided((2, 3), (7, 2), 1),
    "as_strided windows": lambda y: y.as_strided((5, 4), (3, 2)),
    "detach": lambda y: y.detach(),
    "diagonal": lambda y: y.diagonal(),
    "diagonal beside": lambda y: y.diagonal(1),
    "expand": lambda y: y[:, :1].expand(4, 5),
    "expand by a dimension": lambda y: y.expand(3, 4, 6),
    "expand_as": lambda y: y[:1].expand_as(y),
    "movedim": lambda y: y.movedim(0, 1),
    "narrow": lambda y: y.narrow(1, 2, 3),
    "permute": lambda y: y.permute(1, 0),
    "select": lambda y: y.select(1, 4),
    "squeeze": lambda y: y[:1].squeeze(),
    "squeeze a dimension": lambda y: y[:, :1].squeeze(1),
    "transpose": lambda y: y.transpose(0, 1),
    "t": lambda y: y.t(),
    "T": lambda y: y.T,
    "mT": lambda y: y.mT,
    "swapaxes": lambda y: y.swapaxes(0, 1),
    "unflatten": lambda y: y.unflatten(1, (2, 3)),
    "unfold": lambda y: y.unfold(1, 3, 2),
    "unsqueeze": lambda y: y.unsqueeze(1),
    "view": lambda y: y.view(8, 3),
    "view in one": lambda y: y.view(-1),
    "view of another dtype": lambda y: y.view(torch.int32),
    "view_as": lambda y: y.view_as(torch.empty(2, 12)),
    "reshape": lambda y: y.reshape(6, 4),
    "flatten": lambda y: y.flatten(),
    "ravel of a part": lambda y: y[1].ravel(),
    "contiguous": lambda y: y.contiguous(),
    "unbind": lambda y: y.unbind(0),
    "unbind columns": lambda y: y.unbind(1)[1:3],
    "split": lambda y: y.split(4, 1),
    "split of sizes": lambda y: y.split([1, 3]),
    "hsplit": lambda y: y.hsplit(3),
    "vsplit": lambda y: y.vsplit(2),
    "tensor_split": lambda y: y.tensor_split(4, 1),
    "chunk": lambda y: y.chunk(4, 1),
    "a chain": lambda y: y.t()[1:5].view(4, 2, 2)[:, 1].unsqueeze(0),
    "a chain through a transpose": lambda y: y.view(2, 2, 6).transpose(1, 2)[:, ::2, 1],
    "windows of a transpose": lambda y: y.t().as_strided((3, 3), (2, 1), 2),
}  # fmt: skip


def _first(parts: Any) -> Any:
    return parts[0] if isinstance(parts, (tuple, list)) else parts


def _written(view: Case) -> Case:
    """The base and its view after the view was written into; what overlaps itself is not."""
    part = _first(view(torch.arange(24).reshape(4, 6)))
    overlaps = part.unique().numel() < part.numel()

    def function(x: Any) -> Any:
        y = x * 2
        parts = view(y)
        part = _first(parts)
        if not part.is_floating_point() or overlaps:
            y.add_(1)
        else:
            part.mul_(3)
        return y, parts

    return function


def _of_written(view: Case) -> Case:
    """A view behind a change of its base."""

    def function(x: Any) -> Any:
        y = x + 1
        parts = view(y)
        y[1].mul_(2)
        return parts

    return function


def _of_changed_input(view: Case) -> Case:
    def function(x: Any) -> Any:
        x.mul_(2)
        return view(x)

    return function


#: What is made of a view, and the input on which it is.
_KINDS: dict[str, tuple[Callable[[Case], Case], Any]] = {
    "with its base": (lambda view: lambda x: (lambda y: (y, view(y)))(x * 2), X),
    "without its base": (lambda view: lambda x: view(x + 1), X),
    "of columns": (lambda view: lambda x: view(x * 2), _numbers(6, 4).t()),
    "of an input": (lambda view: lambda x: (view(x), x + 1), _numbers(6, 6)[1:5]),
    "of an input that changes": (_of_changed_input, X),
    "written into": (_written, X),
    "of what is written into": (_of_written, X),
}


def _assigned(x: Any, *places: Any) -> Any:
    y = x + 0
    for n, place in enumerate(places):
        y[place] = float(n + 40)
    return y


def _mask_assigned(x: Any) -> Any:
    x[x < 0] = 0
    return x


def _two_steps(x: Any) -> Any:
    y = x * 2
    a, b = y[1:], y[:, 1:]
    a += 1
    b *= 2
    return a, b


def _set(x: Any) -> Any:
    y, z = x * 2, x + 1
    y.set_(z)
    return y, z


#: What is no single view, each with its inputs.
LAYOUTS: dict[str, tuple[Case, tuple[Any, ...]]] = {
    "sum of columns": (lambda x: x.t() + 1, (X,)),
    "sum of columns and rows": (lambda x, y: x.t() + y, (X, _numbers(6, 4))),
    "product": (lambda x: (x @ x.t(), x.t() @ x), (X,)),
    "sums": (lambda x: (x.t().sum(0), x.t().sum(1, keepdim=True), x.mean()), (X,)),
    "like": (lambda x: (torch.ones_like(x.t()), torch.zeros_like(x), x.t().new_ones(3)), (X,)),
    "clone": (lambda x: (x.t().clone(), x.t().contiguous(), x.t().to(torch.float64)), (X,)),
    "clone in rows": (lambda x: x.t().clone(memory_format=torch.contiguous_format), (X,)),
    "choices": (lambda x: (torch.where(x.t() > 0, x.t(), 1.0), x.t().clamp(0, 3)), (X,)),
    "joined": (lambda x: (torch.cat([x.t(), x.t()]), torch.stack([x, x]), x.repeat(2, 1)), (X,)),
    "sorted": (lambda x: x.t().sort(0), (X,)),
    "largest": (lambda x: (x.t().topk(2, 0), x.t().max(1), x.cumsum(0), x.t().cumsum(1)), (X,)),
    "softmax": (lambda x: (x.t().softmax(0), torch.nn.functional.layer_norm(x.t(), (4,))), (X,)),
    "a cube": (lambda x: (x.permute(2, 0, 1) * 2, x.transpose(0, 2).exp(), x.mT + 1), (CUBE,)),
    "a product of cubes": (lambda x: (x @ x.mT, torch.einsum("bij,bkj->kib", x, x)), (CUBE,)),
    "an image": (lambda x: (x * 2, x.relu(), x + x.contiguous(), x.contiguous() + x), (IMAGE,)),
    "an image in rows": (lambda x: (x.contiguous() * 2, (x * 2).contiguous()), (IMAGE,)),
    "rows as an image": (lambda x: x.to(memory_format=torch.channels_last), (IMAGE.contiguous(),)),
    "permuted image": (lambda x: ((x * 2).permute(0, 2, 3, 1), (x * 2).permute(0, 2, 3, 1).view(-1)), (IMAGE,)),
    "pixels": (lambda x: ((x * 2)[:, 1], (x * 2)[0], (x * 2)[..., 1:3, 1:3], x.flatten(2)), (IMAGE,)),
    "convolution": (lambda x: torch.nn.functional.conv2d(x, torch.ones(4, 3, 2, 2)), (IMAGE,)),
    "pools": (lambda x: (torch.nn.functional.max_pool2d(x, 2), torch.nn.functional.avg_pool2d(x, 2)), (IMAGE,)),
    "padded image": (lambda x: (torch.nn.functional.pad(x, (1, 1)), torch.nn.functional.interpolate(x, scale_factor=2)), (IMAGE,)),
    "memory of an image": (lambda x: torch.as_strided(x * 2, (8,), (1,)), (IMAGE,)),
    "an image of one channel": (lambda x: (x * 2, x[:, :1] * 2, (x[:, :1] * 2).contiguous()), (IMAGE[:, :1],)),
    "an expanded input": (lambda x: (x * 2, x[0], x.sum(0), x.t()), (_numbers(6).expand(4, 6),)),
    "a sliced input": (lambda x: (x + 1, x[1], x.t() * 2, x.view(3, 2, 2)), (_numbers(5, 8)[1:4, 2:6],)),
    "an input of windows": (lambda x: (x + 1, x * x, x.sort(1)), (_numbers(10).as_strided((3, 4), (1, 2)),)),
    "memory of an input": (lambda x: (x.as_strided((3, 3), (4, 1)).clone(), x.as_strided((4,), (1,), 3) * 2), (_numbers(6, 4).t(),)),
    "inputs that overlap": (lambda x, y: (x[1:, :3] + y, x[1:], y), (X, X[1:, :3].t())),
    "one input twice": (lambda x, y: (x + y, y), (X, X)),
    "twice": (lambda x: (lambda y: (y, y, y.detach(), y.data))(x * 2), (X,)),
    "views of all of it": (lambda x: (lambda y: (y[:4], y, y.view(4, 6), y[:]))(x * 2), (X,)),
    "a view of a constant": (lambda x: (lambda c: (c, c.t(), c[1:], c))(torch.ones(3)), (X,)),
    "views of one base": (lambda x: (lambda y: (y[0], y[1:], y.t()[2]))(x * 2), (X,)),
    "copies": (lambda x: (lambda y: (y, y.clone(), y + 0, y.view(-1).clone()))(x * 2), (X,)),
    "expanded": (lambda x: (x.sum(0).expand(3, 6), (x.sum(1, keepdim=True) * 2).expand(4, 5)), (X,)),
    "written rows": (lambda x: _assigned(x, 0, (slice(None), 1)), (X,)),
    "written columns": (lambda x: (lambda y: (y, y[:, 1]))(_assigned(x.t(), 0, (slice(None), 1))), (X,)),
    "written with a mask": (_mask_assigned, (X,)),
    "columns written with a mask": (_mask_assigned, (_numbers(6, 4).t(),)),
    "filled with a mask": (lambda x: (lambda y: (y, y.masked_fill_(y < 3, 0), y[0]))(x.t() * 2), (X,)),
    "written diagonal": (lambda x: (lambda y: (y.diagonal().fill_(7), y))(x * 2), (X,)),
    "written parts": (lambda x: (lambda p: (p[0].add_(1), p[1].mul_(2), p))((x * 2).split(3, 1)), (X,)),
    "views that overlap": (_two_steps, (X,)),
    "a dimension put in place": (lambda x: (x * 2).unsqueeze_(1).squeeze_(), (X,)),
    "copied into": (lambda x, y: (x.copy_(y), x.t().copy_(y.t())), (X, X * 3)),
    "input written by a view": (lambda x: (x[1:].zero_(), x.t()[0].add_(5)), (X,)),
    "two inputs of one storage": (lambda x, y: (x.add_(1), y * 2), (_numbers(24)[:12], _numbers(24)[6:18])),
    "set": (_set, (X,)),
    "out=": (lambda x: (lambda y: (torch.add(x, 1, out=y), y[0]))(x * 2), (X,)),
    "scattered in place": (lambda x: (x * 2).scatter_(0, torch.zeros(1, 6, dtype=torch.int64), 9.0), (X,)),
    "complex": (lambda x: (x * 2, x.real, x.imag, x.conj(), x.abs(), x.T, x.mH, x.sum()), (COMPLEX,)),
    "complex of real": (lambda x: (lambda c: (c, c.real, c.imag[1:], torch.view_as_real(c)))(torch.fft.fft(x)), (X,)),
    "parts of complex": (lambda x: (lambda c: (c.real, c.imag))(torch.fft.fft(x)), (X,)),
    "real as complex": (lambda x: (lambda y: (y, torch.view_as_complex(y)))(x.reshape(4, 3, 2) * 2), (X,)),
    "conjugates": (lambda x: (x * 2, x.abs(), x.imag, x.resolve_conj()), (COMPLEX.conj(),)),
    "negatives": (lambda x: (x * 2, x[0], x.resolve_neg()), (COMPLEX.conj().imag,)),
    "written complex": (lambda x: (lambda c: (c.real.add_(1), c))(x * 2), (COMPLEX,)),
    "doubles of complex": (lambda x: (x * 2, x.t()), (COMPLEX.to(torch.complex128),)),
    "without elements": (lambda x: (x[:0] * 2, x[:0].sum(), torch.cat([x[:0], x]), x[:, :0] @ x[:0]), (X,)),
    "an input without elements": (lambda e, x: (e * 2, e.t(), torch.cat([e, x]), e.sum(0)), (torch.empty(0, 6), X)),
    "numbers": (lambda x: (x.sort(), x.argmax(), x.argmin(0), x.topk(1), x.flip(0), x.max(0), x.cumsum(0), x.expand(2, 3), x.view(1, 1)), (torch.tensor(3.0),)),
    "unsigned": (lambda x: (x.to(torch.int32) + 1, x.view(torch.int16), x.clone()), (torch.arange(6).to(torch.uint16),)),
    "floats of 8 bits": (lambda x: (x.float() + 1, x.clone(), x.t()), (_numbers(2, 3).to(torch.float8_e4m3fn),)),
    "what is no tensor": (lambda x: (None, 3, x * 2, "a", [x + 1, (None,)]), (X,)),
    "only views": (lambda x: (x.t(), x[1:], x), (X,)),
    "nothing new": (lambda x: x, (X,)),
    "inverse": (lambda x: torch.linalg.inv(x @ x.t() + torch.eye(4) * 9), (X,)),
    "solved": (lambda x: torch.linalg.solve(x @ x.t() + torch.eye(4) * 99, x), (X,)),
    "factors": (lambda x: (torch.linalg.cholesky(x @ x.t() + torch.eye(4) * 99), torch.linalg.qr(x)), (X,)),
}  # fmt: skip


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for v in value for leaf in _leaves(v)]
    return [value]


def _tensors(value: Any) -> list[Any]:
    return [t for t in _leaves(value) if isinstance(t, torch.Tensor)]


def _layout(t: Any) -> Any:
    """What code can see of the memory of a tensor."""
    size = t.untyped_storage().nbytes()
    return tuple(t.shape), t.stride(), t.storage_offset(), t.dtype, size, t.is_conj(), t.is_neg()


def _sharing(tensors: list[Any]) -> list[list[bool]]:
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [[bool(a) and a == b for b in places] for a in places]


def _equal(a: list[Any], b: list[Any]) -> None:
    for x, y in zip(a, b, strict=True):
        if x.dtype.itemsize == 1:
            x, y = x.view(torch.uint8), y.view(torch.uint8)
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5, equal_nan=True)


def same_in_memory(got: Any, wanted: Any, inputs: Any, eager_inputs: Any) -> None:
    """Check that outputs, and inputs, are and behave as those of eager PyTorch."""
    assert [t for t in _leaves(got) if not isinstance(t, torch.Tensor)] == [
        t for t in _leaves(wanted) if not isinstance(t, torch.Tensor)
    ]
    here, there = [_tensors([got, inputs]), _tensors([wanted, eager_inputs])]
    _equal(here, there)
    assert list(map(_layout, here)) == list(map(_layout, there))
    assert _sharing(here) == _sharing(there)
    for a, b in zip(here, there, strict=True):
        if a.is_floating_point() and a.dtype.itemsize > 1:
            # Several elements of one place cannot be written at once.
            place = tuple(0 if s == 0 else slice(None) for s in b.stride())
            alone = b.untyped_storage().nbytes() >= b.numel() * b.dtype.itemsize
            ends = (slice(None, None, 99),) * b.dim() if not alone or b.is_neg() else place
            a[ends] += 17
            b[ends] += 17
            _equal(here, there)


def compare(cases: list[tuple[Case, tuple[Any, ...]]], **options: Any) -> None:
    """Compile some functions as one graph and compare each with eager PyTorch."""
    given = [copy.deepcopy(inputs) for _, inputs in cases]
    eager = [copy.deepcopy(inputs) for _, inputs in cases]

    def whole(groups: Any) -> Any:
        return [f(*inputs) for (f, _), inputs in zip(cases, groups, strict=True)]

    got = torch.compile(whole, backend=loopwright, options=ONE, fullgraph=True, **options)(given)
    for (f, _), value, inputs, others in zip(cases, got, given, eager, strict=True):
        same_in_memory(value, f(*others), inputs, others)


def _allowed(case: Case, x: Any) -> bool:
    """Whether PyTorch takes a view of such memory."""
    try:
        case(copy.deepcopy(x))
    except RuntimeError:
        return False
    return True


def cases_of(kind: str) -> dict[str, tuple[Case, tuple[Any, ...]]]:
    """The cases of a kind by name."""
    make, x = _KINDS[kind]
    found = {name: make(view) for name, view in VIEWS.items()}
    return {name: (f, (x,)) for name, f in found.items() if _allowed(f, x)}


@pytest.mark.parametrize("kind", _KINDS)
def test_views(kind: str) -> None:
    compare(list(cases_of(kind).values()))


@pytest.mark.parametrize("part", range(4))
def test_layouts(part: int) -> None:
    compare(list(LAYOUTS.values())[part::4])


#: Cases whose layout what an operator is made of does not tell, or with extents of one.
_SYMBOLIC = ("filled with a mask", "columns written with a mask", "scattered in place", "an image of one channel", "an image", "views of all of it", "twice", "expanded", "pools", "inverse")  # fmt: skip


def test_layouts_of_symbolic_sizes() -> None:
    compare([LAYOUTS[name] for name in _SYMBOLIC], dynamic=True)


#: What is computed before a graph ends, and what is done with it afterwards.
_BREAKS: dict[str, tuple[Case, Case]] = {
    "a view is written into": (lambda x: (lambda y: (y, y.view(-1)))(x * 2), lambda y, z: z.add_(1)),
    "a base is written into": (lambda x: (lambda y: (y, y.t()[1:]))(x * 2), lambda y, z: y[2].mul_(3)),
    "parts are written into": (lambda x: (x * 2).split(3, 1), lambda a, b: (a.zero_(), b[1].add_(1))),
    "what is expanded is read": (lambda x: (x[:1] * 2).expand(4, 6), lambda y: y.as_strided((6,), (1,))),
    "memory is read": (lambda x: x.t() * 2, lambda y: y.as_strided((8,), (1,), 1).clone()),
    "memory before a slice is read": (lambda x: (x * 2)[2:], lambda y: y.as_strided((8,), (1,), 1) + 1),
    "memory of an image is read": (lambda x: x[None, None].expand(1, 3, 4, 6).to(memory_format=torch.channels_last) * 2, lambda y: y.permute(0, 2, 3, 1).view(-1)),
    "strides decide": (lambda x: x.t() * 2, lambda y: y * 2 if y.is_contiguous() else y.t().view(-1)),
    "offsets are added": (lambda x: (x * 2)[1], lambda y: y + y.storage_offset() + y.stride(0)),
    "bytes are counted": (lambda x: (x * 2)[:1], lambda y: y * y.untyped_storage().nbytes()),
    "an input is written into": (lambda x: x[1:], lambda y: y.add_(1)),
    "a copy is written into": (lambda x: (lambda y: (y, y.clone()))(x * 2), lambda y, z: z.add_(1)),
    "complex parts are written into": (lambda x: (lambda c: (c, c.real))(torch.fft.fft(x)), lambda c, r: r.add_(1)),
    "a mask is written through": (lambda x: (lambda y: (y, y[:, 1:]))(x.t() * 2), lambda y, z: z.masked_fill_(z > 3, 0)),
}  # fmt: skip


def test_code_behind_a_break_sees_the_same_memory() -> None:
    def whole(inputs: Any) -> Any:
        values = [before(x) for (before, _), x in zip(_BREAKS.values(), inputs, strict=True)]
        torch._dynamo.graph_break()
        behind = [
            after(*value) if isinstance(value, tuple) else after(value)
            for (_, after), value in zip(_BREAKS.values(), values, strict=True)
        ]
        return [*zip(values, behind, strict=True)]

    given, eager = [[X.clone() for _ in _BREAKS] for _ in range(2)]
    got = torch.compile(whole, backend=loopwright, options=ONE)(given)
    for value, wanted, x, y in zip(got, whole(eager), given, eager, strict=True):
        same_in_memory(value, wanted, [x], [y])


def _item_decides(x: Any) -> Any:
    y = x * 2
    y.t().add_(y.sum().item())
    return y


def _turned(x: Any) -> Any:
    y = x.t_()
    return y, y.add_(1), x * 2


def _resized(x: Any) -> Any:
    y = x * 2
    part = y[1]
    y.resize_(3, 3)
    return y * 2, part, y.add_(1)


@pytest.mark.parametrize("function", [_item_decides, _turned, _resized])
def test_what_breaks_graphs_itself(function: Case) -> None:
    given, eager = X.clone(), X.clone()
    got = torch.compile(function, backend=loopwright, options=ONE)(given)
    same_in_memory(got, function(eager), [given], [eager])


def test_sizes_that_vary() -> None:
    """Another size, other strides and another offset of one input."""

    def function(x: Any) -> Any:
        y = x * 2
        y.t()[0] = 7
        filled = (x.t() * 2).masked_fill_(x.t() < 3, 0)
        part = x.as_strided((2, 2), (2, 1))
        return (
            y,
            y[1:],
            y.view(-1) if y.is_contiguous() else y.t(),
            x[1:],
            part + 1,
            part,
            y[:2],
            filled,
        )

    compiled = torch.compile(function, backend=loopwright, options=ONE, dynamic=True)
    wide = _numbers(8, 8)
    for x in (X, wide, wide.t(), wide[2:6, 1:4], X.t(), wide[:2], wide[:3].t()):
        a, b = copy.deepcopy(x), copy.deepcopy(x)
        same_in_memory(compiled(a), function(b), [a], [b])


def test_another_offset_of_an_input() -> None:
    def function(x: Any) -> Any:
        return x.as_strided((4,), (1,), 3) + 0, x.as_strided((4,), (1,)) * 2, x[2:]

    compiled = torch.compile(function, backend=loopwright, options=ONE)
    memory = _numbers(24)
    for begin in (6, 2, 0):
        x = memory[begin : begin + 12]
        same_in_memory(compiled(x), function(x), [x], [x])


def test_outputs_of_two_calls_share_nothing() -> None:
    def function(x: Any) -> Any:
        y = x.t() * 2
        return y, y[1:], torch.fft.fft(x), x[:0]

    compiled = torch.compile(function, backend=loopwright, options=ONE)
    for x in (X, _numbers(300, 200)):  # small ones are copied, large ones are written in place
        first = compiled(x)
        kept = copy.deepcopy(first)
        second = compiled(x + 1)
        places = [[t.untyped_storage().data_ptr() for t in r[:3]] for r in (first, second)]
        assert not set(places[0]) & set(places[1])
        _equal([*first], [*kept])


def test_errors_are_those_of_pytorch() -> None:
    compiled = torch.compile(torch.linalg.inv, backend=loopwright, options=ONE)
    _equal([compiled(torch.eye(3) * 2)], [torch.eye(3) / 2])
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(torch.zeros(3, 3))
    _equal([compiled(torch.eye(3) * 4)], [torch.eye(3) / 4])


def test_random_numbers_are_drawn_once_and_in_order() -> None:
    def function(x: Any) -> Any:
        a, b = torch.rand(3), torch.randn(2, 2, dtype=torch.complex64)
        kept = torch.nn.functional.dropout(x, 0.5, True)
        return torch.rand(2), kept, kept * 2, b.real, b.abs(), torch.view_as_real(b), a

    torch.manual_seed(3)
    wanted = function(X)
    compiled = torch.compile(function, backend=loopwright, options=ONE)
    for _ in range(2):
        torch.manual_seed(3)
        _equal([*compiled(X)], [*wanted])


def test_operators_of_ones_own_see_strides() -> None:
    seen = []

    @torch.library.custom_op("lwmemory::seen", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append((x.stride(), x.is_contiguous(memory_format=torch.channels_last)))
        return x.clone()

    @look.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def function(image: Any, x: Any) -> Any:
        return look(image * 2), look(image), look(x.t() + 1), look((x + 1)[1:, 2]), look(x[:1])

    wanted = function(IMAGE, X)
    eager, seen = seen, []
    got = torch.compile(function, backend=loopwright, options=ONE)(IMAGE, X)
    assert sorted(seen) == sorted(eager)
    same_in_memory(got, wanted, [], [])


def test_what_stands_for_other_numbers_is_not_plain() -> None:
    for tensor, contiguous, plain in (
        (COMPLEX, True, True),
        (COMPLEX.conj(), True, False),
        (torch._neg_view(X), True, False),
        (COMPLEX.T, False, False),
    ):
        layout = TensorLayout.of(tensor)
        assert layout is not None
        assert (layout.contiguous, layout.plain) == (contiguous, plain)
