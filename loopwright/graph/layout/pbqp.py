"""Partitioned Boolean quadratic problems: a choice for each node, so that the costs are low.

A node has a cost for each choice, an edge for each pair of choices. Nodes are removed one by one:
those of up to two neighbours exactly (R0, R1, R2; on a tree this is dynamic programming), those of
more by a heuristic (RN). Scholz and Eckstein, *Register Allocation for Irregular Architectures*,
LCTES 2002; Hames and Scholz, *Nearly Optimal Register Allocation with PBQP*, JMLC 2006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopwright.errors import UsageError

_Array = np.ndarray[Any, np.dtype[np.float64]]
#: The costs of edges: one row for each choice of the first node, a column for each of the second.
Edges = Mapping[tuple[int, int], Any]


@dataclass(frozen=True)
class Solution:
    choice: tuple[int, ...]  # index of the choice of each node
    cost: float  # sum over nodes and edges
    exact: bool  # optimal for certain: no node needed the heuristic


def solve(costs: Sequence[Any], edges: Edges, starts: Sequence[Sequence[int]] = ()) -> Solution:
    """Choose for each node, so that the sum of the costs of nodes and edges is low.

    ``edges`` maps pairs of nodes to cost matrices; a pair may be given in both orders. Where the
    heuristic was needed, single nodes are changed as long as that lowers the cost, from the result
    of the reduction, from the choices that cost least by themselves, and from ``starts`` (choices
    for all nodes); so the result is never worse than any of these. Costs have to be finite
    (UsageError).
    """
    problem = _Problem.of(costs, edges)
    reduction = _Reduction([c.copy() for c in problem.costs], [dict(m) for m in problem.neighbours])
    choice, exact = reduction.run()
    if not exact:
        begins = [choice, [int(np.argmin(c)) for c in problem.costs], *map(list, starts)]
        choice = min((problem.improved(b) for b in begins), key=problem.cost)
    return Solution(tuple(choice), problem.cost(choice), exact)


@dataclass(frozen=True)
class _Problem:
    costs: list[_Array]
    neighbours: list[dict[int, _Array]]

    @staticmethod
    def of(costs: Sequence[Any], edges: Edges) -> _Problem:
        vectors = [_numbers(c, f"the costs of node {n}") for n, c in enumerate(costs)]
        for n, vector in enumerate(vectors):
            if vector.ndim != 1 or not len(vector):
                raise UsageError(f"node {n} has costs of shape {vector.shape}; give one a choice")
        problem = _Problem(vectors, [{} for _ in vectors])
        for (a, b), pair_costs in edges.items():
            if a == b or not (0 <= a < len(vectors) and 0 <= b < len(vectors)):
                raise UsageError(f"there is no edge {(a, b)} among {len(vectors)} nodes")
            matrix = _numbers(pair_costs, f"the costs of edge {(a, b)}")
            wanted = (len(vectors[a]), len(vectors[b]))
            if matrix.shape != wanted:
                raise UsageError(f"edge {(a, b)} has shape {matrix.shape}; give {wanted}")
            _add(problem.neighbours, a, b, matrix)
        return problem

    def cost(self, choice: Sequence[int]) -> float:
        nodes = sum(float(c[i]) for c, i in zip(self.costs, choice, strict=True))
        pairs = (
            float(m[choice[a], choice[b]])
            for a, near in enumerate(self.neighbours)
            for b, m in near.items()
            if a < b
        )
        return nodes + sum(pairs)

    def improved(self, choice: Sequence[int]) -> list[int]:
        """A local optimum: no change of a single node lowers its cost."""
        current, changed = list(choice), True
        while changed:
            changed = False
            for n, vector in enumerate(self.costs):
                total = vector + sum(m[:, current[b]] for b, m in self.neighbours[n].items())
                best = int(np.argmin(total))
                if total[best] < total[current[n]]:
                    current[n], changed = best, True
        return current


def _numbers(values: Any, what: str) -> _Array:
    array = np.asarray(values, "float64")
    if not np.isfinite(array).all():
        raise UsageError(f"{what} are not all finite numbers; leave such choices out")
    return array


def _add(neighbours: list[dict[int, _Array]], a: int, b: int, matrix: _Array) -> None:
    before = neighbours[a].get(b)
    both = matrix if before is None else before + matrix
    neighbours[a][b], neighbours[b][a] = both, both.T


@dataclass
class _Reduction:
    # of nodes that are gone, both stay as they were then
    costs: list[_Array]
    neighbours: list[dict[int, _Array]]
    gone: list[int] = field(default_factory=list)  # in the order of their removal

    def run(self) -> tuple[list[int], bool]:
        left, decided = set(range(len(self.costs))), dict[int, int]()
        while left:
            # The number decides between equals: one problem has one result.
            node = min(left, key=lambda n: (len(self.neighbours[n]), n))
            near = self.neighbours[node]
            if len(near) > 2:
                node = max(left, key=lambda n: (len(self.neighbours[n]), -n))
                near = self.neighbours[node]
                decided[node] = self._decide(node)
            elif len(near) == 2:  # R2: its best cost goes to the pair of its two neighbours
                (a, to_a), (b, to_b) = near.items()
                every = self.costs[node][:, None, None] + to_a[:, :, None] + to_b[:, None, :]
                _add(self.neighbours, a, b, every.min(axis=0))
            elif near:  # R1: its best cost goes to its only neighbour
                ((a, matrix),) = near.items()
                self.costs[a] = self.costs[a] + (self.costs[node][:, None] + matrix).min(axis=0)
            for other in near:
                del self.neighbours[other][node]
            self.gone.append(node)
            left.remove(node)
        return self._chosen(decided), not decided

    def _decide(self, node: int) -> int:
        """RN: the choice that is cheapest together with the best of each neighbour by itself."""
        near = self.neighbours[node].items()
        total = self.costs[node] + sum((m + self.costs[b]).min(axis=1) for b, m in near)
        best = int(np.argmin(total))
        for b, m in near:
            self.costs[b] = self.costs[b] + m[best]
        return best

    def _chosen(self, decided: Mapping[int, int]) -> list[int]:
        """Decide in reverse order of removal, when all neighbours are known."""
        choice = dict(decided)
        for node in reversed(self.gone):
            if node not in choice:
                near = self.neighbours[node].items()
                total = self.costs[node] + sum(m[:, choice[b]] for b, m in near)
                choice[node] = int(np.argmin(total))
        return [choice[n] for n in range(len(self.costs))]
