"""The builder's side: a DAG and a trace come in, an artifact goes out.

The modules of the compiler are imported before the worker reports itself ready, so that no build is
charged for it.
"""

from __future__ import annotations

import json

from loopwright import driver
from loopwright.errors import InternalError
from loopwright.measure.workers.messages import BuildReply, BuildRequest
from loopwright.measure.workers.protocol import Message
from loopwright.target import Target
from loopwright.te import Dag
from loopwright.te.intrin_proof import vouch_for


class BuildRole:
    """Answers a `BuildRequest`; keeps the DAGs and targets that it has met."""

    def __init__(self) -> None:
        self._dags: dict[str, Dag] = {}
        self._targets: dict[str, Target] = {}

    def answer(self, request: Message) -> BuildReply:
        """Compile one candidate."""
        if not isinstance(request, BuildRequest):
            raise InternalError(f"a builder was sent a {type(request).__name__}")
        vouch_for(request.intrinsics)
        artifact = driver.compile(
            self._dag(request),
            request.trace,
            request.arg_ids,
            self._target(request),
            request.name,
            request.passes,
        )
        return BuildReply(manifest=artifact.manifest, payload=artifact.objects)

    def _dag(self, request: BuildRequest) -> Dag:
        if request.payload:
            self._dags[request.dag] = Dag.from_json(json.loads(request.payload))
        if request.dag not in self._dags:
            raise InternalError(f"a builder was asked for DAG {request.dag}, which it never got")
        return self._dags[request.dag]

    def _target(self, request: BuildRequest) -> Target:
        key = json.dumps(request.target, sort_keys=True)
        if key not in self._targets:
            self._targets[key] = Target.from_canonical(request.target)
        return self._targets[key]
