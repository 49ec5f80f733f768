"""The builder's side: a DAG and a trace come in, an artifact goes out.

The modules of the compiler are imported before the worker reports itself ready, so that no build is
charged for it.
"""

from __future__ import annotations

import json
from typing import Any

from loopwright.errors import InternalError
from loopwright.measure.protocol import Frame


class BuildRole:
    """Answers ``build`` requests.

    The payload of a request is the JSON of the DAG the first time that this process meets its hash,
    and empty afterwards.
    """

    def __init__(self) -> None:
        from loopwright import driver
        from loopwright.target import Target
        from loopwright.te import Dag

        self._compile: Any = driver.compile
        self._target_of: Any = Target.from_canonical
        self._dag_of: Any = Dag.from_json
        self._dags: dict[str, Any] = {}
        self._targets: dict[str, Any] = {}

    def answer(self, frame: Frame) -> tuple[dict[str, Any], bytes]:
        """Compile one candidate; the reply carries the manifest and the object file."""
        header = frame.header
        dag = self._dag(header["dag"], frame.payload)
        target = self._target(header["target"])
        artifact = self._compile(
            dag,
            header["trace"],
            header["arg_ids"],
            target,
            header["name"],
            header["passes"],
        )
        return {"ok": True, "manifest": artifact.manifest}, artifact.objects

    def _dag(self, key: str, payload: bytes) -> Any:
        if payload:
            self._dags[key] = self._dag_of(json.loads(payload))
        if key not in self._dags:
            raise InternalError(f"a builder was asked for DAG {key}, which it was never sent")
        return self._dags[key]

    def _target(self, canonical: dict[str, Any]) -> Any:
        key = json.dumps(canonical, sort_keys=True)
        if key not in self._targets:
            self._targets[key] = self._target_of(canonical)
        return self._targets[key]
