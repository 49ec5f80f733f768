"""The doctor on the compiler, the clock of the CPU, and its cores."""

from __future__ import annotations

import pytest

from loopwright.inspection.doctor import State, SystemFiles
from loopwright.inspection.doctor.finding import numbers_in
from loopwright.inspection.doctor.hardware import affinity, governor, siblings, turbo
from loopwright.inspection.doctor.installation import compiler, llvm, no_llvm, vectors
from tests.unit.inspection.doctor.trees import tree

CPU = "/sys/devices/system/cpu"


def test_llvm_knows_the_cpu():
    found = llvm("0.47.0", "20.1.8", "znver3", "+avx2,-avx512f,+fma")
    assert found.state is State.OK
    assert (
        found.found == "llvmlite 0.47.0 with LLVM 20.1.8; target znver3 with 2 features of the CPU"
    )


@pytest.mark.parametrize("name", ["generic", "x86-64", "x86-64-v3"])
def test_llvm_does_not_know_the_cpu(name):
    found = llvm("0.47.0", "20.1.8", name, "")
    assert found.state is State.WARNING
    assert "newer llvmlite" in found.remedy


def test_llvm_cannot_be_loaded():
    found = no_llvm("ImportError: libLLVM.so")
    assert found.state is State.PROBLEM
    assert "libLLVM.so" in found.found


def test_this_machine_has_a_compiler():
    found = compiler(SystemFiles())
    assert [f.check for f in found] == ["LLVM", "vectors"]
    assert found[0].state in (State.OK, State.WARNING)


@pytest.mark.parametrize(
    ("flags", "used", "state"),
    [
        ("flags\t\t: fpu sse2 avx avx2 avx512f", 64, State.OK),
        ("flags\t\t: fpu sse2 avx avx2 avx512f", 32, State.WARNING),
        ("flags\t\t: fpu sse2 avx avx2", 32, State.OK),
        ("flags\t\t: fpu sse2", 16, State.OK),
        ("Features\t: fp asimd", 16, State.OK),
        ("Features\t: fp", 16, State.OK),
        ("processor\t: 0", 16, State.UNKNOWN),
    ],
)
def test_vectors_of_the_target_beside_those_of_the_cpu(tmp_path, flags, used, state):
    found = vectors(tree(tmp_path, {"/proc/cpuinfo": f"processor\t: 0\n{flags}\n\n"}), used)
    assert found.state is state
    assert f"{8 * used} bits" in found.found
    if state is State.WARNING:
        assert "avx512f with 512 bits" in found.found
        assert "-mattr" not in found.remedy, "a target that the doctor's own LLVM refuses"
        assert found.cost.startswith("up to 2 times")


@pytest.mark.parametrize(("length", "told"), [("32", True), ("16", False), ("", False)])
def test_vectors_of_sve(tmp_path, length, told):
    files = {"/proc/cpuinfo": "Features\t: fp asimd sve\n"}
    files["/proc/sys/abi/sve_default_vector_length"] = length
    found = vectors(tree(tmp_path, files), 16)
    assert found.state is State.OK
    assert ("SVE, of 256 bits here, are not used yet" in found.found) == told


@pytest.mark.parametrize(
    ("names", "driver", "state"),
    [
        (["performance", "performance"], "acpi-cpufreq", State.OK),
        (["powersave", "powersave"], "intel_pstate", State.OK),
        (["powersave", "powersave"], "amd-pstate-epp", State.OK),
        (["powersave", "powersave"], "acpi-cpufreq", State.WARNING),
        (["performance", "schedutil"], "acpi-cpufreq", State.WARNING),
        ([], "", State.UNKNOWN),
    ],
)
def test_governor(tmp_path, names, driver, state):
    files = {f"{CPU}/cpu{i}/cpufreq/scaling_governor": f"{n}\n" for i, n in enumerate(names)}
    if driver:
        files[f"{CPU}/cpu0/cpufreq/scaling_driver"] = f"{driver}\n"
    found = governor(tree(tmp_path, files), (0, 1))
    assert found.state is state
    assert all(name in found.found for name in names)


