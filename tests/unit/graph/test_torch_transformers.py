"""What PyTorch's transformers and LSTMs call in inference, taken apart for kernels."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from loopwright.graph.frontend.torch import from_torch  # noqa: E402
from loopwright.graph.frontend.torch.model import decompositions  # noqa: E402
from loopwright.graph.torch_backend import compiled_models, loopwright  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
ONE = {"target": "llvm -num-threads=1"}
BATCH, LENGTH, WIDTH, HEADS = 2, 5, 16, 2
KEYS = "src_key_padding_mask"
nn = torch.nn


def _masks(kind: int) -> list[Any]:
    """Of bools, of floats, and with rows of which nothing is left."""
    shape = {0: (LENGTH, LENGTH), 1: (BATCH, LENGTH), 2: (BATCH, HEADS, LENGTH, LENGTH)}[kind]
    some = torch.rand(shape) < 0.4
    some[..., 0] = False
    all_of_one = some.clone()
    all_of_one[0] = True
    return [some, some.float() * -2, all_of_one]


def _same(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_the_parts_compute_what_the_operators_do() -> None:
    torch.manual_seed(0)
    layer, attention = (decompositions(True)[t] for t in _targets())
    masks = [(None, None), *((kind, m) for kind in range(3) for m in _masks(kind))]
    x = torch.randn(BATCH, LENGTH, WIDTH)
    shapes = [(3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,)]
    projections = [torch.randn(shape) * 0.3 for shape in shapes]
    norms = [torch.randn(WIDTH) for _ in range(4)]
    feeds = [torch.randn(s) * 0.3 for s in ((32, WIDTH), (32,), (WIDTH, 32), (WIDTH,))]
    for (kind, mask), one, two in product(masks, (False, True), (False, True)):
        args: list[Any] = [x, WIDTH, HEADS, *projections, one, two, 1e-5, *norms, *feeds]
        _same(layer(*args, mask, kind), _targets()[0](*args, mask, kind))
        args = [x, x, x, WIDTH, HEADS, *projections, mask, one, two, kind]
        for found, wanted in zip(attention(*args), _targets()[1](*args), strict=True):
            if wanted is not None:
                _same(found, wanted)


def _targets() -> tuple[Any, Any]:
    aten = torch.ops.aten
    return aten._transformer_encoder_layer_fwd.default, aten._native_multi_head_attention.default


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize(
    ("norm_first", "activation", "mask"),
    [  # nested tensors, and a mask with the other order; what these have in common by night
        (False, "relu", KEYS),
        (True, "gelu", "src_mask"),
        pytest.param(False, "relu", "src_mask", marks=pytest.mark.slow),
        pytest.param(True, "gelu", KEYS, marks=pytest.mark.slow),
    ],
)
def test_an_encoder_runs_by_kernels(norm_first: bool, activation: str, mask: str) -> None:
    x = torch.randn(BATCH, LENGTH, WIDTH)
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    padding[1, 3:] = True
    model = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 32, activation=activation, norm_first=norm_first, batch_first=True
    ).eval()
    given = {mask: nn.Transformer.generate_square_subsequent_mask(LENGTH)}
    # Eager PyTorch gives zeros where there is padding, if it takes nested tensors.
    kept = padding | True
    if mask == KEYS:  # PyTorch compiles no encoder with a mask: it looks at its elements first
        model = nn.TransformerEncoder(model, 1, enable_nested_tensor=not norm_first).eval()
        given, kept = {KEYS: padding}, ~padding
    before = len(compiled_models())
    compiled = torch.compile(model, backend=loopwright, options={**ONE, "fallback": False})
    wanted, found = model(x, **given), compiled(x, **given)
    assert len(compiled_models()) > before
    _same(found[kept], wanted[kept])


def test_an_exported_encoder_has_no_fallback() -> None:
    model = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True).eval()
    from_torch(model, (torch.randn(BATCH, LENGTH, WIDTH),), fallback=False)


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_is_unrolled_in_both_directions(bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(3, 4, bidirectional=True, batch_first=True, bias=bias).eval()
    data, state = torch.randn(2, 3, 3), torch.randn(2, 2, 4)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=loopwright, options={**ONE, "fallback": False})
    with torch.inference_mode(), torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(compiled(data, (state, state)), layer(data, (state, state)))


def test_more_steps_of_an_lstm_than_are_unrolled_are_left_whole() -> None:
    for fallback, steps in ((True, 33), (False, 257)):
        function = decompositions(fallback)[torch.ops.aten.mkldnn_rnn_layer.default]
        data = torch.empty(steps, 1, 3)
        assert function(data, *[None] * 6, False, [], 2, 4, 1, True) is NotImplemented


@pytest.mark.slow  # seconds: kernels of all steps
@pytest.mark.parametrize("steps", [33, 256])
def test_without_fallback_a_long_lstm_runs_by_kernels(steps: int) -> None:
    layer, data = nn.LSTM(2, 2).eval(), torch.randn(steps, 1, 2)
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=loopwright, options={**ONE, "fallback": False})
    with torch.inference_mode(), torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(compiled(data)[0], layer(data)[0])


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.slow  # seconds: nine models
def test_without_fallback_a_grid_is_sampled_by_kernels(padding: str, mode: str) -> None:
    torch.manual_seed(0)
    image, grid = torch.randn(1, 2, 4, 5), torch.rand(1, 3, 2, 2) * 3 - 1.5

    def sampled(image: Any, grid: Any) -> Any:
        options = {"padding_mode": padding, "mode": mode, "align_corners": False}
        return nn.functional.grid_sample(image, grid, **options)

    torch._dynamo.reset()
    compiled = torch.compile(sampled, backend=loopwright, options={**ONE, "fallback": False})
    with torch.inference_mode():
        torch.testing.assert_close(compiled(image, grid), sampled(image, grid))


def test_a_sampled_grid_is_left_to_pytorch_where_it_may() -> None:
    target = torch.ops.aten.grid_sampler_2d.default
    assert target in decompositions(False)
    assert target not in decompositions(True)
