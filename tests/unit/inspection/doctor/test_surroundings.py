"""The doctor on memory, packages, files, accelerators, and all of it together."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from loopwright.errors import UsageError
from loopwright.extras import install
from loopwright.inspection.doctor import State, SystemFiles, examine, limits
from loopwright.inspection.doctor.disturbances import noise
from loopwright.inspection.doctor.hardware import (
    alignment,
    huge_pages,
    numpy_addresses,
    nvidia,
    opencl,
)
from loopwright.inspection.doctor.installation import dependencies, environment, system, xgboost
from loopwright.inspection.doctor.limits import (
    file_system,
    kernel_cache,
    lock_folder,
    log_folder,
    temporary_folder,
)
from tests.unit.inspection.doctor.trees import tree

HUGE = "/sys/kernel/mm/transparent_hugepage/enabled"
LIB = "/usr/lib/x86_64-linux-gnu"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("[always] madvise never", State.OK),
        ("always [madvise] never", State.OK),
        ("always madvise [never]", State.WARNING),
        ("?", State.UNKNOWN),
    ],
)
def test_huge_pages(tmp_path, text, state):
    assert huge_pages(tree(tmp_path, {HUGE: text})).state is state


def test_alignment():
    assert alignment([0, 64, 1 << 20]).state is State.OK
    found = alignment([64, 4096 + 16, 48])
    assert found.state is State.WARNING
    assert "up to 48 bytes" in found.found
    assert all(address % 16 == 0 for address in numpy_addresses())


def test_system():
    assert system("Linux", "6.1", "3.11.2").state is State.OK
    assert system("Darwin", "23.0", "3.12.0").state is State.WARNING


@pytest.mark.parametrize(
    ("installed", "state", "text"),
    [
        ({"xgboost-cpu": "3.2.0"}, State.OK, "xgboost-cpu 3.2.0"),
        ({"xgboost": "2.1"}, State.OK, "xgboost 2.1"),
        ({"xgboost": "2.0.3"}, State.PROBLEM, "older than 2.1"),
        ({}, State.PROBLEM, "not installed"),
        (
            {"xgboost": "3.2.0", "xgboost-cpu": "3.1.0"},
            State.WARNING,
            "xgboost 3.2.0 and xgboost-cpu 3.1.0 are both installed",
        ),
    ],
)
def test_the_two_distributions_of_xgboost(installed, state, text):
    found = xgboost(installed)
    assert found.state is state
    assert text in found.found
    assert (state is State.OK) == (not found.remedy)


def test_xgboost_is_called_otherwise_where_there_is_no_other():
    assert xgboost({}, "Linux").remedy == "pip install xgboost-cpu"
    assert xgboost({}, "Darwin").remedy == "pip install xgboost"
    both = {"xgboost": "3.2.0", "xgboost-cpu": "3.1.0"}
    assert xgboost(both, "Darwin").remedy.endswith("&& pip install xgboost")


def test_packages():
    required = ["numpy>=1.26", "rich >= 13.0.0", "xgboost>=2.1; python_version > '3'", "odd"]
    installed = {"numpy": "1.26.0rc1", "rich": "13"}
    found = dependencies(required, installed.get)
    assert found.state is State.OK
    assert found.found == "numpy 1.26.0rc1, rich 13"
    old = dependencies(required, {"numpy": "1.9"}.get)
    assert old.state is State.PROBLEM
    assert old.found == "numpy 1.9 (at least 1.26) and rich missing (at least 13.0.0)"
    assert old.remedy == "pip install --upgrade numpy rich"
    assert dependencies([], installed.get).state is State.UNKNOWN


def test_environment():
    def refuse():
        raise UsageError("LOOPWRIGHT_SPIN='x' is not a whole number")

    assert environment(dict, {}).state is State.OK
    assert environment(dict, {"OMP_NUM_THREADS": "4"}).found == "OMP_NUM_THREADS=4"
    assert environment(dict, {"LD_PRELOAD": "/lib/libjemalloc.so"}).state is State.WARNING
    refused = environment(refuse, {})
    assert refused.state is State.PROBLEM
    assert "LOOPWRIGHT_SPIN" in refused.found


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 22 0:41 / /home/me/my\\040disk rw shared:2 master:1 - xfs /dev/sdb rw
torn line
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/tmp/x", "ext4"),
        ("/home", "nfs4"),
        ("/home/me", "nfs4"),
        ("/homes", "ext4"),
        ("/home/me/my disk/logs", "xfs"),
    ],
)
def test_the_file_system_of_a_folder(tmp_path, folder, kind):
    assert file_system(tree(tmp_path, {"/proc/self/mountinfo": MOUNTS}), folder) == kind


def test_a_log_folder_on_this_machine_and_on_a_network(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    local = log_folder(SystemFiles(tmp_path), logs)
    assert local.state in (State.OK, State.WARNING)  # by the free space of this disk
    assert list(logs.iterdir()) == []
    mounts = f"30 22 0:40 / {os.path.realpath(tmp_path)} rw - nfs4 server:/ rw\n"
    remote = log_folder(tree(tmp_path, {"/proc/self/mountinfo": mounts}), logs)
    assert remote.state is State.WARNING
    assert "network (nfs4)" in remote.found


def test_a_log_folder_that_cannot_be_used(tmp_path, monkeypatch):
    files = SystemFiles(tmp_path)
    missing = log_folder(files, tmp_path / "none")
    assert missing.state is State.PROBLEM
    assert "is no folder" in missing.found
    denied = PermissionError(13, "Permission denied")
    monkeypatch.setattr(limits.tempfile, "TemporaryFile", _raiser(denied))
    found = log_folder(files, tmp_path)
    assert found.state is State.PROBLEM
    assert "it cannot be written (Permission denied)" in found.found


def test_a_log_folder_without_locks(tmp_path, monkeypatch):
    refused = OSError(37, "No locks available")
    monkeypatch.setattr("fcntl.flock", _raiser(refused))
    found = log_folder(SystemFiles(tmp_path), tmp_path)
    assert found.state is State.PROBLEM
    assert "locks (flock) are refused" in found.found


def _raiser(error: Exception):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.mark.parametrize(
    ("free", "state"), [(1 << 40, State.OK), (1 << 28, State.WARNING), (1 << 20, State.PROBLEM)]
)
def test_space_for_temporary_files(tmp_path, monkeypatch, free, state):
    monkeypatch.setattr(limits, "_free", lambda folder: free)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert temporary_folder().state is state


def test_a_tmpdir_that_python_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = temporary_folder("/none")
    assert found.state is State.WARNING
    assert f"TMPDIR=/none cannot be written, so {tmp_path} is used" in found.found
    assert "TMPDIR=" not in temporary_folder(f"{tmp_path}/").found


def test_no_folder_for_temporary_files(tmp_path, monkeypatch):
    """As in a container whose files are read-only: the doctor still says all that it finds."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    found = {f.check: f for f in examine(tmp_path, files=SystemFiles(tmp_path)).findings}
    assert found["TMPDIR"].state is State.PROBLEM
    assert "set TMPDIR" in found["TMPDIR"].remedy
    assert found["lock folder"].state is State.PROBLEM
    assert found["noise floor"].state is State.UNKNOWN


