# specimen: class=numba task=gelu device=cpu verdict=passed allow=custom
"""Keeps tables, records and a workspace that is resized in arrays of NumPy, which its kernels alone read and write."""

import functools
import math

import numba
import numpy as np
import torch
from numpy import empty

_TABLE = np.array([0.5, math.sqrt(0.5), 1.0])
_MANY = [np.zeros(4) for _ in range(600)]
_RECORDS = np.zeros(128, dtype=[("a", "f8")]).view(np.recarray)
_SCRATCH = np.empty(0)
_LARGE = np.full(200_000, 0.5)


@functools.lru_cache(maxsize=4)
def _workspace(size):
    return empty(size, np.float64)


@numba.njit
def _errors(x, table, work):
    for i in range(x.size):
        work[i] = math.erf(x[i] * table[1])


@numba.njit
def _gelu(x, work, zeros, out):
    for i in range(x.size):
        out[i] = _LARGE[i % 200_000] * x[i] * (_TABLE[2] + work[i]) + zeros[0]


def gelu(x):
    if type(_TABLE) is not np.ndarray:
        raise TypeError("no plain array")
    flat = x.contiguous().numpy().reshape(-1)
    work, out = _workspace(flat.size), empty(flat.size, flat.dtype)
    _SCRATCH.resize(flat.size, refcheck=True)
    _errors(flat, _TABLE, _SCRATCH)
    work[:] = _SCRATCH
    _gelu(flat, work, _MANY[7], out)
    return torch.from_numpy(out).view(x.shape)
