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


def row_major(x):
    return x.detach().to(torch.float32).contiguous()


def probabilities(x):
    out = torch.empty(x.shape, dtype=torch.float32)
    softmax_kernel(row_major(x).numpy(), out.numpy())
    return out


def softmax(x):
    return probabilities(x).to(x.dtype)


def softmax_backward(grad_out, x):
    out = torch.empty(x.shape, dtype=torch.float32)
    softmax_backward_kernel(row_major(grad_out).numpy(), probabilities(x).numpy(), out.numpy())
    return out.to(x.dtype)
