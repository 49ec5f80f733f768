"""``torch.compile(model, backend="loopwright")`` beside PyTorch itself."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright.errors import FallbackWarning

torch = pytest.importorskip("torch")
from loopwright.graph.torch_backend import (  # noqa: E402
    CompiledGraph,
    _Build,
    compiled_models,
    loopwright,
)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_dynamo")]
ONE = {"target": "llvm -num-threads=1"}


def _model() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3)]
    return torch.nn.Sequential(*layers).eval()


def _compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=loopwright, options={**ONE, **options})


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[_Build]:
    """The builds that are made, or made anew, from now on."""
    found: list[_Build] = []
    once = _Build._make

    def make(self: _Build, args: Any) -> None:
        found.append(self)
        once(self, args)

    monkeypatch.setattr(_Build, "_make", make)
    return found


def _close(a: Any, b: Any) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_the_entry_point_names_the_backend() -> None:
    pyproject = Path(__file__).parents[3] / "pyproject.toml"
    points = tomllib.loads(pyproject.read_text())["project"]["entry-points"]
    module, _, name = points["torch_dynamo_backends"]["loopwright"].partition(":")
    assert module == loopwright.__module__
    assert name == loopwright.__name__


def test_a_model_gives_what_pytorch_gives() -> None:
    model, x = _model(), torch.randn(5, 6)
    compiled = _compiled(model)
    first = compiled(x)
    _close(first, model(x))
    kept = first.clone()
    other = torch.randn(5, 6)
    _close(compiled(other), model(other))
    _close(first, kept)  # an output is nobody else's memory
    x.copy_(other)
    _close(compiled(x), model(other))


def test_large_outputs_are_written_where_they_stay() -> None:
    x = torch.randn(300, 200)
    compiled = _compiled(torch.sin)
    first = compiled(x)
    kept = first.clone()
    _close(compiled(x + 1), torch.sin(x + 1))
    _close(first, kept)


def test_weights_count_as_they_are_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _counted(monkeypatch)
    model, x = _model(), torch.randn(5, 6)
    compiled = _compiled(model)
    for _ in range(3):
        _close(compiled(x), model(x))
    assert len(made) == 1
    model[0].weight.mul_(2)  # another version
    _close(compiled(x), model(x))
    model[3].weight.data = torch.randn(3, 8)  # another address
    _close(compiled(x), model(x))
    model.load_state_dict(_model().state_dict())
    _close(compiled(x), model(x))
    assert len(made) == 1  # they are read where they lie


def test_weights_are_constants_and_their_kernels_are_built_once() -> None:
    graphs: list[CompiledGraph] = []
    once = CompiledGraph.boxed

    def boxed(self: CompiledGraph) -> Any:
        graphs.append(self)
        return once(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledGraph, "boxed", boxed)
        model, x = _model(), torch.randn(80, 6)  # so many rows that weights are packed
        compiled = _compiled(model)
        compiled(x)
        (build,) = graphs[0]._builds.values()
        assert len(build.model.program.inputs) == 1
        before = dict(build.model.kernels)
        model[0].weight.add_(1)
        _close(compiled(x), model(x))
        assert all(build.model.kernels[name] is kernel for name, kernel in before.items())


def test_inputs_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = _counted(monkeypatch)
    model, x = torch.nn.ReLU(), torch.randn(64)
    compiled = _compiled(model)
    _close(compiled(x), model(x))
    assert np.shares_memory(builds[0]._executor._arrays[0], x.numpy())
    view = torch.randn(129)[1::2]  # neither contiguous nor aligned
    unaligned = torch.frombuffer(bytearray(257), dtype=torch.float32, count=64, offset=1)
    unaligned.copy_(view[:64])
    for given in (x[1:], x[:63], view[:64], unaligned, unaligned, x):
        _close(compiled(given), model(given))


def test_outputs_may_be_inputs_or_the_same_tensor() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return y, y, x, torch.ones(2), None, y.t()

    x = torch.randn(2, 3)
    for a, b in zip(_compiled(function)(x), function(x), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            _close(a, b)
    first, view, again = _compiled(lambda x: (lambda y: (y, y[:2], y))(x + 1))(x)
    assert first is again
    assert view is not first


def test_buffers_that_change_are_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = _counted(monkeypatch)

    class Counter(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x * self.count

    model, x = Counter(), torch.ones(3)
    compiled = _compiled(model)
    assert [compiled(x)[0].item() for _ in range(3)] == [1, 2, 3]
    assert len(made) == 1


def test_other_sizes_are_built_anew() -> None:
    model = torch.nn.Linear(6, 3).eval()
    compiled = _compiled(model)
    for batch in (5, 2, 7, 5):
        x = torch.randn(batch, 6)
        _close(compiled(x), model(x))
    dynamic = torch.compile(model, backend=loopwright, options=ONE, dynamic=True)
    for batch in (3, 4):
        x = torch.randn(batch, 6)
        _close(dynamic(x), model(x))


def test_what_is_not_supported_falls_back() -> None:
    def function(x: Any) -> Any:
        return torch.fft.fft(x.relu()).abs() + 1

    x = torch.randn(4, 8)
    _close(_compiled(function)(x), function(x))
    (fallback,) = compiled_models()[-1].report.fallbacks
    assert fallback.by == "PyTorch"
    assert "_fft_r2c" in fallback.node
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"_fft_r2c .*there is no converter of this operator"):
        _compiled(function, fallback=False)(x)


def test_gradients_are_refused_in_words() -> None:
    model, x = _model(), torch.randn(5, 6)
    with torch.enable_grad():
        with pytest.raises(Exception, match=r"loopwright is for inference: gradients are asked"):
            _compiled(model)(x)
        torch._dynamo.reset()
        model.requires_grad_(False)
        _close(_compiled(model)(x), model(x))
    torch._dynamo.reset()
    with torch.inference_mode():
        _close(_compiled(_model())(x), _model()(x))


def test_calls_that_ask_for_no_gradients_may_be_given_parameters() -> None:
    def function(x: Any, written: Any) -> Any:
        with torch.no_grad():
            written.mul_(2)
            y = x.t() * 2
        return y, y[1:], x.detach()[1:] + 1, x.argmax(1), x > 0

    given, eager = [(torch.ones(3, 4).requires_grad_(), torch.ones(2, 2)) for _ in range(2)]
    with torch.enable_grad():
        for a, b in zip(_compiled(function)(*given), function(*eager), strict=True):
            _close(a, b)
            assert (a.stride(), a.requires_grad) == (b.stride(), b.requires_grad)
    _close(given[1], eager[1])


def test_a_jagged_tensor_is_several_inputs_and_outputs() -> None:
    def function(jagged: Any, x: Any) -> Any:
        y = x.t() * 2
        return jagged * 2, (jagged + 1).values().t(), y, y[1:]

    x, parts = torch.arange(24.0).reshape(4, 6), [torch.ones(2, 3), torch.ones(4, 3)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    got, wanted = _compiled(function)(jagged, x), function(jagged, x)
    for a, b in zip((got[0].values(), *got[1:]), (wanted[0].values(), *wanted[1:]), strict=True):
        _close(a, b)
        assert a.stride() == b.stride()


def test_options_are_checked() -> None:
    x = torch.randn(5, 6)
    for options, message in (
        ({"trails": 3}, r"no option 'trails' \(did you mean 'trials'\?\)"),
        ({"trials": 1.5}, "trials is 1.5; give a whole number"),
        ({"trials": 3, "history": []}, "give its path as the option history, got a list"),
    ):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=message):
            _compiled(_model(), **options)(x)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no mode 'max-autotune'"):
        torch.compile(_model(), backend=loopwright, mode="max-autotune")(x)


def test_trials_tune_into_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    model, x = torch.nn.Linear(16, 8).eval(), torch.randn(4, 16)
    _close(_compiled(model, trials=2, history=str(log))(x), model(x))
    assert log.exists()
    torch._dynamo.reset()
    _close(_compiled(model, history=str(log))(x), model(x))


def test_a_model_that_pytorch_computes_for_the_most_part_warns_once() -> None:
    x = torch.randn(64, 64)
    for function, count in ((lambda x: torch.fft.fft(x).abs(), 1), (torch.sin, 0)):
        compiled = _compiled(function)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(9):
                compiled(x)
        texts = [str(w.message) for w in told if w.category is FallbackWarning]
        assert len(texts) == count
        assert all("of the time" in t and "aten::_fft_r2c > aten::abs" in t for t in texts)


@pytest.mark.parametrize("normed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_of_many_sizes_four_are_kept_and_the_rest_share_one_program(normed: bool) -> None:
    graphs: list[CompiledGraph] = []
    once = CompiledGraph.boxed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledGraph, "boxed", lambda self: (graphs.append(self), once(self))[1])
        linear = torch.nn.Linear(6, 8)
        model = torch.nn.Sequential(linear, torch.nn.LayerNorm(8)) if normed else linear
        compiled = torch.compile(model, backend=loopwright, options=ONE, dynamic=True)
        inputs = [torch.randn(batch, 5, 6) for batch in (3, 4, 2, 7, 40, 11, 9, 3, 40)]
        for x in inputs:
            _close(compiled(x), model(x))
        (graph,) = graphs
        assert len(graph._builds) == 4
        assert len({id(b._weights) for b in graph._builds.values()}) == 1  # one program's
        for write in (lambda p: p.data.mul_(2), lambda p: setattr(p, "data", p.data + 1)):
            for parameter in model.parameters():
                write(parameter)
            for x in inputs[-5:]:
                _close(compiled(x), model(x))


def test_sizes_with_programs_of_their_own_stay_right() -> None:
    def function(x: Any) -> Any:
        n = x.shape[0]
        return x[: n // 3 + 1].sum(0) + torch.fft.fft(x, dim=0).abs()[0] * (2 if n > 6 else 1)

    compiled = torch.compile(function, backend=loopwright, options=ONE, dynamic=True)
    for rows in (3, 4, 5, 6, 7, 9, 12, 13, 4):
        x = torch.randn(rows, 8)
        _close(compiled(x), function(x))
