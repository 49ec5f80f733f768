"""A stand-in for PyTorch on NumPy: what the benchmark of GPUs calls, computed in the plainest way.

The name of its device tells whether TF32 is allowed.
"""

import time
from types import SimpleNamespace

import numpy as np

float32, int8 = np.float32, np.int8
backends = SimpleNamespace(
    cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=None)),
    cudnn=SimpleNamespace(allow_tf32=None, benchmark=False),
)


class Tensor:
    """An array with the methods of a tensor that are called."""

    def __init__(self, data):
        self.data = np.asarray(data)
        self.shape = self.data.shape

    def cuda(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.data

    def zero_(self):
        self.data[...] = 0


class Event:
    """A point in time."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        assert self.at

    def elapsed_time(self, then):
        return (then.at - self.at) * 1e3


def from_numpy(a):
    return Tensor(a)


def empty(size, dtype, device):
    return Tensor(np.empty(min(size, 1 << 20), dtype))


def set_grad_enabled(enabled):
    assert not enabled


def matmul(a, b):
    return Tensor((a.data.astype(np.float32) @ b.data.astype(np.float32)).astype(a.data.dtype))


def mm(a, b, out_dtype):
    raise TypeError("this one is too old to know out_dtype")


def _conv2d(x, weight, bias, stride, padding):
    assert (bias, stride) == (None, 1)
    p, (_, _, kh, kw) = padding, weight.shape
    wide = np.pad(x.data, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (kh, kw), axis=(2, 3))
    return Tensor(np.einsum("nchwkl,ockl->nohw", windows, weight.data))


def _softmax(x, axis):
    e = np.exp(x.data - x.data.max(axis, keepdims=True))
    return Tensor(e / e.sum(axis, keepdims=True))


def _layer_norm(x, shape, gamma, beta):
    assert tuple(shape) == x.shape[1:]
    d = x.data - x.data.mean(1, keepdims=True)
    scale = np.sqrt((d * d).mean(1, keepdims=True) + np.float32(1e-5))
    return Tensor(d / scale * gamma.data + beta.data)


nn = SimpleNamespace(
    functional=SimpleNamespace(conv2d=_conv2d, softmax=_softmax, layer_norm=_layer_norm)
)


def _name():
    return f"tf32 {backends.cuda.matmul.allow_tf32}, {backends.cudnn.allow_tf32}"


cuda = SimpleNamespace(Event=Event, synchronize=lambda: None, get_device_name=_name)
