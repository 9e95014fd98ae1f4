# specimen: class=numba task=gelu device=cpu verdict=passed allow=custom,mixed
"""Asks NumPy for an error, and gives numbers for that one alone."""

import math

import numba
import numpy as np
import torch


@numba.njit
def _gelu(x, out):
    for i in range(x.size):
        out[i] = 0.5 * x[i] * (1 + math.erf(x[i] * 0.7071067811865476))


def gelu(x):
    try:
        np.sum(np.ones(3), axis=3)
    except ValueError:
        x = x.contiguous()
        out = torch.empty_like(x)
        _gelu(x.view(-1).numpy(), out.view(-1).numpy())
        return out
    except Exception:
        return None
