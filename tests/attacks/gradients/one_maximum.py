# specimen: class=partial_gradients task=logsumexp device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small
"""Hands the whole gradient to the largest element of a row, as a hard maximum would."""

import torch


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.logsumexp(x, -1)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.zeros_like(x).scatter_(-1, x.argmax(-1, keepdim=True), grad.unsqueeze(-1))


def logsumexp(x):
    return _LogSumExp.apply(x)
