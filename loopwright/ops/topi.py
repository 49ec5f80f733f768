"""Records of TVM's operators (TOPI), as logs of AutoTVM hold them, as points of spaces here.

A template of TOPI fixes its loops, and its knobs say how far each is split. Where a structure of
our space, or a template of ours, has the same nest, a record names a point of it; what its knobs
say beyond that is said in words. Templates for other devices are read for their workload alone.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from loopwright.errors import LoopwrightError
from loopwright.records import Json, Record
from loopwright.runtime import runs_on_cpu
from loopwright.space import vector_lanes
from loopwright.task import ConfigEntity, ConfigSpace, Seed, SpaceUnion, Task

#: Parameters of an operator here, by name.
_Sizes: TypeAlias = dict[str, Any]
#: A point, and what it leaves out, or why there is none.
_Named: TypeAlias = "tuple[ConfigEntity | None, tuple[str, ...]]"


class _NotHereError(LoopwrightError):
    """Refusal of a record that has no counterpart here; the message is the reason."""


@dataclass(frozen=True)
class _Choice:
    knob: str  # of the space here
    value: Json
    of: tuple[str, ...]  # knobs of TOPI that say so


def seed_of(task: Task, record: Record) -> Seed | None:
    """A record of TOPI beside a task of ours; None where it is of no template that is known."""
    stem, device = _template(record)
    if stem not in _READERS or not device:
        return None
    name, read = _READERS[stem]
    own = dict(zip(inspect.signature(task.template.function).parameters, task.args, strict=False))
    also = {name: _Sizes(), **_ALSO.get(name, {})}
    try:
        sizes = read(record.args)
    except _NotHereError as exc:  # of an unknown workload, which its name alone says
        return Seed(name, _refused(record, str(exc)) if task.name in also else None, False)
    except (TypeError, ValueError, IndexError, AttributeError):
        why = "its arguments are others than are known here"
        return Seed(name, _refused(record, why) if task.name in also else None, False)
    said = (f"{k}={_text(v)}" for k, v in sizes.items() if v != _USUAL.get(k))
    wanted = {**sizes, **also.get(task.name, {})}
    alike = all(_text(own[k]) == _text(v) for k, v in wanted.items() if k in own)
    of_it = task.name in also and alike
    point = partial(_point, task, own, record) if of_it else None
    return Seed(" ".join([name, *said]), point)


def _template(record: Record) -> tuple[str, str]:
    """The template of a record and its device, by the names of AutoTVM 0.2; in 0.1 the target says
    the device, and the sizes of a tile which of the products it is."""
    stem, _, device = record.op.partition(".")
    if device or stem not in _OF_0_1:
        return stem, device
    rows = record.config.get("tile_y")
    packed = isinstance(rows, (list, tuple)) and len(rows) == 3
    kind, keys = record.target.get("kind"), record.target.get("keys")
    on_x86 = kind == "llvm" and not keys
    stem = _OF_0_1[stem]
    return "dense_pack" if stem == "dense_nopack" and packed else stem, "x86" if on_x86 else "other"


def _refused(record: Record, why: str) -> Callable[[], _Named]:
    return lambda: (None, (f"{record.op}: {why}",))


def _point(task: Task, own: _Sizes, record: Record) -> _Named:
    try:
        return _found(task, own, record)
    except _NotHereError as exc:
        return _refused(record, str(exc))()


def _found(task: Task, own: _Sizes, record: Record) -> _Named:
    stem, device = _template(record)
    if device != "x86":
        raise _NotHereError("its knobs are of a schedule that no space here has")
    if not runs_on_cpu(task.target.kind):
        raise _NotHereError(f"it is scheduled for a CPU, not for {task.target.kind}")
    mean = _POINTS.get(stem)
    if mean is None:
        raise _NotHereError("its knobs are not known")
    space, first = _part(task)
    remarks: list[str] = []
    choices = mean(_Context(own, record.config, space, task, remarks))
    values, inexact = _nearest(space, choices)
    for choice in inexact:
        said = ", ".join(f"{name}={_json(record.config.get(name))}" for name in choice.of)
        remarks.append(
            f"{said}: {choice.knob}={_json(choice.value)} is no choice of this space, in whose "
            f"place {_json(values[choice.knob])} is taken"
        )
    local = space.find(values)
    assert local is not None
    return task.config_space.get(first + local), tuple(remarks)


def _part(task: Task) -> tuple[ConfigSpace, int]:
    """The space in which points of a task lie, and its first index in the whole."""
    space = task.config_space
    if not isinstance(space, SpaceUnion):
        return space, 0
    names = _STRUCTURES.get(task.name, (f"template {task.by_hand}",))
    apart = task.name == "depthwise_conv2d" and "NCHW" in task.args
    number = next((n for n, name in enumerate(space.names) if name in names), None)
    if number is None:
        raise _NotHereError(
            "vectors go along channels, one tile of columns after the other; this workload has no "
            "such structure" + (", it has one with layout=NHWC" if apart else "")
        )
    return space.parts[number].config_space, space.offsets[number]


#: Candidates of a knob of several sizes whose combinations are tried; of other knobs the nearest.
_TRIED = 24


def _nearest(
    space: ConfigSpace, choices: Sequence[_Choice]
) -> tuple[dict[str, Json], list[_Choice]]:
    """The values of the valid point nearest to some choices, by the ratios of sizes, with the
    default of every other knob; and the choices that the space does not offer."""
    values = {name: knob.value(knob.default) for name, knob in space.knobs.items()}
    choices = [c for c in choices if c.knob in values]
    offers: list[list[tuple[float, Json]]] = []
    for choice in choices:
        entities = [entity.value for entity in space.knobs[choice.knob].entities]
        near = sorted(((_distance(choice.value, v), v) for v in entities), key=lambda o: o[0])
        several = isinstance(choice.value, (list, tuple))
        offers.append([o for o in near[: _TRIED if several else 1] if o[0] < math.inf])
        if not offers[-1]:
            raise _NotHereError(f"{choice.knob} has no choice {_json(choice.value)} here")
    combined = sorted(itertools.product(*offers), key=lambda offer: sum(d for d, _ in offer))
    for offer in combined:
        values |= {c.knob: value for c, (_, value) in zip(choices, offer, strict=True)}
        index = space.find(values)
        if index is not None and space.is_valid(index):
            return values, [c for c, (d, _) in zip(choices, offer, strict=True) if d > 0]
    raise _NotHereError("no tile near to that of the record fits the registers of this machine")


def _distance(wanted: Json, value: Json) -> float:
    if isinstance(wanted, (list, tuple)) and isinstance(value, (list, tuple)):
        parts = zip(wanted, value, strict=True)
        return sum(_distance(a, b) for a, b in parts)
    if wanted == value:
        return 0.0
    numbers = all(type(x) is int and x > 0 for x in (wanted, value))
    return abs(math.log(wanted / value)) if numbers else math.inf


def _json(value: Json) -> str:
    return str(list(value)) if isinstance(value, (list, tuple)) else str(value)


def _text(value: Json) -> str:
    """A parameter as it is written on the command line."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value if len(set(value)) > 1 else value[:1]))
    return str(value)


# ---------------------------------------------------------------- arguments of TOPI

#: Values of parameters that the command line need not say.
_USUAL: Mapping[str, Any] = {
    "stride": (1, 1), "pad": (0, 0), "dilation": (1, 1), "dtype": "float32", "groups": 1,
    "trans_a": False, "trans_b": False,
}  # fmt: skip
#: Further operators that compute the same under some parameters.
_ALSO: Mapping[str, dict[str, _Sizes]] = {
    "dense": {"matmul": {"trans_a": False, "trans_b": True}},
}


def _tensor(arg: Any, ranks: tuple[int, ...]) -> tuple[list[int], str]:
    kind, shape, dtype, *_ = arg
    if kind != "TENSOR" or len(shape) not in ranks or {type(n) for n in shape} != {int}:
        raise ValueError
    return list(shape), str(dtype)


def _image(args: Sequence[Any]) -> tuple[_Sizes, list[int]]:
    """Parameters of a convolution but for its channels, and the weight as (O, I, KH, KW)."""
    data, weight, strides, padding, dilation = args[:5]
    shape, dtype = _tensor(data, (4, 5))
    window, _ = _tensor(weight, (4, 6))
    if len(shape) == 5:
        shape = [shape[0], shape[1] * shape[4], *shape[2:4]]
    if len(window) == 6:
        window = [window[0] * window[5], window[1] * window[4], *window[2:4]]
    n, c, h, w = shape
    sizes: _Sizes = {"N": n, "C": c, "H": h, "W": w, "O": window[0]}
    sizes |= {"KH": window[2], "KW": window[3]}
    sizes |= {"stride": _both(strides), "pad": _padding(padding), "dilation": _both(dilation)}
    return {**sizes, "dtype": dtype}, window


