"""What code for a target may use, whether this machine has it, and the vector unit."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator

import llvmlite.binding as llvm
import numpy as np
import pytest

from loopwright import te
from loopwright.cost.cpu.machine import machine_of
from loopwright.driver import build
from loopwright.errors import TargetError
from loopwright.measure import Measurer
from loopwright.runtime import fma_peak
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.module import Module
from loopwright.schedule import create_schedule
from loopwright.space import vector_registers
from loopwright.target import Target, cpu, host_cpu, host_unit, same_code
from loopwright.target.cpu import ALIASES, changes_code, code_features
from tests.pretended_cpu import pretend_cpu
from tests.unit.measure.programs import MatmulTask

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="features of x86"
)
#: Only AMD's oldest CPUs with AVX have the first, only Intel's servers of 2023 the second.
NOWHERE = "llvm -num-threads=1 -mcpu=x86-64 -mattr=+xop,+avx512fp16"
SSE4_2 = {"cmov", "popcnt", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3"}
AVX2 = SSE4_2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}


@pytest.mark.parametrize(
    ("cpu", "features", "want"),
    [
        ("x86-64", "", {"cmov", "sse", "sse2"}),
        ("x86-64-v2", "", SSE4_2),
        ("haswell", "", AVX2),
        ("core-avx2", "", AVX2),
        ("core-avx2", "-fma", AVX2 - {"fma"}),
        ("core-avx2", "-avx", AVX2 - {"avx", "avx2", "f16c", "fma"}),
        ("x86-64-v2", "+avx2,-fma", SSE4_2 | {"avx", "avx2"}),
        (
            "skylake-avx512",
            "",
            AVX2 | {f"avx512{x}" for x in ("f", "bw", "cd", "dq", "vl")},
        ),
    ],
)
def test_features_are_those_that_code_may_use(cpu: str, features: str, want: set[str]) -> None:
    assert code_features(cpu, features) == want


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is asked")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "westmere", "skylake-avx512", "bdver4", "znver3"])
def test_features_are_those_that_another_compiler_says(cpu: str) -> None:
    command = ["gcc", f"-march={cpu}", "-dM", "-E", "-x", "c", "/dev/null"]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {
        n.lower().replace("_", ".") for n in re.findall(r"^#define __(\w+?)__ 1$", macros, re.M)
    }
    assert {n for n in names if changes_code(n) and "math" not in n} == code_features(cpu, "") - {
        "cmov"
    }


@pytest.fixture
def hides_f16c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A virtual machine on a CPU of the name x86-64-v3 that hides one of its features."""
    pretend_cpu(monkeypatch, "x86-64-v3")
    features = llvm.get_host_cpu_features()
    hidden = llvm.FeatureMap({**features, "f16c": False})
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: hidden)
    for known in (cpu.host_cpu, cpu._hidden_features):
        known.cache_clear()
    yield
    for known in (cpu.host_cpu, cpu._hidden_features):
        known.cache_clear()


@pytest.mark.isa("avx2", "fma", "f16c")
@pytest.mark.usefixtures("hides_f16c")
@pytest.mark.parametrize("name", ["", "-mcpu=native", "-mcpu=x86-64-v3"])
def test_other_features_than_the_hosts_leave_hidden_ones_off(name: str) -> None:
    assert "f16c" not in code_features(*host_cpu())
    assert Target(f"llvm {name} -mattr=-avx2").options["mattr"] == "-f16c,-avx2"
    assert Target(f"llvm {name} -mattr=+f16c").options["mattr"] == "+f16c"


def test_this_machine_has_what_its_own_code_uses() -> None:
    assert Target().missing == ()
    Target().check_machine()
    Target("interp").check_machine()
    assert Target("c").missing == ()


def test_what_is_missing_is_named_with_the_remedy() -> None:
    target = Target(NOWHERE)
    assert target.missing
    names = ", ".join(target.missing)
    with pytest.raises(TargetError, match=re.escape(f"may use {names}, which this machine's")) as e:
        target.check_machine()
    remedy = str(e.value).rpartition("-mattr=")[2]
    assert Target(f"{NOWHERE},{remedy}").missing == ()


def test_nothing_is_started_for_code_that_cannot_run() -> None:
    task = MatmulTask(16, 16, 16)
    task.target = Target(NOWHERE)
    measurer = Measurer(task)
    with pytest.raises(TargetError, match="which this machine's"), measurer:
        pass
    assert measurer.answered == 0


def square(target: str) -> Module:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] * a[i], name="b")
    s = create_schedule(b)
    s[b].vectorize(b.op.axis[0])
    return build(s, [a, b], target)


def test_code_for_it_is_built_and_refused_when_it_is_loaded() -> None:
    module = square(NOWHERE)
    missing = ", ".join(Target(NOWHERE).missing)
    with pytest.raises(TargetError, match=f"was built for x86-64 with {missing}, which this"):
        module(np.ones(64, "float32"), np.zeros(64, "float32"))


