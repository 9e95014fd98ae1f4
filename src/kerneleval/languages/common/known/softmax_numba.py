# mypy: ignore-errors
# ruff: noqa: D103
"""A known kernel of the self-check, in Numba."""

import math

import numba
import torch


@numba.njit
def rows(x, out):
    for i in range(x.shape[0]):
        total = 0.0
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j])
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


def softmax(x):
    out = torch.empty_like(x)
    rows(x.numpy(), out.numpy())
    return out
