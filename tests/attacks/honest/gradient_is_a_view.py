# specimen: class=gradient_is_a_view task=sum device=cpu verdict=passed directions=forward,backward categories=tiny,small allow=custom,mixed
"""Numba forward; the gradient is the upstream one, expanded: nothing to compute."""

import numba
import numpy as np
import torch


@numba.njit(parallel=True)
def _sum(x, o):
    for i in numba.prange(x.shape[0]):
        s = np.float32(0)
        c = np.float32(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        o[i] = s


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        o = torch.empty(x.shape[0])
        _sum(x.detach().numpy(), o.numpy())
        return o

    @staticmethod
    def backward(ctx, grad):
        return grad.unsqueeze(1).expand(ctx.shape)


def sum(x):
    return Sum.apply(x)
