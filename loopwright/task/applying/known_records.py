"""The records of a history by task and by expression, and which may be applied to a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from loopwright.records import Record, canonical_json, fields_of, top_k, vouched
from loopwright.task.applying.fit import Here
from loopwright.task.applying.judging import (
    CHECK,
    PassedOver,
    failed_checks,
    is_right,
    refusal,
)
from loopwright.task.task import Task

#: Number of records that are tried before the default is used: the template may have changed, and
#: lines that no run has written may stand before those that fit.
_TRIES = 64
#: Number of refused records that are described field by field.
_NEAR_MISSES = 3


class KnownRecords:
    """Records by their task and by what it computes."""

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}
        self._expressions: dict[tuple[str, str], dict[str, list[Record]]] | None = None

    def add(self, records: Iterable[Record]) -> None:
        for name, more in _by_name(records).items():
            self._records.setdefault(name, []).extend(more)
        self._expressions = None

    def select(
        self, task: Task, here: Here, *, any_hardware: bool
    ) -> tuple[list[Record], PassedOver]:
        """Records to try, best first, and the number that were passed over for each reason."""
        exact, near, refused = [], [], []
        passed = PassedOver()
        own = self.of_expression(task)
        failed = failed_checks(own)
        phases, candidates, usable = fields_of(own, "phase", "candidate", "usable")
        known = zip(own, phases, candidates, usable, here.fits(own), strict=True)
        for record, phase, candidate, is_usable, fit in known:
            if phase == CHECK:
                continue
            if reason := refusal(record, fit, failed, any_hardware=any_hardware):
                passed.reasons[reason] += 1
                refused += [record] if is_usable and candidate not in failed else []
            elif fit.same_options:
                exact.append(record)
            else:
                near.append(record)
        if not own:
            passed = self._other_tasks(task)
        for record in top_k(refused, _NEAR_MISSES):
            fields = "; ".join(map(str, here.fit(record).refused))
            passed.near_misses.append(f"record {record.id} was refused: {fields}")
        # Failures are passed on as well: a wrong answer found later takes its candidate out.
        rest = [record for record, is_usable in zip(own, usable, strict=True) if not is_usable]
        groups = filter(None, (exact, near))
        order = [record for group in groups for record in top_k([*group, *rest], _TRIES)]
        right = vouched(own)
        order.sort(key=lambda record: not is_right(record, right, here))
        return order[:_TRIES], passed

    def of_expression(self, task: Task) -> list[Record]:
        """Records of a task, and others of its expression (an automatic space's) and kind of
        target."""
        names = dict.fromkeys((task.alias, task.key))
        own = [record for key in names for record in self._records.get(key, [])]
        if not task.dag_hash:
            return own
        groups = [self._by_expression().get((dag, task.kind), {}) for dag in task.dag_hashes]
        others = chain.from_iterable(group.items() for group in groups)
        return [*own, *chain.from_iterable(g for key, g in others if key not in names)]

    def _by_expression(self) -> Mapping[tuple[str, str], Mapping[str, list[Record]]]:
        """Records by expression and kind of target, and then by task."""
        if self._expressions is None:
            self._expressions = {}
            for key, records in self._records.items():
                kind = records[0].kind  # which the key tells
                for record, dag in zip(records, fields_of(records, "dag")[0], strict=True):
                    group = self._expressions.setdefault((dag, kind), {})
                    group.setdefault(key, []).append(record)
        return self._expressions

    def _other_tasks(self, task: Task) -> PassedOver:
        """Reasons why the log has nothing of this task: its other arguments and targets."""
        reasons: Counter[str] = Counter()
        for records in self._records.values():
            first = records[0]
            if first.op == task.name:
                same = canonical_json(first.args) == canonical_json(list(task.args))
                other = f"target {first.kind!r}" if same else f"arguments {tuple(first.args)}"
                reasons[f"for {other}, not {task.kind if same else task.args}"] += len(records)
        total = sum(map(len, self._records.values()))
        none = f"none of this task among {total} records" if total else "the log is empty"
        return PassedOver(reasons, none)


def _by_name(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by the name of their task, in order of first appearance."""
    groups: dict[str, list[Record]] = {}
    records = list(records)
    (names,) = fields_of(records, "task")
    for record, name in zip(records, names, strict=True):
        groups.setdefault(name, []).append(record)
    return groups
