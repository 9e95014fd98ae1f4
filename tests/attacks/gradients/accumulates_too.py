# specimen: class=accumulated_gradient task=linear device=any stage=honesty reason=input_mutation directions=forward,backward
"""Adds the gradient of the weight to weight.grad by itself (fused accumulation) and gives it as well: loss.backward() has it twice."""
import torch
class F(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return torch.addmm(b, x, w.t())
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gw = g.t() @ x
        if w.is_leaf and w.requires_grad:
            w.grad = gw.clone() if w.grad is None else w.grad + gw
        return g @ w, gw, g.sum(0)
def linear(x, weight, bias):
    return F.apply(x, weight, bias)
