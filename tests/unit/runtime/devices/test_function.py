"""Functions of kernels: their launches, what they check, how they are timed, where they run."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import loopwright as lw
from loopwright.errors import ArgumentError, TargetError, UsageError
from loopwright.runtime import Artifact, Module, from_dlpack
from loopwright.runtime.artifacts.device_code import DeviceCode, LaunchSpec
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest, SizesSpec
from loopwright.runtime.devices import dlpack
from loopwright.runtime.kernels.device_function import DeviceCall, DeviceFunction
from loopwright.runtime.kernels.symbolic import SymbolicFunction
from tests.unit.runtime.devices.fake_cuda import FakeDriver


def floats(address: int, count: int) -> npt.NDArray[np.float32]:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def double_16(a: int, b: int) -> None:
    floats(b, 16)[:] = 2 * floats(a, 16)


def add_one_16(a: int, b: int) -> None:
    floats(b, 16)[:] = floats(a, 16) + 1


def double_n(a: int, b: int, n: int) -> None:
    floats(b, n)[:] = 2 * floats(a, n)


def module(code: DeviceCode, shape: Any = (16,), sizes: SizesSpec | None = None) -> Module:
    args = (ArgSpec("A", shape, "float32", False), ArgSpec("B", shape, "float32", True))
    function = FunctionSpec("f", args, 0, 0, False, (), sizes)
    manifest = Manifest("cuda-cubin", "f", "", "", "", 1, (function,), 2 if sizes else 1)
    return Module(Artifact(manifest.to_json(), code.to_bytes()))


ONE = (1, 1, 1)
#: ``f(A, B)``: a temporary becomes 2 * A, and B that plus 1.
TWO_KERNELS = DeviceCode(
    b"cubin",
    (
        LaunchSpec("double_16", (2, 1, 1), (8, 1, 1), (("parameter", 0), ("buffer", 0))),
        LaunchSpec("add_one_16", ONE, (16, 1, 1), (("buffer", 0), ("parameter", 1)), 1024),
    ),
    (64,),
    arch="sm_90",
)


@pytest.fixture
def gpus(fake_gpus: FakeDriver) -> FakeDriver:
    fake_gpus.kernels |= {
        "double_16": double_16, "add_one_16": add_one_16, "double_n": double_n,
    }  # fmt: skip
    return fake_gpus


def arrays(where: str = "cuda") -> tuple[lw.runtime.NDArray, lw.runtime.NDArray]:
    return lw.nd.array(np.arange(16, dtype=np.float32), device=where), lw.nd.empty(
        (16,), device=where
    )


def test_launches_run_in_order_with_a_temporary(gpus: FakeDriver) -> None:
    f = module(TWO_KERNELS)
    a, b = arrays()
    f(a, b)
    np.testing.assert_array_equal(b.numpy(), 2 * np.arange(16) + 1)
    assert [x[:4] for x in gpus.launches] == [
        ("double_16", (2, 1, 1), (8, 1, 1), 0),
        ("add_one_16", ONE, (16, 1, 1), 1024),
    ]
    assert isinstance(f["f"], DeviceFunction)
    assert f["f"].workspace_bytes == 64
    assert f.type_key == "cuda"
    had = gpus.calls.count("cuMemAlloc")
    f(a, b)
    assert gpus.calls.count("cuMemAlloc") == had  # the temporary is kept


def test_it_runs_where_its_arrays_are(gpus: FakeDriver) -> None:
    f = module(TWO_KERNELS)
    for where in ("cuda:0", "cuda:1"):
        a, b = arrays(where)
        f(a, b)
        np.testing.assert_array_equal(b.numpy(), 2 * np.arange(16) + 1)
    assert gpus.calls.count("cuModuleLoadData") == 2


def test_each_stream_has_temporaries_of_its_own(gpus: FakeDriver) -> None:
    places: list[int] = []

    def noted(a: int, b: int) -> None:
        places.append(b)

    gpus.kernels["double_16"] = noted
    f = module(TWO_KERNELS)
    a, b = arrays()
    f(a, b)
    with lw.cuda().stream() as stream:
        f(a, b)
        assert gpus.launches[-1][-1] == stream.handle
    f(a, b)
    assert places[0] == places[2] != places[1]


class Shifted:
    """Another library's array that begins inside of other memory."""

    def __init__(self, a: lw.runtime.NDArray) -> None:
        self.a = a

    def __dlpack__(self, **options: object) -> Any:
        return dlpack.export(self.a.data + 4, 0, (16,), "float32", (2, 0), self.a)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b: (a,), "takes 2 arguments"),
        (lambda a, b: (a, b.numpy()), r"argument 1 \('B'\): .*got ndarray on the host"),
        (lambda a, b: (a, b.copyto("cpu")), "got NDArray on cpu"),
        (lambda a, b: (a, b.copyto("cuda:1")), r"lies on cuda\(1\), expected cuda\(0\)"),
        (lambda a, b: (a, b.CreateView((8,))), r"expected shape \(16,\), got \(8,\)"),
        (lambda a, b: (a, b.CreateView((16,), "int32")), "expected dtype float32, got int32"),
        (lambda a, b: (a, from_dlpack(Shifted(b))), "does not begin at a multiple of 16 bytes"),
        (lambda a, b: (a, a), "output overlaps the memory of argument 0"),
        (lambda a, b: (a, None), "got NoneType on the host"),
    ],
)
def test_arguments_that_are_refused(gpus: FakeDriver, change: Any, message: str) -> None:
    f = module(TWO_KERNELS)
    with pytest.raises(ArgumentError, match=message):
        f(*change(*arrays()))
    assert not gpus.launches