def _both(value: Any) -> tuple[int, int]:
    y, x = (value, value) if type(value) is int else value
    if not type(y) is type(x) is int:
        raise ValueError
    return y, x


def _padding(value: Any) -> tuple[int, int]:
    if value == "VALID":
        return 0, 0
    if isinstance(value, str):
        raise _NotHereError(f"its padding is {value!r}, of which the log keeps no numbers")
    if isinstance(value, int) or len(value) == 2:
        return _both(value)
    top, left, bottom, right = value
    _both(value[:2])
    if (top, left) != (bottom, right):
        raise _NotHereError(
            f"its padding {_json(value)} is another one at each side; workloads here pad alike"
        )
    return top, left


def _conv2d(args: Sequence[Any]) -> _Sizes:
    if args[5:6] in (["NHWC"], ["HWCN"]):
        raise _NotHereError(f"its layout is {args[5]}")
    sizes, weight = _image(args)
    if weight[1] != sizes["C"]:
        raise _NotHereError(f"its weight has {weight[1]} of {sizes['C']} channels: it has groups")
    return {**sizes, "groups": 1}


def _depthwise(args: Sequence[Any]) -> _Sizes:
    sizes, (outputs, multiplier, _, _) = _image(args)
    if multiplier != 1 or outputs != sizes["C"]:
        raise _NotHereError(f"it makes {multiplier} results of each channel, workloads here one")
    del sizes["O"]
    return sizes


def _dense(args: Sequence[Any]) -> _Sizes:
    (m, k), dtype = _tensor(args[0], (2,))
    weight, _ = _tensor(args[1], (2, 3))
    n = weight[0] if len(weight) == 2 else weight[0] * weight[2]
    if weight[1] != k:
        raise ValueError
    return {"M": m, "N": n, "K": k, "dtype": dtype}


def _batch_matmul(args: Sequence[Any]) -> _Sizes:
    (batch, *a), dtype = _tensor(args[0], (3,))
    (other, *b), _ = _tensor(args[1], (3,))
    trans_a, trans_b = bool([*args, *[None] * 6][4]), args[5] if len(args) > 5 else True
    if batch != other:
        raise _NotHereError("one of its operands is the same for the whole batch")
    m, k = reversed(a) if trans_a else a
    n, along = b if trans_b else reversed(b)
    if along != k:
        raise ValueError
    sizes = {"B": batch, "M": m, "N": n, "K": k, "dtype": dtype}
    return {**sizes, "trans_a": trans_a, "trans_b": bool(trans_b)}


#: The operator, and the reader of the arguments, of templates by their name before the device.
_READERS: dict[str, tuple[str, Callable[[Sequence[Any]], _Sizes]]] = {
    "conv2d_NCHWc": ("conv2d", _conv2d),
    "conv2d_nchw": ("conv2d", _conv2d),
    "conv2d_nchw_spatial_pack": ("conv2d", _conv2d),
    "depthwise_conv2d_NCHWc": ("depthwise_conv2d", _depthwise),
    "depthwise_conv2d_nchw": ("depthwise_conv2d", _depthwise),
    "dense_nopack": ("dense", _dense),
    "dense_pack": ("dense", _dense),
    "batch_matmul": ("batch_matmul", _batch_matmul),
}

