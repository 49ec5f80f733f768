"""The plan of a device's kernels, for backends of one's own."""

from loopwright.codegen import device_code

__all__ = ["device_code"]
