"""What features are, in words."""

from __future__ import annotations

import re

#: The last part of a feature's name -> what it is.
_WORDS = {
    "flop": "arithmetic operations in all, repeated ones included",
    "bytes": "bytes touched",
    "stages": "stages that are computed",
    "copied": "iterations of stages without arithmetic",
    "threads": "threads of the machine",
    "lanes": "elements of a vector register",
    "iterations": "iterations of its statement",
    "excess": "iterations over those needed once",
    "parallel": "parallel tasks",
    "balance": "share of the threads' time used when tasks are equally long",
    "vector_share": "lanes at work of those of the vector registers",
    "vector_bytes": "bytes of a vectorized loop",
    "store_stride": "bytes between lanes of the store",
    "load_stride": "bytes between lanes of a load, the farthest",
    "tile": "vector operations inside the unrolled and vectorized loops",
    "accumulators": "vectors of results of a tile",
    "live": "those that are wanted at the same time",
    "spilled": "those for which there is no register",
    "independent": "vectors of results updated between two updates of one",
    "loads_per_flop": "loads of operands for each operation",
    "stores_per_flop": "loads and stores of results for each operation",
    "tests": "instructions of conditions (inlined padding)",
    "guarded": "reads under conditions",
    "own_iterations": "iterations of its own loops that remain",
    "cycles": "cycles by the analytical model, caches left out",
    "reduce_inner": "iterations of its own reduction loops",
    "own_loops": "loops of its own",
    "outer_loops": "loops around it of other stages",
    "traffic_l1": "bytes from beyond the first cache",
    "traffic_l2": "bytes from beyond the second cache",
    "traffic_l3": "bytes from beyond the third cache",
    "intensity_l1": "operations for each byte from beyond the first cache",
    "intensity_l2": "operations for each byte from beyond the second cache",
    "intensity_l3": "operations for each byte from beyond the third cache",
    "extent": "iterations of the loop",
    "inner": "iterations of it and of the loops inside",
    "vectorized": "is vectorized",
    "unrolled": "is unrolled",
    "reduce": "is a reduction",
    "intensity": "operations for each byte touched",
    "stride": "bytes from one iteration to the next",
    "reuse": "uses of each element",
    "buffer": "bytes of its buffer",
    "region": "elements that it covers at once",
}


def meaning(name: str) -> str:
    """What a feature is: of which stage, access or loop, and what. Empty for a knob."""
    *groups, last = name.split(".")
    if last not in _WORDS:
        return ""
    word = "runs in parallel" if last == "parallel" and _is_loop(groups) else _WORDS[last]
    return ", ".join([*map(_place, groups), word])


def _is_loop(groups: list[str]) -> bool:
    return bool(groups) and groups[-1].startswith("loop")


def _place(group: str) -> str:
    found = re.fullmatch(r"([a-z]+)(\d*)", group)
    if found is None or group == "main":
        return "main stage"
    kind, number = found.groups()
    if kind == "loop":
        return "innermost loop" if number == "0" else f"loop {number} from the inside"
    if kind == "at":
        return f"within {number} iterations"
    if kind == "stage":
        return f"stage {int(number) + 1} by arithmetic after the main one"
    return f"load {int(number) + 1}" if kind == "load" else kind
