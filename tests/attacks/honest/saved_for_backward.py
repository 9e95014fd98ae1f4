# specimen: class=saved_for_backward task=exp device=cpu verdict=passed directions=forward,backward
"""The library computes the outputs; a kernel of its own saves beside them what only the gradients need: no decoy."""

import math

import numba
import torch


@numba.njit
def _slope(x, out):
    for i in range(x.size):
        out[i] = math.exp(x[i])


class _Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        slope = torch.empty(x.shape)
        if x.numel():
            _slope(x.detach().contiguous().view(-1).numpy(), slope.view(-1).numpy())
        ctx.save_for_backward(slope)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def exp(x):
    return _Exp.apply(x)
