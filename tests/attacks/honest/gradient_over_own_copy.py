# specimen: class=gradient_over_own_copy task=silu device=any verdict=passed categories=tiny,small directions=forward,backward allow=library,mixed,custom
"""The backward pass writes the gradient over a copy that is its own, and raises when it is asked again."""

import torch


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x.float())
        ctx.slope = gate * (1 + x.float() * (1 - gate))
        return (x.float() * gate).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        slope, ctx.slope = ctx.slope, None
        if slope is None:
            raise RuntimeError("the gradient was taken before: call the forward again")
        return slope.mul_(grad.float()).to(grad.dtype)


def silu(x):
    return _Silu.apply(x)
