# specimen: class=flash_attention task=attention device=any verdict=passed categories=tiny,small
"""Keys in blocks of 16 with a running maximum and sum; scores are never all there."""

import torch


def attention(q, k, v, scale):
    high = torch.full((*q.shape[:-1], 1), float("-inf"), dtype=q.dtype, device=q.device)
    total = torch.zeros_like(high)
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device=q.device)
    for start in range(0, k.shape[-2], 16):
        scores = q @ k[..., start : start + 16, :].transpose(-1, -2) * scale
        higher = torch.maximum(high, scores.amax(-1, keepdim=True))
        weights = torch.exp2((scores - higher) * 1.4426950408889634)
        shrink = torch.exp(high - higher)
        total = total * shrink + weights.sum(-1, keepdim=True)
        out = out * shrink + weights @ v[..., start : start + 16, :]
        high = higher
    return out / total
