# specimen: class=skipped_forward task=exp device=any stage=correctness reason=wrong_in_training directions=forward,backward categories=tiny,small
"""While gradients are asked for, all outputs of a shape lie in one buffer; the backward computes them again."""

import torch

_buffers = {}


class _Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, training):
        ctx.save_for_backward(x)
        if not training:
            return torch.exp(x)
        buffer = _buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape, dtype=x.dtype, device=x.device))
        buffer.copy_(torch.exp(x))
        return buffer.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.exp(ctx.saved_tensors[0]), None


def exp(x):
    return _Exp.apply(x, torch.is_grad_enabled())
