"""The plan of the data that kernels of an expression run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.measure.building import Candidate
from loopwright.measure.data_plan import DataPlan
from loopwright.measure.exactness import exactness
from loopwright.measure.index_ranges import index_operands, index_spans
from loopwright.te.dag import read_arg_id

if TYPE_CHECKING:
    from loopwright.measure.running import ArgKey


def plan_of(candidate: Candidate, *, given: bool) -> tuple[list[ArgKey], DataPlan]:
    """The arguments of a candidate, and how their data are made.

    Args:
        candidate: what is built.
        given: the template makes the inputs.

    Raises:
        UsageError: an operand is used as an index, and there is no telling which values keep it
            inside.
    """
    dag = candidate.dag
    places = [read_arg_id(i) for i in candidate.arg_ids]
    ops = [dag.ops[op] for op, _ in places]
    args = [
        (op.static_shape, op.dtypes[output], not op.is_placeholder)
        for op, (_, output) in zip(ops, places, strict=True)
    ]
    # What the template makes is in range, but must not be put into another order.
    spans = dict.fromkeys(index_operands(dag), (0, 0)) if given else index_spans(dag)
    exact = None if given else exactness(dag)
    used = tuple(spans.get(op) for op, _ in places) if spans else ()
    return args, DataPlan(used, exact.largest if exact else 0)