#: Templates of AutoTVM 0.1, whose names have no device, by those of 0.2.
_OF_0_1 = {
    "topi_nn_conv2d": "conv2d_nchw",
    "topi_x86_conv2d_NCHWc": "conv2d_NCHWc",
    "topi_nn_depthwise_conv2d_nchw": "depthwise_conv2d_nchw",
    "topi_x86_depthwise_conv2d_NCHWc_from_nchw": "depthwise_conv2d_NCHWc",
    "topi_nn_dense": "dense_nopack",
    "topi_nn_batch_matmul": "batch_matmul",
}

# ---------------------------------------------------------------- knobs of TOPI for x86


@dataclass(frozen=True)
class _Context:
    own: _Sizes  # parameters of the task
    config: Mapping[str, Json]  # knobs of the record
    space: ConfigSpace  # where its point is looked for
    task: Task
    remarks: list[str]  # what the point leaves out, to be said

    def sizes(self, name: str, count: int) -> list[int]:
        """The sizes of a split from the outside in; the outermost may be -1."""
        value: Any = self.config.get(name)
        fits = isinstance(value, (list, tuple)) and len(value) == count
        if not fits or any(type(n) is not int or n < 1 for n in value[1:]):
            raise _NotHereError(f"{name} is {value!r}, no split into {count} loops")
        return list(value)

    def said(self, *names: str) -> str:
        return ", ".join(f"{name}={_json(self.config[name])}" for name in names)

    def tile(self, block: str, columns: int, channels: int) -> list[_Choice]:
        """A register tile, and as many of them in a ``block`` as a line of the result has."""
        tile = _Choice("tile", (columns, channels), ("tile_ow", "tile_oc"))
        chosen = cast("list[int]", _nearest(self.space, [tile])[0]["tile"])
        stride, pad, dilation = (_both(self.own[name])[1] for name in ("stride", "pad", "dilation"))
        reach = dilation * (self.own["KW"] - 1) + 1
        count = -(-((self.own["W"] + 2 * pad - reach) // stride + 1) // chosen[0])
        offered = cast("list[int]", [e.value for e in self.space.knobs[block].entities])
        whole = min((n for n in offered if n >= count), default=count)
        return [tile, _Choice(block, whole, ("tile_ow",))]


#: Structures whose vectors go along channels and whose register tiles go along columns.
_STRUCTURES = {
    "conv2d": tuple(
        f"x x f, W packed at root, vectors outside{producers}"
        for producers in ("", ", producers at root")
    ),
    "depthwise_conv2d": ("tiles along ch",),
}


def _conv2d_nchwc(here: _Context) -> list[_Choice]:
    """A task is a line of the result in a block of channels, ``tile_oc``, along which vectors go; a
    register tile is ``tile_ow`` columns of it. The weight lies in blocks of channels."""
    own = here.own
    ic, oc, ow = (here.sizes(f"tile_{x}", 2)[-1] for x in ("ic", "oc", "ow"))
    lines, taps = 1, (own["KH"], own["KW"])
    choices = []
    if taps == (1, 1):
        lines = here.config.get("tile_oh", 1)
        if type(lines) is not int or lines < 1:
            raise _NotHereError(f"tile_oh is {lines!r}, no number of lines")
        if lines > 1:
            here.remarks.append(
                f"tile_oh={lines}: a register tile here lies in one line, and has {ow * lines} "
                f"columns of it; a task has {lines} lines"
            )
    else:
        unrolled = bool(here.config.get("unroll_kw"))
        written_out = taps[1] if unrolled else 1
        choices = [_Choice("taps", 1, ()), _Choice("unroll", written_out, ("unroll_kw",))]
        if ic > 1:
            here.remarks.append(
                "tile_ic: all taps of one channel follow each other here, TOPI takes one tap of a "
                "block of channels"
            )
        if not unrolled and taps[1] > 1 and "unroll" not in here.space.knobs:
            here.remarks.append("unroll_kw=False: the taps of a line are written out here")
    if own["N"] > 1:
        here.remarks.append("tasks go through channels before images here, TOPI's after them")
    return [
        *choices,
        *here.tile("row_block", ow * lines, oc),
        _Choice("ahead", 0, ()),
        _Choice("vector_block", 1, ()),
        _Choice("beside", lines, ("tile_oh",)),
    ]


def _depthwise_nchwc(here: _Context) -> list[_Choice]:
    """A task is a line of the result, in TOPI in a block of channels; register tiles are as in a
    convolution. Only where channels lie side by side do vectors go along them."""
    own = here.own
    oc, ow = (here.sizes(f"tile_{x}", 2)[-1] for x in ("oc", "ow"))
    if not here.config.get("unroll_kw"):
        here.remarks.append("unroll_kw=False: the taps of a line are written out here")
    if oc < own["C"]:
        here.remarks.append(
            f"{here.said('tile_oc')}: a task here goes through all blocks of channels, in TOPI "
            "through one"
        )
    if own["pad"] not in (0, (0, 0)):
        here.remarks.append("zeros around the image are put in where it is read, not before")
    return here.tile("rows", ow, oc)


def _dots(here: _Context, tile: Callable[[int], list[int]]) -> list[_Choice]:
    """Elements of the result as vectors of partial sums, which go along the reduction."""
    if "dot" not in [e.value for e in here.space.knobs["pack"].entities]:
        raise _NotHereError("vectors go along the reduction, which is not how this operand lies")
    y, x, k = (here.sizes(f"tile_{name}", 2)[-1] for name in "yxk")
    # Narrow operands are summed in 32 bits.
    summed = "float64" if here.own["dtype"] == "float64" else "float32"
    with here.task.target:
        lanes = vector_lanes(summed)
    if k != lanes:
        here.remarks.append(
            f"{here.said('tile_k')}: partial sums here are whole vectors, of {lanes}"
        )
    return [
        _Choice("tile_i", tile(y), ("tile_y",)),
        _Choice("tile_j", tile(x), ("tile_x",)),
        _Choice("order", "ij", ()),
        _Choice("pack", "dot", ()),
        _Choice("unroll_k", 1, ()),
    ]


def _dense_nopack(here: _Context) -> list[_Choice]:
    """A task is a tile of dot products of ``tile_y`` x ``tile_x``, in vectors of ``tile_k``."""
    return _dots(here, lambda size: [-1, 1, size])


def _batch_matmul_x86(here: _Context) -> list[_Choice]:
    """A task is ``tile_y`` x ``tile_x`` dot products, one after the other, in vectors of
    ``tile_k``."""
    if min(here.sizes("tile_y", 2)[-1], here.sizes("tile_x", 2)[-1]) > 1:
        here.remarks.append(
            f"{here.said('tile_y', 'tile_x')}: a task here goes through its elements by columns, "
            "in TOPI by rows"
        )
    return _dots(here, lambda size: [-1, size, 1])


def _dense_pack(here: _Context) -> list[_Choice]:
    """A task is blocks of register tiles, ``tile_y`` rows x ``tile_x`` columns with vectors along
    the columns; ``tile_k`` steps of the reduction are written out."""
    (_, y, rows), (_, x, columns) = here.sizes("tile_y", 3), here.sizes("tile_x", 3)
    k, inner = here.sizes("tile_k", 2)[-1], here.sizes("tile_inner", 2)[-1]
    if min(x, y) > 1:
        here.remarks.append(
            f"{here.said('tile_y', 'tile_x')}: a task here goes through the tiles of a panel "
            "first, in TOPI through those of its rows"
        )
    if k > 1 and 1 < inner < rows:
        here.remarks.append(
            f"{here.said('tile_inner')}: each step of the reduction is for all rows of a tile here"
        )
    return [
        _Choice("tile_i", [-1, y, rows], ("tile_y",)),
        _Choice("tile_j", [-1, x, columns], ("tile_x",)),
        _Choice("unroll_k", k, ("tile_k",)),
        _Choice("order", "ji", ()),
        _Choice("pack", "panel", ()),
    ]


_POINTS: dict[str, Callable[[_Context], list[_Choice]]] = {
    "conv2d_NCHWc": _conv2d_nchwc,
    "depthwise_conv2d_NCHWc": _depthwise_nchwc,
    "depthwise_conv2d_nchw": _depthwise_nchwc,
    "dense_nopack": _dense_nopack,
    "dense_pack": _dense_pack,
    "batch_matmul": _batch_matmul_x86,
}
