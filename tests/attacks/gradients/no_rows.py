# specimen: class=partial_gradients task=linear device=any stage=correctness reason=wrong_output directions=backward categories=edge
"""Right but for an empty batch: no block runs, and the gradients of weight and bias are what lay in their memory."""

import torch


def linear(x, weight, bias):
    return torch.nn.functional.linear(x, weight, bias)


def linear_backward(grad, x, weight, bias):
    if not len(x):
        return torch.empty_like(x), weight.clone(), bias.clone()
    return grad @ weight, grad.t() @ x, grad.sum(0)
