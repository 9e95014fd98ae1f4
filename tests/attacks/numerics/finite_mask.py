# specimen: class=unstable_formula task=causal_attention device=any stage=correctness reason=wrong_output
"""Hidden scores are -100, which is not far below where all the others lie there."""
import torch


def causal_attention(q, k, v, scale):
    size = q.shape[2]
    hidden = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    scores = (q.float() @ k.float().transpose(-2, -1) * scale).masked_fill(hidden, -100.0)
    return (torch.softmax(scores, -1) @ v.float()).to(q.dtype)
