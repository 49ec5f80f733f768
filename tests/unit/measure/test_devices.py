"""On which devices a task is measured: what is refused, and what is said."""

from __future__ import annotations

import pytest

from loopwright import LocalRunner, cpu
from loopwright.errors import TargetError, UsageError
from loopwright.measure import Measurer, measure_option
from loopwright.measure.devices import lock_names, measured_on
from loopwright.runtime import device
from loopwright.runtime.devices import device as facts
from loopwright.runtime.devices import interface as registry
from loopwright.runtime.devices.cpu import CpuAPI
from loopwright.target import Target
from tests.unit.measure.programs import MatmulTask

CUDA = 2


class Stubs(CpuAPI):
    """Devices of CUDA that tell what they are, and do nothing."""

    device_type, name = CUDA, "cuda"
    models = ("H200", "H200", "A100")
    arch = ("sm_90", "sm_90", "sm_80")

    def count(self) -> int:
        return len(self.models)

    def attribute(self, device_id: int, name: str) -> object:
        known = {
            "device_name": self.models[device_id],
            "arch": self.arch[device_id],
            "multi_processor_count": 132,
            "driver_version": "13.0",
        }
        return known.get(name)

    def uuid(self, device_id: int) -> str:
        return f"cuda 00{device_id}"


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal GPUs, and one that is older."""
    monkeypatch.setitem(registry._makers, CUDA, Stubs)
    monkeypatch.setitem(registry._made, CUDA, Stubs())


def test_the_cpu_is_the_device_of_targets_for_it() -> None:
    assert measured_on(Target("llvm")) == (cpu(0),)
    assert measured_on(Target("interp"), "cpu:0") == (cpu(0),)
    assert lock_names([cpu(0)]) == ["cpu0"]


@pytest.mark.usefixtures("cards")
def test_devices_are_named_or_the_first_of_the_target() -> None:
    target = Target("cuda -arch=sm_90")
    assert measured_on(target) == (device("cuda:0"),)
    assert measured_on(target, "cuda:1, cuda:0") == (device("cuda:1"), device("cuda:0"))
    assert lock_names([device("cuda:1"), device("cuda:0")]) == ["cuda 000", "cuda 001"]


@pytest.mark.usefixtures("cards")
def test_a_device_that_the_processor_plays_takes_the_lock_of_the_cpu_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stubs, "attribute", lambda self, number, name: name == "is_host_processor")
    assert lock_names([device("cuda:0")]) == ["cpu0", "cuda 000"]


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("cuda:0,cuda:0", "a device is named twice"),
        ("cpu:0", r"runs on devices of type cuda, and cpu\(0\) is none; choose a target that"),
        ("cuda:7", r"cuda\(7\) cannot be used: there is no such device; there is cuda\(0\) to"),
        ("cuda:0,cuda:2", "sm_90.*sm_80"),
    ],
)
def test_what_cannot_be_measured_on_is_refused(wanted: str, text: str) -> None:
    with pytest.raises((UsageError, TargetError), match=text):
        measured_on(Target("cuda -arch=sm_90"), wanted)


@pytest.mark.usefixtures("cards")
def test_a_target_that_allows_more_threads_than_the_device_takes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        Stubs, "attribute", lambda self, number, name: 256 if name.startswith("max_thr") else None
    )
    with pytest.raises(UsageError, match=r"blocks of 1024 threads, and cuda\(0\) takes 256; write"):
        measured_on(Target("cuda -arch=sm_90 -max-threads-per-block=1024"))
    assert len(measured_on(Target("cuda -arch=sm_90 -max-threads-per-block=256"))) == 1


@pytest.mark.usefixtures("cards")
def test_unlike_devices_share_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stubs, "arch", ("sm_90",) * 3)
    with pytest.raises(UsageError, match=r"differ \(device_name: H200 and A100\)"):
        measured_on(Target("cuda -arch=sm_90"), "cuda:0,cuda:2")


def test_a_device_that_is_not_here_is_missed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a process is started, with the word that building alone works."""
    monkeypatch.setattr(Stubs, "models", ())
    monkeypatch.setattr(Stubs, "why_absent", lambda self: "there is no driver; install it")
    monkeypatch.setitem(registry._makers, CUDA, Stubs)
    monkeypatch.setitem(registry._made, CUDA, Stubs())
    task = MatmulTask()
    task.target = Target("cuda")
    with pytest.raises(
        UsageError,
        match=r"cuda\(0\) cannot be used: there is no driver; install it\. Measuring needs the "
        "device; building for cuda alone does not: loopwright build",
    ):
        Measurer(task, measure_option())
    assert facts.facts_here("cuda") is None
    assert facts.models_here("cuda") == set()


@pytest.mark.usefixtures("cards")
def test_facts_of_a_device() -> None:
    assert facts.facts_here("cuda", "cuda:1") == {
        "kind": "cuda", "name": "H200", "uuid": "cuda 001", "driver": "13.0", "arch": "sm_90",
        "processors": 132,
    }  # fmt: skip
    assert facts.facts_here("llvm") is None
    assert facts.models_here("cuda") == {"H200", "A100"}


def test_the_option_takes_names_and_devices() -> None:
    assert LocalRunner().devices == ""
    assert LocalRunner(device="opencl").device == "opencl:0"
    assert LocalRunner(device=["cuda:1", device("cuda:0")]).device == "cuda:1,cuda:0"
    assert LocalRunner(device=device("gpu")) == LocalRunner(device="cuda(0)")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (3, "device is a name such as"),
        ([1], "device is a name such as"),
        ("opnecl:0", r"unknown device 'opnecl:0' \(did you mean 'opencl'"),
        ("opencl:x", "is not understood"),
    ],
)
def test_an_option_that_names_no_device(given: object, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        LocalRunner(device=given)  # type: ignore[arg-type]
