# specimen: class=stale_saved_tensors task=silu device=any stage=correctness reason=wrong_in_training directions=backward categories=tiny,small
"""The backward pass writes the gradient over the slope that it saved: right once, wrong with ``retain_graph=True``."""

import torch


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x.float())
        ctx.slope = gate * (1 + x.float() * (1 - gate))
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.slope.mul_(grad.float()).to(grad.dtype)


def silu(x):
    return _Silu.apply(x)
