"""Weights that change under ``torch.compile``, by every way that PyTorch and NumPy have."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loopwright.graph.frontend.torch.weights import Fingerprints
from loopwright.target import Target

torch = pytest.importorskip("torch")
from loopwright.graph.torch_backend import _Build, loopwright  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
ONE = {"target": "llvm -num-threads=1"}
nn = torch.nn


class Tied(nn.Module):  # type: ignore[misc, name-defined]
    """One matrix that rows are gathered from and that is multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(24, 16)

    def forward(self, x: Any) -> Any:
        return self.rows(x) @ self.rows.weight.t()


#: Weights that are read where they lie, packed, folded into others, strided, read twice.
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "few rows": (
        lambda: nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8), nn.Linear(8, 3)),
        lambda: torch.randn(4, 16),
    ),
    "packed": (lambda: nn.Linear(40, 48), lambda: torch.randn(80, 40)),
    "folded": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        lambda: torch.randn(1, 3, 7, 7),
    ),
    "channels last": (
        lambda: nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last),
        lambda: torch.randn(1, 3, 7, 7),
    ),
    "tied": (Tied, lambda: torch.randint(0, 24, (5,))),
}


def _numpy(p: Any) -> None:
    p.detach().numpy()[...] += 1


def _one_element(p: Any) -> None:
    p.data.view(-1)[p.numel() // 2] += 3


def _inference(p: Any) -> None:
    with torch.inference_mode():
        p.mul_(0.5)


def _version_kept(p: Any) -> None:
    with torch.autograd._unsafe_preserve_version_counter(p):
        p.add_(1)


def _thread(p: Any) -> None:
    worker = threading.Thread(target=lambda: p.data.copy_(torch.randn(p.shape)))
    worker.start()
    worker.join()


def _set(p: Any) -> None:
    p.data.set_(torch.randn(p.shape))


def _of_dlpack(p: Any) -> None:
    np.from_dlpack(p.detach())
    torch.from_dlpack(p.detach()).sub_(1)


def _replaced(p: Any) -> None:
    p.data = torch.randn(p.shape)


def _permuted(p: Any) -> None:
    p.data.copy_(p.data.flip(0).clone())


WRITES: dict[str, Callable[[Any], None]] = {
    "add_": lambda p: p.add_(1),
    "data.add_": lambda p: p.data.add_(1),
    "data.neg_": lambda p: p.data.neg_(),
    "data.copy_": lambda p: p.data.copy_(torch.randn(p.shape)),
    "data =": _replaced,
    "one element": _one_element,
    "permuted": _permuted,
    "numpy": _numpy,
    "dlpack": _of_dlpack,
    "inference mode": _inference,
    "version kept": _version_kept,
    "foreach": lambda p: torch._foreach_add_([p], 1.0),
    "foreach of data": lambda p: torch._foreach_mul_([p.data], 0.5),
    "set_": _set,
    "thread": _thread,
    "storage": lambda p: p.untyped_storage().copy_(torch.randn(p.shape).untyped_storage()),
    "nothing": lambda p: p.data.add_(0),
}


#: Models for which each change takes some of the ways to write: they are seen as in "packed".
_SOME = {"folded": 0, "channels last": 1, "tied": 2}


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        *((name, [*WRITES][_SOME[name] :: 3] if name in _SOME else [*WRITES]) for name in MODELS),
        *(pytest.param(name, [*WRITES], marks=pytest.mark.slow) for name in _SOME),
    ],
    ids=lambda value: value if isinstance(value, str) else str(len(value)),
)
def test_each_way_of_writing_is_seen_by_the_next_call(name: str, ways: list[str]) -> None:
    make, inputs = MODELS[name]
    model, x = make().eval(), inputs()
    compiled = torch.compile(model, backend=loopwright, options=ONE)
    compiled(x)
    for n, way in enumerate(ways):
        tensors = [t for t in model.state_dict(keep_vars=True).values() if t.is_floating_point()]
        WRITES[way](tensors[n % len(tensors)])
        same = torch.allclose(compiled(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)
        assert same, way


@pytest.mark.parametrize("rows", [4, 80])
def test_optimisers_that_raise_no_version_are_seen(rows: int) -> None:
    model = nn.Linear(40, 48)
    compiled = torch.compile(model, backend=loopwright, options=ONE)
    x = torch.randn(rows, 40)
    compiled(x)
    optim = torch.optim
    for kind in (optim.Adam, optim.AdamW, optim.SGD, optim.Adagrad):
        for how in ({"fused": True}, {"foreach": True}, {}):
            with torch.enable_grad():
                model.zero_grad()
                model(x).square().sum().backward()
                kind(model.parameters(), lr=0.1, **how).step()
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_what_is_read_in_place_makes_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[_Build] = []
    once = _Build._make
    monkeypatch.setattr(_Build, "_make", lambda self, args: (builds.append(self), once(self, args)))
    few, many = nn.Linear(40, 48), nn.Linear(40, 48)
    small = torch.compile(few, backend=loopwright, options=ONE, dynamic=False)
    large = torch.compile(many, backend=loopwright, options=ONE, dynamic=False)
    x, y = torch.randn(4, 40), torch.randn(80, 40)
    small(x)
    large(y)
    for parameter in (few.weight, few.bias, many.bias):
        parameter.data.add_(1)
    torch.testing.assert_close(small(x), few(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(large(y), many(y), rtol=1e-4, atol=1e-4)
    assert len(builds) == 2
    many.weight.data.add_(1)
    torch.testing.assert_close(large(y), many(y), rtol=1e-4, atol=1e-4)
    assert len(builds) == 3


def test_weights_of_another_shape_or_dtype() -> None:
    model, x = nn.Linear(6, 8), torch.randn(5, 6)
    compiled = torch.compile(model, backend=loopwright, options=ONE)
    for change in (
        lambda: setattr(model, "weight", nn.Parameter(torch.randn(3, 6))),
        lambda: setattr(model.bias, "data", torch.randn(3)),
        lambda: setattr(model.weight, "data", torch.randn(6, 3).t()),
        lambda: setattr(model.weight, "data", torch.randn(6, 6)[::2]),
        lambda: model.load_state_dict(nn.Linear(6, 3).state_dict(), assign=True),
    ):
        compiled(x) if model.bias.shape == model.weight.shape[:1] else None
        change()
        if model.bias.shape == model.weight.shape[:1]:
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    model.double()
    with pytest.raises(RuntimeError, match="dtype"):
        compiled(x)
    torch.testing.assert_close(compiled(x.double()), model(x.double()))
    model.bfloat16()
    torch.testing.assert_close(compiled(x.bfloat16()), model(x.bfloat16()), rtol=0.05, atol=0.05)


def test_products_of_two_dtypes_are_refused_as_by_pytorch() -> None:
    x, image = torch.randn(5, 6), torch.randn(1, 3, 5, 5)
    layers = nn.Linear(6, 4), nn.Linear(6, 4, bias=False), nn.Conv2d(3, 2, 3)
    for layer, value in zip(layers, (x, x, image), strict=True):
        layer.double()
        for call in layer, torch.compile(layer, backend=loopwright, options=ONE):
            with pytest.raises(RuntimeError, match="type"):
                call(value)


def test_memory_that_a_model_reads_is_held() -> None:
    source = np.arange(48, dtype="float32").reshape(8, 6)
    model, x = nn.Linear(6, 8, bias=False), torch.randn(5, 6)
    model.weight.data = torch.from_numpy(source)
    weight = model.weight

    def product(x: Any, weight: Any = weight) -> Any:
        return nn.functional.linear(x, weight)

    wanted = model(x)
    compiled = torch.compile(product, backend=loopwright, options=ONE)
    torch.testing.assert_close(compiled(x), wanted)
    del source, model
    gc.collect()
    torch.testing.assert_close(compiled(x), wanted)
    weight.data = torch.ones(8, 6)
    torch.testing.assert_close(compiled(x), product(x))
    with pytest.raises(RuntimeError, match="not resizable"):
        weight.untyped_storage().resize_(0)


@pytest.mark.parametrize("count", [0, 3, 64, 200, 32768, 70001])
def test_a_fingerprint_shows_every_byte(count: int) -> None:
    rng = np.random.default_rng(count)
    room = rng.integers(0, 256, count + 4, dtype=np.uint8)
    for memory in (room[:count], room[1 : count + 1]):
        found = Fingerprints([memory[: count // 3], memory[count // 3 :]], Target("llvm"))
        assert not found.changed()
        for n in {*rng.integers(0, count, 40).tolist(), 0, count - 1} if count else ():
            bit = np.uint8(1 << int(rng.integers(8)))
            memory[n] ^= bit
            assert found.changed()
            memory[n] ^= bit
        assert not found.changed()
        swapped = memory.reshape(-1)[::-1].copy()
        if not np.array_equal(swapped, memory):
            memory[:] = swapped
            assert found.changed()


def test_frozen_weights_keep_their_values_and_may_be_replaced() -> None:
    model, x = nn.Linear(40, 48), torch.randn(80, 40)
    frozen = torch.compile(model, backend=loopwright, options={**ONE, "freezing": True})
    wanted = model(x)
    torch.testing.assert_close(frozen(x), wanted)
    model.weight.data.mul_(2)  # packed when the model was built
    torch.testing.assert_close(frozen(x), wanted)
    model.weight.data = torch.randn(48, 40)
    torch.testing.assert_close(frozen(x), model(x))


def test_a_weight_is_read_by_an_operator_with_effects() -> None:
    """Tokens of effects stand before the inputs that AOTAutograd describes."""
    model, x = nn.Linear(6, 6), torch.randn(80, 6)
    model.register_buffer("calls", torch.zeros(6))

    def solved(x: Any) -> Any:
        model.calls.add_(1)
        return torch.linalg.inv(model.weight) + model(x)[:6] + model.calls

    compiled = torch.compile(solved, backend=loopwright, options=ONE)
    for n in range(3):
        got = compiled(x)
        assert model.calls.eq(n * 2 + 1).all()
        torch.testing.assert_close(got + 1, solved(x), rtol=1e-3, atol=1e-3)
        model.weight.detach().numpy()[n] += 1


def test_another_size_is_built_while_other_threads_call_the_model() -> None:
    """A tracer patches the modules of all threads: `torch.compile` refuses to be called then."""
    model = nn.Linear(6, 4)
    compiled = torch.compile(model, backend=loopwright, options=ONE, dynamic=True)
    inputs = [torch.randn(n, 6) for n in range(80, 83)]
    compiled(inputs[0])
    errors: list[BaseException] = []
    done = threading.Event()

    def call() -> None:
        with torch.no_grad():
            while not done.is_set() and not errors:
                try:
                    torch.testing.assert_close(compiled(inputs[0]), model(inputs[0]))
                except Exception as exc:
                    errors.append(exc)

    worker = threading.Thread(target=call)
    worker.start()
    for x in inputs[1:]:
        torch.testing.assert_close(compiled(x), model(x))
    done.set()
    worker.join()
    assert not errors


def test_views_and_numbers_follow_the_size_of_an_input() -> None:
    def cut(x: Any, n: int) -> Any:
        moved = x * n + x.shape[0] + torch.tensor([1.0, 2.0, 3.0])
        return x[n:], x.narrow(0, n, 2), moved, torch.nonzero(x > 0)

    compiled = torch.compile(cut, backend=loopwright, options=ONE, dynamic=True)
    for size in (8, 9, 10):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x, size - 5), cut(x, size - 5))