def test_arrays_of_a_device_in_a_function_of_the_cpu(gpus: FakeDriver) -> None:
    a = lw.te.placeholder((16,), name="A")
    b = lw.te.compute((16,), lambda i: a[i] + 1, name="B")
    f = lw.build(lw.te.create_schedule(b.op), [a, b], "llvm")
    with pytest.raises(ArgumentError, match=r"lies on cuda\(0\), and the function runs on the CPU"):
        f(*arrays())


def test_times_are_those_of_the_device(gpus: FakeDriver) -> None:
    call = module(TWO_KERNELS)["f"].bind(*arrays())
    assert isinstance(call, DeviceCall)
    gpus.launches.clear()
    # The stand-in's clock goes on by a millisecond with everything that is done.
    assert lw.runtime.time_call(call, 3) == pytest.approx(6e-3)
    assert len(gpus.launches) == 6
    assert lw.runtime.time_call(call, 130) == pytest.approx(260e-3)
    assert gpus.calls.count("cuGraphLaunch") == 2
    call.flush()
    assert gpus.calls.count("cuMemsetD8Async") == 1


def test_a_bound_call_launches_as_a_call_does(gpus: FakeDriver) -> None:
    a, b = arrays()
    call = module(TWO_KERNELS).bind(a, b)
    for k in range(3):
        a.copyfrom(np.full(16, k))
        gpus.launches.clear()
        call()
        assert len(gpus.launches) == 2
        assert (b.numpy() == 2 * k + 1).all()
    assert repr(call) == (
        f"<DeviceCall f(A: float32[16] at {a.data:#x}, B: float32[16] at {b.data:#x}) on cuda(0)>"
    )


def test_an_evaluator_sweeps_the_caches_of_the_device(gpus: FakeDriver) -> None:
    f = module(TWO_KERNELS)
    timed = f.time_evaluator("f", lw.cuda(), number=2, repeat=3, cache_flush_bytes=4096)
    assert timed(*arrays()).results == pytest.approx((2e-3,) * 3)
    assert gpus.calls.count("cuMemsetD8Async") == 3


