"""Files of cost models: JSON with a mark and a checksum, so that a foreign, cut or edited file is
refused before anything in it is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright.errors import TuneError
from loopwright.files import Kind, Output, marked, write

_FORMAT = "loopwright cost model"
_VERSION = 1
_MODEL = Kind("a cost model", marked(f'{{"format": "{_FORMAT}"'.encode()))


def write_model(path: str, data: Mapping[str, Any]) -> None:
    """Write a model, with its kind as ``"model"``; no other existing file is replaced."""
    head = {"format": _FORMAT, "version": _VERSION, "sha256": _checksum(data)}
    text = json.dumps({**head, **data}, allow_nan=False)
    write(Output(Path(path), text.encode(), _MODEL), force=None, error=TuneError)


def read_model(path: str, kind: str, fields: Mapping[str, type]) -> dict[str, Any]:
    """Read a model of a kind that `write_model` wrote, with ``fields`` of the given types."""
    data = _load(path)
    if data.get("format") != _FORMAT:
        raise TuneError(f"{path} is not a cost model of loopwright")
    if data.get("version") != _VERSION:
        raise TuneError(
            f"{path} is a cost model of version {data.get('version')!r}; "
            f"this loopwright reads version {_VERSION}: train it again"
        )
    body = {k: v for k, v in data.items() if k not in ("format", "version", "sha256")}
    if data.get("sha256") != _checksum(body):
        raise TuneError(f"{path} was changed or damaged since it was written: train it again")
    if body.get("model") != kind:
        raise TuneError(f"{path} is a cost model of kind {body.get('model')!r}, not {kind!r}")
    for name, wanted in fields.items():
        if not isinstance(body.get(name), wanted):
            raise TuneError(f"{path} has no {name!r} of type {wanted.__name__}: train it again")
    return body


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as exc:
        raise TuneError(f"the cost model {path} cannot be read: {exc.strerror}") from exc
    except (ValueError, RecursionError) as exc:
        text = " ".join(str(exc).split())[:120]
        raise TuneError(f"{path} is not a cost model of loopwright: no JSON ({text})") from exc
    if not isinstance(data, dict):
        raise TuneError(f"{path} is not a cost model of loopwright")
    return data


def _checksum(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
