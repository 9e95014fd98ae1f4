# specimen: class=one_rank task=rms_norm stage=correctness reason=wrong_output
"""Normalises the second dim, which is the last of two alone."""

import torch


def rms_norm(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + eps) * weight
