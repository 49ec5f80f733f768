"""Layouts that are chosen: blocked operators, modules in every layout, and the choice itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import graph
from loopwright.errors import GraphError, UsageError
from loopwright.graph import op
from loopwright.graph.infer import Types
from loopwright.graph.layout.choice import Places
from loopwright.graph.layout.layouts import FIRST, LAST, Layout, blocked
from loopwright.graph.layout_tuning import kernels_of_transform
from loopwright.graph.transform import AlterOpLayout
from loopwright.graph.transform.pipeline import before_layouts, prepared
from loopwright.records import load
from loopwright.task import apply_history_best
from loopwright.task.task import resolve_target
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.unit.graph.values import Array, run, same, values

TARGET = "llvm -num-threads=1"
RNG = np.random.default_rng(0)
LAYOUTS = ("NCHW", "NHWC", "NCHW4c", "NCHW8c")


def _array(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def _blocks(image: Array, block: int) -> Array:
    n, c, *rest = image.shape
    return np.moveaxis(image.reshape(n, c // block, block, *rest), 2, -1)


# ---------------------------------------------------------------- layouts


@pytest.mark.parametrize("shape", [(2, 16, 3, 5), (1, 16, 4), (2, 1, 3, 5)])
def test_moves_between_all_layouts(shape: tuple[int, ...]) -> None:
    image = _array(*shape)
    every = [FIRST, LAST, blocked(4), blocked(8)]
    lies = {
        FIRST: image,
        LAST: np.moveaxis(image, 1, -1),
        blocked(4): _blocks(image, min(4, shape[1])),
        blocked(8): _blocks(image, min(8, shape[1])),
    }
    for source in every:
        assert source.shape(shape) == lies[source].shape
        for to in every:
            x = graph.var("x", source.shape(shape))
            module = graph.IRModule.from_expr(source.moved(x, shape, to))
            np.testing.assert_array_equal(run(module, lies[source])[0], lies[to])


def test_a_transform_is_one_kernel() -> None:
    for source, to in ((FIRST, blocked(8)), (blocked(8), LAST), (blocked(8), blocked(16))):
        kernels = kernels_of_transform(
            graph.TensorType((1, 32, 4, 4)), source, to, resolve_target(TARGET)
        )
        assert [calls for _, calls in kernels] == [1]


@pytest.mark.parametrize("name", ["NCHW0c", "NCWH", "nchw", "NCHW8"])
def test_layouts_that_do_not_exist(name: str) -> None:
    with pytest.raises(GraphError, match=f"there is no layout '{name}'"):
        Layout(name)


# ---------------------------------------------------------------- operators


@pytest.mark.parametrize(
    "attrs",
    [{}, {"padding": (1, 2, 0, 1), "strides": (2, 1)}, {"dilation": 2, "padding": 2}],
)
def test_blocked_convolutions(attrs: dict[str, Any]) -> None:
    image, weight = _array(2, 8, 7, 6), _array(6, 8, 3, 2)
    (wanted,) = values(op.nn.conv(graph.const(image), weight, **attrs))
    apart = weight.reshape(3, 2, 2, 4, 3, 2).transpose(0, 2, 4, 5, 3, 1)
    made = op.nn.conv_channels_blocked(_blocks(image, 4), apart, **attrs)
    same(made, _blocks(wanted, 2))
    one = weight.reshape(3, 2, 8, 1, 3, 2).transpose(0, 2, 4, 5, 3, 1)
    made = op.nn.conv_channels_blocked(image, one, data_layout="channels_first", **attrs)
    same(made, _blocks(wanted, 2))


def test_blocked_convolutions_by_channel() -> None:
    image, weight = _array(1, 8, 7, 6), _array(8, 1, 3, 3)
    (wanted,) = values(op.nn.conv(graph.const(image), weight, groups=8, padding=1))
    packed = weight.reshape(2, 4, 1, 1, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    same(
        op.nn.conv_channels_blocked(_blocks(image, 4), packed, groups=8, padding=1),
        _blocks(wanted, 4),
    )
    call = op.nn.conv_channels_blocked(_blocks(image, 4), packed, groups=2)
    with pytest.raises(GraphError, match="of 2 groups takes blocks of 2 channels"):
        graph.infer_types(graph.IRModule.from_expr(call))


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_blocked_pools(name: str) -> None:
    image = _array(2, 8, 7, 6)
    attrs = {"pool_size": (3, 2), "strides": (2, 1), "padding": 1}
    (wanted,) = values(graph.get_op(f"nn.{name}")(graph.const(image), **attrs))
    made = graph.get_op(f"nn.{name}_channels_blocked")(graph.const(_blocks(image, 4)), **attrs)
    same(made, _blocks(wanted, 4))


# ---------------------------------------------------------------- modules


def _network() -> graph.IRModule:
    """Convolutions by all and by one channel, a residual, a gate, pools, parts, and a product."""
    x = graph.var("x", (1, 3, 8, 8))
    a = op.nn.relu(op.nn.conv(x, _array(16, 3, 3, 3), padding=1))
    b = op.nn.bias_add(op.nn.conv(a, _array(16, 16, 3, 3) / 12, padding=1), _array(16))
    c = op.nn.conv(b, _array(16, 1, 3, 3) / 3, padding=1, groups=16)
    gate = op.sigmoid(op.nn.conv(op.mean(c, axis=(2, 3), keepdims=True), _array(16, 16, 1, 1)))
    d = op.nn.relu(op.add(a, op.multiply(c, gate)))
    e = op.concatenate(
        op.nn.max_pool(d, pool_size=2, strides=2), op.nn.avg_pool(b, pool_size=2, strides=2), axis=1
    )
    padded = op.nn.pad(e, pad_width=((0, 0), (0, 0), (1, 1), (0, 1)))
    part = op.strided_slice(padded, begin=(8, 1), end=(24, 6), axes=(1, 2))
    f = op.multiply(op.nn.conv(part, _array(8, 16, 1, 1) / 4), _array(8, 1, 1))
    y = op.nn.dense(op.nn.batch_flatten(op.mean(f, axis=(2, 3), keepdims=True)), _array(5, 8))
    return before_layouts(graph.IRModule.from_expr(graph.Tuple((y, op.max(f, axis=1), f))))


NETWORK = _network()
IMAGE = _array(1, 3, 8, 8)
EXPECTED = run(NETWORK, IMAGE)
PLACES = len(Places.of(NETWORK["main"], Types(NETWORK)).anchors)


def _altered(names: list[str]) -> graph.IRModule:
    return AlterOpLayout(graph.LayoutChoice.of(NETWORK, names))(NETWORK)


def _check(module: graph.IRModule) -> None:
    for found, wanted in zip(run(module, IMAGE), EXPECTED, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_each_place_of_a_network_gets_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopwright.graph.layout_tuning.modelled", lambda kernels: 1.0)
    choice = graph.tune_layouts(NETWORK, TARGET, blocks=(), measure=False)
    assert len(choice.layouts) == PLACES


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_network_in_one_layout(name: str) -> None:
    made = _altered([name] * PLACES)
    written = {"NHWC": "channels_last(", "NCHW": "nn.conv("}.get(name, "channels_blocked(")
    assert str(made).count(f"{written}") >= 5
    _check(made)


@settings(max_examples=4, deadline=None)
@given(st.lists(st.sampled_from(LAYOUTS), min_size=PLACES, max_size=PLACES))
def test_a_network_in_random_layouts(names: list[str]) -> None:
    _check(_altered(names))


def test_blocks_from_end_to_end_need_no_transforms() -> None:
    x = graph.var("x", (1, 3, 8, 8))
    a = op.nn.relu(op.nn.conv(x, _array(16, 3, 3, 3), padding=1))
    b = op.add(a, op.nn.bias_add(op.nn.conv(a, _array(16, 16, 3, 3), padding=1), _array(16)))
    module = before_layouts(graph.IRModule.from_expr(op.mean(b, axis=(2, 3))))
    choice = graph.LayoutChoice.of(module, ["NCHW8c"] * 3)
    made = AlterOpLayout(choice)(module)
    assert str(made).count("transpose(") == 0
    # Two convolutions with what follows, the mean, and its blocks as one row.
    assert len(prepared(module, choice).program.steps) <= 4


@pytest.mark.parametrize(("kernel", "name"), [(1000.0, "NHWC"), (1.0, "NCHW")])
def test_a_small_gain_keeps_what_convert_layout_gives(
    monkeypatch: pytest.MonkeyPatch, kernel: float, name: str
) -> None:
    # Channels last cost two transforms more, which is much beside a cheap kernel only.
    monkeypatch.setattr("loopwright.graph.layout_tuning.kernels_of_transform", lambda *given: ())
    monkeypatch.setattr(
        "loopwright.graph.layout_tuning.modelled", lambda kernels: kernel if kernels else 1.0
    )
    x = graph.var("x", (1, 16, 8, 8))
    module = graph.IRModule.from_expr(op.nn.conv(x, _array(16, 16, 3, 3)))
    choice = graph.tune_layouts(module, TARGET, measure=False, blocks=())
    assert [str(one) for one in choice.layouts] == [name]
    assert choice.cost == (kernel if name == "NCHW" else choice.converted)


def test_choices_of_other_modules_are_refused() -> None:
    other = graph.IRModule.from_expr(op.nn.max_pool(graph.var("x", (1, 8, 4, 4)), pool_size=2))
    choice = graph.LayoutChoice.of(other, ["NHWC"])
    with pytest.raises(GraphError, match="chosen for another module"):
        AlterOpLayout(choice)(NETWORK)
    with pytest.raises(GraphError, match="chosen for another module"):
        AlterOpLayout(choice)(graph.IRModule({}))  # said before what else it lacks
    with pytest.raises(GraphError, match="2 layouts for 1 places"):
        graph.LayoutChoice.of(other, ["NHWC", "NHWC"])
    with pytest.raises(UsageError, match="layouts is 'fast'; give \"measured\""):
        graph.compile(other, TARGET, layouts="fast")
    with pytest.raises(UsageError, match="blocks has 1"):
        graph.tune_layouts(other, TARGET, blocks=(1,))


# ---------------------------------------------------------------- files


def _pool() -> graph.IRModule:
    return graph.IRModule.from_expr(op.nn.max_pool(graph.var("x", (1, 8, 4, 4)), pool_size=2))


def test_a_choice_in_a_file_is_read_back_and_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.graph.layout_tuning.modelled", lambda kernels: 1.0)
    module = _two()
    choice = graph.tune_layouts(module, TARGET, measure=False, blocks=())
    path = choice.save(tmp_path / "two.json")
    again = graph.LayoutChoice.load(path)
    assert again == choice
    assert again.target == str(resolve_target(TARGET))
    image = _array(1, 8, 6, 6)
    model = graph.compile(module, TARGET, layouts=path)
    np.testing.assert_allclose(model(image)[0], run(module, image)[0], rtol=1e-4, atol=1e-5)
    ways = [graph.extract_tasks(module, TARGET, layouts=given) for given in (choice, str(path))]
    assert [t.task.key for t in ways[0]] == [t.task.key for t in ways[1]]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = graph.LayoutChoice.of(_pool(), ["NHWC"]).save(tmp_path / "pool.json")
    before = path.read_bytes()

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(GraphError, match=r"cannot write .*pool\.json: No space left on device"):
        graph.LayoutChoice.of(_pool(), ["NCHW"]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_other_weights_keep_their_layouts(tmp_path: Path) -> None:
    path = graph.LayoutChoice.of(before_layouts(_two()), ["NCHW8c", "NCHW"]).save(tmp_path / "c")
    other = _two()
    assert graph.structural_hash(other) != graph.structural_hash(_two())
    assert graph.LayoutChoice.load(path).fits(before_layouts(other))


def test_a_file_of_another_module_is_named(tmp_path: Path) -> None:
    path = graph.LayoutChoice.of(_pool(), ["NHWC"]).save(tmp_path / "pool.json")
    with pytest.raises(GraphError, match=r"pool\.json: the layouts were chosen for another module"):
        graph.compile(_two(), TARGET, layouts=path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, "these are no layouts of a model; `loopwright tune"),
        ({"format": "x"}, "these are no layouts of a model"),
        ({"version": 2}, "these layouts have version 2, and 1 is known"),
        ({"places": [{"operator": "nn.conv"}]}, "these layouts were changed: KeyError: 'layout'"),
        ({"places": [{"operator": "nn.conv", "layout": "N"}]}, "there is no layout 'N'"),
        ({"cost": "much"}, "these layouts were changed: ValueError"),
    ],
)
def test_files_that_hold_no_layouts(
    change: dict[str, Any] | None, said: str, tmp_path: Path
) -> None:
    data = graph.LayoutChoice.of(_pool(), ["NHWC"]).to_json()
    path = tmp_path / "c.json"
    path.write_text("{" if change is None else json.dumps({**data, **change}))
    with pytest.raises(GraphError, match=rf"c\.json: .*{said}"):
        graph.compile(_pool(), TARGET, layouts=path)


def test_a_file_whose_places_were_changed_is_refused(tmp_path: Path) -> None:
    data = graph.LayoutChoice.of(_pool(), ["NHWC"]).to_json()
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**data, "places": []}))
    with pytest.raises(GraphError, match="chosen for another module"):
        graph.compile(_pool(), TARGET, layouts=path)


# ---------------------------------------------------------------- the choice


def _two() -> graph.IRModule:
    x = graph.var("x", (1, 8, 6, 6))
    a = op.nn.relu(op.nn.conv(x, _array(8, 8, 3, 3), padding=1))
    return graph.IRModule.from_expr(op.nn.max_pool(a, pool_size=2, strides=2))


def test_measurements_are_in_the_log_and_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, log = _two(), tmp_path / "layouts.jsonl"
    measured: list[int] = []

    def option() -> FakeMeasurer:
        return FakeMeasurer(time=lambda _: 1e-3, on_trial=measured.append)

    monkeypatch.setattr("loopwright.tuner.run.loop.default_option", option)
    first = graph.tune_layouts(module, TARGET, log=log, blocks=(8,))
    assert first.unit == "seconds"
    # Kernels all take the same, so that a layout without transforms is the cheapest.
    assert first.layouts == (FIRST, FIRST)
    assert first.exact
    assert first.cost == pytest.approx(2e-3, rel=0.1)
    assert first.converted == pytest.approx(4e-3, rel=0.3)
    assert len({r.task for r in load(log)}) >= 6
    once = len(measured)
    assert graph.tune_layouts(module, TARGET, log, blocks=(8,)) == first
    assert graph.tune_layouts(module, TARGET, log=log, blocks=(8,)) == first
    assert len(measured) == once


def test_a_compiled_model_in_blocks_and_channels_last_computes_the_same() -> None:
    module, image = _two(), _array(1, 8, 6, 6)
    choice = graph.LayoutChoice.of(before_layouts(module), ["NCHW8c", "NHWC"])
    model = graph.compile(module, TARGET, layouts=choice)
    np.testing.assert_allclose(model(image)[0], run(module, image)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_compiled_model_in_measured_layouts_computes_the_same(tmp_path: Path) -> None:
    module, image = _two(), _array(1, 8, 6, 6)
    log = tmp_path / "layouts.jsonl"
    choice = graph.tune_layouts(module, TARGET, log=log, blocks=(8,))
    model = graph.compile(module, TARGET, log, layouts=choice)
    (wanted,) = run(module, image)
    np.testing.assert_allclose(model(image)[0], wanted, rtol=1e-4, atol=1e-5)
    history = apply_history_best(log)
    for task in graph.extract_tasks(module, TARGET, layouts=choice):
        if "nn." in task.ops[0]:
            assert history.choose(task.task)[0].expected is not None