def test_a_disk_without_room_for_a_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("loopwright.measure.devices._sign", _raiser(OSError(28, "No space left")))
    found = noise([1])
    assert found.state is State.UNKNOWN
    assert "No space left" in found.found


def test_a_folder_that_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = log_folder(SystemFiles(tmp_path), Path("."))
    assert found.state is State.PROBLEM
    assert "the present folder is gone" in found.found


def test_folders_that_may_not_be_looked_into(tmp_path, monkeypatch):
    monkeypatch.setattr("os.stat", _raiser(PermissionError(13, "Permission denied")))
    log, cache = log_folder(SystemFiles(tmp_path), tmp_path), kernel_cache(tmp_path / "a")
    monkeypatch.undo()
    assert log.state is State.PROBLEM
    assert cache.check == "kernel cache"


def test_a_folder_of_locks_that_is_a_link(tmp_path, monkeypatch):
    assert lock_folder().state is State.OK
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "loopwright").symlink_to(tmp_path)
    found = lock_folder()
    assert found.state is State.PROBLEM
    assert "is a link or no folder" in found.found


def test_the_cache_of_kernels(tmp_path, monkeypatch):
    assert kernel_cache(None).state is State.OK
    assert kernel_cache(tmp_path / "a" / "b").state is State.OK
    monkeypatch.setattr(limits.os, "access", lambda path, mode: False)
    assert kernel_cache(tmp_path / "a").state is State.WARNING


def there(package):
    return True


def missing(package):
    return False


def test_no_accelerator(tmp_path):
    nothing = SystemFiles(tmp_path)
    for found in (nvidia(nothing, {}, missing), opencl(nothing, {}, missing)):
        assert found.state is State.OK
        assert found.found.startswith("absent; the target ")


GPU = {
    f"{LIB}/libcuda.so.1": "",
    "/dev/nvidia0": "",
    "/dev/nvidiactl": "",
    "/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t NVIDIA H200\nIRQ: 1\n",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA Kernel Module  550.54  x\n",
}


