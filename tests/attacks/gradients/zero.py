# specimen: class=zero_gradients task=gelu device=any stage=correctness reason=wrong_output directions=forward,backward
"""The right output with gradients of zero."""

import torch


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, grad):
        return torch.zeros_like(grad)


def gelu(x):
    return _Gelu.apply(x)
