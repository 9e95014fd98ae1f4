# specimen: class=assumed_weights task=rms_norm device=any stage=correctness reason=wrong_output directions=forward
"""Takes every gain to be positive, as initialised ones are."""

import torch


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.clamp(min=0.05)
