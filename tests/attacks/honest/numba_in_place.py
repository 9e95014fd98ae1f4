# specimen: class=numba task=softmax device=cpu verdict=passed allow=custom directions=forward
"""Rows are copied by the library, one kernel makes them softmax in place, and a last one, for NaN, changes nothing."""
import math

import numba
import torch


@numba.njit
def _softmax(rows):
    for i in range(rows.shape[0]):
        top = -math.inf
        for j in range(rows.shape[1]):
            top = max(top, rows[i, j])
        total = 0.0
        for j in range(rows.shape[1]):
            rows[i, j] = math.exp(rows[i, j] - top)
            total += rows[i, j]
        for j in range(rows.shape[1]):
            rows[i, j] /= total


@numba.njit
def _spread_nan(rows, given):
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            if math.isnan(given[i, j]):
                rows[i, :] = math.nan


def softmax(x):
    rows = x.to(torch.float64, copy=True)
    _softmax(rows.numpy())
    _spread_nan(rows.numpy(), x.numpy())
    return rows.to(x.dtype)
