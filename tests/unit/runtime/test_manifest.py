"""The manifest as data: it reads what it writes, also that of programs of symbolic sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from loopwright.errors import UsageError
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest, SizesSpec

FIXED = FunctionSpec(
    "f",
    (ArgSpec("A", (2, 3), "float32", False), ArgSpec("B", (2, 3), "float32", True)),
    64,
    128,
    True,
    ("index {0} is outside",),
)
SYMBOLIC = FunctionSpec(
    "g",
    (ArgSpec("A", ("n", ["+", "n", 1]), "float32", True),),
    ["*", "n", 64],
    sizes=SizesSpec(
        (("n", "int32", True),), (("n", "n"),), ((["-", "n", 2], "too few"),), (0, "n")
    ),
)


def manifest(*functions: FunctionSpec) -> Manifest:
    version = 2 if any(f.sizes for f in functions) else 1
    return Manifest("k", functions[0].name, "x86_64-linux", "znver4", "+fma", 2, functions, version)


def read(data: dict[str, Any]) -> Manifest:
    return Manifest.from_json(json.loads(json.dumps(data)), "the manifest", ["k"])


@pytest.mark.parametrize("m", [manifest(FIXED), manifest(SYMBOLIC), manifest(FIXED, SYMBOLIC)])
def test_it_reads_what_it_writes(m: Manifest) -> None:
    assert read(m.to_json()) == m
    assert read(replace(m, needs=("avx2", "fma")).to_json()).needs == ("avx2", "fma")


def test_a_format_of_before_needs_neither_checks_nor_requirements() -> None:
    data = manifest(SYMBOLIC).to_json()
    for name in ("requires", "checks"):
        data["functions"][0].pop(name, None)
    sizes = read(data).function("g").sizes
    assert sizes is not None
    assert sizes.requires == ()


def test_functions_are_found_by_name() -> None:
    assert manifest(FIXED, SYMBOLIC).function("g") == SYMBOLIC
    with pytest.raises(KeyError):
        manifest(FIXED).function("g")


def test_an_argument_that_lacks_something_is_refused() -> None:
    data = manifest(FIXED).to_json()
    del data["functions"][0]["args"][0]["dtype"]
    with pytest.raises(UsageError, match="the manifest: an argument of 'f' lacks dtype"):
        read(data)
