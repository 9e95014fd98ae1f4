# A worked example of prompts; the lines above the first empty one are not shown.
# mypy: ignore-errors
# ruff: noqa: D100, D103

import math

import numba
import torch


@numba.njit(parallel=True)
def softmax_kernel(x, out):
    for i in numba.prange(x.shape[0]):
        largest = -math.inf
        for j in range(x.shape[1]):
            largest = max(largest, x[i, j])
        total = 0.0
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - largest)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


@numba.njit(parallel=True)
def softmax_backward_kernel(grad, y, out):
    for i in numba.prange(y.shape[0]):
        total = 0.0
        for j in range(y.shape[1]):
            total += grad[i, j] * y[i, j]
        for j in range(y.shape[1]):
            out[i, j] = y[i, j] * (grad[i, j] - total)


def rows_of(x):  # all dims but the last are rows
    return x.detach().to(torch.float32).contiguous().view(x.shape[:-1].numel(), x.shape[-1])


def probabilities(x):
    rows = rows_of(x)
    out = torch.empty_like(rows)
    softmax_kernel(rows.numpy(), out.numpy())
    return out


def softmax(x):
    return probabilities(x).to(x.dtype).view(x.shape)


def softmax_backward(grad_out, x):
    y = probabilities(x)
    out = torch.empty_like(y)
    softmax_backward_kernel(rows_of(grad_out).numpy(), y.numpy(), out.numpy())
    return out.to(x.dtype).view(x.shape)
