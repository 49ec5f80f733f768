"""Templates by hand that operators had before their spaces were derived, frozen to compare with.

Importing this registers them: ``baseline/softmax`` has the arguments and the expression of the
operator ``softmax``, on CPUs. A change of one makes the figures that were taken with it worthless.
"""

from __future__ import annotations

from benchmarks.templates.conv2d import conv2d
from benchmarks.templates.depthwise_conv2d import depthwise_conv2d
from benchmarks.templates.elementwise import elementwise
from benchmarks.templates.layer_norm import layer_norm
from benchmarks.templates.pool2d import pool2d
from benchmarks.templates.reduce import reduce
from benchmarks.templates.softmax import softmax
from benchmarks.templates.transpose import transpose
from loopwright.task import Template

#: The templates by the operator that each was of.
BASELINES: dict[str, Template] = {
    "conv2d": conv2d,
    "depthwise_conv2d": depthwise_conv2d,
    "elementwise": elementwise,
    "layer_norm": layer_norm,
    "pool2d": pool2d,
    "reduce": reduce,
    "softmax": softmax,
    "transpose": transpose,
}
