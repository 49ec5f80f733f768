"""Images between their elements, and determinants, against onnx and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright.errors import GraphError
from loopwright.graph import op
from tests.covering import covering
from tests.unit.graph.values import run, same

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((2, 4, 6, 7)).astype("float32")
BOXES = np.float32([[0, 0, 5, 4], [1.5, 0.5, 6.5, 5.5], [-3, -2, 2, 9], [3, 3, 3.2, 3.1]])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_determinants_are_those_of_numpy(size: int) -> None:
    x = RNG.standard_normal((2, 3, size, size)).astype("float32")
    same(op.det(x), np.linalg.det(x.astype("float64")).astype("float32"), rtol=1e-4)


def test_a_determinant_needs_rows_in_another_order() -> None:
    """The first pivot is 0; a matrix without a pivot has the determinant 0."""
    x = np.float64([[[0, 2, 1], [3, 0, 0], [1, 1, 4]], [[0, 1, 2], [0, 3, 4], [0, 5, 6]]])
    same(op.det(x), np.array([-21.0, 0.0]))


def test_matrices_that_have_no_determinant_are_refused() -> None:
    with pytest.raises(GraphError, match="the rows and columns of a matrix differ"):
        same(op.det(IMAGES), IMAGES)


onnx = pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')
from loopwright.graph.frontend.onnx import from_onnx  # noqa: E402
from tests.unit.graph.onnx_nodes import compared, model_of  # noqa: E402


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_regions_are_pooled(mode: str, coordinates: str) -> None:
    inputs = [IMAGES, BOXES, np.array([0, 1, 1, 0])]
    attrs = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.75}
    how = {"mode": mode, "coordinate_transformation_mode": coordinates}
    compared(model_of("RoiAlign", inputs, 22, **attrs, **how), inputs, {}, None)


def test_boxes_of_opset_10_begin_and_end_at_elements() -> None:
    inputs = [IMAGES, BOXES, np.array([0, 1, 1, 0])]
    attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": 1}
    old = run(from_onnx(model_of("RoiAlign", inputs, 10, **attrs)), *inputs)[0]
    attrs["coordinate_transformation_mode"] = "output_half_pixel"  # type: ignore[assignment]
    compared(model_of("RoiAlign", inputs, 16, **attrs), inputs, {}, [old])


def test_samples_whose_number_depends_on_data_are_refused() -> None:
    inputs = [IMAGES, BOXES, np.array([0, 1, 1, 0])]
    with pytest.raises(GraphError, match="how many samples it takes depends on data"):
        from_onnx(model_of("RoiAlign", inputs, 22), fallback=False)


@pytest.mark.parametrize(
    ("attrs", "masked"),
    covering(
        [{}, {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]},
         {"offset_group": 4, "dilations": [2, 1]}],
        [False, True],
        strength=1,
    ),
)  # fmt: skip
def test_convolutions_bend(attrs: dict[str, Any], masked: bool) -> None:
    group, offsets = attrs.get("group", 1), attrs.get("offset_group", 1)
    # Small enough that a sum's rounding is no more than what may differ near zero.
    weight = (0.1 * RNG.standard_normal((4, 4 // group, 2, 3))).astype("float32")
    pads, strides = attrs.get("pads", [0] * 4), attrs.get("strides", [1, 1])
    reach = [(k - 1) * d + 1 for k, d in zip((2, 3), attrs.get("dilations", [1, 1]), strict=True)]
    free = [6 + pads[0] + pads[2] - reach[0], 7 + pads[1] + pads[3] - reach[1]]
    size = [n // s + 1 for n, s in zip(free, strides, strict=True)]
    offset = RNG.uniform(-1.5, 1.5, (2, offsets * 12, *size)).astype("float32")
    inputs = [IMAGES, weight, offset, RNG.standard_normal(4).astype("float32")]
    if masked:
        inputs.append(RNG.uniform(0, 1, (2, offsets * 6, *size)).astype("float32"))
    compared(model_of("DeformConv", inputs, 22, **attrs), inputs, {}, None)
