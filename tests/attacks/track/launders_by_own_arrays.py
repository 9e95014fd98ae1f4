# specimen: class=laundered_numpy task=linear device=cpu allow=custom stage=honesty reason=track_not_allowed
"""NumPy multiplies, on arrays that kernels of its own gave back or filled; another one adds the bias."""
import numba
import numpy as np
import torch


@numba.njit
def _copied(x):
    return x.copy()


@numba.njit
def _copy(x, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j]


@numba.njit
def _add(out, bias):
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            out[m, n] += bias[n]


def linear(x, weight, bias):
    right = np.empty(weight.shape, np.float32)
    _copy(weight.numpy(), right)
    made = np.matmul(_copied(x.numpy()), right.T)
    _add(made, bias.numpy())
    return torch.from_numpy(made)
