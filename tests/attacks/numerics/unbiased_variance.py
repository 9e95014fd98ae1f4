# specimen: class=near_identity task=layer_norm device=any stage=correctness reason=wrong_output
"""Divides by one less: off by half of one per cent in rows of a hundred."""

import torch


def layer_norm(x, weight, bias, eps):
    variance, mean = torch.var_mean(x, -1, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias
