# specimen: class=partial_work task=masked_attention device=any stage=correctness reason=wrong_output categories=tiny,small
"""Skips a block of 32 keys for all queries of a tile where the tile's first query sees none of them."""

import torch


def masked_attention(q, k, v, mask, scale):
    L, S = mask.shape[1:]
    keep = mask.clone()
    for i in range(0, L, 32):
        for j in range(0, S, 32):
            if S - j >= 32:
                seen = mask[:, i, j : j + 32].any(-1)
                keep[:, i : i + 32, j : j + 32] &= seen[:, None, None]
    s = (q @ k.transpose(-2, -1)) * scale
    return torch.softmax(s.masked_fill(~keep[:, None], float("-inf")), -1) @ v
