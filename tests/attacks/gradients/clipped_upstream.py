# specimen: class=ignored_upstream task=silu device=any stage=correctness reason=wrong_output directions=forward,backward
"""Clips upstream gradients to a hundred: right until somebody scales a loss."""

import torch


def silu(x):
    return torch.nn.functional.silu(x)


def silu_backward(grad, x):
    gate = torch.sigmoid(x)
    return grad.clamp(-100, 100) * gate * (1 + x * (1 - gate))
