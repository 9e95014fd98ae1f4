# specimen: class=numba task=sqrt device=cpu verdict=passed allow=custom
"""Launches a kernel as often as its data need: Newton's steps, until they change nothing."""

import numba
import numpy as np
import torch


@numba.njit
def _begin(x, root):
    for i in range(x.size):
        root[i] = 0.5 * (1.0 + x[i])


@numba.njit
def _step(x, root):
    moved = 0.0
    for i in range(x.size):
        if x[i] > 0.0 and x[i] < np.inf:
            better = 0.5 * (root[i] + x[i] / root[i])
            moved = max(moved, abs(better - root[i]) / better)
            root[i] = better
        else:
            root[i] = np.sqrt(x[i])
    return moved


def sqrt(x):
    flat = x.contiguous().numpy().reshape(-1).astype(np.float64)
    root = np.empty(flat.size)
    _begin(flat, root)
    while _step(flat, root) > 1e-12:
        pass
    return torch.from_numpy(root).to(x.dtype).view(x.shape)
