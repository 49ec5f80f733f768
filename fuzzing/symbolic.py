"""Programs of which some extents become size variables: one function, run for several sizes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzzing.differential import Array, Case
from fuzzing.random.expr import Draw, Info, poison, random_array
from loopwright.errors import InternalError, TensorError
from loopwright.te.dag import ArgId, Dag, read_arg_id
from loopwright.testing.numpy_eval import evaluate

#: Largest distance of an extent from a size that is written as the size plus or minus a number.
NEAR = 2
_VAR = ["var", "s0"]


def symbolise(d: Draw, dag: dict[str, Any]) -> tuple[dict[str, Any], int] | None:
    """The JSON of a program with a size variable in related extents, and the value of the
    variable."""
    out = copy.deepcopy(dag)
    places = [(op[key], k) for op in out["ops"] for key in ("shape", "reduce_extents")
              for k in range(len(op.get(key, ())))]  # fmt: skip
    extents = sorted({x[k] for x, k in places if x[k] > 1})
    if not extents:
        return None
    size = d.pick(extents)
    for x, k in places:
        x[k] = _extent(d, x[k], size)
    return out | {"sizes": [["n", "int32", d.chance(50)]]}, size


def _extent(d: Draw, n: int, size: int) -> Any:
    if n == size:
        return _VAR
    if n == 2 * size and d.chance(70):
        return ["bin", "*", _VAR, ["const", 2, "int32"], "int32"]
    if abs(n - size) <= NEAR and n > 1 and d.chance(70):
        op = "+" if n > size else "-"
        return ["bin", op, _VAR, ["const", abs(n - size), "int32"], "int32"]
    return n


def symbolic_cases(d: Draw, case: Case) -> list[Case]:
    """A case with a size variable, for several sizes; none where it has no extent."""
    symbolic = symbolise(d, case.dag)
    if symbolic is None:
        return []
    dag, size = Dag.from_json(symbolic[0]), symbolic[1]
    out = []
    for n in dict.fromkeys((size, 1, size - 1, size + 1, 2 * size, size + 7)):
        arrays = _arrays(dag, case.arg_ids, n, d)
        assert arrays or n != size, "the size that the program had gives another program"
        if arrays:
            # What is known of the values holds for the old size only.
            infos = [Info(False, 1.0, 1.0, 2.5e-4) for _ in arrays]
            sizes = {"n": n}
            out.append(Case(symbolic[0], case.trace, case.arg_ids, arrays, infos, sizes, 2e-2))
    return out


def _arrays(dag: Dag, arg_ids: Sequence[ArgId], n: int, d: Draw) -> list[Array] | None:
    """Arrays for a size; None where the program has no meaning for it."""
    try:
        bound = dag.bind({"n": n})
    except TensorError:
        return None
    rng, arrays, inputs = np.random.default_rng(d.integer(0, 1 << 16)), [], {}
    for i, k in map(read_arg_id, arg_ids):
        op = bound.ops[i]
        if op.is_placeholder:
            inputs[i] = random_array(rng, op.static_shape, op.dtype, False)
            arrays.append(inputs[i])
        else:
            arrays.append(poison(op.static_shape, op.dtypes[k]))
    try:
        evaluate(bound, inputs)
    except InternalError:
        return None
    return arrays