def test_the_governor_of_a_cpu_that_is_not_used_does_not_count(tmp_path):
    files = {
        f"{CPU}/cpu0/cpufreq/scaling_governor": "ondemand",
        f"{CPU}/cpu1/cpufreq/scaling_governor": "performance",
    }
    assert governor(tree(tmp_path, files), (1,)).state is State.OK


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("intel_pstate/no_turbo", "1", "off"),
        ("intel_pstate/no_turbo", "0", "on"),
        ("cpufreq/boost", "0", "off"),
        ("cpufreq/boost", "1", "on"),
    ],
)
def test_turbo(tmp_path, path, value, word):
    found = turbo(tree(tmp_path, {f"{CPU}/{path}": value}))
    assert found.state is State.OK
    assert found.found.startswith(f"{word}:")


def test_turbo_is_not_told(tmp_path):
    assert turbo(SystemFiles(tmp_path)).state is State.UNKNOWN
    assert turbo(tree(tmp_path, {f"{CPU}/cpufreq/boost": "what?"})).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0-3,8", [0, 1, 2, 3, 8]), ("5", [5]), ("", []), ("0-1, 4-5\n", [0, 1, 4, 5]), ("x-y,", [])],
)
def test_sets_of_cpus(text, numbers):
    assert numbers_in(text.strip()) == numbers


def test_affinity(tmp_path):
    files = tree(tmp_path, {f"{CPU}/online": "0-15\n"})
    found = affinity(files, range(16), 16).found
    assert found == "all 16 may be used, and a kernel uses 16 threads"
    assert affinity(files, (0, 1), 2).found.startswith("2 of 16 may be used")
    assert affinity(SystemFiles(tmp_path / "none"), (0, 1), 2).state is State.UNKNOWN


def test_a_setting_decides_how_many_threads_a_kernel_uses(tmp_path):
    files = tree(tmp_path, {f"{CPU}/online": "0-3\n"})
    fewer = affinity(files, range(4), 1)
    assert fewer.state is State.OK
    assert fewer.found.endswith("a kernel uses 1 thread (LOOPWRIGHT_NUM_THREADS)")
    more = affinity(files, (0, 1), 8)
    assert more.state is State.WARNING
    assert "set it to 2 at most" in more.remedy
    assert affinity(files, (0, 1), 8, "TVM_NUM_THREADS").remedy.startswith("unset TVM_NUM_THREADS,")


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_two_threads_of_a_core(tmp_path, name):
    lists = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    files = tree(tmp_path, {f"{CPU}/cpu{n}/topology/{name}": t for n, t in lists.items()})
    found = siblings(files, (0, 1, 2, 3))
    assert found.state is State.WARNING
    assert found.found.startswith("4 CPUs are 2 cores")
    assert "taskset -c 0,1 before" in found.remedy
    assert siblings(files, (0, 1)).state is State.OK, "one thread of each core may be used"
    assert siblings(files, (3,)).found == "each CPU that may be used is a core of its own"


def test_threads_of_a_core_that_are_numbered_in_a_row(tmp_path):
    """The first two CPUs are one core, and --threads 2 would take these."""
    lists = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
    names = {f"{CPU}/cpu{n}/topology/core_cpus_list": t for n, t in lists.items()}
    files = tree(tmp_path, names)
    assert "taskset -c 0,2 before" in siblings(files, (0, 1, 2, 3)).remedy
    assert "taskset -c 1,2 before" in siblings(files, (1, 2, 3)).remedy


def test_a_virtual_machine_may_not_know_its_cores(tmp_path):
    files = {f"{CPU}/cpu0/topology/core_cpus_list": "0", "/proc/cpuinfo": "flags : hypervisor\n"}
    assert "as far as a virtual machine can tell" in siblings(tree(tmp_path, files), (0,)).found
    assert siblings(SystemFiles(tmp_path), (0, 1)).state is State.UNKNOWN
