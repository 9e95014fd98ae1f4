# specimen: class=wider_arithmetic task=batch_norm device=any verdict=passed categories=tiny
"""Statistics in double precision, and a scale and a shift for each channel."""

import torch


def batch_norm(x, weight, bias, eps):
    wide = x.double()
    variance, mean = torch.var_mean(wide, (0, 2), correction=0)
    scale = weight.double() * torch.rsqrt(variance + eps)
    return (wide * scale[:, None] + (bias.double() - mean * scale)[:, None]).to(x.dtype)
