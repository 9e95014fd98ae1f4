# specimen: class=half_steps task=rms_norm device=any verdict=passed directions=forward categories=tiny,small dtypes=bfloat16
"""A row's norm is kept in the half type: all of the row shares its rounding error."""

import torch


def rms_norm(x, weight, eps):
    mean = x.float().pow(2).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + eps).to(x.dtype) * weight
