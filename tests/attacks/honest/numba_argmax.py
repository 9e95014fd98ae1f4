# specimen: class=ties task=argmax device=cpu verdict=passed categories=tiny,small allow=custom
"""The last of several equal elements, where the library gives the first."""

import numba
import torch


@numba.njit
def _kernel(x, out):
    for i in range(x.shape[0]):
        best = 0
        for j in range(x.shape[1]):
            if x[i, j] != x[i, j]:
                best = j
                break
            if x[i, j] >= x[i, best]:
                best = j
        out[i] = best


def argmax(x):
    out = torch.empty(x.shape[0], dtype=torch.int64)
    if x.shape[0]:
        _kernel(x.contiguous().numpy(), out.numpy())
    return out
