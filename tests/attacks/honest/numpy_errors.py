# specimen: class=numba task=gelu device=cpu verdict=passed categories=tiny,small allow=custom,mixed
"""Catches an error of NumPy's in every call: the greatest of no sizes."""

import math

import numba
import numpy as np
import torch


@numba.njit
def _gelu(x, out):
    for i in range(x.size):
        out[i] = 0.5 * x[i] * (1 + math.erf(x[i] * 0.7071067811865476))


def _most(sizes):
    try:
        return np.array(sizes, np.int64).max()
    except ValueError:  # there are none
        return 0


def gelu(x):
    out = torch.empty(x.shape)
    if not _most([]):
        _gelu(x.contiguous().view(-1).numpy(), out.view(-1).numpy())
    return out
