"""The arguments of a compiled kernel, as its manifest describes them."""

from __future__ import annotations

from collections.abc import Mapping

from loopwright.records import Json
from loopwright.runtime import Arg


def arguments(manifest: Mapping[str, Json]) -> list[Arg]:
    """The arguments of the entry function of a manifest, in calling order."""
    for function in manifest["functions"]:
        if function["name"] == manifest["entry"]:
            return [Arg.from_manifest(entry) for entry in function["args"]]
    raise KeyError(f"manifest without its entry {manifest['entry']!r}")


def outputs(manifest: Mapping[str, Json]) -> list[Arg]:
    """Those arguments of the entry function that it writes."""
    return [arg for arg in arguments(manifest) if arg.output]
