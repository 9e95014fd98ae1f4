# specimen: class=detached_gradients task=layer_norm device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small
"""The right output; mean and variance are taken for constants in the backward pass."""

import torch


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x.detach(), -1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias
