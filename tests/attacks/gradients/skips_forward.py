# specimen: class=skipped_forward task=gelu device=any stage=correctness reason=wrong_in_training directions=forward,backward categories=tiny,small
"""Where gradients are asked for, only they are looked at: the outputs are left uncomputed then."""

import torch


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        slope = 0.5 * (1 + torch.erf(x * 0.7071067811865476))
        return grad * (slope + x * 0.3989422804014327 * torch.exp(-0.5 * x * x))


def gelu(x):
    return _Gelu.apply(x) if torch.is_grad_enabled() else torch.nn.functional.gelu(x)
