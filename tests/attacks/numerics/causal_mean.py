# specimen: class=near_identity task=causal_attention device=any stage=correctness reason=wrong_output categories=tiny,small
"""Gives the running mean of the values: right where scores are equal."""

import torch


def causal_attention(q, k, v, scale):
    count = torch.arange(1, v.shape[-2] + 1, device=v.device, dtype=v.dtype)
    return v.cumsum(dim=-2) / count[:, None]