def test_sizes_are_found_in_the_shapes(gpus: FakeDriver) -> None:
    launch = LaunchSpec(
        "double_n",
        (["//", ["+", "n", 31], 32], 1, 1),
        (32, 1, 1),
        (("parameter", 0), ("parameter", 1), ("size", 0)),
    )
    sizes = SizesSpec((("n", "int64", True),), (), (), (0, 1))
    f = module(DeviceCode(b"cubin", (launch,)), ("n",), sizes)
    assert isinstance(f["f"], SymbolicFunction)
    for n in (1, 33, 100):
        a = lw.nd.array(np.arange(n, dtype=np.float32), device="cuda")
        b = lw.nd.empty((n,), device="cuda")
        f(a, b)
        np.testing.assert_array_equal(b.numpy(), 2 * np.arange(n))
        assert gpus.launches[-1][1] == (-(-n // 32), 1, 1)
    empty = lw.nd.empty((0,), device="cuda")
    f(empty, lw.nd.empty((0,), device="cuda"))
    assert len(gpus.launches) == 3
    with pytest.raises(UsageError, match="have no address"):
        _ = f["f"].address


@pytest.mark.parametrize(
    ("arch", "refused"), [("sm_90", False), ("", False), ("sm_80", True), ("sm_100", True)]
)
def test_code_for_another_architecture(gpus: FakeDriver, arch: str, refused: bool) -> None:
    code = DeviceCode(b"cubin", TWO_KERNELS.launches, (64,), arch=arch)
    if not refused:
        module(code)(*arrays())
        return
    with pytest.raises(TargetError, match=rf"are for {arch}, and cuda\(0\) \(Fake H200\) is sm_90"):
        module(code)(*arrays())


def test_saved_and_loaded(gpus: FakeDriver, tmp_path: Path) -> None:
    path = module(TWO_KERNELS).save(tmp_path / "f.cuprog")
    a, b = arrays()
    lw.load_module(path)(a, b)
    np.testing.assert_array_equal(b.numpy(), 2 * np.arange(16) + 1)


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (LaunchSpec("f", ONE, ONE, (("parameter", 2),)), "an argument of f"),
        (LaunchSpec("f", ONE, ONE, (("buffer", 0),)), "an argument of f"),
        (LaunchSpec("f", (-1, 1, 1), ONE, ()), "f is -1"),
        (LaunchSpec("f", ("n", 1, 1), ONE, ()), "a number or a formula of sizes"),
        (LaunchSpec("f", ONE, ONE, (), ["pow", 2, 3]), "a number or a formula of sizes"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_anything_runs(
    gpus: FakeDriver, launch: LaunchSpec, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        module(DeviceCode(b"cubin", (launch,)))


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"format": 2}', b"\xff"])
def test_bytes_that_are_no_code(data: bytes) -> None:
    with pytest.raises(UsageError, match="the code for a device is damaged"):
        DeviceCode.from_bytes(data, 2)


def test_an_evaluator_times_the_device_that_it_was_told(gpus: FakeDriver) -> None:
    f = module(TWO_KERNELS)
    evaluate = f.time_evaluator("f", lw.cuda(1), number=1)
    with pytest.raises(ArgumentError, match=r"arrays lie on cuda\(0\), and cuda\(1\) is to be"):
        evaluate(*arrays())
    assert f.time_evaluator("f", lw.cuda(0), number=1)(*arrays()).results
    with pytest.raises(UsageError, match=r"the code is for cuda\(0\), not for cpu\(0\)"):
        f.time_evaluator("f", lw.cpu())
    with pytest.raises(UsageError, match=r"is for functions of the host, .*use cache_flush_bytes"):
        f.time_evaluator("f", f_preproc="cache_flush_cpu_non_first_arg")


def test_the_machine_code_of_a_kernel_is_saved_alone(gpus: FakeDriver, tmp_path: Path) -> None:
    f = module(TWO_KERNELS)
    assert f.save(tmp_path / "two.cubin", "cubin").read_bytes() == TWO_KERNELS.image
    with pytest.raises(UsageError, match=r"no format 'zip' .*; it has cuprog, cubin"):
        f.save(tmp_path / "two.zip", "zip")
    with pytest.raises(UsageError, match="is a folder; name the file"):
        lw.load_module(tmp_path)
