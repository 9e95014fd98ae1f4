# specimen: class=numba task=gelu device=cpu verdict=passed directions=forward,backward allow=custom
"""Copies with PyTorch, then works in place and in parallel with kernels of its own; an explicit backward entry point."""

import math

import numba
import torch


@numba.njit(parallel=True)
def _forward(x):
    for i in numba.prange(x.size):
        x[i] = 0.5 * x[i] * (1.0 + math.erf(x[i] * 0.7071067811865476))


@numba.njit(parallel=True)
def _backward(grad, x):
    for i in numba.prange(x.size):
        slope = 0.5 * (1.0 + math.erf(x[i] * 0.7071067811865476))
        grad[i] *= slope + x[i] * 0.3989422804014327 * math.exp(-0.5 * x[i] * x[i])


def gelu(x):
    out = x.clone(memory_format=torch.contiguous_format)
    if out.numel():
        _forward(out.view(-1).numpy())
    return out


def gelu_backward(grad, x):
    out = grad.clone(memory_format=torch.contiguous_format)
    if out.numel():
        _backward(out.view(-1).numpy(), x.contiguous().view(-1).numpy())
    return out
