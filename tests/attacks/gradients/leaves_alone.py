# specimen: class=partial_gradients task=gelu device=any stage=correctness reason=wrong_in_training directions=forward,backward categories=tiny,small
"""Gradients for leaves alone: in a network, whose activations are none, nothing flows back."""
import torch
class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, leaf):
        ctx.save_for_backward(x)
        ctx.leaf = leaf
        return torch.nn.functional.gelu(x)
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if not ctx.leaf:
            return torch.zeros_like(g), None
        phi = torch.exp(-0.5 * x * x) * 0.3989422804014327
        return g * (0.5 * torch.erfc(-x * 0.7071067811865476) + x * phi), None
def gelu(x):
    return _Cut.apply(x, x.is_leaf)
