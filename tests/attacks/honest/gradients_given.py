# specimen: class=gradient_is_upstream task=add device=cpu verdict=passed directions=backward categories=tiny,small allow=custom,mixed
"""Numba forward in an autograd.Function; both gradients are the upstream one."""

import numba
import torch


@numba.njit
def _add(x, y, o):
    for i in range(x.size):
        o[i] = x[i] + y[i]


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        o = torch.empty(x.shape)
        flat = [t.detach().contiguous().view(-1).numpy() for t in (x, y)]  # of one layout: it is compiled once
        _add(*flat, o.view(-1).numpy())
        return o

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


def add(x, y):
    return Add.apply(x, y)
