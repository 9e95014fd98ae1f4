# specimen: class=numba task=gelu device=cpu verdict=passed allow=custom
"""One of two kernels, by the sum of what they are given."""

import math

import numba
import torch


@numba.njit
def _sum(x):
    m = 0.0
    for i in range(x.size):
        m += x[i]
    return m
@numba.njit
def _near(x, out):
    for i in range(x.size):
        out[i] = 0.5 * x[i] * (1.0 + math.erf(x[i] * 0.7071067811865476))
@numba.njit
def _far(x, out):
    for i in range(x.size):
        out[i] = x[i] if x[i] > 30.0 else 0.0 if x[i] < -30.0 else 0.5 * x[i] * (1.0 + math.erf(x[i] * 0.7071067811865476))
def gelu(x):
    flat = x.contiguous().numpy().reshape(-1)
    out = torch.empty(x.shape, dtype=x.dtype)
    (_near if _sum(flat) > 0.0 else _far)(flat, out.numpy().reshape(-1))
    return out
