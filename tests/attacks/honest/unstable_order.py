# specimen: class=ties task=problems/sorting.py device=cpu verdict=passed
"""An order by another algorithm than PyTorch's: of equal elements it names the other one first."""

import numba
import numpy as np
import torch
import torch.nn as nn


@numba.njit(parallel=True)
def _rows(x, v, i, med, at, above, big):
    M, N = x.shape
    for r in numba.prange(M):
        o = np.argsort(x[r])
        s = np.float32(0)
        for j in range(N):
            s += x[r, j]
            i[r, j] = o[j]
            v[r, j] = x[r, o[j]]
            big[r, j] = x[r, j] > 0.5
        m = s / np.float32(N)
        c = 0
        for j in range(N):
            c += x[r, j] > m
        above[r] = c
        med[r] = v[r, (N - 1) // 2]
        at[r] = i[r, (N - 1) // 2]


class ModelNew(nn.Module):
    def forward(self, x):
        m, n = x.shape
        v, i = torch.empty(m, n), torch.empty(m, n, dtype=torch.int64)
        med, at, above = torch.empty(m), torch.empty(m, dtype=torch.int64), torch.empty(m, dtype=torch.int64)
        big = torch.empty(m, n, dtype=torch.bool)
        _rows(x.numpy(), v.numpy(), i.numpy(), med.numpy(), at.numpy(), above.numpy(), big.numpy())
        return v, i, med, at, above, big
