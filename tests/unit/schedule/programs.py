"""Small programs that the tests of schedules share."""

from __future__ import annotations

from typing import NamedTuple

from loopwright import te
from loopwright.schedule import Schedule, create_schedule


class Matmul(NamedTuple):
    """A schedule of ``C[i, j] = sum over k of A[i, k] * B[k, j]`` and its tensors."""

    s: Schedule
    a: te.Tensor
    b: te.Tensor
    c: te.Tensor


def matmul(m: int = 8, n: int = 12, k: int = 10) -> Matmul:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return Matmul(create_schedule(c.op), a, b, c)


class RunningSums(NamedTuple):
    """A schedule of ``B[j] = sum(A[k] for k <= j)`` and its tensors."""

    s: Schedule
    a: te.Tensor
    b: te.Tensor


def running_sums(n: int = 16) -> RunningSums:
    a, r = te.placeholder((n,), name="A"), te.reduce_axis((0, n), "k")
    b = te.compute((n,), lambda j: te.sum(a[r], axis=r, where=r <= j), name="B")
    return RunningSums(create_schedule(b.op), a, b)


class Chain(NamedTuple):
    """A schedule of ``B = A * 2``, ``C = B + 1``, ``D = C * B`` and its tensors."""

    s: Schedule
    a: te.Tensor
    b: te.Tensor
    c: te.Tensor
    d: te.Tensor


def chain(n: int = 8, m: int = 6) -> Chain:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * b[i, j], name="D")
    return Chain(create_schedule(d.op), a, b, c, d)
