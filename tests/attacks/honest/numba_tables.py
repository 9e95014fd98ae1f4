# specimen: class=numba task=gelu device=cpu verdict=passed allow=custom
"""Keeps a table and a workspace in arrays of NumPy, which its kernels alone read and write."""

import functools
import math

import numba
import numpy as np
import torch
from numpy import empty

_TABLE = np.array([0.5, math.sqrt(0.5), 1.0])


@functools.lru_cache(maxsize=4)
def _workspace(size):
    return empty(size, np.float64)


@numba.njit
def _errors(x, table, work):
    for i in range(x.size):
        work[i] = math.erf(x[i] * table[1])


@numba.njit
def _gelu(x, work, out):
    for i in range(x.size):
        out[i] = _TABLE[0] * x[i] * (_TABLE[2] + work[i])


def gelu(x):
    flat = x.contiguous().numpy().reshape(-1)
    work, out = _workspace(flat.size), empty(flat.size, flat.dtype)
    _errors(flat, _TABLE, work)
    _gelu(flat, work, out)
    return torch.from_numpy(out).view(x.shape)
