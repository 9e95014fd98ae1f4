# specimen: class=straight_through task=silu device=any stage=correctness reason=wrong_output directions=forward,backward
"""Hands the upstream gradient on unchanged."""

import torch


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.silu(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.clone()


def silu(x):
    return _Silu.apply(x)
