"""The line that holds a tensor expression, so that a record outlives the script it came from.

The DAG is raw JSON here; `loopwright.history.rebuild` verifies its hash where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from loopwright.errors import RecordError
from loopwright.records.json_value import Json
from loopwright.records.line import body_of, canonical_json, sealed
from loopwright.records.record import VERSION


@dataclass(frozen=True, eq=False)
class Expression:
    """The tensor expression that the records of one DAG share.

    Attributes:
        hash: hash of the DAG, by which records refer to it.
        dag: the DAG, in the form of ``Dag.to_json``.
        arg_ids: the arguments in calling order, as ids of the DAG.
        op: name of the template that made it.
        args: arguments of the template.
        passes: settings of the `PassContext` that candidates were lowered in; empty: the defaults.
        inputs: origin of the input data: ``{"made_by": "template"}`` for the template's
            ``make_inputs``, or ``{"made_by": "seed", "seed": 0}`` for random data.

    Example:
        >>> log = lw.records.load("matmul.jsonl")
        >>> expression = log.expression(log.records[0])
        >>> print(expression.op, te.Dag.from_json(expression.dag).ops[0].name)
        matmul A
    """

    hash: str
    dag: Mapping[str, Json]
    arg_ids: list[Json]
    op: str = ""
    args: list[Json] = field(default_factory=list)
    passes: Mapping[str, Json] = field(default_factory=dict)
    inputs: Mapping[str, Json] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Key that is equal for expressions of which a log needs only one line."""
        return canonical_json([self.hash, self.arg_ids, self.op, self.args, self.passes])

    def to_line(self) -> str:
        """The line with its checksum, without the newline.

        Raises:
            RecordError: it is too long, or nested too deep, to be read back.
        """
        return sealed(body_of({"v": VERSION, "expression": asdict(self)}, "an expression"))

    @classmethod
    def from_json(cls, data: Json) -> Expression:
        """Read the ``expression`` of a line; unknown fields are ignored.

        Raises:
            RecordError: a field is missing or malformed.
        """
        if not isinstance(data, dict):
            raise RecordError("field 'expression' is not an object")
        values = {}
        for name, kind in _FIELDS.items():
            if not isinstance(data.get(name), kind):
                raise RecordError(f"field {name!r} of 'expression' is missing or malformed")
            values[name] = data[name]
        return cls(**values)


_FIELDS = {
    "hash": str,
    "dag": dict,
    "arg_ids": list,
    "op": str,
    "args": list,
    "passes": dict,
    "inputs": dict,
}
