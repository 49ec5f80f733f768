"""The arguments of a compiled kernel, as its manifest describes them."""

from __future__ import annotations

from loopwright.runtime import Arg, Artifact


def arguments(artifact: Artifact) -> list[Arg]:
    """The arguments of an artifact's entry function, in calling order."""
    entry = artifact.contents.function(artifact.entry)
    return [Arg.of(spec) for spec in entry.args]


def outputs(artifact: Artifact) -> list[Arg]:
    """The arguments of the entry function that it writes."""
    return [arg for arg in arguments(artifact) if arg.output]
