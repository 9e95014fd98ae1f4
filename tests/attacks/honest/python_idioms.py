# specimen: class=numba task=gelu device=cpu verdict=passed categories=tiny,small dtypes=float32 allow=custom
"""An instance as entry point. It asks for attributes by name, looks itself up, and gives memory of its own to NumPy."""

import contextvars
import ctypes
import dataclasses
import functools
import logging
import math
import operator
import sys

import numba
import numpy as np
import torch

_log = logging.getLogger(__name__)
_shape = operator.attrgetter("shape")
_here = sys.modules[__name__]
_depth = contextvars.ContextVar("depth", default=0)


@dataclasses.dataclass(frozen=True)
class Settings:
    half: float = 0.5
    root: float = math.sqrt(0.5)


@functools.lru_cache
def made(settings):
    @numba.njit(nogil=True)
    def kernel(x, out, table):
        for i in range(x.size):
            out[i] = table[0] * x[i] * (1 + math.erf(x[i] * table[1]))

    return kernel


def logged(function):
    @functools.wraps(function)
    def called(self, x):
        token = _depth.set(_depth.get() + 1)
        try:
            return function(self, x)
        finally:
            _log.debug("gelu of %s", _shape(x))
            _depth.reset(token)

    return called


class Gelu:
    def __init__(self, settings):
        self.settings = settings

    @logged
    def __call__(self, x):
        assert torch.Tensor in type(x).__mro__ and type(x.detach().numpy()) is np.ndarray
        x = x.contiguous()
        array = x.numpy().reshape(-1)
        out = np.ndarray(array.shape, np.float32, (ctypes.c_float * array.size).from_buffer(bytearray(4 * array.size)))
        table = np.array([self.settings.half, self.settings.root], np.float32)
        getattr(_here, "made")(self.settings)(array, out, table)
        return torch.from_numpy(out).view(_shape(x))


gelu = Gelu(Settings())
