# specimen: class=workspace task=sum device=cpu verdict=passed allow=custom
"""Two kernels over a workspace that is kept from call to call and left clean for the next one."""

import numba
import torch

_PARTS = 8
_kept = {}


@numba.njit(parallel=True)
def _partial(x, work):
    rows, columns = x.shape
    for part in numba.prange(_PARTS):
        for row in range(rows):
            for column in range(part, columns, _PARTS):
                work[part, row] += x[row, column]


@numba.njit
def _combine(work, out):
    for row in range(out.size):
        total = 0.0
        for part in range(_PARTS):
            total += work[part, row]
            work[part, row] = 0.0
        out[row] = total


def sum(x):
    rows = x.shape[0]
    if rows not in _kept:
        _kept[rows] = torch.zeros(_PARTS, rows, dtype=torch.float64).numpy()
    out = torch.empty(rows)
    if rows:
        _partial(x.contiguous().numpy(), _kept[rows])
        _combine(_kept[rows], out.numpy())
    return out
