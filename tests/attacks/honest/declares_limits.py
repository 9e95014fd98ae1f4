# specimen: class=declared_limits task=gelu device=any verdict=passed
"""Says what it does not support instead of being wrong there."""

import torch


def gelu(x):
    if x.numel() == 0 or not x.is_contiguous():
        raise NotImplementedError("contiguous, not empty")
    return torch.nn.functional.gelu(x)
