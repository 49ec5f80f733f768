"""Operators of ONNX's other domains, and what came late to the default one, against onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from loopwright.errors import GraphError  # noqa: E402
from loopwright.graph.frontend.onnx import from_onnx  # noqa: E402
from tests.unit.graph.onnx_nodes import compared, info, model_of  # noqa: E402
from tests.unit.graph.values import Array, run  # noqa: E402

RNG = np.random.default_rng(0)
ML, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"
X = RNG.standard_normal((2, 3, 4)).astype("float32")
#: Two trees over three features: of a set, then of a bound; of a bound whose ways lead to leaves.
TREES: dict[str, Any] = {
    "tree_roots": [0, 2],
    "nodes_featureids": [0, 1, 2],
    "nodes_truenodeids": [1, 0, 2],
    "nodes_falsenodeids": [3, 1, 3],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 1, 0],
    "n_targets": 2,
}


def _tensor(values: Any, dtype: str) -> Any:
    return numpy_helper.from_array(np.array(values, dtype))


def _trees(mode: int, **attrs: Any) -> dict[str, Any]:
    tensors = {
        "nodes_modes": _tensor([6, mode, mode], "uint8"),
        "nodes_splits": _tensor([0, 0.5, -0.5], "float32"),
        "leaf_weights": _tensor([1, 20, 300, -4], "float32"),
        "membership_values": _tensor([1, 2, 7, np.nan], "float32"),
    }
    return {**TREES, **tensors, **attrs}


ROWS = np.float32(
    [[a, b, c] for a in (1, 2, 3, 7) for b in (0.4, 0.5, 0.6) for c in (-0.6, -0.5, 0.1)]
)


@pytest.mark.parametrize("mode", range(6))
def test_trees_compare_in_every_mode(mode: int) -> None:
    model = model_of("TreeEnsemble", [ROWS], 5, domain=ML, **_trees(mode))
    compared(model, [ROWS], {}, None)


@pytest.mark.parametrize("aggregate", range(4))
def test_trees_meet_in_their_targets(aggregate: int) -> None:
    attrs = _trees(0, aggregate_function=aggregate)
    compared(model_of("TreeEnsemble", [ROWS], 5, domain=ML, **attrs), [ROWS], {}, None)


@pytest.mark.parametrize("after", [1, 2])
def test_what_comes_after_trees(after: int) -> None:
    """onnx's own implementation leaves it out."""
    model = model_of("TreeEnsemble", [ROWS], 5, domain=ML, **_trees(0))
    (sums,) = run(from_onnx(model), ROWS)
    model = model_of("TreeEnsemble", [ROWS], 5, domain=ML, **_trees(0, post_transform=after))
    powers = np.exp((sums - sums.max(1, keepdims=True)).astype("float64"))
    softmax = powers / powers.sum(1, keepdims=True)
    wanted = softmax if after == 1 else 1 / (1 + np.exp(-sums.astype("float64")))
    np.testing.assert_allclose(run(from_onnx(model), ROWS)[0], wanted, rtol=1e-5, atol=1e-7)


def test_what_is_no_number_takes_the_way_that_a_node_says() -> None:
    x = np.float32([[3, np.nan, np.nan], [np.nan, 0.7, 0]])
    attrs = _trees(0, nodes_missing_value_tracks_true=[0, 1, 0])
    compared(model_of("TreeEnsemble", [x], 5, domain=ML, **attrs), [x], {}, None)


def test_trees_with_circles_are_refused() -> None:
    attrs = {**_trees(0), "nodes_truenodeids": [0, 0, 2]}
    with pytest.raises(GraphError, match="deeper than 64 nodes, or have circles"):
        from_onnx(model_of("TreeEnsemble", [ROWS], 5, domain=ML, **attrs), fallback=False)


def test_features_are_chosen_and_made_binary() -> None:
    inputs = [X, np.array([[3, 0]])]
    compared(model_of("ArrayFeatureExtractor", inputs, 1, domain=ML), inputs, {}, None)
    compared(model_of("Binarizer", [X], 1, domain=ML, threshold=0.25), [X], {}, None)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skips", [0, 2])
