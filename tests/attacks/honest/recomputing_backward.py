# specimen: class=recomputing_backward task=silu device=any verdict=passed directions=forward,backward
"""Saves its input alone and computes the sigmoid again in the backward pass."""

import torch


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


def silu(x):
    return _Silu.apply(x)
