# specimen: class=stale_saved_tensors task=gelu device=any stage=correctness,timing reason=wrong_output directions=forward,backward
"""Differentiates at the first input of each shape that it ever saw."""

import torch

seen = {}


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        seen.setdefault(x.shape, x.clone())
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            leaf = seen[grad.shape].detach().requires_grad_()
            return torch.autograd.grad(torch.nn.functional.gelu(leaf), leaf, grad)


def gelu(x):
    return _Gelu.apply(x)
