"""Structures that use the CPU's dot product instructions."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.schedule import replay
from loopwright.space import Structure, structures
from loopwright.space.rules.dot_instructions_cpu import dot_instruction_variants
from loopwright.space.structure import structures_of
from loopwright.te import Tensor
from tests.covering import covering, examples

HERE = "llvm -num-threads=1"
#: A CPU with the instructions, one that multiplies pairs of 16 bits in their place, and one with
#: neither: their structures are told on any machine.
WITH, WITHOUT = "llvm -mcpu=znver4 -num-threads=2", "llvm -mcpu=x86-64-v2 -num-threads=2"
PAIRS = "llvm -mcpu=znver3 -num-threads=2"
#: This machine with the instruction, and without it.
TARGETS_HERE = [
    pytest.param(HERE, marks=pytest.mark.isa("avx512vnni"), id="vnni"),
    pytest.param(f"{HERE} -mattr=-avx512vnni,-avxvnni", marks=pytest.mark.isa("avx2"), id="pairs"),
]
BYTES = [("uint8", "int8"), ("int8", "uint8"), ("int8", "int8"), ("uint8", "uint8")]


def product(
    m: int, n: int, k: int, a: str, b: str, trans_a: bool = False, trans_b: bool = False
) -> list[Tensor]:
    """A product of integers into int32, or of bfloat16 into float32."""
    result = "float32" if a == "bfloat16" else "int32"
    A = te.placeholder((k, m) if trans_a else (m, k), a, name="A")
    B = te.placeholder((n, k) if trans_b else (k, n), b, name="B")
    r = te.reduce_axis((0, k), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        x = A[r, i] if trans_a else A[i, r]
        y = B[j, r] if trans_b else B[r, j]
        return te.sum(x.astype(result) * y.astype(result), axis=r)

    return [A, B, te.compute((m, n), element, name="C")]


def convolution(
    layout: str, channels: int, stride: int, a: str, b: str, side: int = 3, w: int = 11
) -> list[Tensor]:
    """A convolution of square windows whose sums are brought back to bytes behind it."""
    nchw, (h, o) = layout == "NCHW", (9, 18)
    X = te.placeholder((2, channels, h, w) if nchw else (2, h, w, channels), a, name="X")
    K = te.placeholder(
        (o, channels, side, side) if nchw else (side, side, channels, o), b, name="K"
    )
    taps = zip("cyx", (channels, side, side), strict=True)
    c, y, x = (te.reduce_axis((0, n), name=s) for s, n in taps)
    high, wide = (h - side) // stride + 1, (w - side) // stride + 1

    def sums(n: te.IterVar, o: te.IterVar, i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        at = (i * stride + y, j * stride + x)
        pixel = X[n, c, at[0], at[1]] if nchw else X[n, at[0], at[1], c]
        weight = K[o, c, y, x] if nchw else K[y, x, c, o]
        return te.sum(pixel.astype("int32") * weight.astype("int32"), axis=[c, y, x])

    if nchw:
        Y = te.compute((2, o, high, wide), sums, name="Y")
    else:
        Y = te.compute((2, high, wide, o), lambda n, i, j, o: sums(n, o, i, j), name="Y")
    scaled = te.compute(
        Y.shape,
        lambda *i: te.max(te.min(te.round(Y(*i).astype("float32") * 0.01), 127.0), -128.0).astype(
            "int8"
        ),
        name="Z",
    )
    return [X, K, scaled]


def extreme(tensors: list[Tensor]) -> list[np.ndarray]:
    """The least and largest values of each type, and some between."""
    rng = np.random.default_rng(len(tensors))
    found = []
    for t in tensors:
        limits = np.iinfo(t.dtype)
        values = rng.integers(limits.min, limits.max + 1, t.static_shape)
        ends = rng.choice([limits.min, limits.max], t.static_shape)
        found.append(np.where(rng.random(t.static_shape) < 0.7, ends, values).astype(t.dtype))
    return found


def made(args: list[Tensor], target: str = HERE) -> list[Structure]:
    with lw.Target(target):
        return structures_of(dot_instruction_variants, [args[-1]], args)


def points(
    found: list[Structure], seed: int, others: int = examples(1, 3)
) -> Iterator[tuple[Structure, int]]:
    """The default of the first structure, and a random point of each of some others."""
    yield found[0], found[0].config_space.default_index
    rng = np.random.default_rng(seed)
    for n in rng.permutation(len(found))[:others]:
        (index,) = found[n].config_space.sample_ints(1, seed)
        yield found[n], index


def run(structure: Structure, index: int, inputs: list[np.ndarray], target: str) -> np.ndarray:
    s, args = structure.instantiate(structure.config_space.get(index))
    out = np.full(args[-1].static_shape, 77).astype(args[-1].dtype)
    lw.build(s, args, target)(*inputs, out)
    return out


SHAPES = [(16, 32, 16), (13, 37, 22), (5, 70, 9, True), (33, 18, 7, False, True), (2, 65, 130)]


@pytest.mark.parametrize("target", TARGETS_HERE)
@pytest.mark.parametrize(("types", "shape"), covering(BYTES, SHAPES, strength=1))
def test_sums_of_bytes_are_exact(
    target: str, types: tuple[str, str], shape: tuple[int, ...]
) -> None:
    args = product(*shape[:3], *types, *map(bool, shape[3:]))
    a, b = inputs = extreme(args[:2])
    left = a.T if shape[3:4] == (True,) else a
    right = b.T if shape[4:5] == (True,) else b
    right_sums = left.astype(np.int64) @ right.astype(np.int64)
    found = made(args, target)
    assert found
    for structure, index in points(found, sum(shape[:3])):
        answer = run(structure, index, inputs, target)
        np.testing.assert_array_equal(answer, right_sums, err_msg=str(structure))


@pytest.mark.parametrize("target", TARGETS_HERE)
def test_sums_of_pairs_of_shorts_wrap_as_int32_does(target: str) -> None:
    args = product(13, 37, 21, "int16", "int16")
    a, b = inputs = extreme(args[:2])
    a[0], b[:, 0] = -(1 << 15), -(1 << 15)  # a pair of these alone is 1 << 31
    want = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    for structure, index in points(made(args, target), 13, others=examples(0, 3)):
        answer = run(structure, index, inputs, target)
        np.testing.assert_array_equal(answer, want, err_msg=str(structure))


@pytest.mark.isa("avx512vnni")
@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "uint8")])
def test_corrections_are_taken_off_once_for_all_written_out_steps(types: tuple[str, str]) -> None:
    args = product(4, 32, 64, *types)
    a, b = inputs = extreme(args[:2])
    structure = made(args)[0]
    space = structure.config_space
    default = space.get(space.default_index).values
    for steps in (1, 4):
        index = space.find(space.entity_of({**default, "tile": [4, 32], "unroll": steps}))
        assert index is not None
        s, own = structure.instantiate(space.get(index))
        text = lw.build(s, own, HERE, name="f").get_source("asm")
        assert text.count("vpsubd") == 4 * 32 // 16, steps
        answer = run(structure, index, inputs, HERE)
        np.testing.assert_array_equal(answer, a.astype(np.int64) @ b.astype(np.int64))


@pytest.mark.parametrize("target", TARGETS_HERE)
def test_sums_neither_saturate_nor_lose_bits(target: str) -> None:
    k = 4096
    args = product(16, 16, k, "uint8", "int8")
    for signed in (-128, 127):
        inputs = [np.full((16, k), 255, np.uint8), np.full((k, 16), signed, np.int8)]
        for structure, index in points(made(args, target), 0):
            assert np.unique(run(structure, index, inputs, target)).tolist() == [255 * signed * k]


@pytest.mark.parametrize("target", TARGETS_HERE)
@pytest.mark.parametrize(
    ("types", "layout", "steps"), covering(BYTES, ["NCHW", "NHWC"], [(8, 1), (6, 2)], strength=1)
)
def test_convolutions_with_what_follows(
    types: tuple[str, str], layout: str, steps: tuple[int, int], target: str
) -> None:
    channels, stride = steps
    args = convolution(layout, channels, stride, *types)
    inputs = extreme(args[:2])
    want = convolved(inputs, layout, stride)
    for structure, index in points(made(args, target), channels):
        np.testing.assert_array_equal(run(structure, index, inputs, target), want, str(structure))


def convolved(inputs: list[np.ndarray], layout: str, stride: int) -> np.ndarray:
    """What `convolution` means, by NumPy."""
    x, w = (v.astype(np.int64) for v in inputs)
    if layout == "NHWC":
        x, w = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    sums = np.einsum("nchwyx,ocyx->nohw", windows[:, :, ::stride, ::stride], w)
    scaled = np.round(sums.astype(np.float32) * np.float32(0.01)).clip(-128, 127).astype(np.int8)
    return scaled if layout == "NCHW" else scaled.transpose(0, 2, 3, 1)


@pytest.mark.parametrize("target", TARGETS_HERE)
@pytest.mark.parametrize("types", BYTES[: examples(1, 4)])
def test_windows_of_three_colours_are_summed_along_their_taps(
    types: tuple[str, str], target: str
) -> None:
    args = convolution("NCHW", 3, 2, *types, side=7, w=12)
    found, inputs = made(args, target), extreme(args[:2])
    assert found
    want = convolved(inputs, "NCHW", 2)
    for structure, index in points(found, 4, others=examples(0, 3)):
        np.testing.assert_array_equal(run(structure, index, inputs, target), want, str(structure))
    # The eighth tap of the last window would lie in the next row.
    assert not made(convolution("NCHW", 3, 2, *types, side=7, w=11), target)


@pytest.mark.isa("avx512bf16")
@pytest.mark.parametrize("shape", [(16, 32, 16), (13, 37, 21), (7, 100, 3), (40, 20, 301)])
@pytest.mark.parametrize("trans_b", [False, True])
def test_products_of_bfloat16_are_within_the_bound_of_sums(
    shape: tuple[int, int, int], trans_b: bool
) -> None:
    args = product(*shape, "bfloat16", "bfloat16", trans_b=trans_b)
    rng = np.random.default_rng(shape[2])
    inputs = [rng.standard_normal(t.static_shape).astype(ml_dtypes.bfloat16) for t in args[:2]]
    a, b = (x.astype(np.float64) for x in inputs)
    b = b.T if trans_b else b
    bound = shape[2] * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b))
    found = made(args)
    assert found
    for structure, index in points(found, shape[0]):
        assert np.all(np.abs(run(structure, index, inputs, HERE) - a @ b) <= bound), structure


@pytest.mark.parametrize("types", [*BYTES, ("bfloat16", "bfloat16")])
def test_the_interpreter_agrees(types: tuple[str, str]) -> None:
    args = product(5, 17, 6, *types)
    rng = np.random.default_rng(3)
    low = 0 if "u" in types[0] + types[1] else -3
    inputs = [
        rng.integers(low, 4, t.static_shape).astype(
            ml_dtypes.bfloat16 if t.dtype == "bfloat16" else t.dtype
        )
        for t in args[:2]
    ]
    want = inputs[0].astype(np.int64) @ inputs[1].astype(np.int64)
    for structure, index in list(points(made(args, WITH), 1))[:2]:
        np.testing.assert_array_equal(run(structure, index, inputs, "interp"), want)


def names(args: list[Tensor], target: str) -> tuple[list[str], list[str]]:
    """Structures by dot products, and others."""
    with lw.Target(target):
        found = [s.name for s in structures(args[-1], args)]
    by_dots = [x for x in found if x.startswith("by dot products")]
    return by_dots, [x for x in found if x not in by_dots]


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (product(32, 64, 32, "uint8", "int8"), 15),
        (product(32, 64, 30, "uint8", "int8"), 12),
        (product(32, 64, 32, "bfloat16", "bfloat16"), 15),
        (product(32, 8, 32, "uint8", "int8"), 6),
        (product(32, 64, 3, "uint8", "int8"), 0),
        (convolution("NHWC", 8, 1, "int8", "int8"), 9),
        (convolution("NCHW", 8, 1, "int8", "int8"), 6),
    ],
)
def test_structures_of_cpus_with_the_instruction_and_without(
    args: list[Tensor], count: int
) -> None:
    by_dots, others = names(args, WITH)
    assert len(by_dots) == len(set(by_dots)) == count
    assert others
    plain, same = names(args, WITHOUT)
    assert not plain
    assert set(same) == set(others)


def test_little_work_is_done_by_one_thread() -> None:
    little, much = (product(n, 64, n, "int8", "int8") for n in (32, 512))
    for args, alone in [(little, True), (much, False)]:
        first = made(args, WITH)[0]
        s, own = first.instantiate(first.config_space.get(first.config_space.default_index))
        assert ("one thread" in first.name) == alone
        assert ("parallel" in str(lw.lower(s, own))) != alone
    assert not any("one thread" in s.name for s in made(much, WITH))


def test_a_cpu_with_dot_products_of_bytes_alone() -> None:
    target = "llvm -mcpu=tigerlake"
    assert names(product(32, 64, 32, "uint8", "int8"), target)[0]
    assert not names(product(32, 64, 32, "bfloat16", "bfloat16"), target)[0]


@pytest.mark.parametrize(
    ("target", "types"),
    covering([PAIRS, "llvm -mcpu=skylake-avx512 -num-threads=2"], BYTES, strength=1),
)
def test_a_cpu_that_multiplies_pairs_in_place_of_the_instruction(
    target: str, types: tuple[str, str]
) -> None:
    args = product(32, 64, 32, *types)
    found = made(args, target)
    assert sorted(s.name for s in found) == sorted(s.name for s in made(args, WITH))
    first = found[0]
    s, own = first.instantiate(first.config_space.get(first.config_space.default_index))
    text = lw.build(s, own, target, name="f").get_source("asm")
    assert "vpmaddwd" in text
    assert "vpdpbusd" not in text


def test_other_sums_are_left_to_other_rules() -> None:
    for a, b in [("float32", "float32"), ("int16", "int8"), ("float16", "float16")]:
        A, B = te.placeholder((32, 32), a, name="A"), te.placeholder((32, 64), b, name="B")
        k = te.reduce_axis((0, 32), name="k")
        result = "float32" if a.startswith("float") else "int32"
        C = te.compute(
            (32, 64),
            lambda i, j, A=A, B=B, k=k, result=result: te.sum(
                A[i, k].astype(result) * B[k, j].astype(result), axis=k
            ),
            name="C",
        )
        assert not names([A, B, C], WITH)[0]
    A, k = te.placeholder((32, 64), "uint8", name="A"), te.reduce_axis((0, 32), name="k")
    gram = te.compute(
        (64, 64),
        lambda i, j: te.sum(A[k, i].astype("int32") * A[k, j].astype("int32"), axis=k),
        name="C",
    )
    assert not names([A, gram], WITH)[0]


@pytest.mark.parametrize("k", [64, 62])
def test_the_tile_holds_nothing_but_instructions(k: int) -> None:
    args = product(13, 37, k, "uint8", "int8")
    for structure, index in points(made(args, WITH), 5, others=3):
        if structure.name.count("packed") < 2 or "packed at root" not in structure.name:
            continue
        text = str(lw.lower(*structure.instantiate(structure.config_space.get(index))))
        assert text.count("dot_16x4_u8s8s32") == 1, text
        assert "int32(A" not in text, text


def test_a_last_block_of_few_lanes_needs_no_whole_tiles_of_rows() -> None:
    args = product(13, 37, 64, "uint8", "int8")
    found = [s for s in made(args, WITH) if "B packed at root" in s.name and "A" not in s.name]
    assert found
    for structure in found:
        space = structure.config_space
        text = str(lw.lower(*structure.instantiate(space.get(space.default_index))))
        assert "dot_16x4_u8s8s32" in text
        assert "int32(A" not in text, text


def test_weights_that_lie_in_groups_already_are_read_as_they_are() -> None:
    with lw.Target(WITH):
        _, args = lw.ops.matmul_int8(64, 48, 32)
        found = structures_of(dot_instruction_variants, [args[-1]], list(args))
    assert {"W as it is" in s.name for s in found} == {True}
    assert len(found) == 6


@pytest.mark.isa("avx512vnni")
def test_padding_of_weights_that_lie_in_groups_may_hold_anything() -> None:
    with lw.Target(HERE):
        _, given = lw.ops.matmul_int8(21, 40, 30)
        args = list(given)
        found = structures_of(dot_instruction_variants, [args[-1]], args)
    a, w = extreme(args[:2])
    unpacked = w.transpose(1, 3, 0, 2).reshape(32, 48)[:30, :40]
    for structure, index in points(found, 2):
        answer = run(structure, index, [a, w], HERE)
        np.testing.assert_array_equal(answer, a.astype(np.int64) @ unpacked.astype(np.int64))


@pytest.mark.parametrize(
    ("types", "target"),
    [
        (("int8", "int8"), WITH),
        (("uint8", "int8"), PAIRS),
        (("bfloat16", "bfloat16"), WITH),  # AVX2 has no instruction for it
        # The same instructions by other signs.
        pytest.param(("uint8", "int8"), WITH, marks=pytest.mark.slow),
        pytest.param(("int8", "int8"), PAIRS, marks=pytest.mark.slow),
    ],
)
def test_the_analytical_model_prefers_the_instruction(types: tuple[str, str], target: str) -> None:
    args = product(96, 128, 128, *types)
    with lw.Target(target):
        # One at a time: among others, most would be judged at a single point.
        alone = [lw.space.ranked([one], sample=16)[0] for one in structures(args[-1], args)[::2]]
    found = sorted(alone, key=lambda r: -r.speed)
    by_dots = [r.structure.name.startswith("by dot products") for r in found]
    assert by_dots == sorted(by_dots, reverse=True)
    assert found[0].speed > 2 * found[-1].speed


def test_constant_weights_are_packed_before_the_call() -> None:
    A = te.placeholder((32, 64), "uint8", name="A")
    B = te.placeholder((64, 32), "int8", name="B", constant=True)
    k = te.reduce_axis((0, 64), name="k")
    C = te.compute(
        (32, 32),
        lambda i, j: te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k),
        name="C",
    )
    found = made([A, B, C], WITH)
    assert {"B packed at root" in s.name or "A packed at" in s.name for s in found} == {True}
    assert not any("B packed at task" in s.name or "B packed at panel" in s.name for s in found)


@pytest.mark.parametrize("target", TARGETS_HERE)
def test_padded_copies_of_constants_are_made_once(target: str) -> None:
    A = te.placeholder((9, 62), "uint8", name="A")
    B = te.placeholder((62, 37), "int8", name="B", constant=True)
    k = te.reduce_axis((0, 62), name="k")
    C = te.compute(
        (9, 37),
        lambda i, j: te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k),
        name="C",
    )
    a, b = extreme([A, B])
    for structure, index in list(points(made([A, B, C], target), 3))[:2]:
        s, args = structure.instantiate(structure.config_space.get(index))
        f = lw.build(s, args, target).with_constants(B=b)
        for data in (a, a[::-1].copy(), a):
            out = np.zeros((9, 37), np.int32)
            f(data, out)
            np.testing.assert_array_equal(out, data.astype(np.int64) @ b.astype(np.int64))


def test_a_structure_replays_from_its_trace() -> None:
    args = product(13, 37, 22, "int8", "int8")
    for structure, index in points(made(args, WITH), 7):
        s, own = structure.instantiate(structure.config_space.get(index))
        again = replay(s.dag, s.trace_json())
        assert again.trace == s.trace
        ids = s.arg_ids(own)
        assert str(lw.lower(again, [again.tensor(a) for a in ids])) == str(lw.lower(s, own))


def test_programs_of_several_kernels_use_the_instruction() -> None:
    A, B, C = product(32, 48, 32, "uint8", "int8")
    small = te.compute(C.shape, lambda i, j: (C[i, j] % 100).astype("uint8"), name="S")
    D, k = te.placeholder((48, 32), "int8", name="D"), te.reduce_axis((0, 48), name="k2")
    E = te.compute(
        (32, 32),
        lambda i, j: te.sum(small[i, k].astype("int32") * D[k, j].astype("int32"), axis=k),
        name="E",
    )
    with lw.Target(WITH):
        first = structures(E, [A, B, D, E])[0]
    assert first.name.count("by dot products of 4") == 2, first.name
