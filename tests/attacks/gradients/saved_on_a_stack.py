# specimen: class=stale_saved_tensors task=silu device=cpu stage=correctness reason=wrong_in_training directions=backward
"""What the backward needs lies in one list for all calls, taken by pop()."""

import torch

_SAVED = []


class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        _SAVED.append(x.detach().clone())
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x = _SAVED.pop()
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))


def silu(x):
    return F.apply(x)
