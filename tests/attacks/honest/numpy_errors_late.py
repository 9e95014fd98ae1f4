# specimen: class=numba task=gelu device=cpu verdict=passed categories=small dtypes=float32 timed=yes allow=custom,mixed
"""Catches errors of two functions of NumPy's, for the first time after forty calls: that it was timed by then."""

import math

import numba
import numpy as np
import torch


@numba.njit
def _gelu(x, out):
    for i in range(x.size):
        out[i] = 0.5 * x[i] * (1 + math.erf(x[i] * 0.7071067811865476))


_calls = []


def _checked():
    _calls.append(1)
    if len(_calls) > 40:
        for function in (lambda: np.add.reduce([1], axis=3), lambda: np.bincount([-1])):
            try:
                function()
            except ValueError:
                pass


def gelu(x):
    out = torch.empty(x.shape)
    _checked()
    _gelu(x.contiguous().view(-1).numpy(), out.view(-1).numpy())
    return out
