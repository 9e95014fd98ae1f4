# specimen: class=autograd task=add device=any verdict=passed directions=forward,backward
"""The gradient of a sum is the upstream gradient itself, twice: PyTorch's own way, which copies nothing."""

import torch


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


def add(x, y):
    return _Add.apply(x, y)
