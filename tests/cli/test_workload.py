from __future__ import annotations

import pytest

from loopwright.cli.workload import find_workload
from loopwright.errors import TaskError, UsageError

TEMPLATE = """
from loopwright import te
from loopwright.schedule import create_schedule
from loopwright.task import get_config, template

@template("test/{name}")
def {name}(n, scale=2):
    a = te.placeholder((n,), "float32", name="a")
    b = te.compute((n,), lambda i: a[i] * scale, name="b")
    s = create_schedule(b.op)
    cfg = get_config()
    cfg.define_split("tile", s[b].op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, b, s[b].op.axis[0])
    return s, [a, b]
"""


@pytest.fixture
def file(tmp_path, request):
    """A file that defines one template, of a name that no other test uses."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)
    path = tmp_path / f"{name}.py"
    path.write_text(TEMPLATE.format(name=name))
    return path, name


def test_an_operator():
    found = find_workload("matmul", ["M=8", "N=16", "K=4", "trans_b=true"], "llvm", 1)
    assert found.task.args[:5] == (8, 16, 4, False, True)
    assert found.task.target.canonical["num_threads"] == 1
    assert found.default_log == "matmul_8x16x4.jsonl"
    assert found.command("tune", "--log", "a b") == (
        "loopwright tune matmul M=8 N=16 K=4 trans_b=true --threads 1 --log 'a b'"
    )


def test_pairs_and_words():
    params = ["N=1", "C=4", "H=8", "W=8", "O=4", "KH=3", "KW=3", "stride=2,1", "pad=1x0"]
    found = find_workload("conv2d", params)
    assert (2, 1) in found.task.args
    assert (1, 0) in found.task.args


@pytest.mark.parametrize("registered", [True, False])
def test_a_template_in_a_file(file, registered):
    path, name = file
    found = find_workload(f"{path}:{f'test/{name}' if registered else name}", ["n=24"])
    assert found.task.name == f"test/{name}"
    assert found.task.args == (24, 2)
    assert found.operator is None
    assert found.default_log == f"test_{name}_24x2.jsonl"


def test_a_file_is_loaded_once(file):
    path, name = file
    tasks = [find_workload(f"{path}:{name}", [f"n={n}"]).task for n in (8, 16)]
    assert tasks[0].template is tasks[1].template


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["matmull", "M=1"], r"unknown workload 'matmull' \(did you mean 'matmul'\?\); there are"),
        (["matmul", "M=4", "N=4"], "matmul needs K="),
        (["matmul", "M=4", "N=4", "K=4", "T=1"], "no parameter 'T'.*takes M, N, K"),
        (["matmul", "M=0", "N=4", "K=4"], "M=0 is not a size"),
        (["matmul", "M=-4", "N=4", "K=4"], "M=-4 is not a size"),
        (["matmul", "M=4.5", "N=4", "K=4"], "M=4.5 is not a size"),
        (["matmul", "M=x", "N=4", "K=4"], "M=x is not a size"),
        (["matmul", "M=4", "N=4", "K=4", "trans_a=2"], "trans_a=true or trans_a=false"),
        (["matmul", "M=4", "N=4", "K=4", "dtype=flot32"], "did you mean 'float32'"),
        (["matmul", "4"], "'4' is not a parameter; write it as key=value"),
        (["matmul", "M="], "is not a parameter"),
        (["matmul", "M=4", "M=4"], "'M' is given twice"),
        (["no/such/file.py:x"], "no file 'no/such/file.py'"),
    ],
)
def test_what_is_wrong_is_said(words, message):
    with pytest.raises(UsageError, match=message):
        find_workload(words[0], words[1:])


def test_unknown_targets_and_options():
    with pytest.raises(UsageError, match="did you mean 'llvm'"):
        find_workload("matmul", ["M=4", "N=4", "K=4"], "lvm")
    with pytest.raises(UsageError, match="did you mean 'mcpu'"):
        find_workload("matmul", ["M=4", "N=4", "K=4"], "llvm -mcp=znver4")


def test_a_template_that_is_not_in_the_file(file):
    path, name = file
    with pytest.raises(
        UsageError, match=f"no template or function '{name}x'.*did you mean '{name}'"
    ):
        find_workload(f"{path}:{name}x", ["n=4"])


def test_parameters_of_a_template(file):
    path, name = file
    with pytest.raises(UsageError, match=r"needs n="):
        find_workload(f"{path}:{name}", [])
    with pytest.raises(UsageError, match="has no parameter 'm'"):
        find_workload(f"{path}:{name}", ["n=4", "m=4"])
    with pytest.raises(UsageError, match="extents"):
        find_workload(f"{path}:{name}", ["n=0"])


@pytest.mark.parametrize("text", ["import no_such_module_at_all", "x = (", "1 / 0"])
def test_a_file_that_cannot_be_loaded(tmp_path, text):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"broken\.py cannot be loaded: .*Error"):
        find_workload(f"{path}:x", [])


def test_a_file_that_exits_cannot_be_loaded(tmp_path):
    path = tmp_path / "leaving.py"
    path.write_text("import sys\nsys.exit('one\\ntwo')")
    for _ in range(2):
        with pytest.raises(TaskError, match=r"leaving\.py cannot be loaded: SystemExit: one two$"):
            find_workload(f"{path}:x", [])
    path.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        find_workload(f"{path}:x", [])
