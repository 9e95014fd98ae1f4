# specimen: class=ignored_upstream task=gelu device=any stage=correctness reason=wrong_output directions=forward,backward
"""Takes the upstream gradient to be all ones, as the sum of the output gives it."""

import torch


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return torch.autograd.grad(torch.nn.functional.gelu(leaf).sum(), leaf)


def gelu(x):
    return _Gelu.apply(x)
