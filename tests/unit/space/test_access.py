"""Access maps against enumeration: what a tile reads, and after how many iterations it changes."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from loopwright import te
from loopwright.space.expression import accesses, producers, readers

EXTENTS = (6, 5, 4)
coefficients = st.integers(0, 3)
indices = st.tuples(coefficients, coefficients, coefficients, st.integers(0, 2), st.integers(1, 4))


def position(index: tuple[int, ...], i: object, j: object, k: object) -> object:
    """``a * (i // n) + b * j + c * k + offset``, of numbers as of axes."""
    a, b, c, offset, n = index
    return (i // n) * a + j * b + k * c + offset  # type: ignore[operator]


@given(st.lists(indices, min_size=1, max_size=3), st.data())
def test_a_tile_reads_the_box_that_enumeration_finds(
    dims: list[tuple[int, ...]], data: st.DataObject
) -> None:
    shape = [1 + max(position(d, *(n - 1 for n in EXTENTS)) for d in [dim]) for dim in dims]
    A = te.placeholder(shape, name="A")
    k = te.reduce_axis((0, EXTENTS[2]), name="k")
    out = te.compute(
        EXTENTS[:2],
        lambda i, j: te.sum(A[tuple(position(d, i, j, k.var) for d in dims)], axis=k),
        name="out",
    )
    (access,) = accesses(out)
    axes = [*out.op.axis, k]
    _check_steps(access.steps, axes, dims)
    # A tile that starts where blocks start: within a block where the axis moves by blocks alone.
    sizes = []
    for x in axes:
        most = min(access.steps.get(x, x.count), x.count) if access.steps.get(x, 1) > 1 else x.count
        sizes.append(data.draw(st.integers(1, most)))
    box = access.tile(dict(zip(axes, sizes, strict=True)))
    for dim, found, whole, form in zip(dims, box, shape, access.dims, strict=True):
        if form is None:
            assert found == whole
            continue
        reached = [position(dim, *at) for at in product(*map(range, sizes))]
        assert max(reached) - min(reached) + 1 == found


def _check_steps(steps: object, axes: list[te.IterVar], dims: list[tuple[int, ...]]) -> None:
    """After fewer iterations than a step says the element is the same, from a multiple on."""
    for at, x in enumerate(axes):
        values = []
        for n in range(x.count):
            point = [0, 0, 0]
            point[at] = n
            values.append(tuple(position(d, *point) for d in dims))
        step = steps.get(x)  # type: ignore[attr-defined]
        changes = [n for n in range(1, x.count) if values[n] != values[n - 1]]
        if step is None:
            assert not changes
        else:
            assert all(n % step == 0 for n in changes)
            assert not changes or step <= min(changes)


def test_the_axis_along_memory() -> None:
    A = te.placeholder((8, 8), name="A")
    for f, name in (
        (lambda i, j: A[i, j], "j"),
        (lambda i, j: A[j, i], "i"),
        (lambda i, j: A[i, j * 2 % 8], None),
        (lambda i, j: A[i, (j * 2) // 2 + 0], "j"),
        (lambda i, j: A[0, te.max(i - j, 0)], None),
    ):
        out = te.compute((8, 4), f, name="out")
        (access,) = accesses(out)
        assert getattr(access.contiguous, "name", None) == name


def test_equal_reads_count_once_and_different_ones_apart() -> None:
    A = te.placeholder((8, 8), name="A")
    out = te.compute((8, 8), lambda i, j: A[i, j] * A[i, j] + A[j, i], name="out")
    assert len(accesses(out)) == 2


def test_producers_and_readers() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: A[i] * B[i], name="C")
    D = te.compute((8,), lambda i: C[i] + B[i], name="D")
    assert [t.name for t in producers(D)] == ["B", "C", "D"]
    assert [t.name for t in readers(B, producers(D))] == ["C", "D"]
