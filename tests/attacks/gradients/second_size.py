# specimen: class=one_rank task=mean stage=correctness reason=wrong_output directions=forward,backward
"""Its gradient divides by the second size, which is the last of two alone."""

import torch


class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum(-1) / x.shape[-1]

    @staticmethod
    def backward(ctx, grad):
        return (grad / ctx.shape[min(1, len(ctx.shape) - 1)])[..., None].expand(ctx.shape).contiguous()


def mean(x):
    return Mean.apply(x)