def test_ngrams_are_counted(mode: str, skips: int) -> None:
    x = RNG.integers(0, 3, (3, 7))
    attrs = {
        "mode": mode, "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": skips,
        "ngram_counts": [0, 2], "ngram_indexes": [2, 0, 3, 1],
        "pool_int64s": [0, 2, 0, 1, 1, 2], "weights": [0.5, 2.0, 3.0, 0.25],
    }  # fmt: skip
    compared(model_of("TfIdfVectorizer", [x], 9, **attrs), [x], {}, None)
    compared(model_of("TfIdfVectorizer", [x[0]], 9, **attrs), [x[0]], {}, None)


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize(
    ("operator", "states", "attrs"),
    [("Momentum", 1, {"alpha": 0.9, "beta": 0.8, "mode": "standard"}),
     ("Momentum", 1, {"alpha": 0.9, "beta": 0.8, "mode": "nesterov"}),
     ("Adagrad", 1, {"decay_factor": 0.1, "epsilon": 1e-5}),
     ("Adam", 2, {"alpha": 0.95, "beta": 0.9, "epsilon": 1e-5, "norm_coefficient_post": 0.1})],
    ids=["momentum", "nesterov", "adagrad", "adam"],
)  # fmt: skip
def test_steps_of_optimisers(operator: str, states: int, attrs: dict[str, Any], step: int) -> None:
    weights = [RNG.uniform(0.1, 1, s).astype("float32") for _ in range(2 + states) for s in (3, 2)]
    inputs: list[Array] = [np.float32(0.1), np.int64(step), *weights]  # type: ignore[list-item]
    full = {"norm_coefficient": 0.01, **attrs}
    model = model_of(operator, inputs, 1, 2 * (1 + states), TRAINING, **full)
    full.setdefault("norm_coefficient_post", 0.0)
    compared(model, inputs, {}, None)


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_sequences_of_several_lengths(operator: str, direction: str) -> None:
    """Each is what a layer makes of it alone; behind its end there are zeros."""
    gates, ways = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator], 1 + (direction == "bidirectional")
    shapes = ((ways, gates * 2, 4), (ways, gates * 2, 2), (ways, gates * 4))
    weights = [RNG.standard_normal(s).astype("float32") for s in shapes]
    lengths = np.array([1, 3], "int32")
    x = RNG.standard_normal((3, 2, 4)).astype("float32")
    attrs: dict[str, Any] = {"hidden_size": 2, "direction": direction}
    inputs = [x, *weights, lengths]
    every, last = run(from_onnx(model_of(operator, inputs, 14, 2, **attrs)), *inputs)
    for batch, length in enumerate(lengths):
        alone = [x[:length, batch : batch + 1], *weights]
        wanted = run(from_onnx(model_of(operator, alone, 14, 2, **attrs)), *alone)
        np.testing.assert_allclose(every[:length, :, batch], wanted[0][:, :, 0], rtol=1e-5)
        np.testing.assert_allclose(last[:, batch], wanted[1][:, 0], rtol=1e-5)
        assert not every[length:, :, batch].any()


def test_a_scan_of_opset_8_runs_for_each_batch() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["total", "next"], ["new"]),
         helper.make_node("Identity", ["new"], ["out"])],
        "b",
        [info(n, np.zeros(2, "float32")) for n in ("total", "next")],
        [info(n, np.zeros(2, "float32")) for n in ("new", "out")],
    )  # fmt: skip
    begin, x = np.float32([[1, 2], [30, 40]]), np.arange(12, dtype="float32").reshape(2, 3, 2)
    node = helper.make_node("Scan", ["", "a", "x"], ["y", "z"], body=body, num_scan_inputs=1)
    outputs = [info("y", None), info("z", None)]
    g = helper.make_graph([node], "g", [info("a", begin), info("x", x)], outputs)
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 8)])
    found = run(from_onnx(model), begin, x)
    sums = begin[:, None] + np.cumsum(x, 1)
    np.testing.assert_array_equal(found[0], sums[:, -1])
    np.testing.assert_array_equal(found[1], sums)


def test_normalisation_by_the_batch_itself() -> None:
    vectors = [RNG.uniform(0.5, 1.5, 3).astype("float32") for _ in range(4)]
    inputs = [X, *vectors]
    model = model_of("BatchNormalization", inputs, 15, 3, training_mode=1, momentum=0.75)
    compared(model, inputs, {}, None)


def test_frequencies_as_they_are_heard() -> None:
    inputs = [np.int64(8), np.int64(64), np.int64(8192), np.float32(125), np.float32(4000)]
    model = model_of("MelWeightMatrix", inputs, 17)  # type: ignore[arg-type]
    compared(model, inputs, dict(enumerate(inputs)), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSum", "ReduceMin", "ReduceProd"])
def test_reductions_of_nothing_are_known(operator: str) -> None:
    inputs = [np.zeros((2, 0, 3), "float32"), np.array([1])]
    compared(model_of(operator, inputs, 20), inputs, dict(enumerate(inputs)), None)


def test_an_opset_before_the_first_is_taken_where_nothing_has_changed() -> None:
    flags = np.array([True, False])
    assert run(from_onnx(model_of("Not", [flags], 1)), flags)[0].tolist() == [False, True]
    with pytest.raises(GraphError, match="the model is of opset 1; 6 to 28 are supported"):
        from_onnx(model_of("Relu", [X], 1))


def test_casts_of_infinities_to_formats_of_the_model() -> None:
    """An attribute says whether what is too large is held."""
    x = np.float32([1e6, np.inf])
    to = TensorProto.FLOAT8E5M2
    held = run(from_onnx(model_of("Cast", [x], 19, to=to)), x)[0]
    kept = run(from_onnx(model_of("Cast", [x], 19, to=to, saturate=0)), x)[0]
    assert (held.tolist(), kept.tolist()) == ([0x7B, 0x7B], [0x7C, 0x7C])
