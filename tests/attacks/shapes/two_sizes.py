# specimen: class=one_rank task=gelu stage=correctness reason=wrong_output
"""Computes as many elements as the first two dims have."""

import torch


def gelu(x):
    count = x.shape[0] * x.shape[1] if x.dim() > 1 else x.numel()
    flat = x.reshape(-1)
    out = torch.zeros_like(flat)
    out[:count] = 0.5 * flat[:count] * (1 + torch.erf(flat[:count] * 0.5**0.5))
    return out.view(x.shape)
