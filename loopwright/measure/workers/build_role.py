"""The builder's side: a DAG and a trace come in, a program's key and then an artifact go out.

A program is lowered first, in a few milliseconds; it is compiled, which takes ten times as long,
only if the parent does not know it. The modules of the compiler are imported before the worker
reports itself ready, so that no build is charged for it.
"""

from __future__ import annotations

import json

from loopwright import driver
from loopwright.codegen import backend_names
from loopwright.errors import InternalError
from loopwright.measure.workers import protocol
from loopwright.target import Target
from loopwright.te import Dag, vouch_for


class BuildRole:
    """Lowers and compiles programs; keeps DAGs and targets for later requests."""

    def __init__(self) -> None:
        self._dags: dict[str, Dag] = {}
        self._targets: dict[str, Target] = {}
        self._lowered: tuple[driver.LoweredProgram, Target] | None = None

    def answer(self, request: protocol.Message) -> protocol.Reply:
        match request:
            case protocol.LowerRequest():
                return self._lower(request)
            case protocol.CompileRequest():
                if self._lowered is None:
                    text = "a builder was asked to compile before it had lowered anything"
                    raise InternalError(text)
                (program, target), self._lowered = self._lowered, None
                artifact = driver.compile_lowered(program, target)
                return protocol.BuildReply(manifest=artifact.manifest, payload=artifact.objects)
        raise InternalError(f"a builder was sent a {type(request).__name__}")

    def _lower(
        self, request: protocol.LowerRequest
    ) -> protocol.LoweredReply | protocol.UnknownTarget:
        self._lowered = None
        kind, known = str(request.target["kind"]), backend_names()
        if kind not in known:  # it was registered in the parent's process alone
            return protocol.UnknownTarget(kind=kind, known=known)
        vouch_for(request.intrinsics)
        if request.payload:
            self._dags[request.dag] = Dag.from_json(json.loads(request.payload))
        if request.dag not in self._dags:
            raise InternalError(f"a builder was asked for DAG {request.dag}, which it never got")
        key = json.dumps(request.target, sort_keys=True)
        if key not in self._targets:
            self._targets[key] = Target.from_canonical(request.target)
        target = self._targets[key]
        program = driver.lower_trace(
            self._dags[request.dag], request.trace, request.arg_ids, request.name, request.passes
        )
        self._lowered = program, target
        return protocol.LoweredReply(
            program=driver.program_key(program.func, target, request.passes)
        )