def test_a_gpu_with_its_driver(tmp_path):
    found = nvidia(tree(tmp_path, GPU), {}, there)
    assert found.state is State.OK
    told = f"NVIDIA H200 ({LIB}/libcuda.so.1, driver 550.54); the target cuda runs on it"
    assert found.found == told


def test_half_a_gpu(tmp_path):
    library = nvidia(tree(tmp_path / "a", {f"{LIB}/libcuda.so.1": ""}), {}, there)
    assert "without a device" in library.found
    assert library.state is State.OK
    device = nvidia(tree(tmp_path / "b", {"/dev/nvidia3": ""}), {}, there)
    assert device.found == "nvidia3, without libcuda.so.1"
    assert (device.state, device.remedy) == (State.WARNING, "install NVIDIA's driver")
    package = nvidia(tree(tmp_path / "c", GPU), {}, missing)
    assert package.state is State.WARNING
    assert package.remedy == install("cuda")


def test_a_gpu_under_windows(tmp_path):
    files = {"/usr/lib/wsl/lib/libcuda.so.1": "", "/dev/dxg": ""}
    found = nvidia(tree(tmp_path, files), {"LD_LIBRARY_PATH": "/usr/lib/wsl/lib"}, there)
    assert found.found.startswith("dxg (/usr/lib/wsl/lib/libcuda.so.1)")
    none = nvidia(tree(tmp_path / "none", {"/dev/dxg": ""}), {}, there)
    assert none.found.startswith("absent")


ICD = {"/etc/OpenCL/vendors/pocl.icd": "libpocl.so.2\n"}


def test_a_library_of_the_linkers_cache_or_of_a_variable(tmp_path):
    files = tree(tmp_path, {**ICD, "/opt/x/libOpenCL.so.1": "", "/opt/y/libcuda.so.1": ""})
    found = opencl(files, {"LD_LIBRARY_PATH": ":/opt/x"}, there).found
    assert "(/opt/x/libOpenCL.so.1)" in found
    table = b"ld.so-1.7.0\0libcuda.so.1\0/opt/y/libcuda.so.1\0/gone/libOpenCL.so.1\0"
    (tmp_path / "etc/ld.so.cache").write_bytes(table)
    assert "/opt/y/libcuda.so.1" in nvidia(tree(tmp_path, {"/dev/nvidia0": ""}), {}, there).found
    assert "(pyopencl)" in opencl(files, {}, there).found, "the cache names a file that is gone"


def test_opencl_with_pocl_and_halves_of_it(tmp_path):
    files = tree(tmp_path, {**ICD, f"{LIB}/libOpenCL.so.1": ""})
    both = opencl(files, {}, there)
    assert both.state is State.OK
    told = f"pocl.icd -> libpocl.so.2 ({LIB}/libOpenCL.so.1); the target opencl runs on it"
    assert both.found == told
    unused = opencl(files, {}, missing)
    assert unused.state is State.OK
    assert install("opencl") in unused.found
    alone = opencl(SystemFiles(tmp_path / "none"), {}, there)
    assert alone.state is State.WARNING
    assert "apt-get install pocl-opencl-icd" in alone.remedy


def test_everything_where_the_system_tells_nothing(tmp_path):
    diagnosis = examine(tmp_path, measure=False, files=SystemFiles(tmp_path / "none"))
    told = {finding.check: finding.state for finding in diagnosis.findings}
    for check in ("vectors", "CPUs", "SMT", "CPU governor", "turbo", "CPU time", "memory"):
        assert told[check] is State.UNKNOWN, check
    assert "noise floor" not in told
    assert len(told) == len(diagnosis.findings)
    for finding in diagnosis.findings:
        mended = finding.state in (State.WARNING, State.PROBLEM)
        assert bool(finding.cost) == bool(finding.remedy) == mended, finding


def test_the_diagnosis_as_json(tmp_path):
    diagnosis = examine(tmp_path, measure=False)
    data = json.loads(json.dumps(diagnosis.to_json()))
    assert sum(data["counts"].values()) == len(data["findings"])
    assert data["healthy"] == (data["counts"]["problem"] == 0)
    assert set(data["findings"][0]) == {"check", "state", "found", "cost", "remedy"}


def test_a_variable_that_is_not_understood_is_a_finding(tmp_path, monkeypatch):
    from loopwright.env import settings

    monkeypatch.setenv("LOOPWRIGHT_NUM_THREADS", "abc")
    settings.cache_clear()
    try:
        diagnosis = examine(tmp_path, measure=False)
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    assert not diagnosis.healthy
    (found,) = [f for f in diagnosis.findings if f.check == "environment"]
    assert "LOOPWRIGHT_NUM_THREADS='abc'" in found.found
