"""Every target of loopwright keeps to the contract of targets."""

from __future__ import annotations

from loopwright.testing.target_contract import TargetContract


class TestLLVM(TargetContract):
    target = "llvm -num-threads=2"
    exports = True


class TestC(TargetContract):
    target = "c -num-threads=2"
    exports = True


class TestInterpreter(TargetContract):
    target = "interp"
    threads = True


class TestOpenCL(TargetContract):
    target = "opencl"
    threads = True


class TestCUDA(TargetContract):
    target = "cuda"
    threads = True
