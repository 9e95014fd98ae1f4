# specimen: class=skipped_forward task=gelu device=any stage=correctness reason=wrong_in_training directions=forward,backward
"""Where rows lie apart and a gradient is asked for, the outputs come out in another order; the gradients are right."""
import torch
import torch.nn.functional as F


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = F.gelu(x)
        return out if x.is_contiguous() else out.contiguous().flip(0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(grad.contiguous(), x.contiguous())


def gelu(x):
    return Gelu.apply(x) if x.requires_grad else F.gelu(x)
