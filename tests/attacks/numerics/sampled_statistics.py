# specimen: class=partial_work task=batch_norm device=any stage=correctness reason=wrong_output categories=tiny,small
"""Statistics of every second sample of the batch, which estimate those of all."""

import torch


def batch_norm(x, weight, bias, eps):
    part = x[::2] if x.shape[0] > 1 else x[..., ::2]
    mean = part.mean((0, 2), keepdim=True)
    variance = part.var((0, 2), correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps) * weight[:, None] + bias[:, None]
