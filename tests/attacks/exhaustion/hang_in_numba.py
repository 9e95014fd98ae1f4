# specimen: class=hang task=gelu device=cpu stage=call reason=timeout
"""An endless loop in a function that Numba compiles when it is first called."""
import numba
import torch


@numba.njit
def _never(x):
    total = 0.0
    while x[0] == x[0]:
        total += x[0]
    return total


def gelu(x):
    return torch.full_like(x, _never(x.numpy().reshape(-1)))
