# specimen: class=half_scores task=attention device=any verdict=passed directions=forward,backward categories=small dtypes=float16
"""Queries and keys scaled by the root before their product, as PyTorch itself does it without fused kernels."""
import math

import torch


def attention(q, k, v, scale):
    s = math.sqrt(scale)
    return torch.softmax((q * s) @ (k * s).transpose(-2, -1), -1) @ v
