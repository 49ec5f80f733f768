"""ONNX models that are built here, with random weights: resnet18, mobilenet_v2, and a BERT."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class _Builder:
    """Nodes and weights of a model, one after the other."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._rng = np.random.default_rng(seed)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, whose name it gives."""
        from onnx import helper

        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def weight(self, value: Array) -> str:
        """An initializer."""
        from onnx import numpy_helper

        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, "float32"), name))
        return name

    def conv(
        self, x: str, inputs: int, outputs: int, window: int, stride: int = 1, groups: int = 1
    ) -> str:
        """A convolution and its normalisation."""
        inner = inputs // groups
        scale = np.sqrt(2 / (inner * window * window))
        drawn = self._rng.standard_normal((outputs, inner, window, window)) * scale
        attributes = {"strides": [stride] * 2, "pads": [window // 2] * 4, "group": groups}
        found = self.add("Conv", x, self.weight(drawn), **attributes)
        parts = [self._rng.uniform(0.5, 1.5, outputs) for _ in range(2)]
        means = [self._rng.standard_normal(outputs) / 10 for _ in range(2)]
        gamma, variance, beta, mean = (self.weight(p) for p in (*parts, *means))
        return self.add("BatchNormalization", found, gamma, beta, mean, variance)

    def block(self, x: str, inputs: int, outputs: int, stride: int) -> str:
        """Two convolutions around which the input goes (He et al., 2015)."""
        y = self.add("Relu", self.conv(x, inputs, outputs, 3, stride))
        y = self.conv(y, outputs, outputs, 3)
        if stride > 1 or inputs != outputs:
            x = self.conv(x, inputs, outputs, 1, stride)
        return self.add("Relu", self.add("Add", y, x))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """A product with a bias."""
        weight = self._rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)
        bias = self._rng.standard_normal(outputs)
        return self.add("Gemm", x, self.weight(weight), self.weight(bias), transB=1)

    def relu6(self, x: str) -> str:
        """Elements from 0 to 6."""
        return self.add("Clip", x, self.weight(np.array(0)), self.weight(np.array(6)))

    def numbers(self, *values: int) -> str:
        """An initializer of whole numbers."""
        from onnx import numpy_helper

        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, "int64"), name))
        return name

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """A product of each token with a matrix, and a bias."""
        weight = self._rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        found = self.add("MatMul", x, self.weight(weight))
        return self.add("Add", found, self.weight(self._rng.standard_normal(outputs)))

    def heads(self, x: str, tokens: int, width: int, heads: int) -> str:
        """The parts of each token's vector that heads of attention look at."""
        cut = self.add("Reshape", x, self.numbers(1, tokens, heads, width // heads))
        return self.add("Transpose", cut, perm=[0, 2, 1, 3])

    def normal(self, x: str, width: int) -> str:
        """Vectors of tokens, normalised."""
        gamma, beta = self._rng.uniform(0.5, 1.5, width), self._rng.standard_normal(width)
        return self.add("LayerNormalization", x, self.weight(gamma), self.weight(beta), axis=-1)

    def gelu(self, x: str) -> str:
        """x times the normal distribution function of x, as exporters write it."""
        erf = self.add("Erf", self.add("Div", x, self.weight(np.sqrt(2))))
        found = self.add("Mul", x, self.add("Add", erf, self.weight(np.array(1))))
        return self.add("Mul", found, self.weight(np.array(0.5)))


def resnet18(
    size: int = 224, width: int = 64, classes: int = 1000, seed: int = 0, stages: int = 4
) -> Any:
    """The residual network of 18 layers (He et al., 2015) with random weights.

    Args:
        size: of the image.
        width: channels of its first layers.
        classes: that it tells apart.
        seed: of the weights.
        stages: of two blocks each.
    """
    b = _Builder(seed)
    x = b.add("Relu", b.conv("image", 3, width, 7, 2))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage in range(stages):
        outputs = width << stage
        x = b.block(x, channels, outputs, 2 if stage else 1)
        x = b.block(x, outputs, outputs, 1)
        channels = outputs
    x = b.add("Flatten", b.add("GlobalAveragePool", x))
    return _image_model(b, "resnet18", size, b.dense(x, channels, classes), classes)


def _image_model(b: _Builder, name: str, size: int, logits: str, classes: int) -> Any:
    """A model from an image to numbers for classes."""
    from onnx import TensorProto, helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])
    result = helper.make_tensor_value_info(logits, TensorProto.FLOAT, [1, classes])
    return _model(b, name, image, result)


def _model(b: _Builder, name: str, given: Any, result: Any) -> Any:
    from onnx import helper

    g = helper.make_graph(b.nodes, name, [given], [result], b.weights)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


#: Factor of the inner channels, channels, blocks and stride of each stage (Sandler et al., 2018).
_INVERTED = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(size: int = 224, classes: int = 1000, seed: int = 0) -> Any:
    """Inverted residuals with convolutions of each channel (Sandler et al., 2018).

    Args:
        size: of the image.
        classes: that it tells apart.
        seed: of the weights.
    """
    b = _Builder(seed)
    x = b.relu6(b.conv("image", 3, 32, 3, 2))
    channels = 32
    for factor, outputs, blocks, first in _INVERTED:
        for n in range(blocks):
            stride, inner, before = 1 if n else first, channels * factor, x
            if factor > 1:
                x = b.relu6(b.conv(x, channels, inner, 1))
            x = b.relu6(b.conv(x, inner, inner, 3, stride, groups=inner))
            x = b.conv(x, inner, outputs, 1)
            if stride == 1 and channels == outputs:
                x = b.add("Add", before, x)
            channels = outputs
    x = b.relu6(b.conv(x, channels, 1280, 1))
    x = b.add("Flatten", b.add("GlobalAveragePool", x))
    return _image_model(b, "mobilenet_v2", size, b.dense(x, 1280, classes), classes)


def bert(layers: int = 4, tokens: int = 128, width: int = 768, heads: int = 12) -> Any:
    """Encoder layers of a transformer (Devlin et al., 2018) over vectors of tokens.

    Args:
        layers: how many.
        tokens: how many.
        width: of the vector of a token.
        heads: of attention.
    """
    from onnx import TensorProto, helper

    b = _Builder(0)
    x = "tokens"
    for _ in range(layers):
        q, k, v = (b.heads(b.linear(x, width, width), tokens, width, heads) for _ in range(3))
        turned = b.add("Transpose", k, perm=[0, 1, 3, 2])
        scores = b.add("Div", b.add("MatMul", q, turned), b.weight(np.sqrt(width / heads)))
        mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), v)
        joined = b.add("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = b.add("Reshape", joined, b.numbers(1, tokens, width))
        x = b.normal(b.add("Add", x, b.linear(joined, width, width)), width)
        inner = b.linear(x, width, 4 * width)
        x = b.normal(b.add("Add", x, b.linear(b.gelu(inner), 4 * width, width)), width)
    shape = [1, tokens, width]
    given = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, shape)
    return _model(b, "bert", given, helper.make_tensor_value_info(x, TensorProto.FLOAT, shape))
