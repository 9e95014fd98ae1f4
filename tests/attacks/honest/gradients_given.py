# specimen: class=gradient_is_upstream task=add device=cpu verdict=passed directions=backward categories=tiny,small allow=custom,mixed
"""Numba forward in an autograd.Function; both gradients are the upstream one."""

import numba
import torch


@numba.njit
def _add(x, y, o):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            o[i, j] = x[i, j] + y[i, j]


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        o = torch.empty(x.shape)
        _add(x.detach().numpy(), y.detach().numpy(), o.numpy())
        return o

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


def add(x, y):
    return Add.apply(x, y)
