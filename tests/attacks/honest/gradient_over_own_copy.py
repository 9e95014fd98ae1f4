# specimen: class=gradient_over_own_copy task=softmax device=any verdict=passed directions=backward categories=tiny,small allow=library,mixed,custom
"""The backward pass writes the gradient over a copy that is its own, and raises when it is asked again."""

import torch


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.softmax(x, -1)
        ctx.copy = out.float().clone()
        return out

    @staticmethod
    def backward(ctx, grad):
        copy, ctx.copy = ctx.copy, None
        if copy is None:
            raise RuntimeError("the gradient was taken before: call the forward again")
        total = (grad.float() * copy).sum(-1, keepdim=True)
        return copy.mul_(grad.float() - total).to(grad.dtype)


def softmax(x):
    return _Softmax.apply(x)
