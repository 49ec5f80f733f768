"""Records grouped by everything that decides a time, so that only comparable ones are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from loopwright.presenting import counted
from loopwright.records.line import Json
from loopwright.records.query import by_conditions
from loopwright.records.record import Record


class Setup(NamedTuple):
    """A task on a machine: times of records of one setup can be compared."""

    task: str  # see :func:`loopwright.records.keys_of`
    hardware: str  # see :func:`loopwright.records.hardware`; empty when not known
    threads: int  # 0 when not known


def by_setup(records: Iterable[Record]) -> dict[Setup, list[Record]]:
    """Group records by their setup, in order of first appearance.

    Example:
        >>> from loopwright.records.reports.setups import by_setup
        >>> [setup] = by_setup(lw.records.load("matmul.jsonl").records)
        >>> print(setup.task)
        {"expression":"ddfa1230279f5a90","kind":"llvm"}
    """
    return {Setup(*conditions): group for conditions, group in by_conditions(records).items()}


def of_one_setup(records: Iterable[Record], record: Record) -> list[Record]:
    """The records that have the setup of one of them."""
    groups = by_setup(records).values()
    return next(group for group in groups if any(member is record for member in group))


def task_text(op: str, args: Sequence[Json]) -> str:
    """A task for people, such as ``matmul(256, 256, 256)``.

    Example:
        >>> from loopwright.records.reports.setups import task_text
        >>> print(task_text("matmul", [256, 256, 256]))
        matmul(256, 256, 256)
    """
    return f"{op}({', '.join(map(str, args))})"


def hardware_names(hardware: Iterable[str]) -> dict[str, str]:
    """Short names of hardware: ``AMD EPYC``, or ``AMD EPYC (core-avx2)`` where two have one CPU;
    that of the board where the CPU is not known."""
    named: dict[str, list[str]] = {}
    for text in dict.fromkeys(hardware):
        cpu, _, generated_for, _, model, family = map(str.strip, _parts(text))
        name = cpu or model or generated_for or family or "unknown hardware"
        named.setdefault(name, []).append(text)
    return {text: name for cpu, group in named.items() for text, name in _names(cpu, group)}


def _parts(hardware: str) -> list[str]:
    """CPU, instruction set, the CPU and the features that code was generated for, and model and
    family of the board."""
    return [*hardware.split(" | "), *[""] * 5][:6]


def _names(cpu: str, group: Sequence[str]) -> list[tuple[str, str]]:
    if len(group) == 1:
        return [(group[0], cpu)]
    _, sets, cpus, features, models, families = zip(*map(_parts, group), strict=True)
    for values in (models, cpus, sets, features, families):
        if len(set(values)) < len(group):
            continue
        common = set.intersection(*(set(value.split()) for value in values))
        apart = [" ".join(w for w in value.split() if w not in common) for value in values]
        words = [text or "none of these" for text in apart]
        return [(text, f"{cpu} ({word})") for text, word in zip(group, words, strict=True)]
    return [(text, text) for text in group]


def setup_titles(records: Iterable[Record]) -> list[str]:
    """Titles of setups, from one record of each: ``matmul(8) on llvm, 2 threads, AMD EPYC``."""
    records = list(records)
    names = hardware_names(record.hardware for record in records)
    return [
        f"{task_text(record.op, record.args)} {conditions_text(record, names)}"
        for record in records
    ]


def conditions_text(record: Record, names: Mapping[str, str], *, threads: bool = True) -> str:
    """Conditions of a record, such as ``on llvm, 2 threads, AMD EPYC``, given `hardware_names`."""
    parts = [f"on {record.kind or 'an unknown target'}"]
    if threads and record.threads:
        parts.append(counted(record.threads, "thread"))
    return ", ".join([*parts, names[record.hardware]])
