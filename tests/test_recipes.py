"""The recipes of CONTRIBUTING.md are true: what they name exists, and what exists followed them.

A recipe is a list of the places that a new thing needs. Here each thing that the package has (every
primitive, node, pass, target, tuner, kind of features, rule, operator, verb) is held against its
recipe, so that a place which everybody needs, or nobody does, is noticed.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import loopwright as lw
import loopwright.schedule
from benchmarks.workloads import CASES, MORE_CASES
from loopwright import transform
from loopwright.cli.app import Verbs
from loopwright.cost.features import FEATURE_TYPES
from loopwright.ir import buffer, expr, stmt
from loopwright.ir.expr import Expr
from loopwright.ir.stmt import Stmt
from loopwright.lowering.context import Pass
from loopwright.lowering.pipeline import PIPELINE
from loopwright.ops import WORKLOADS
from loopwright.schedule.steps import Step
from loopwright.space.registry import RULES
from loopwright.space.rules.several_cpu import BUILT_IN
from loopwright.target.kinds import KINDS
from loopwright.tuner import TUNERS
from tests.unit.space.expressions import CONTRACTIONS, OTHERS, bytes_product
from tests.unit.space.on_devices import halves
from tests.unit.space.test_transformed import expression as winograd

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "loopwright"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
RECIPES = dict(
    re.findall(r"^## (Adding .+)\n((?:(?!^##? ).*\n)*)", CONTRIBUTING, flags=re.MULTILINE)
)
#: Statements of kernels, which a target for CPUs is never given.
OF_KERNELS = {"AllReduce", "Barrier"}
#: Statements that a pass replaces before anything runs.
REPLACED = {"AllReduce"}


@cache
def text_of(place: str) -> str:
    """The sources below a folder, or of a file, of the repository."""
    paths = [ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py")
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(paths))


def names(word: str, *places: str) -> bool:
    """Whether a word stands in the sources of some places."""
    return any(re.search(rf"\b{word}\b", text_of(place)) for place in places)


def nodes(base: type) -> list[str]:
    """Names of the concrete nodes of a base class."""
    classes = [c for m in (expr, stmt, buffer) for c in vars(m).values() if inspect.isclass(c)]
    concrete = {c for c in classes if issubclass(c, base) and c is not base}
    return sorted(c.__name__ for c in concrete if c.__module__ == base.__module__)


def test_there_is_a_recipe_for_everything() -> None:
    things = ["primitive", "node", "pass", "target", "tuner", "feature", "rule", "operator", "verb"]
    assert not [t for t in things if not any(t in title for title in RECIPES)]


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_files_that_exist(title: str) -> None:
    folders = "loopwright|tests|docs|benchmarks|tutorials"
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", RECIPES[title])
    assert named
    assert not [place for place in named if not (ROOT / place).exists()]


@pytest.mark.parametrize("name", sorted(Step.registry))
def test_every_primitive_followed_its_recipe(name: str) -> None:
    cls = Step.registry[name].__name__
    assert Step.registry[name].__module__.startswith("loopwright.schedule.primitives.")
    assert names(cls, "fuzzing/random")
    assert names(name, "tests/unit/schedule")


@pytest.mark.parametrize("name", nodes(Stmt))
def test_every_statement_followed_its_recipe(name: str) -> None:
    assert names(name, "loopwright/ir/printer.py")
    assert names(name, "loopwright/ir/interp") or name in REPLACED
    for place in ("codegen/llvm", "codegen/c"):
        assert names(name, f"loopwright/{place}") or name in OF_KERNELS, place


@pytest.mark.parametrize("name", nodes(Expr))
def test_every_expression_followed_its_recipe(name: str) -> None:
    assert names(name, "loopwright/ir/printer.py")
    assert names(
        name, "loopwright/ir/interp", "loopwright/lowering/nest", "loopwright/ir/affine.py"
    )


@pytest.mark.parametrize("p", [p for phase in PIPELINE for p in phase], ids=repr)
def test_every_pass_followed_its_recipe(p: Pass) -> None:
    module = inspect.getmodule(p.run)
    assert module is not None
    folder, _, file = module.__name__.rpartition(".")
    assert folder == "loopwright.lowering.passes"
    public = any(value is p for value in vars(transform).values())
    assert public or p in PIPELINE[0], "its name in transform.py"
    assert names(file, "tests/unit") or names(p.name, "tests/unit")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_target_followed_its_recipe(kind: str) -> None:
    assert f"`{kind}`" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"[\"']{kind}\b", text_of("tests/contracts"))


@pytest.mark.parametrize("name", TUNERS)
def test_every_tuner_followed_its_recipe(name: str) -> None:
    file = TUNERS[name].__module__.rpartition(".")[2]
    assert "(TunerContract)" in text_of(f"tests/unit/tuner/test_{file}.py")
    assert TUNERS[name].__name__ in text_of("tests/test_public_api.py")


@pytest.mark.parametrize("kind", FEATURE_TYPES)
def test_every_kind_of_features_followed_its_recipe(kind: str) -> None:
    assert re.search(rf"[\"']{kind}[\"']", text_of("loopwright/cost/features"))
    assert re.search(rf"[\"']{kind}[\"']", text_of("tests/unit/cost"))


@pytest.mark.docs  # CONTRIBUTING has the recipe
@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_followed_its_recipe(name: str) -> None:
    rule = RULES[name]
    folder, _, file = rule.function.__module__.rpartition(".")
    assert folder == "loopwright.space.rules"
    table = "rules/several_cpu.py" if name in BUILT_IN else "derivation.py"
    assert names(file, f"loopwright/space/{table}")
    assert {"cpu", "gpu", *KINDS}.issuperset(rule.targets)
    makers = [*CONTRACTIONS.values(), *(make for make, _ in OTHERS.values())]
    makers += [lambda: halves(256, 256, 256, trans_b=False), bytes_product]
    makers += [lambda: winograd((1, 18, 6, 16), 32, 1)]
    found = []
    with lw.Target("llvm -mcpu=cascadelake" if "cpu" in rule.targets else "cuda -arch=sm_80"):
        for args in (make() for make in makers):
            found += rule.function(args[-1:], args) or ()
    assert found, "an expression for it among the makers above"
    assert not [structure.name for structure in found if not structure.why]


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_operator_followed_its_recipe(name: str) -> None:
    assert name in {case.op for case in (*CASES, *MORE_CASES)}
    assert re.search(rf"[\"']{name}[\"']", text_of("tests/unit/ops"))


@pytest.mark.parametrize("verb", Verbs.modules)
def test_every_verb_followed_its_recipe(verb: str) -> None:
    assert re.search(rf"[\"']{verb}[\"']", text_of("tests/cli"))
    assert f"loopwright {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")
