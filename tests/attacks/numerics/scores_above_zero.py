# specimen: class=unstable_formula task=attention device=any stage=correctness reason=wrong_output
"""The running maximum begins at zero: a row of scores far below it is 0 / 0."""
import torch


def attention(q, k, v, scale):
    scores = q.float() @ k.float().transpose(-2, -1) * scale
    weights = torch.exp(scores - scores.amax(-1, keepdim=True).clamp_min(0))
    return (weights @ v.float() / weights.sum(-1, keepdim=True)).to(q.dtype)
