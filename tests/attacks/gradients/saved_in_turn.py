# specimen: class=stale_saved_tensors task=silu device=any stage=correctness reason=wrong_in_training directions=forward,backward categories=tiny,small
"""What the backward needs lies in four places in turn: right for four layers."""

import torch

_places, _calls = [None] * 4, [0]


class _Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.place = _calls[0] % len(_places)
        _calls[0] += 1
        _places[ctx.place] = x.clone()
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        x = _places[ctx.place].to(grad.dtype)
        gate = torch.sigmoid(x)
        return grad * gate * (1 + x * (1 - gate))


def silu(x):
    return _Silu.apply(x)
