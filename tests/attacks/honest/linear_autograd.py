# specimen: class=custom_autograd task=linear device=any verdict=passed directions=forward,backward categories=tiny,small
"""An autograd function with several saved tensors that computes only the gradients that are asked for."""

import torch


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return torch.addmm(bias, x, weight.t())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        by_x = grad @ weight if ctx.needs_input_grad[0] else None
        by_weight = grad.t() @ x if ctx.needs_input_grad[1] else None
        return by_x, by_weight, grad.sum(0) if ctx.needs_input_grad[2] else None


def linear(x, weight, bias=None):
    return _Linear.apply(x, weight, bias)
