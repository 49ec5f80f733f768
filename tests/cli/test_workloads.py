"""``loopwright workloads``: what can be tuned, with which parameters, and how to begin."""

from __future__ import annotations

import inspect
import json
import re
import shlex

import pytest

from loopwright import ops
from loopwright.cli.workload import find_workload
from loopwright.ops.operator import REQUIRED, describe, describe_all


def test_the_list_names_every_operator_at_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli("workloads")
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    for name in ops.WORKLOADS:
        assert re.search(rf"^{name} ", ran.out, re.MULTILINE)
    assert "`loopwright workloads batch_matmul` shows the parameters of one" in ran.out


@pytest.mark.parametrize("name", ops.WORKLOADS)
def test_one_is_explained_in_full(cli, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    ran = cli("workloads", name)
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    text = " ".join(ran.out.split())
    for parameter, default in ops.WORKLOADS[name].params.items():
        shown = "required" if default is REQUIRED else str(default)
        shown = shown.lower() if isinstance(default, bool) else shown
        assert re.search(rf" {parameter} [^\[]+\[{re.escape(shown)}\]", text), parameter


@pytest.mark.parametrize("name", ops.WORKLOADS)
def test_the_example_is_a_workload(cli, name):
    example = next(
        shlex.split(line) for line in cli("workloads", name).out.splitlines() if " tune " in line
    )
    assert example[:3] == ["loopwright", "tune", name]
    assert find_workload(example[2], example[3:]).task.config_space.range_length > 1


def test_dtypes_are_those_of_which_a_task_can_be_made():
    found = {one.name: one.dtypes for one in describe_all()}
    assert set(found["softmax"]) == {"float16", "bfloat16", "float32", "float64"}
    assert "int8" in found["matmul"]
    assert "bool" not in found["matmul"]
    assert "bool" in found["transpose"]
    assert found["matmul_int8"] == ()


def test_every_link_of_a_chain_is_named():
    chain = next(p for p in describe(ops.WORKLOADS["elementwise"]).parameters if p.name == "chain")
    with pytest.raises(Exception, match="known: ") as refused:
        find_workload("elementwise", ["M=8", "N=8", "chain=nonsense"])
    known = str(refused.value).partition("known: ")[2].split(", ")
    assert all(link in chain.meaning for link in known)


def test_json_has_all_of_it(cli):
    found = json.loads(cli("workloads", "--json").out)
    assert [one["name"] for one in found] == sorted(ops.WORKLOADS)
    (dense,) = json.loads(cli("workloads", "dense", "--json").out)
    m, *_, weight = dense["parameters"]
    assert (m["name"], m["required"], m["default"]) == ("M", True, None)
    assert (weight["name"], weight["required"], weight["default"]) == ("weight", False, "NK")
    assert "float32" in dense["dtypes"]
    assert dense["example"] == "M=1 N=1000 K=512"


def test_a_wrong_name_gets_a_suggestion(cli):
    ran = cli("workloads", "mtmul")
    assert ran.code == 2
    assert (
        "unknown workload 'mtmul' (did you mean 'matmul'?); there are batch_matmul, conv2d,"
        in ran.error
    )


TEMPLATE = '''
from loopwright import te
from loopwright.schedule import create_schedule
from loopwright.task import template

@template("test/described")
def scaled(n, scale=2):
    """Every element times a number."""
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] * scale, name="b")
    return create_schedule(b.op), [a, b]
'''


def test_templates_of_a_file(cli, tmp_path):
    (tmp_path / "mine.py").write_text(TEMPLATE)
    ran = cli("workloads", "mine.py")
    assert ran.code == 0, ran.err
    text = inspect.cleandoc(ran.out)
    assert text.startswith("mine.py:scaled: Every element times a number.")
    assert "n      [required]" in text
    assert "scale  [2]" in text
    assert "loopwright tune mine.py:scaled n=..." in text
    (tmp_path / "empty.py").write_text("")
    assert cli("workloads", "empty.py").out == "empty.py has no template or function\n"
    assert "no file 'none.py'" in cli("workloads", "none.py").error


def test_one_template_of_a_file(cli, tmp_path):
    (tmp_path / "t.py").write_text(
        "import loopwright as lw\n\n\n"
        '@lw.template("workloads/one")\ndef one(N):\n    """The first."""\n\n\n'
        '@lw.template("workloads/two")\ndef two(M):\n    """The second."""\n'
    )
    assert [f["name"] for f in json.loads(cli("workloads", "t.py", "--json").out)] == [
        "t.py:one",
        "t.py:two",
    ]
    ran = cli("workloads", "t.py:two")
    assert ran.code == 0, ran.err
    assert "t.py:two: The second." in ran.out
    assert "The first." not in ran.out
    wrong = cli("workloads", "t.py:twoo")
    assert wrong.code == 2
    assert (
        "t.py has no template or function 'twoo' (did you mean 'two'?); it has one, two"
        in wrong.error
    )


def test_functions_of_a_file_that_has_no_template(cli, tmp_path):
    (tmp_path / "f.py").write_text(
        'def layer(n, k=8):\n    """A layer."""\n\n\ndef _helper(x):\n    """For layers."""\n'
    )
    ran = cli("workloads", "f.py")
    assert (ran.code, ran.err) == (0, "")
    assert "f.py:layer: A layer." in ran.out
    assert "loopwright tune f.py:layer n=..." in ran.out
    assert "_helper" not in ran.out
    (found,) = json.loads(cli("workloads", "f.py:layer", "--json").out)
    assert [p["name"] for p in found["parameters"]] == ["n", "k"]


def test_a_file_without_a_template_is_told_from_an_operator(cli):
    ran = cli("tune", "t.py", "N=8")
    assert ran.code == 2
    assert ran.error == (
        "error: t.py is a file; name a template or function in it, t.py:NAME "
        "(see 'loopwright workloads t.py')"
    )


def test_a_size_beyond_all_memory_is_refused_at_once(cli):
    ran = cli("tune", "matmul", "M=99999999999999999999", "N=16", "K=16")
    assert ran.code == 2
    assert "M=99999999999999999999 is more than any memory holds" in ran.error
