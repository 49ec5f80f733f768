"""The doctor on limits of containers and shells."""

from __future__ import annotations

import pytest

from loopwright.inspection.doctor import State, SystemFiles
from loopwright.inspection.doctor.limits import cpu_time, memory, present_limits, user_limits
from tests.unit.inspection.doctor.trees import tree

TOP = "/sys/fs/cgroup"
MEMINFO = "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\nHugePages_Total: 0\n"


def test_version_2_with_a_quota_of_a_group_above(tmp_path):
    files = {
        "/proc/self/cgroup": "0::/user/job\n",
        f"{TOP}/user/job/cpu.max": "max 100000\n",
        f"{TOP}/user/cpu.max": "150000 100000\n",
        f"{TOP}/user/cpu.stat": "usage_usec 12\nnr_periods 7\nnr_throttled 3\n",
        f"{TOP}/cgroup.controllers": "cpu memory\n",
    }
    found = cpu_time(tree(tmp_path, files), 4)
    assert found.state is State.WARNING
    assert found.found.startswith("a control group allows 1.5 CPUs (4 may be used)")
    assert "3 times" in found.found
    assert "100 ms" in found.cost
    assert "--threads 1 --parallel 1" in found.remedy


def test_version_1_in_a_container_that_does_not_see_its_own_path(tmp_path):
    files = {
        "/proc/self/cgroup": "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n",
        f"{TOP}/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
        f"{TOP}/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        f"{TOP}/memory/memory.limit_in_bytes": f"{4 << 30}\n",
        "/proc/meminfo": MEMINFO,
    }
    system = tree(tmp_path, files)
    assert cpu_time(system, 4).state is State.WARNING
    assert "3 CPUs" in cpu_time(system, 4).found
    assert cpu_time(system, 2).state is State.OK
    found = memory(system, 2)
    assert found.state is State.OK
    assert (
        found.found == "4 GiB may be used (limit of a control group), 8 GiB are free on the machine"
    )


@pytest.mark.parametrize(
    "files",
    [
        {f"{TOP}/cpu.max": "max 100000"},
        {f"{TOP}/cpu/cpu.cfs_quota_us": "-1", f"{TOP}/cpu/cpu.cfs_period_us": "100000"},
        {f"{TOP}/cpu.max": "\x00garbage"},
        {f"{TOP}/cpu.max": "100 0"},
    ],
)
def test_no_limit_of_cpu_time(tmp_path, files):
    hierarchies = {"/proc/self/cgroup": "0::/\n2:cpu:/\n"}
    assert cpu_time(tree(tmp_path, {**hierarchies, **files}), 8).state is State.OK


def test_without_control_groups_nothing_is_known(tmp_path):
    assert cpu_time(SystemFiles(tmp_path), 8).state is State.UNKNOWN
    assert memory(SystemFiles(tmp_path), 8).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("files", "state", "text"),
    [
        ({"/proc/meminfo": MEMINFO}, State.OK, "16 GiB may be used, 8 GiB are free"),
        ({"/proc/meminfo": "MemTotal: 1048576 kB\n"}, State.WARNING, "1 GiB may be used"),
        (
            {"/proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 204800 kB\n"},
            State.WARNING,
            "200 MiB are free",
        ),
        ({f"{TOP}/memory.max": "1073741824"}, State.WARNING, "(limit of a control group)"),
        ({f"{TOP}/memory.max": "max", "/proc/meminfo": MEMINFO}, State.OK, "16 GiB may be used,"),
    ],
)
def test_memory(tmp_path, files, state, text):
    found = memory(tree(tmp_path, files), 2)
    assert found.state is state
    assert text in found.found


def test_memory_that_the_group_uses_already(tmp_path):
    files = {
        "/proc/meminfo": MEMINFO,
        f"{TOP}/memory.max": f"{4 << 30}",
        f"{TOP}/memory.current": f"{7 << 29}",
        f"{TOP}/memory.stat": f"anon 1\ninactive_file {1 << 29}\n",
    }
    found = memory(tree(tmp_path, files), 1)
    assert found.state is State.WARNING
    assert found.found.endswith(
        "1 GiB in the control group; 1 builder and the runner may need 1.75 GiB"
    )
    (tmp_path / f"{TOP}/memory.stat".lstrip("/")).write_text(f"inactive_file {3 << 30}\n")
    assert memory(SystemFiles(tmp_path), 1).state is State.OK, "the system takes the cache back"


def test_many_builders_need_more_memory(tmp_path):
    system = tree(tmp_path, {"/proc/meminfo": MEMINFO})
    assert memory(system, 8).state is State.OK
    found = memory(system, 64)
    assert found.state is State.WARNING
    assert "64 builders" in found.found
    assert "--parallel 1" in found.remedy


def test_less_than_one_cpu_is_no_matter_of_threads(tmp_path):
    files = {"/proc/self/cgroup": "0::/\n", f"{TOP}/cpu.max": "50000 100000\n"}
    found = cpu_time(tree(tmp_path, files), 4)
    assert found.state is State.WARNING
    assert "--threads" not in found.remedy


def test_no_limit_of_the_shell():
    free = dict.fromkeys(("RLIMIT_CPU", "RLIMIT_AS", "RLIMIT_NOFILE", "RLIMIT_NPROC"))
    found = user_limits({**free, "RLIMIT_MEMLOCK": 8 << 20})
    assert [f.state for f in found] == [State.OK, State.OK]
    assert "8 MiB may be locked" in found[1].found


def test_limits_that_a_run_would_hit():
    limits = {"RLIMIT_CPU": 3600, "RLIMIT_NOFILE": 64, "RLIMIT_AS": 1 << 30, "RLIMIT_NPROC": 4096}
    found, locked = user_limits(limits)
    assert found.state is State.WARNING
    assert "3600 seconds of CPU time (ulimit -t)" in found.found
    assert "1 GiB of address space (ulimit -v) and 64 open files (ulimit -n)" in found.found
    assert "ulimit -t unlimited; ulimit -v unlimited; ulimit -n 4096 (" in found.remedy
    assert locked.state is State.UNKNOWN


def test_a_system_without_limits():
    assert [f.state for f in user_limits({})] == [State.UNKNOWN]


def test_the_limits_of_this_process():
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    expected = None if soft == resource.RLIM_INFINITY else soft
    assert present_limits()["RLIMIT_NOFILE"] == expected
