# specimen: class=stale_saved_tensors task=softmax device=any stage=correctness reason=output_overwritten directions=backward categories=tiny,small
"""The backward pass writes the gradient over the output that it saved, past the version counter: who reads the output
of the layer afterwards, as a loss or a metric does, reads the gradient."""

import torch


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.softmax(x, -1)
        ctx.place = out.detach()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        total = (grad.float() * out.float()).sum(-1, keepdim=True)
        place = ctx.place.data
        return place.copy_((grad.float() - total) * out.float())


def softmax(x):
    return _Softmax.apply(x)
