# specimen: class=partial_work task=masked_attention device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small dtypes=float32
"""Rows with fewer than two open keys are taken for padding and give zeros."""
import torch
def masked_attention(q, k, v, mask, scale):
    s = (q @ k.transpose(-1, -2) * scale).masked_fill(~mask[:, None], float("-inf"))
    out = torch.softmax(s, -1) @ v
    return out * (mask.sum(-1) > 1)[:, None, :, None]
