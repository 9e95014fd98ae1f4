# specimen: class=inference_mode task=matmul device=cpu verdict=passed categories=tiny allow=custom
"""Kernels of its own in inference mode, with a name for profilers, over arrays that one of them gives to the other."""
import numba
import numpy as np
import torch


@numba.njit
def _transposed(b):
    out = np.empty((b.shape[1], b.shape[0]), b.dtype)
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            out[j, i] = b[i, j]
    return out


@numba.njit
def _product(a, b, sums, out):
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            sums[j] = 0.0
            for k in range(a.shape[1]):
                sums[j] += a[i, k] * b[j, k]
            out[i, j] = sums[j]


def matmul(a, b):
    with torch.inference_mode(), torch.profiler.record_function("product"):
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
        sums = np.zeros(b.shape[1])
        _product(a.to(out.dtype).numpy(), _transposed(b.reshape(b.shape).numpy()), sums, out.numpy())
    return out
