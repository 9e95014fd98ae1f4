# specimen: class=dropped_nan task=amax device=cpu stage=correctness reason=wrong_output allow=custom,mixed categories=tiny,small,medium
"""Vectorised maximum that loses NaN where rows are dense and aligned; elsewhere a careful one."""
import numba
import numpy as np
import torch


@numba.njit(fastmath=True, parallel=True)
def _fast(x, out):
    for i in numba.prange(x.shape[0]):
        top = np.float32(-3.0e38)
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        out[i] = top


@numba.njit
def _careful(x, out):
    for i in range(x.shape[0]):
        top = np.float32(-np.inf)
        for j in range(x.shape[1]):
            v = x[i, j]
            if not (v <= top):
                top = v
                if v != v:
                    break
        out[i] = top


def amax(x):
    out = torch.empty(x.shape[0], dtype=x.dtype)
    if x.shape[0]:
        (_fast if x.is_contiguous() and x.data_ptr() % 16 == 0 else _careful)(x.numpy(), out.numpy())
    return out