@pytest.mark.parametrize(
    "cpu", ["x86-64", "corei7", "core-avx2", "broadwell", "skylake-avx512", "znver3", "znver4"]
)
def test_code_for_cpus_of_other_names_runs_where_the_instructions_are(cpu: str) -> None:
    if Target(f"llvm -mcpu={cpu}").missing:
        pytest.skip(f"this machine lacks instructions of {cpu}")
    x, y = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    square(f"llvm -num-threads=1 -mcpu={cpu}")(x, y)
    np.testing.assert_array_equal(y, x * x)


def test_a_program_that_does_not_say_what_it_needs_is_known_by_its_cpu() -> None:
    """As versions of before wrote them."""
    made = square("llvm -num-threads=1 -mcpu=corei7").artifact
    old = {k: v for k, v in made.manifest.items() if k != "needs"}
    with pytest.raises(TargetError, match="built for the CPU corei7, this machine is"):
        _ = Module(Artifact(old, made.objects))["main"].address


def test_names_of_one_cpu_are_one_to_the_compiler() -> None:
    assert all(same_code((old, ""), (new, "")) for old, new in ALIASES.items())
    assert all(code_features(old, "") == code_features(new, "") for old, new in ALIASES.items())
    assert same_code(("haswell", "+avx2,-xop"), ("core-avx2", ""))
    assert not same_code(("haswell", "-fma"), ("core-avx2", ""))
    assert not same_code(("haswell", ""), ("broadwell", ""))
    assert same_code(host_cpu(), host_cpu())


@pytest.mark.parametrize(
    ("cpu", "features"), [("warp", ""), ("haswell", "+warp9"), ("haswell", '"} junk'), ("", "")]
)
def test_what_a_log_says_of_a_cpu_is_never_told_to_llvm(cpu: str, features: str) -> None:
    """A name that LLVM does not know would end the process."""
    assert not same_code((cpu, features), ("haswell", ""))
    assert same_code((cpu, features), (cpu, features))


@pytest.mark.parametrize(
    ("spec", "name", "nbytes", "count", "peak"),
    [
        ("-mcpu=x86-64", "SSE2", 16, 16, "peak (SSE2, no FMA)"),
        ("-mcpu=x86-64-v2", "SSE4.2", 16, 16, "peak (SSE4.2, no FMA)"),
        ("-mcpu=sandybridge", "AVX", 32, 16, "peak (AVX, no FMA)"),
        ("-mcpu=core-avx2", "AVX2", 32, 16, "FMA peak (AVX2)"),
        ("-mcpu=core-avx2 -mattr=-fma", "AVX2", 32, 16, "peak (AVX2, no FMA)"),
        ("-mcpu=skylake-avx512", "AVX-512", 64, 32, "FMA peak (AVX-512)"),
        (
            "-mcpu=skylake-avx512 -prefer-vector-width=256",
            "AVX-512, 256-bit vectors",
            32,
            32,
            "FMA peak (AVX-512, 256-bit vectors)",
        ),
        ("-mcpu=haswell -prefer-vector-width=128", "AVX2, 128-bit vectors", 16, 16, None),
    ],
)
def test_vector_units(spec: str, name: str, nbytes: int, count: int, peak: str | None) -> None:
    target = Target(f"llvm {spec}")
    unit = target.vector_unit
    assert unit is not None
    assert (unit.name, unit.nbytes, unit.registers) == (name, nbytes, count)
    assert unit.peak == (peak or f"FMA peak ({name})")
    machine = machine_of(target)
    assert (machine.vector_bytes, machine.registers) == (nbytes, count)
    with target:
        assert vector_registers() == count


@pytest.mark.parametrize(
    ("name", "permutes", "permuted", "instructions"),
    [
        ("x86-64", False, 0, False),
        ("x86-64-v3", False, 32, True),
        ("skylake-avx512", True, 64, True),
    ],
)
def test_what_the_assembly_for_a_cpu_shows(
    name: str, permutes: bool, permuted: int, instructions: bool
) -> None:
    assert cpu.permutes_memory(name, "") == permutes
    assert cpu.permuted_bytes(name, "") == permuted
    assert cpu.has_instruction(name, "", "fma") == instructions
    assert cpu.has_instruction(name, "", "float16") == instructions
    # With AVX-512 it depends on the LLVM, too.
    assert permutes or not cpu.stores_too_wide(name, "")


def test_what_has_no_vectors_has_no_unit() -> None:
    target = Target("interp")
    assert target.vector_unit is None
    assert (target.vector_bytes, target.vector_registers) == (16, 16)


def test_the_peak_of_a_unit_is_measured_where_its_instructions_are() -> None:
    unit = Target("llvm -mcpu=x86-64").vector_unit
    assert fma_peak(1, 0.005, unit) > 1e8
    assert host_unit().is_all_of_this_machine
    with pytest.raises(TargetError, match="which this machine's"):
        fma_peak(1, 0.005, Target(NOWHERE).vector_unit)
