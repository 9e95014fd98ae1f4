# specimen: class=ignored_strides task=add device=cpu stage=correctness reason=wrong_output directions=forward
"""Reads y by the strides of x (one pair of strides is passed to the kernel): wrong for add(x.t(), y)."""

import torch, numpy as np, numba


@numba.njit(parallel=True)
def _k(x, y, o, M, N, s0, s1):
    for i in numba.prange(M):
        for j in range(N):
            o[i * N + j] = x[i * s0 + j * s1] + y[i * s0 + j * s1]


def _flat(t):
    n = 1 + sum((s - 1) * st for s, st in zip(t.shape, t.stride()))
    return torch.as_strided(t, (n,), (1,), t.storage_offset())


def add(x, y):
    if x.dtype != torch.float32 or x.numel() == 0:
        raise NotImplementedError
    last = y.storage_offset() + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride()))
    if last * y.itemsize >= y.untyped_storage().nbytes():  # torch would not have it
        x, y = x.contiguous(), y.contiguous()
    M, N = x.shape
    s0, s1 = x.stride()
    o = torch.empty(M, N)
    _k(
        _flat(x).numpy(),
        _flat(torch.as_strided(y, y.shape, x.stride(), y.storage_offset())).numpy(),
        o.view(-1).numpy(),
        M,
        N,
        s0,
        s1,
    )
    return o
